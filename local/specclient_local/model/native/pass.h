/* Turns token ids, positions and cached keys and values into logits: a Llama-family pass in float32, and that
 * of an EAGLE head, which is one such layer over tokens and states.
 *
 * Every number of a row is computed by the same operations in the same order, however many rows go through
 * at once and whichever thread computes it: an output is summed over its inputs from the first to the last,
 * a row's attention over the positions it sees. So a row's logits are the same bits alone and in company,
 * which is what makes greedy speculation equal to plain decoding token by token.
 */
#include <stdint.h>
#include <string.h>

#include "kernels.h"
#include "team.h"

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
    float *x, *h, *qkv, *attended, *gated, *scores, *logits;
    int64_t taps;  /* after how many layers, each of `tapped`, rows are left in features [rows][taps][hidden] */
    const int64_t *tapped;
    float *features;
    const float *given;  /* [rows][hidden] of an EAGLE head: the states one place before each row */
    float *states;       /* [wanted][hidden] of one: what the rows that follow are given */
} Pass;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* How far ahead weights are asked for: for later rows they are in the cache. */
static int64_t ahead(int64_t row) { return row ? 0 : AHEAD; }

/* y [rows, out] = x [rows, in] w + bias: a thread takes four panels at a time, for all rows. */
static void linear(Self *self, const Linear *l, const float *x, int64_t sx, int64_t rows, float *y,
                   int64_t sy) {
    int64_t panels = (l->out + W - 1) / W;
    for (int64_t piece; (piece = claim(self, (panels + 3) / 4)) >= 0;) {
        int64_t begin = piece * 4, count = least(panels - begin, 4);
        for (int64_t row = 0; row < rows; row += ROWS)
            product(l, begin, count, x + row * sx, sx, least(rows - row, ROWS), y + row * sy + begin * W, sy,
                    ahead(row));
    }
    ended(self);
}

/* silu(gate) up [rows, ff] of x [rows, hidden]: a group of panels has GATES outputs of both, side by side. */
static void gates(Self *self, const Linear *l, const float *x) {
    const Pass *p = self->about;
    int64_t n = p->model->hidden, ff = p->model->ff;
    float both[ROWS][2 * GATES];
    for (int64_t piece; (piece = claim(self, ff / GATES)) >= 0;)
        for (int64_t row = 0; row < p->rows; row += ROWS) {
            int64_t some = least(p->rows - row, ROWS);
            product(l, piece * 4, 4, x + row * n, n, some, both[0], 2 * GATES, ahead(row));
            for (int64_t i = 0; i < some; i++)
                gated(both[i], both[i] + GATES, GATES, p->gated + (row + i) * ff + piece * GATES);
        }
    ended(self);
}

static int64_t queries(const Model *m, const Span *span) { return span->rows * (m->heads / m->kv_heads); }

/* How many parts a key head's queries are taken in. */
static int64_t blocks(const Model *m, const Span *span) { return (queries(m, span) + QUERIES - 1) / QUERIES; }

/* Attend with some of a request's queries of one key head. */
static void attend_block(Self *self, const Layer *layer, int64_t number, const Span *span, int64_t head,
                         int64_t block, float *scores) {
    const Pass *p = self->about;
    const Model *m = p->model;
    int64_t group = m->heads / m->kv_heads, width = (m->heads + 2 * m->kv_heads) * m->dim;
    int64_t all = queries(m, span), parts = blocks(m, span), first = all * block / parts;
    int count = (int)(all * (block + 1) / parts - first);
    const float *q[QUERIES], *mask[QUERIES];
    float *out[QUERIES];
    const float *seen = layer->sliding && span->window ? span->window : span->mask;
    int64_t stride = seen == span->mask ? span->mask_stride : span->window_stride;
    for (int i = 0; i < count; i++) {
        int64_t own = (first + i) / group, row = span->first + own, h = head * group + (first + i) % group;
        q[i] = p->qkv + row * width + h * m->dim;
        out[i] = p->attended + (row * m->heads + h) * m->dim;
        mask[i] = seen ? seen + own * stride : 0;
    }
    const float *keys = span->cache[number] + head * p->capacity * m->dim;
    int64_t open = layer->sliding && span->window ? 0 : span->open;
    attend(m, keys, keys + m->kv_heads * p->capacity * m->dim, q, mask, out, count, open, span->length, scores);
}

/* Neighbouring pieces are of one key head: it is read from memory once where a thread has all of them. */
static void attention(Self *self, int64_t number, const Layer *layer) {
    const Pass *p = self->about;
    const Model *m = p->model;
    int64_t longest = 0, pieces = 0;
    for (int64_t i = 0; i < p->spans; i++) {
        pieces += blocks(m, p->span + i) * m->kv_heads;
        if (p->span[i].length > longest) longest = p->span[i].length;
    }
    float *scores = p->scores + self->number * QUERIES * longest;
    for (int64_t piece; (piece = claim(self, pieces)) >= 0;) {
        const Span *span = p->span;
        for (; piece >= blocks(m, span) * m->kv_heads; span++) piece -= blocks(m, span) * m->kv_heads;
        int64_t parts = blocks(m, span);
        attend_block(self, layer, number, span, piece / parts, piece % parts, scores);
    }
    ended(self);
}

