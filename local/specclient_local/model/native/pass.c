/* What the engine calls: passes, chains of guesses, greedy rounds and heads, each a call that threads share. */
#include "pass.h"

void specclient_pass(const Pass *pass) { together(whole, pass, pass->threads); }

typedef struct { const Linear *l; const float *x; int64_t rows; float *y; } Times;

static void times(Self *self) {
    const Times *t = self->about;
    linear(self, t->l, t->x, t->l->in, t->rows, t->y, t->l->out);
}

/* y [rows, out] = x [rows, in] w + bias, on the caller's thread alone. */
void specclient_linear(const Linear *l, const float *x, int64_t rows, float *y) {
    Times about = {l, x, rows, y};
    together(times, &about, 1);
}

typedef struct { const float *first; int64_t count, stride; } Rows;

/* Find in each row of some matrices the largest number and its place, the first of equal ones; NaN is larger. */
void specclient_largest(const Rows *matrices, int64_t count, int64_t n, int64_t *places, float *values) {
    for (; count--; matrices++)
        for (int64_t row = 0; row < matrices->count; row++)
            *places++ = largest(matrices->first + row * matrices->stride, n, values++);
}

/* ---- chains and rounds, in which threads stay together from pass to pass ---- */

typedef struct {  /* a pass over one request's rows, to be followed by its likeliest token, and that by its own */
    Pass pass;
    Span span;
    int64_t position, steps, vocab, *tokens;
    int64_t found;
    int broken;  /* whether logits were not finite: there is no likeliest token then */
} Chain;

/* Take from a pass its likeliest token, and make the pass that follows it. */
static void follow(Chain *c) {
    Pass *pass = &c->pass;
    float value;
    int64_t *token = c->tokens + c->found;
    *token = largest(pass->logits, c->vocab, &value);
    c->broken = !isfinite(value);
    if (c->broken) return;
    if (pass->model->spoken) *token = pass->model->spoken[*token];
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

static void chained(Self *self, Chain *c) {
    while (c->found < c->steps && !c->broken) {
        self->about = &c->pass;
        whole(self);
        if (!self->number) follow(c);
        ended(self);
    }
}

static void chain(Self *self) { chained(self, (Chain *)self->about); }

static void begin(Chain *c, const Pass *first, int64_t steps, int64_t vocab, int64_t *tokens) {
    *c = (Chain){.pass = *first, .span = *first->span, .steps = steps, .vocab = vocab, .tokens = tokens};
    c->pass.span = &c->span;
    c->position = first->positions[first->rows - 1];
}

/* Follow a pass over one request's rows by its likeliest token, `steps` times; return how many are found.
 *
 * The pass wants the logits of its last row alone, and its scratch memory reaches as far as the last step.
 */
int64_t specclient_guess(const Pass *first, int64_t steps, int64_t vocab, int64_t *tokens) {
    Chain c;
    begin(&c, first, steps, vocab, tokens);
    together(chain, &c, first->threads);
    return c.found;
}

typedef struct {
    const Pass *target, *draft;  /* over one request's rows: a root and its guesses; what the draft has not read */
    int64_t guesses;  /* asked of the draft; then how many were verified */
    int64_t vocab;    /* only ids below it are guessed */
    int64_t *ids;     /* the target's: the root, then the guesses */
    float *values;    /* the largest logit after each of them */
    int64_t kept, token;  /* how many guesses are the target's own likeliest tokens, and the one after them */
} Round;

typedef struct { Round *round; Chain chain; Pass pass; Span span; } Play;

/* Have the guesses made, by all of the target's threads or, where there is too little to share, by the first. */
static void guessed(Self *self, Play *play) {
    if (play->round->draft->threads > 1) chained(self, &play->chain);
    else if (!self->number) together(chain, &play->chain, 1);
    if (!self->number) {
        play->round->guesses = play->chain.found;
        play->pass.rows = play->pass.wanted = play->span.rows = play->chain.found + 1;
    }
    ended(self);
}

/* Keep of each request's guesses, its rows but the first, those that are greedy's; find the token after them. */
static void judge(const Pass *pass, int64_t *kept, int64_t *tokens, float *values) {
    int64_t n = pass->model->head.out;
    for (int64_t i = 0; i < pass->spans; i++) {
        const Span *span = pass->span + i;
        kept[i] = 0;
        for (int64_t row = 0; row < span->rows; row++) {
            int64_t at = span->first + row, token = largest(pass->logits + at * n, n, values + at);
            if (row > kept[i]) continue;
            tokens[i] = token;
            if (row + 1 < span->rows && token == pass->ids[at + 1]) kept[i]++;
        }
    }
}

/* Take requests' roots and guesses through a pass that wants all logits, and keep the guesses that are greedy's. */
void specclient_verify(const Pass *pass, int64_t *kept, int64_t *tokens, float *values) {
    specclient_pass(pass);
    judge(pass, kept, tokens, values);
}

static void played(Self *self) {
    Play *play = (Play *)self->about;
    guessed(self, play);
    self->about = &play->pass;
    whole(self);
    if (!self->number) judge(&play->pass, &play->round->kept, &play->round->token, play->round->values);
}

/* Let the draft guess, take the guesses through the target, and keep those that are greedy's. */
void specclient_round(Round *round) {
    const Pass *target = round->target;
    Play play = {.round = round, .pass = *target, .span = *target->span};
    play.pass.span = &play.span;
    begin(&play.chain, round->draft, round->guesses, round->vocab, round->ids + 1);
    together(played, &play, target->threads);
}

typedef struct {
    int64_t heads, blocks, rows, threads;
    const Linear *block, *head;  /* [heads][blocks], and one of each or, where they share it, one of all */
    int64_t shared;
    double eps;
    const float *norm, *given;  /* [hidden], and [rows][hidden] as the target's last layer leaves them */
    float *x, *h, *logits;      /* [rows][heads][hidden] twice, [rows][heads][V] */
} Medusa;

/* Each head's residual blocks x + silu(w x + bias), and what it reads of them. */
static void each_head(Self *self) {
    const Medusa *m = self->about;
    int64_t n = m->block->in, width = m->heads * n, out = m->head->out;
    for (int64_t row; (row = claim(self, m->rows * m->heads)) >= 0;)
        norm(m->given + row / m->heads * n, m->norm, n, m->eps, m->x + row * n);
    ended(self);
    for (int64_t block = 0; block < m->blocks; block++) {
        for (int64_t head = 0; head < m->heads; head++)
            linear(self, m->block + head * m->blocks + block, m->x + head * n, width, m->rows,
                   m->h + head * n, width);
        for (int64_t row; (row = claim(self, m->rows * m->heads)) >= 0;) raised(m->h + row * n, n, m->x + row * n);
        ended(self);
    }
    if (m->shared) linear(self, m->head, m->x, n, m->rows * m->heads, m->logits, out);
    for (int64_t head = 0; !m->shared && head < m->heads; head++)
        linear(self, m->head + head, m->x + head * n, width, m->rows, m->logits + head * out, m->heads * out);
}

void specclient_medusa(const Medusa *medusa) { together(each_head, medusa, medusa->threads); }
