/* Turns token ids, positions and cached keys and values into logits: a Llama-family pass in float32.
 *
 * Every number of a row is computed by the same operations in the same order, however many rows go through
 * at once and whichever thread computes it: an output is summed over its inputs from the first to the last,
 * a row's attention over the positions it sees. So a row's logits are the same bits alone and in company,
 * which is what makes greedy speculation equal to plain decoding token by token.
 *
 * Weights are laid out in groups of 64 outputs, [out / 64][in][64], the last ones in panels of 16, so that one
 * row streams them from memory in order, and several rows use each panel while it is in the cache.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "kernels.h"

typedef struct {  /* neighbouring rows of one request; a mask row has 0 where a position is seen, as are the
                      first `open` ones by all */
    int64_t first, rows, start, open, length, mask_stride, window_stride;
    const float *mask, *window;  /* NULL where a row sees all */
    float *const *cache;  /* for each layer [2 KV][capacity][D], keys first */
} Span;
typedef struct {
    const Model *model;
    int64_t rows, spans, wanted, capacity, threads;
    const int64_t *ids, *positions, *wanted_rows;  /* the last NULL where every row's logits are wanted */
    const float *turns;  /* [context][D / 2] pairs of cosine and sine */
    const Span *span;
    float *x, *h, *qkv, *attended, *gate_up, *scores, *logits;
    int64_t taps;  /* after how many layers, each of `tapped`, rows are left in features [rows][taps][hidden] */
    const int64_t *tapped;
    float *features;
} Pass;

/* ---- threads: all run the whole pass, and share out each stage's pieces ---- */

typedef struct {
    const Pass *pass;
    int64_t threads;
    atomic_long next[2], arrived, done, left;  /* pieces of the stage and of the one after it */
} Run;

typedef struct { Run *run; int64_t number; long stage; } Self;

static int64_t claim(Self *self) {
    return atomic_fetch_add_explicit(&self->run->next[self->stage & 1], 1, memory_order_relaxed);
}

/* Wait until all threads have ended the stage, and begin the next. */
static void ended(Self *self) {
    Run *run = self->run;
    long stage = self->stage++;
    if (atomic_fetch_add(&run->arrived, 1) == run->threads - 1) {
        atomic_store(&run->arrived, 0);
        atomic_store(&run->next[(stage + 1) & 1], 0);
        atomic_store(&run->done, stage + 1);
        return;
    }
    for (int spins = 0; atomic_load(&run->done) <= stage; spins++) {
        if (spins > 2000) sched_yield();
#if defined(__x86_64__) || defined(__i386__)
        else __builtin_ia32_pause();
#endif
    }
}

/* ---- the pass ---- */

/* y [rows, out] = x [rows, in] w + bias: a thread takes four panels at a time, for all rows. */
static void linear(Self *self, const Linear *l, const float *x, int64_t sx, int64_t rows, float *y,
                   int64_t sy) {
    int64_t panels = (l->out + W - 1) / W, pieces = (panels + 3) / 4;
    int64_t number = l->scale ? sizeof(int8_t) : sizeof(float);
    for (int64_t piece; (piece = claim(self)) < pieces;) {
        int64_t begin = piece * 4, count = panels - begin < 4 ? panels - begin : 4;
        int64_t step = (begin + 4) * W <= l->out ? 4 : 1;  /* a last group that is not full is panels */
        for (int64_t row = 0; row < rows; row += ROWS) {
            int64_t some = rows - row < ROWS ? rows - row : ROWS;
            for (int64_t p = begin; p < begin + count; p += step)
                PRODUCTS[l->scale != 0][step == 4][some - 1](
                    (const char *)l->panels + p * l->in * W * number, l->scale ? l->scale + p * W : 0,
                    l->bias ? l->bias + p * W : 0, x + row * sx, sx, l->in, y + row * sy + p * W, sy,
                    l->out - p * W, row ? 0 : AHEAD);  /* for later rows they are in the cache */
        }
    }
    ended(self);
}

static int64_t blocks(const Model *m, const Span *span) {
    int64_t group = m->heads / m->kv_heads;
    return (span->rows * group + QUERIES - 1) / QUERIES;
}

