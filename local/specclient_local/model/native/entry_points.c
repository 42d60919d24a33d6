/* The exported functions: passes, draft chains, greedy rounds and Medusa heads, each run by a team of threads. */
#include "forward_pass.h"
#include "pack.h"
#include "value_check.h"

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

typedef struct {  /* a pass over rows of some requests; each further pass reads the most likely tokens of the one before */
    Pass pass;
    int64_t vocab;            /* only ids below it are drafted */
    const int64_t *steps;     /* tokens to draft for each request */
    int64_t *found;           /* drafted tokens of each; fewer if a largest logit was NaN or infinite */
    int64_t *const *tokens;   /* where those of each are stored */
    Span *span;               /* the spans, requests, ids and positions of the rows of the current pass */
    int64_t *request, *id, *position;
} Chains;

/* Store the most likely token of request `row` of a pass; return whether the next pass reads it. */
static int advance_chain(Chains *c, int64_t row) {
    const Model *model = c->pass.model;
    int64_t request = c->request[row];
    float value;
    int64_t token = argmax(c->pass.logits + row * model->head.out, c->vocab, &value);
    if (!isfinite(value)) return 0;
    c->id[row] = c->tokens[request][c->found[request]++] = model->vocab_ids ? model->vocab_ids[token] : token;
    return c->found[request] < c->steps[request];
}

/* Store the tokens of a pass, and set up the pass that reads them: a row of each request whose chain goes on. */
static void advance_chains(Chains *c) {
    Pass *pass = &c->pass;
    int64_t kept = 0, states = pass->states ? pass->model->hidden : 0;
    for (int64_t i = 0; i < pass->spans; i++) {
        if (!advance_chain(c, i)) continue;
        int64_t start = c->span[i].start + c->span[i].rows;
        c->span[kept] = (Span){kept, 1, start, start, start + 1, .cache = c->span[i].cache};
        c->request[kept] = c->request[i];
        c->id[kept] = c->id[i];
        c->position[kept] = c->position[i] + 1;
        if (kept < i) memcpy(pass->states + kept * states, pass->states + i * states, states * sizeof(float));
        kept++;
    }
    pass->rows = pass->spans = pass->wanted = kept;
    pass->ids = c->id;
    pass->positions = c->position;
    pass->given = pass->states;
    pass->wanted_rows = 0;
}

/* Run the passes of chains. All threads compute a pass, then the first one alone sets up the next. */
static void run_chains(Worker *worker, Chains *c) {
    while (c->pass.rows) {
        worker->task = &c->pass;
        run_pass(worker);
        if (!worker->number) advance_chains(c);
        end_stage(worker);
    }
}

static void run_chains_task(Worker *worker) { run_chains(worker, (Chains *)worker->task); }

/* Set up the first pass; `request` has the number of each of its spans. */
static void begin_chains(Chains *c, const Pass *first) {
    c->pass = *first;
    c->pass.span = c->span;
    for (int64_t i = 0; i < first->spans; i++) {
        c->span[i] = first->span[i];
        c->position[i] = first->positions[first->span[i].first + first->span[i].rows - 1];
        c->found[c->request[i]] = 0;
    }
}

/* Draft greedy chains after the rows of some requests: `steps` tokens of each, stored at `tokens`, [spans][most].
 *
 * `first` must compute the logits of each request's last row only, and its scratch memory must suffice for the last
 * step. `found` gets the number of drafted tokens of each.
 */
void specclient_draft_chains(const Pass *first, const int64_t *steps, int64_t most, int64_t vocab, int64_t *tokens,
                             int64_t *found) {
    int64_t n = first->spans, request[n], id[n], position[n], *own[n];
    Span span[n];
    for (int64_t i = 0; i < n; i++) {
        request[i] = i;
        own[i] = tokens + i * most;
    }
    Chains c = {.vocab = vocab, .steps = steps, .found = found, .tokens = own,
                .span = span, .request = request, .id = id, .position = position};
    begin_chains(&c, first);
    run_on_team(run_chains_task, &c, first->threads);
}

/* The greedy acceptance rule of decoding/verify.py, for chains: accept each request's drafted tokens up to the first
 * one that is not the target's argmax, and store the target's token after them. The drafted tokens are the first
 * `drafted` of the rows after the request's root; all of them if it is NULL.
 * tests/local/decoding/test_acceptance_everywhere.py compares the result with verify.py. */
static void accept_greedy(const Pass *pass, const int64_t *drafted, int64_t *accepted, int64_t *tokens, float *values) {
    int64_t n = pass->model->head.out;
    for (int64_t i = 0; i < pass->spans; i++) {
        const Span *span = pass->span + i;
        int64_t last = drafted ? drafted[i] : span->rows - 1;
        accepted[i] = 0;
        for (int64_t row = 0; row < span->rows; row++) {
            int64_t at = span->first + row, token = argmax(pass->logits + at * n, n, values + at);
            if (row > accepted[i]) continue;
            tokens[i] = token;
            if (row < last && token == pass->ids[at + 1]) accepted[i]++;
        }
    }
}

/* Run a pass over the roots and chains of several requests, and verify it greedily. It must compute all logits. */
void specclient_verify(const Pass *pass, int64_t *accepted, int64_t *tokens, float *values) {
    specclient_pass(pass);
    accept_greedy(pass, 0, accepted, tokens, values);
}

typedef struct {
    const Pass *target, *draft;  /* each request's root and drafted tokens; the tokens new to the draft of those that draft */
    const int64_t *drafting;     /* the target's span of each of the draft's */
    int64_t vocab;               /* only ids below it are drafted */
    int64_t *ids;                /* the target's input: the roots, and room for the drafted tokens */
    int64_t *drafted;            /* out: drafted tokens of each request; the rows of those that are missing do not count */
    int64_t *accepted, *tokens;  /* out: accepted tokens of each request, and the target's token after them */
    float *values;               /* out: the target's largest logit after each row */
} GreedyRound;

typedef struct { const GreedyRound *round; Chains chains; } GreedyRoundWork;

/* Draft the chains on all of the target's threads or, if they are too small to divide, on the first one. */
static void run_greedy_round(Worker *worker) {
    GreedyRoundWork *work = (GreedyRoundWork *)worker->task;
    const GreedyRound *round = work->round;
    if (round->draft->threads > 1) run_chains(worker, &work->chains);
    else if (!worker->number) run_on_team(run_chains_task, &work->chains, 1);
    end_stage(worker);
    worker->task = round->target;
    run_pass(worker);
    if (!worker->number) accept_greedy(round->target, round->drafted, round->accepted, round->tokens, round->values);
}

/* Draft chains for some requests, run the target over all, and verify them greedily. */
void specclient_round(const GreedyRound *round) {
    const Pass *target = round->target;
    int64_t n = target->spans, m = round->draft->spans, steps[n], *tokens[n], request[m], id[m], position[m];
    Span span[m];
    for (int64_t i = 0; i < n; i++) {
        steps[i] = target->span[i].rows - 1;
        tokens[i] = round->ids + target->span[i].first + 1;
        round->drafted[i] = 0;
    }
    memcpy(request, round->drafting, sizeof request);
    GreedyRoundWork work = {round, {.vocab = round->vocab, .steps = steps, .found = round->drafted, .tokens = tokens,
                                    .span = span, .request = request, .id = id, .position = position}};
    begin_chains(&work.chains, round->draft);
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
