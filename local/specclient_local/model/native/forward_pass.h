/* The forward pass of a Llama-family model in float32, and of an EAGLE head, which is one such layer over tokens
 * and hidden states.
 *
 * Every element of a row is computed by the same operations in the same order, however many rows the pass has and
 * whichever thread computes it: an output is summed over its inputs from first to last, and attention over the
 * visible positions in order. A row's logits therefore have the same bits alone and in a batch, which makes greedy
 * speculation equal to plain decoding token by token.
 */
#include <stdint.h>
#include <string.h>

#include "attention.h"
#include "thread_team.h"

typedef struct {  /* contiguous rows of one request; a mask row is 0 where a position is visible; the first
                      `open` positions are visible to all rows */
    int64_t first, rows, start, open, length, mask_stride, window_stride;
    const float *mask, *window;  /* NULL if every row sees all positions */
    void *const *cache;  /* per layer [2 KV][capacity][D], keys first */
    int64_t causal;      /* whether row i sees the first start + i + 1 positions, if no window slides */
} Span;
typedef struct {
    const Model *model;
    int64_t rows, spans, wanted, capacity, threads, is_bfloat16;  /* the last: whether keys and values are */
    const int64_t *ids, *positions, *wanted_rows;  /* wanted_rows is NULL if all logits are wanted */
    const float *turns;  /* [context][D / 2] pairs of cosine and sine */
    const Span *span;
    float *x, *h, *qkv, *attended, *gated, *scores, *logits;
    char *converted;  /* rows as products read them; see dot_products.h */
    int64_t taps;  /* number of depths in `tapped` after which rows are copied to features [rows][taps][hidden] */
    const int64_t *tapped;
    float *features;
    const float *given;  /* EAGLE heads: [rows][hidden] states one position before each row */
    float *states;       /* EAGLE heads: [wanted][hidden] states for the rows that follow */
} Pass;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Prefetch distance: the first row prefetches weights, later rows find them in the cache. */
static int64_t ahead(int64_t row) { return row ? 0 : PREFETCH_DISTANCE; }

typedef struct { const char *at; int64_t stride; } Factors;  /* rows of a product, `stride` bytes apart */

/* Return x as the product with l reads it: itself, or rows that all threads convert into `converted`. */
static Factors factors(Worker *worker, const Linear *l, const float *x, int64_t sx, int64_t rows, char *converted) {
    if (!is_converted(l)) return (Factors){(const char *)x, sx * (int64_t)sizeof(float)};
    int64_t stride = converted_stride(l);
    for (int64_t row; (row = claim(worker, rows)) >= 0;) convert_row(l, x + row * sx, converted + row * stride);
    end_stage(worker);
    return (Factors){converted, stride};
}

/* y [some, count * W] = the rows from `row` on with `count` panels from `begin` on. */
static void multiply(const Linear *l, int64_t begin, int64_t count, Factors x, int64_t row, int64_t some, float *y,
                     int64_t sy) {
    const char *at = x.at + row * x.stride;
    if (is_converted(l)) multiply_converted(l, begin, count, at, x.stride, some, y, sy, ahead(row));
    else multiply_panels(l, begin, count, (const float *)at, x.stride / (int64_t)sizeof(float), some, y, sy, ahead(row));
}

/* Number of blocks in which rows are multiplied with a panel. Their sizes differ by one at most, because a small block
 * takes nearly as long as a full one. */
static int64_t row_blocks(int64_t rows) { return (rows + ROWS - 1) / ROWS; }

/* y [rows, out] = x [rows, in] w + bias. A thread takes four panels at a time, for all rows. */
static void linear(Worker *worker, const Linear *l, const float *x, int64_t sx, int64_t rows, float *y,
                   int64_t sy, char *converted) {
    int64_t panels = (l->out + W - 1) / W, blocks = row_blocks(rows);
    Factors factor = factors(worker, l, x, sx, rows, converted);
    for (int64_t piece; (piece = claim(worker, (panels + 3) / 4)) >= 0;) {
        int64_t begin = piece * 4, count = least(panels - begin, 4);
        for (int64_t block = 0; block < blocks; block++) {
            int64_t row = rows * block / blocks, some = rows * (block + 1) / blocks - row;
            multiply(l, begin, count, factor, row, some, y + row * sy + begin * W, sy);
        }
    }
    end_stage(worker);
}

/* silu(gate) * up [rows, ff] of x [rows, hidden]. A group of panels has GATES outputs of each, side by side. */
static void gated_linear(Worker *worker, const Linear *l, const float *x) {
    const Pass *p = worker->task;
    int64_t n = p->model->hidden, ff = p->model->ff, blocks = row_blocks(p->rows);
    float both[ROWS][2 * GATES];
    Factors factor = factors(worker, l, x, n, p->rows, p->converted);
    for (int64_t piece; (piece = claim(worker, ff / GATES)) >= 0;)
        for (int64_t block = 0; block < blocks; block++) {
            int64_t row = p->rows * block / blocks, some = p->rows * (block + 1) / blocks - row;
            multiply(l, piece * 4, 4, factor, row, some, both[0], 2 * GATES);
            for (int64_t i = 0; i < some; i++)
                silu_multiply(both[i], both[i] + GATES, GATES, p->gated + (row + i) * ff + piece * GATES);
        }
    end_stage(worker);
}