static void attention(Self *self, int64_t number, const Layer *layer) {
    const Pass *p = self->run->pass;
    const Model *m = p->model;
    int64_t group = m->heads / m->kv_heads, width = (m->heads + 2 * m->kv_heads) * m->dim;
    int64_t longest = 0, pieces = 0;
    for (int64_t i = 0; i < p->spans; i++) {
        pieces += blocks(m, p->span + i) * m->kv_heads;
        if (p->span[i].length > longest) longest = p->span[i].length;
    }
    float *scores = p->scores + self->number * QUERIES * longest;
    for (int64_t piece; (piece = claim(self)) < pieces;) {
        const Span *span = p->span;
        for (; piece >= blocks(m, span) * m->kv_heads; span++) piece -= blocks(m, span) * m->kv_heads;
        int64_t head = piece % m->kv_heads, first = piece / m->kv_heads * QUERIES;
        int count = (int)(span->rows * group - first < QUERIES ? span->rows * group - first : QUERIES);
        const float *q[QUERIES], *mask[QUERIES];
        float *out[QUERIES];
        for (int i = 0; i < count; i++) {
            int64_t own = (first + i) / group, row = span->first + own, h = head * group + (first + i) % group;
            q[i] = p->qkv + row * width + h * m->dim;
            out[i] = p->attended + (row * m->heads + h) * m->dim;
            const float *first = layer->sliding && span->window ? span->window : span->mask;
            mask[i] = first ? first + own * (first == span->mask ? span->mask_stride : span->window_stride) : 0;
        }
        const float *keys = span->cache[number] + head * p->capacity * m->dim;
        int64_t open = layer->sliding && span->window ? 0 : span->open;
        attend(m, keys, keys + m->kv_heads * p->capacity * m->dim, q, mask, out, count, open, span->length,
               scores);
    }
    ended(self);
}

static void turned(Self *self, int64_t number, const Layer *layer) {
    const Pass *p = self->run->pass;
    const Model *m = p->model;
    int64_t width = (m->heads + 2 * m->kv_heads) * m->dim;
    for (int64_t row; (row = claim(self)) < p->rows;) {
        const Span *span = p->span;
        while (row >= span->first + span->rows) span++;
        turn(m, layer, p->turns + p->positions[row] * m->dim, p->qkv + row * width,
             span->cache[number] + (span->start + row - span->first) * m->dim, p->capacity * m->dim);
    }
    ended(self);
}

/* Add what a projection gave to each row, and normalise the rows for the next one (weight may be NULL). */
static void added(Self *self, const float *weight) {
    const Pass *p = self->run->pass;
    int64_t n = p->model->hidden;
    for (int64_t row; (row = claim(self)) < p->rows;) {
        float *x = p->x + row * n, *h = p->h + row * n;
        for (int64_t i = 0; i < n; i++) x[i] += h[i];
        if (weight) norm(x, weight, n, p->model->eps, h);
    }
    ended(self);
}

/* Leave each row where it is wanted after so many layers. */
static void left(Self *self, int64_t layers) {
    const Pass *p = self->run->pass;
    int64_t n = p->model->hidden;
    for (int64_t tap = 0; tap < p->taps; tap++) {
        if (p->tapped[tap] != layers) continue;
        for (int64_t row; (row = claim(self)) < p->rows;)
            memcpy(p->features + (row * p->taps + tap) * n, p->x + row * n, n * sizeof(float));
        ended(self);
    }
}

