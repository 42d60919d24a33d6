/* A team of threads that runs work in stages: the calling thread and helpers that wait between calls. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#define MAX_THREADS 64     /* maximum threads, the caller's included */
#define WRITE_SPACING 128  /* bytes between values that different threads write; CPUs fetch cache lines in pairs */

typedef struct Worker Worker;
typedef struct {  /* per thread: pieces taken from its share in the current and the next stage; ended stages */
    _Alignas(WRITE_SPACING) atomic_long taken[2];
    _Alignas(WRITE_SPACING) atomic_long ended;
} Member;
typedef struct {
    void (*work)(Worker *);  /* every thread runs this; within a stage they divide the pieces */
    const void *task;     /* the argument of `work` */
    int64_t threads;
    Member *member;
    atomic_long unfinished;
} Run;

struct Worker { Run *run; int64_t number; long stage; const void *task; int64_t shares; };

/* Return a piece of the current stage that no thread has taken yet, or -1. A thread's share is contiguous, because
 * sequential reads are the fastest. After its own share, it takes the remaining pieces of other threads. */
static int64_t claim(Worker *worker, int64_t pieces) {
    Run *run = worker->run;
    for (; worker->shares < run->threads; worker->shares++) {
        int64_t of = (worker->number + worker->shares) % run->threads, begin = pieces * of / run->threads;
        atomic_long *taken = &run->member[of].taken[worker->stage & 1];
        int64_t piece = begin + atomic_fetch_add_explicit(taken, 1, memory_order_relaxed);
        if (piece < pieces * (of + 1) / run->threads) return piece;
    }
    return -1;
}

/* Wait until all threads have ended the stage, and begin the next one. */
static void end_stage(Worker *worker) {
    Run *run = worker->run;
    Member *own = run->member + worker->number;
    long stage = ++worker->stage;
    worker->shares = 0;
    atomic_store_explicit(&own->ended, stage, memory_order_release);
    for (int64_t i = 1; i < run->threads; i++) {
        atomic_long *other = &run->member[(worker->number + i) % run->threads].ended;
        for (int spins = 0; atomic_load_explicit(other, memory_order_acquire) < stage; spins++) {
            if (spins > 2000) sched_yield();
#if defined(__x86_64__) || defined(__i386__)
            else __builtin_ia32_pause();
#endif
        }
    }
    /* No thread takes pieces of the ended stage any more, so its counter is reset for the stage after the next. */
    atomic_store_explicit(&own->taken[(stage + 1) & 1], 0, memory_order_relaxed);
}

/* ---- the threads ---- */

static pthread_mutex_t state_lock = PTHREAD_MUTEX_INITIALIZER, team_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static Run *current;
static int64_t helpers, run_count;

static void *helper_main(void *number) {
    int64_t seen = 0;
    for (;;) {
        pthread_mutex_lock(&state_lock);
        while (run_count == seen || !current || (int64_t)(intptr_t)number >= current->threads) {
            seen = run_count;
            pthread_cond_wait(&changed, &state_lock);
        }
        seen = run_count;
        Worker worker = {current, (int64_t)(intptr_t)number, 0, current->task};
        pthread_mutex_unlock(&state_lock);
        worker.run->work(&worker);
        atomic_fetch_sub(&worker.run->unfinished, 1);
    }
    return 0;
}

/* A forked child has none of its parent's threads, so the state is reset. */
static void reset_after_fork(void) {
    pthread_mutex_init(&state_lock, 0);
    pthread_mutex_init(&team_lock, 0);
    pthread_cond_init(&changed, 0);
    current = 0;
    helpers = 0;
}

/* Start helpers until there are `wanted`; return how many of them exist. */
static int64_t start_helpers(int64_t wanted) {
    static int watching;
    if (!watching) { pthread_atfork(0, 0, reset_after_fork); watching = 1; }
    while (helpers < wanted) {
        pthread_t thread;
        pthread_attr_t detached;
        pthread_attr_init(&detached);
        pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
        if (pthread_create(&thread, &detached, helper_main, (void *)(intptr_t)(helpers + 1))) break;
        helpers++;
    }
    return helpers < wanted ? helpers : wanted;
}

/* Run `work` on the calling thread and on up to `threads` - 1 helpers, until all have returned. Calls for several
 * threads take turns; a call for one thread does not use the team. */
static void run_on_team(void (*work)(Worker *), const void *task, int64_t threads) {
    Member members[MAX_THREADS];
    Run run = {.work = work, .task = task, .threads = 1, .member = members};
    if (threads > 1) {
        pthread_mutex_lock(&team_lock);
        run.threads = 1 + start_helpers((threads < MAX_THREADS ? threads : MAX_THREADS) - 1);
    }
    memset(members, 0, run.threads * sizeof *members);
    if (threads > 1) {
        atomic_store(&run.unfinished, run.threads - 1);
        pthread_mutex_lock(&state_lock);
        current = &run;
        run_count++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&state_lock);
    }
    Worker worker = {&run, 0, 0, task};
    work(&worker);
    if (threads > 1) {
        while (atomic_load(&run.unfinished)) sched_yield();  /* `run` is on this stack: wait for all helpers */
        pthread_mutex_lock(&state_lock);
        current = 0;
        pthread_mutex_unlock(&state_lock);
        pthread_mutex_unlock(&team_lock);
    }
}