static int64_t query_count(const Model *m, const Span *span) { return span->rows * (m->heads / m->kv_heads); }

/* Number of blocks into which the queries of a key head are divided: few large ones of a prompt, so that keys and values
 * are read less often, else many small ones for many threads. */
static int64_t query_blocks(const Model *m, const Span *span) {
    int64_t count = query_count(m, span), size = count < 4 * MOST_QUERIES ? QUERIES : MOST_QUERIES;
    return (count + size - 1) / size;
}

/* Set which positions query `i` of a block, of the span's row `row`, sees. */
static void set_visible(Attention *a, int i, const Layer *layer, const Span *span, int64_t row) {
    int64_t slides = layer->sliding && span->window, stride = slides ? span->window_stride : span->mask_stride;
    const float *seen = slides ? span->window : span->mask;
    int is_prefix = !seen || (span->causal && !slides);
    a->mask[i] = is_prefix ? 0 : seen + row * stride;
    a->prefix[i] = is_prefix ? (seen ? span->start + row + 1 : span->length) : slides ? 0 : span->open;
}

/* Attend with one block of a request's queries of one key head. */
static void attend_block(Worker *worker, const Layer *layer, int64_t number, const Span *span, int64_t head,
                         int64_t block, float *scores) {
    const Pass *p = worker->task;
    const Model *m = p->model;
    int64_t group = m->heads / m->kv_heads, width = (m->heads + 2 * m->kv_heads) * m->dim;
    int64_t all = query_count(m, span), parts = query_blocks(m, span), first = all * block / parts;
    int64_t size = p->is_bfloat16 ? sizeof(uint16_t) : sizeof(float), head_bytes = p->capacity * m->dim * size;
    const char *keys = (const char *)span->cache[number] + head * head_bytes;
    Attention a = {.dim = m->dim, .length = span->length, .stride = score_stride(span->length), .scores = scores,
                   .count = (int)(all * (block + 1) / parts - first), .is_bfloat16 = p->is_bfloat16,
                   .keys = keys, .values = keys + m->kv_heads * head_bytes};
    for (int i = 0; i < a.count; i++) {
        int64_t own = (first + i) / group, row = span->first + own, h = head * group + (first + i) % group;
        a.q[i] = p->qkv + row * width + h * m->dim;
        a.out[i] = p->attended + (row * m->heads + h) * m->dim;
        set_visible(&a, i, layer, span, own);
    }
    attend(&a);
}

/* Attend with all queries of the pass. Neighbouring pieces belong to one key head: if one thread takes them all, its
 * keys are read from memory once. */
static void attend_all(Worker *worker, int64_t number, const Layer *layer) {
    const Pass *p = worker->task;
    const Model *m = p->model;
    int64_t longest = 0, pieces = 0;
    for (int64_t i = 0; i < p->spans; i++) {
        pieces += query_blocks(m, p->span + i) * m->kv_heads;
        if (p->span[i].length > longest) longest = p->span[i].length;
    }
    float *scores = p->scores + worker->number * MOST_QUERIES * score_stride(longest);
    for (int64_t piece; (piece = claim(worker, pieces)) >= 0;) {
        const Span *span = p->span;
        for (; piece >= query_blocks(m, span) * m->kv_heads; span++) piece -= query_blocks(m, span) * m->kv_heads;
        int64_t parts = query_blocks(m, span);
        attend_block(worker, layer, number, span, piece / parts, piece % parts, scores);
    }
    end_stage(worker);
}

/* Rotate each row's queries and keys, and store its keys and values in its request's cache. */
static void rotate_and_store(Worker *worker, int64_t number, const Layer *layer) {
    const Pass *p = worker->task;
    const Model *m = p->model;
    int64_t width = (m->heads + 2 * m->kv_heads) * m->dim;
    for (int64_t row; (row = claim(worker, p->rows)) >= 0;) {
        const Span *span = p->span;
        while (row >= span->first + span->rows) span++;
        rotate_and_store_row(m, layer, p->turns + p->positions[row] * m->dim, p->qkv + row * width,
                             span->cache[number], (span->start + row - span->first) * m->dim, p->capacity * m->dim,
                             p->is_bfloat16);
    }
    end_stage(worker);
}