static void whole(Self *self) {
    const Pass *p = self->run->pass;
    const Model *m = p->model;
    int64_t n = m->hidden, width = (m->heads + 2 * m->kv_heads) * m->dim;
    for (int64_t row; (row = claim(self)) < p->rows;) {
        memcpy(p->x + row * n, m->embedding + p->ids[row] * n, n * sizeof(float));
        norm(p->x + row * n, m->layer[0].input_norm, n, m->eps, p->h + row * n);
    }
    ended(self);
    left(self, 0);
    for (int64_t i = 0; i < m->layers; i++) {
        const Layer *layer = m->layer + i;
        linear(self, &layer->qkv, p->h, n, p->rows, p->qkv, width);
        turned(self, i, layer);
        attention(self, i, layer);
        linear(self, &layer->o, p->attended, m->heads * m->dim, p->rows, p->h, n);
        added(self, layer->post_norm);
        linear(self, &layer->gate_up, p->h, n, p->rows, p->gate_up, 2 * m->ff);
        for (int64_t row; (row = claim(self)) < p->rows;) {
            float *gate = p->gate_up + row * 2 * m->ff;
            gated(gate, gate + m->ff, m->ff, gate);
        }
        ended(self);
        linear(self, &layer->down, p->gate_up, 2 * m->ff, p->rows, p->h, n);
        added(self, i + 1 < m->layers ? m->layer[i + 1].input_norm : 0);
        left(self, i + 1);
    }
    for (int64_t row; (row = claim(self)) < p->wanted;) {
        int64_t from = p->wanted_rows ? p->wanted_rows[row] : row;
        norm(p->x + from * n, m->norm, n, m->eps, p->h + row * n);
    }
    ended(self);
    linear(self, &m->head, p->h, n, p->wanted, p->logits, m->head.out);
}

/* ---- who runs it: the caller, and helpers that wait for a pass ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static Run *current;
static int64_t helpers, passes;

static void *help(void *number) {
    int64_t seen = 0;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (passes == seen || !current || (int64_t)(intptr_t)number >= current->threads) {
            seen = passes;
            pthread_cond_wait(&changed, &lock);
        }
        seen = passes;
        Self self = {current, (int64_t)(intptr_t)number, 0};
        pthread_mutex_unlock(&lock);
        whole(&self);
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

void specclient_pass(const Pass *pass) {
    Run run = {.pass = pass, .threads = 1};
    if (pass->threads > 1) {
        pthread_mutex_lock(&one_at_a_time);
        run.threads = 1 + hire(pass->threads - 1);
        atomic_store(&run.left, run.threads - 1);
        pthread_mutex_lock(&lock);
        current = &run;
        passes++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    Self self = {&run, 0, 0};
    whole(&self);
    if (pass->threads > 1) {
        while (atomic_load(&run.left)) sched_yield();  /* it lies on this stack */
        pthread_mutex_lock(&lock);
        current = 0;
        pthread_mutex_unlock(&lock);
        pthread_mutex_unlock(&one_at_a_time);
    }
}

/* y [rows, out] = x [rows, in] w + bias, on the caller's thread alone. */
void specclient_linear(const Linear *l, const float *x, int64_t rows, float *y) {
    Run run = {.threads = 1};
    Self self = {&run, 0, 0};
    linear(&self, l, x, l->in, rows, y, l->out);
}

typedef struct { const float *first; int64_t count, stride; } Rows;

/* Find in each row of some matrices the largest number and its place, the first of equal ones; NaN is larger. */
void specclient_largest(const Rows *matrices, int64_t count, int64_t n, int64_t *places, float *values) {
    for (; count--; matrices++)
        for (int64_t row = 0; row < matrices->count; row++)
            *places++ = largest(matrices->first + row * matrices->stride, n, values++);
}

/* Follow a pass over one request's rows by its likeliest token, `steps` times; return how many are found.
 *
 * The pass wants the logits of its last row alone, and its scratch memory reaches as far as the last step.
 */
int64_t specclient_guess(const Pass *first, int64_t steps, int64_t vocab, int64_t *tokens) {
    Pass pass = *first;
    Span span = *first->span;
    int64_t position = first->positions[first->rows - 1];
    for (int64_t step = 0; step < steps; step++) {
        specclient_pass(&pass);
        float value;
        tokens[step] = largest(pass.logits, vocab, &value);
        if (!isfinite(value)) return step;
        span.start += span.rows;
        span.open = span.start;
        span.first = 0;
        span.rows = 1;
        span.length = span.start + 1;
        span.mask = span.window = 0;
        position++;
        pass.rows = 1;
        pass.ids = tokens + step;
        pass.positions = &position;
        pass.wanted_rows = 0;
        pass.span = &span;
    }
    return steps;
}