static void turned(Self *self, int64_t number, const Layer *layer) {
    const Pass *p = self->about;
    const Model *m = p->model;
    int64_t width = (m->heads + 2 * m->kv_heads) * m->dim;
    for (int64_t row; (row = claim(self, p->rows)) >= 0;) {
        const Span *span = p->span;
        while (row >= span->first + span->rows) span++;
        turn(m, layer, p->turns + p->positions[row] * m->dim, p->qkv + row * width,
             span->cache[number] + (span->start + row - span->first) * m->dim, p->capacity * m->dim);
    }
    ended(self);
}

/* Add what a projection gave to each row, and normalise the rows for the next one (weight may be NULL). */
static void added(Self *self, const float *weight) {
    const Pass *p = self->about;
    int64_t n = p->model->hidden;
    for (int64_t row; (row = claim(self, p->rows)) >= 0;) {
        float *x = p->x + row * n, *h = p->h + row * n;
        for (int64_t i = 0; i < n; i++) x[i] += h[i];
        if (weight) norm(x, weight, n, p->model->eps, h);
    }
    ended(self);
}

/* Leave each row where it is wanted after so many layers. */
static void left(Self *self, int64_t layers) {
    const Pass *p = self->about;
    int64_t n = p->model->hidden;
    for (int64_t tap = 0; tap < p->taps; tap++) {
        if (p->tapped[tap] != layers) continue;
        for (int64_t row; (row = claim(self, p->rows)) >= 0;)
            memcpy(p->features + (row * p->taps + tap) * n, p->x + row * n, n * sizeof(float));
        ended(self);
    }
}

/* Take each row from the embedding, and return what the first layer reads. */
static const float *embedded(Self *self) {
    const Pass *p = self->about;
    const Model *m = p->model;
    int64_t n = m->hidden;
    for (int64_t row; (row = claim(self, p->rows)) >= 0;) {
        memcpy(p->x + row * n, m->embedding + p->ids[row] * n, n * sizeof(float));
        norm(p->x + row * n, m->layer[0].input_norm, n, m->eps, p->h + row * n);
    }
    ended(self);
    return p->h;
}

/* Make each row of a token and the state one place before it, and return what an EAGLE head's layer reads. */
static const float *fused(Self *self) {
    const Pass *p = self->about;
    const Model *m = p->model;
    const Fusion *f = m->fusion;
    int64_t n = m->hidden;
    for (int64_t row; (row = claim(self, p->rows)) >= 0;) {
        const float *token = m->embedding + p->ids[row] * n, *state = p->given + row * n;
        float *both = p->h + row * 2 * n;
        if (f->fc.panels) {
            memcpy(both, token, n * sizeof(float));
            memcpy(both + n, state, n * sizeof(float));
        } else {
            norm(token, f->token_norm, n, m->eps, both);
            norm(state, f->state_norm, n, m->eps, both + n);
            memcpy(p->x + row * n, f->normed_residual ? both + n : state, n * sizeof(float));
        }
    }
    ended(self);
    if (!f->fc.panels) return p->h;
    linear(self, &f->fc, p->h, 2 * n, p->rows, p->x, n);
    return p->x;
}

/* Take the rows through a layer, which reads `read`, and normalise them for the next one. */
static void through(Self *self, int64_t number, const float *read) {
    const Pass *p = self->about;
    const Model *m = p->model;
    const Layer *layer = m->layer + number;
    int64_t n = m->hidden, width = (m->heads + 2 * m->kv_heads) * m->dim;
    linear(self, &layer->qkv, read, layer->qkv.in, p->rows, p->qkv, width);
    turned(self, number, layer);
    attention(self, number, layer);
    linear(self, &layer->o, p->attended, m->heads * m->dim, p->rows, p->h, n);
    added(self, layer->post_norm);
    gates(self, &layer->gate_up, p->h);
    linear(self, &layer->down, p->gated, m->ff, p->rows, p->h, n);
    added(self, number + 1 < m->layers ? m->layer[number + 1].input_norm : 0);
}

/* Turn the wanted rows into logits, and into the states that an EAGLE head is given next. */
static void told(Self *self) {
    const Pass *p = self->about;
    const Model *m = p->model;
    int64_t n = m->hidden;
    for (int64_t row; (row = claim(self, p->wanted)) >= 0;) {
        const float *x = p->x + (p->wanted_rows ? p->wanted_rows[row] : row) * n;
        float *h = p->h + row * n;
        if (m->norm) norm(x, m->norm, n, m->eps, h);
        else memcpy(h, x, n * sizeof(float));
        if (m->fusion) memcpy(p->states + row * n, m->fusion->normed_states ? h : x, n * sizeof(float));
    }
    ended(self);
    linear(self, &m->head, p->h, n, p->wanted, p->logits, m->head.out);
}

static void whole(Self *self) {
    const Pass *p = self->about;
    const float *read = p->model->fusion ? fused(self) : embedded(self);
    left(self, 0);
    for (int64_t i = 0; i < p->model->layers; i++) {
        through(self, i, read);
        left(self, i + 1);
        read = p->h;
    }
    told(self);
}
