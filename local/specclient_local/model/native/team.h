/* Turns work in stages into one run of it: by the caller, and by threads that wait for the next one. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#define TEAM 64    /* threads at most */
#define APART 128  /* bytes between what different threads write: processors fetch lines from each other in pairs */

typedef struct Self Self;
typedef struct {  /* a thread: pieces of its share that are taken, in this stage and the next; stages it has ended */
    _Alignas(APART) atomic_long taken[2];
    _Alignas(APART) atomic_long ended;
} Member;
typedef struct {
    void (*work)(Self *);  /* all threads run the whole of it, and share out each stage's pieces */
    const void *about;     /* what it is about */
    int64_t threads;
    Member *member;
    atomic_long left;
} Run;

struct Self { Run *run; int64_t number; long stage; const void *about; int64_t shares; };

/* Return a piece of the stage that nobody has taken yet, -1 where there is none. A thread's share are neighbours,
 * since memory is fastest in one stream; once its own is done (`shares` are) it takes what others have left. */
static int64_t claim(Self *self, int64_t pieces) {
    Run *run = self->run;
    for (; self->shares < run->threads; self->shares++) {
        int64_t of = (self->number + self->shares) % run->threads, begin = pieces * of / run->threads;
        atomic_long *taken = &run->member[of].taken[self->stage & 1];
        int64_t piece = begin + atomic_fetch_add_explicit(taken, 1, memory_order_relaxed);
        if (piece < pieces * (of + 1) / run->threads) return piece;
    }
    return -1;
}

/* Wait until all threads have ended the stage, and begin the next. */
static void ended(Self *self) {
    Run *run = self->run;
    Member *own = run->member + self->number;
    long stage = ++self->stage;
    self->shares = 0;
    atomic_store_explicit(&own->ended, stage, memory_order_release);
    for (int64_t i = 1; i < run->threads; i++) {
        atomic_long *other = &run->member[(self->number + i) % run->threads].ended;
        for (int spins = 0; atomic_load_explicit(other, memory_order_acquire) < stage; spins++) {
            if (spins > 2000) sched_yield();
#if defined(__x86_64__) || defined(__i386__)
            else __builtin_ia32_pause();
#endif
        }
    }
    /* Of the stage that is over nobody takes any more; these count the next but one. */
    atomic_store_explicit(&own->taken[(stage + 1) & 1], 0, memory_order_relaxed);
}

/* ---- who runs it ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static Run *current;
static int64_t helpers, runs;

static void *help(void *number) {
    int64_t seen = 0;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (runs == seen || !current || (int64_t)(intptr_t)number >= current->threads) {
            seen = runs;
            pthread_cond_wait(&changed, &lock);
        }
        seen = runs;
        Self self = {current, (int64_t)(intptr_t)number, 0, current->about};
        pthread_mutex_unlock(&lock);
        self.run->work(&self);
        atomic_fetch_sub(&self.run->left, 1);
    }
    return 0;
}

/* A forked child has none of its parent's threads. */
static void forked(void) {
    pthread_mutex_init(&lock, 0);
    pthread_mutex_init(&one_at_a_time, 0);
    pthread_cond_init(&changed, 0);
    current = 0;
    helpers = 0;
}

static int64_t hire(int64_t wanted) {
    static int watching;
    if (!watching) { pthread_atfork(0, 0, forked); watching = 1; }
    while (helpers < wanted) {
        pthread_t thread;
        pthread_attr_t detached;
        pthread_attr_init(&detached);
        pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
        if (pthread_create(&thread, &detached, help, (void *)(intptr_t)(helpers + 1))) break;
        helpers++;
    }
    return helpers < wanted ? helpers : wanted;
}

static void together(void (*work)(Self *), const void *about, int64_t threads) {
    Member members[TEAM];
    Run run = {.work = work, .about = about, .threads = 1, .member = members};
    if (threads > 1) {
        pthread_mutex_lock(&one_at_a_time);
        run.threads = 1 + hire((threads < TEAM ? threads : TEAM) - 1);
    }
    memset(members, 0, run.threads * sizeof *members);
    if (threads > 1) {
        atomic_store(&run.left, run.threads - 1);
        pthread_mutex_lock(&lock);
        current = &run;
        runs++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    Self self = {&run, 0, 0, about};
    work(&self);
    if (threads > 1) {
        while (atomic_load(&run.left)) sched_yield();  /* it lies on this stack */
        pthread_mutex_lock(&lock);
        current = 0;
        pthread_mutex_unlock(&lock);
        pthread_mutex_unlock(&one_at_a_time);
    }
}
