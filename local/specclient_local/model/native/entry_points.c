/* The exported functions: passes, draft chains, greedy rounds and Medusa heads, each run by a team of threads. */
#include "forward_pass.h"
#include "pack.h"

void specclient_pass(const Pass *pass) { run_on_team(run_pass, pass, pass->threads); }

typedef struct { const Linear *l; const float *x; int64_t rows; float *y; char *converted; } ProductWork;

static void run_product(Worker *worker) {
    const ProductWork *t = worker->task;
    linear(worker, t->l, t->x, t->l->in, t->rows, t->y, t->l->out, t->converted);
}

/* y [rows, out] = x [rows, in] w + bias. `converted` is scratch memory; see specclient_converted_bytes(). */
void specclient_linear(const Linear *l, const float *x, int64_t rows, float *y, char *converted, int64_t threads) {
    ProductWork task = {l, x, rows, y, converted};
    run_on_team(run_product, &task, threads);
}

/* Return the bytes of scratch memory that one row of a product needs. */
int64_t specclient_converted_bytes(const Linear *l) { return is_converted(l) ? converted_stride(l) : 0; }

/* Return whether the processor multiplies pairs of bfloat16. */
int64_t specclient_multiplies_bfloat16(void) {
#if defined(__AVX512BF16__)
    return 1;
#else
    return 0;
#endif
}

typedef struct { const float *first; int64_t count, stride; } Rows;

/* Find each row's largest element and its index, by the tie rule of argmax(). */
void specclient_argmax(const Rows *matrices, int64_t count, int64_t n, int64_t *places, float *values) {
    for (; count--; matrices++)
        for (int64_t row = 0; row < matrices->count; row++)
            *places++ = argmax(matrices->first + row * matrices->stride, n, values++);
}

/* ---- chains and rounds: the same team of threads runs all passes ---- */

typedef struct {  /* a pass over one request's rows; each further pass reads the most likely token of the one before */
    Pass pass;
    Span span;
    int64_t position, steps, vocab, *tokens;
    int64_t found;
    int not_finite;  /* set if the largest logit was NaN or infinite; the chain ends there */
} Chain;

/* Store the most likely token of a pass, and set up the pass that reads it. */
static void advance_chain(Chain *c) {
    Pass *pass = &c->pass;
    float value;
    int64_t *token = c->tokens + c->found;
    *token = argmax(pass->logits, c->vocab, &value);
    c->not_finite = !isfinite(value);
    if (c->not_finite) return;
    if (pass->model->vocab_ids) *token = pass->model->vocab_ids[*token];
    c->found++;
    c->position++;
    c->span.start += c->span.rows;
    c->span.open = c->span.start;
    c->span.first = 0;
    c->span.rows = 1;
    c->span.length = c->span.start + 1;
    c->span.mask = c->span.window = 0;
    pass->rows = 1;
    pass->ids = token;
    pass->positions = &c->position;
    pass->given = pass->states;
    pass->wanted_rows = 0;
}

/* Run the passes of a chain. All threads compute a pass, then the first one alone sets up the next. */
static void run_chain(Worker *worker, Chain *c) {
    while (c->found < c->steps && !c->not_finite) {
        worker->task = &c->pass;
        run_pass(worker);
        if (!worker->number) advance_chain(c);
        end_stage(worker);
    }
}

static void run_chain_task(Worker *worker) { run_chain(worker, (Chain *)worker->task); }

static void begin_chain(Chain *c, const Pass *first, int64_t steps, int64_t vocab, int64_t *tokens) {
    *c = (Chain){.pass = *first, .span = *first->span, .steps = steps, .vocab = vocab, .tokens = tokens};
    c->pass.span = &c->span;
    c->position = first->positions[first->rows - 1];
}

/* Draft a greedy chain of up to `steps` tokens after one request's rows; return the number of drafted tokens.
 *
 * `first` must compute the logits of its last row only, and its scratch memory must suffice for the last step.
 */
int64_t specclient_draft_chain(const Pass *first, int64_t steps, int64_t vocab, int64_t *tokens) {
    Chain c;
    begin_chain(&c, first, steps, vocab, tokens);
    run_on_team(run_chain_task, &c, first->threads);
    return c.found;
}

typedef struct {
    const Pass *target, *draft;  /* rows of one request: root and drafted tokens; tokens new to the draft model */
    int64_t drafted;  /* in: tokens to draft; out: tokens verified */
    int64_t vocab;    /* only ids below it are drafted */
    int64_t *ids;     /* the target's input: the root, then the drafted tokens */
    float *values;    /* the target's largest logit after each of them */
    int64_t accepted, token;  /* out: accepted tokens, and the target's token after them */
} GreedyRound;