/* Add the output of a projection to each row, and normalise the rows for the next one unless weight is NULL. */
static void add_and_norm(Worker *worker, const float *weight) {
    const Pass *p = worker->task;
    int64_t n = p->model->hidden;
    for (int64_t row; (row = claim(worker, p->rows)) >= 0;) {
        float *x = p->x + row * n, *h = p->h + row * n;
        for (int64_t i = 0; i < n; i++) x[i] += h[i];
        if (weight) rms_norm(x, weight, n, p->model->eps, h);
    }
    end_stage(worker);
}

/* Copy the rows to `features` if hidden states after this many layers are wanted. */
static void copy_tapped_states(Worker *worker, int64_t layers) {
    const Pass *p = worker->task;
    int64_t n = p->model->hidden;
    for (int64_t tap = 0; tap < p->taps; tap++) {
        if (p->tapped[tap] != layers) continue;
        for (int64_t row; (row = claim(worker, p->rows)) >= 0;)
            memcpy(p->features + (row * p->taps + tap) * n, p->x + row * n, n * sizeof(float));
        end_stage(worker);
    }
}

/* Load each row from the embedding, and return the input of the first layer. */
static const float *embed_tokens(Worker *worker) {
    const Pass *p = worker->task;
    const Model *m = p->model;
    int64_t n = m->hidden;
    for (int64_t row; (row = claim(worker, p->rows)) >= 0;) {
        memcpy(p->x + row * n, m->embedding + p->ids[row] * n, n * sizeof(float));
        rms_norm(p->x + row * n, m->layer[0].input_norm, n, m->eps, p->h + row * n);
    }
    end_stage(worker);
    return p->h;
}

/* Combine each token with the state one position before it, and return the input of an EAGLE head's layer. */
static const float *fuse_tokens_and_states(Worker *worker) {
    const Pass *p = worker->task;
    const Model *m = p->model;
    const Fusion *f = m->fusion;
    int64_t n = m->hidden;
    for (int64_t row; (row = claim(worker, p->rows)) >= 0;) {
        const float *token = m->embedding + p->ids[row] * n, *state = p->given + row * n;
        float *both = p->h + row * 2 * n;
        if (f->fc.panels) {
            memcpy(both, token, n * sizeof(float));
            memcpy(both + n, state, n * sizeof(float));
        } else {
            rms_norm(token, f->token_norm, n, m->eps, both);
            rms_norm(state, f->state_norm, n, m->eps, both + n);
            memcpy(p->x + row * n, f->normed_residual ? both + n : state, n * sizeof(float));
        }
    }
    end_stage(worker);
    if (!f->fc.panels) return p->h;
    linear(worker, &f->fc, p->h, 2 * n, p->rows, p->x, n, p->converted);
    return p->x;
}

/* Run the rows through a layer with input `read`, and normalise them for the next layer. */
static void run_layer(Worker *worker, int64_t number, const float *read) {
    const Pass *p = worker->task;
    const Model *m = p->model;
    const Layer *layer = m->layer + number;
    int64_t n = m->hidden, width = (m->heads + 2 * m->kv_heads) * m->dim;
    linear(worker, &layer->qkv, read, layer->qkv.in, p->rows, p->qkv, width, p->converted);
    rotate_and_store(worker, number, layer);
    attend_all(worker, number, layer);
    linear(worker, &layer->o, p->attended, m->heads * m->dim, p->rows, p->h, n, p->converted);
    add_and_norm(worker, layer->post_norm);
    gated_linear(worker, &layer->gate_up, p->h);
    linear(worker, &layer->down, p->gated, m->ff, p->rows, p->h, n, p->converted);
    add_and_norm(worker, number + 1 < m->layers ? m->layer[number + 1].input_norm : 0);
}

/* Compute the logits of the wanted rows, and the states that the next rows of an EAGLE head read. */
static void output_logits(Worker *worker) {
    const Pass *p = worker->task;
    const Model *m = p->model;
    int64_t n = m->hidden;
    for (int64_t row; (row = claim(worker, p->wanted)) >= 0;) {
        const float *x = p->x + (p->wanted_rows ? p->wanted_rows[row] : row) * n;
        float *h = p->h + row * n;
        if (m->norm) rms_norm(x, m->norm, n, m->eps, h);
        else memcpy(h, x, n * sizeof(float));
        if (m->fusion) memcpy(p->states + row * n, m->fusion->normed_states ? h : x, n * sizeof(float));
    }
    end_stage(worker);
    linear(worker, &m->head, p->h, n, p->wanted, p->logits, m->head.out, p->converted);
}

static void run_pass(Worker *worker) {
    const Pass *p = worker->task;
    const float *read = p->model->fusion ? fuse_tokens_and_states(worker) : embed_tokens(worker);
    copy_tapped_states(worker, 0);
    for (int64_t i = 0; i < p->model->layers; i++) {
        run_layer(worker, i, read);
        copy_tapped_states(worker, i + 1);
        read = p->h;
    }
    output_logits(worker);
}