typedef struct { GreedyRound *round; Chain chain; Pass pass; Span span; } GreedyRoundWork;

/* Draft the chain: on all of the target's threads or, if it is too small to divide, on the first one. */
static void run_draft(Worker *worker, GreedyRoundWork *work) {
    if (work->round->draft->threads > 1) run_chain(worker, &work->chain);
    else if (!worker->number) run_on_team(run_chain_task, &work->chain, 1);
    if (!worker->number) {
        work->round->drafted = work->chain.found;
        work->pass.rows = work->pass.wanted = work->span.rows = work->chain.found + 1;
    }
    end_stage(worker);
}

/* The greedy acceptance rule of decoding/verify.py, for chains: accept each request's drafted tokens (all its
 * rows except the first) up to the first one that is not the target's argmax, and store the target's token after
 * them. tests/local/decoding/test_acceptance_everywhere.py compares the result with verify.py. */
static void accept_greedy(const Pass *pass, int64_t *accepted, int64_t *tokens, float *values) {
    int64_t n = pass->model->head.out;
    for (int64_t i = 0; i < pass->spans; i++) {
        const Span *span = pass->span + i;
        accepted[i] = 0;
        for (int64_t row = 0; row < span->rows; row++) {
            int64_t at = span->first + row, token = argmax(pass->logits + at * n, n, values + at);
            if (row > accepted[i]) continue;
            tokens[i] = token;
            if (row + 1 < span->rows && token == pass->ids[at + 1]) accepted[i]++;
        }
    }
}

/* Run a pass over the roots and chains of several requests, and verify it greedily. It must compute all logits. */
void specclient_verify(const Pass *pass, int64_t *accepted, int64_t *tokens, float *values) {
    specclient_pass(pass);
    accept_greedy(pass, accepted, tokens, values);
}

static void run_greedy_round(Worker *worker) {
    GreedyRoundWork *work = (GreedyRoundWork *)worker->task;
    run_draft(worker, work);
    worker->task = &work->pass;
    run_pass(worker);
    GreedyRound *round = work->round;
    if (!worker->number) accept_greedy(&work->pass, &round->accepted, &round->token, round->values);
}

/* Draft a chain, run the target over it, and verify it greedily. */
void specclient_round(GreedyRound *round) {
    const Pass *target = round->target;
    GreedyRoundWork work = {.round = round, .pass = *target, .span = *target->span};
    work.pass.span = &work.span;
    begin_chain(&work.chain, round->draft, round->drafted, round->vocab, round->ids + 1);
    run_on_team(run_greedy_round, &work, target->threads);
}

typedef struct {
    int64_t heads, blocks, rows, threads;
    const Linear *block, *head;  /* [heads][blocks]; one output head each, or a shared one */
    int64_t shared;
    double eps;
    const float *norm, *given;  /* [hidden]; [rows][hidden] output of the target's last layer */
    float *x, *h, *logits;      /* [rows][heads][hidden] twice, [rows][heads][V] */
    char *converted;            /* rows of the shared head; see dot_products.h */
} Medusa;

/* Each head's residual blocks x + silu(w x + bias), and its logits. */
static void run_medusa(Worker *worker) {
    const Medusa *m = worker->task;
    int64_t n = m->block->in, width = m->heads * n, out = m->head->out;
    for (int64_t row; (row = claim(worker, m->rows * m->heads)) >= 0;)
        rms_norm(m->given + row / m->heads * n, m->norm, n, m->eps, m->x + row * n);
    end_stage(worker);
    for (int64_t block = 0; block < m->blocks; block++) {
        for (int64_t head = 0; head < m->heads; head++)
            linear(worker, m->block + head * m->blocks + block, m->x + head * n, width, m->rows,
                   m->h + head * n, width, m->converted);
        for (int64_t row; (row = claim(worker, m->rows * m->heads)) >= 0;)
            add_silu(m->h + row * n, n, m->x + row * n);
        end_stage(worker);
    }
    if (m->shared) linear(worker, m->head, m->x, n, m->rows * m->heads, m->logits, out, m->converted);
    for (int64_t head = 0; !m->shared && head < m->heads; head++)
        linear(worker, m->head + head, m->x + head * n, width, m->rows, m->logits + head * out, m->heads * out, m->converted);
}

void specclient_medusa(const Medusa *medusa) { run_on_team(run_medusa, medusa, medusa->threads); }
