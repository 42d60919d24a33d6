/* Attention of a block of queries of one key head over a request's keys and values.
 *
 * A score is one sum per lane over the inputs, and then the sum of the lanes. The exponentials of a query's visible
 * positions are summed as if these were neighbours, and its values in the order of the positions. So a query's result
 * has the same bits beside any other queries, and in a tree the bits that it has in a chain.
 */
#include "row_ops.h"

#define QUERIES 4       /* queries whose values are summed together */
#define PARTS FLOOR_2(SUMS / QUERIES)  /* vectors of each value row that are summed at once */
#define MOST_QUERIES 16 /* queries of a block */
#define VALUE_TILE 64   /* positions whose values stay in the cache while all queries of a block read them */
#define INLINE static inline __attribute__((always_inline))

typedef struct {  /* a block of queries of one key head */
    int64_t dim, length, stride;      /* width of a head; positions; elements between the scores of two queries */
    int count;
    int64_t is_bfloat16;              /* whether keys and values are, else they are float32 */
    const void *keys, *values;        /* [length][dim] */
    const float *q[MOST_QUERIES], *mask[MOST_QUERIES];  /* mask: 0 where a position is visible; NULL if all are */
    int64_t prefix[MOST_QUERIES];     /* leading positions that a query sees */
    int64_t end[MOST_QUERIES];        /* the end of the last position that it sees; at least `prefix` */
    float *out[MOST_QUERIES], *scores;  /* [MOST_QUERIES][stride] scratch memory */
} Attention;

/* Return the elements between the scores of two queries: whole vectors. */
static int64_t score_stride(int64_t length) { return (length + V - 1) / V * V; }

/* Return a vector of the sums of the lanes of V vectors, each by the additions of sum_lanes(). */
static inline vec sums_of_lanes(const vec v[V]) {
#if VECTOR == 64 && HAS_PICK
    vec half[8], quarter[4], pair[2];
    static const int first[8] = {0, 8, 1, 9, 2, 10, 3, 11};  /* so that the sums come out in order */
    for (int i = 0; i < 8; i++) {
        vec a = v[first[i]], b = v[first[i] + 4];
        half[i] = PICK(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
                  PICK(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    }
    for (int i = 0; i < 4; i++) {
        vec a = half[2 * i], b = half[2 * i + 1];
        quarter[i] = PICK(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
                     PICK(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    }
    for (int i = 0; i < 2; i++) {
        vec a = quarter[2 * i], b = quarter[2 * i + 1];
        pair[i] = PICK(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
                  PICK(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    }
    return PICK(pair[0], pair[1], 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30) +
           PICK(pair[0], pair[1], 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31);
#elif VECTOR == 32 && HAS_PICK
    vec half[4], pair[2];
    for (int i = 0; i < 4; i++) {
        vec a = v[i], b = v[i + 4];
        half[i] = PICK(a, b, 0, 1, 2, 3, 8, 9, 10, 11) + PICK(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
    }
    for (int i = 0; i < 2; i++) {
        vec a = half[2 * i], b = half[2 * i + 1];
        pair[i] = PICK(a, b, 0, 1, 8, 9, 4, 5, 12, 13) + PICK(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    }
    return PICK(pair[0], pair[1], 0, 2, 8, 10, 4, 6, 12, 14) + PICK(pair[0], pair[1], 1, 3, 9, 11, 5, 7, 13, 15);
#elif VECTOR == 16 && HAS_PICK
    vec ab = PICK(v[0], v[1], 0, 1, 4, 5) + PICK(v[0], v[1], 2, 3, 6, 7);
    vec cd = PICK(v[2], v[3], 0, 1, 4, 5) + PICK(v[2], v[3], 2, 3, 6, 7);
    return PICK(ab, cd, 0, 2, 4, 6) + PICK(ab, cd, 1, 3, 5, 7);
#else
    vec sums;
    for (int i = 0; i < V; i++) sums[i] = sum_lanes(v[i]);
    return sums;
#endif
}

/* Return the products of a query with V keys. */
INLINE vec dots_of_keys(const float *q, const float *keys, int64_t dim) {
    vec sum[V];
    for (int k = 0; k < V; k++) sum[k] = (vec){0};
    int64_t i = 0;
    for (; i + V <= dim; i += V)
        for (int k = 0; k < V; k++) sum[k] = fused(f32(q + i), f32(keys + k * dim + i), sum[k]);
    if (i < dim)
        for (int k = 0; k < V; k++)
            sum[k] = fused(load_partial(q + i, dim - i), load_partial(keys + k * dim + i, dim - i), sum[k]);
    return sums_of_lanes(sum);
}

/* Return `count` keys or values from `position` on in float32: themselves, or widened to `memory`. */
static const float *widened_rows(const Attention *a, const void *rows, int64_t position, int64_t count, float *memory) {
    if (!a->is_bfloat16) return (const float *)rows + position * a->dim;
    const uint16_t *from = (const uint16_t *)rows + position * a->dim;
    int64_t i = 0, all = count * a->dim;
    for (; i + V <= all; i += V) *(vec *)(memory + i) = bf16(from + i);
    for (; i < all; i++) memory[i] = widened_bfloat16(from[i]);
    return memory;
}

/* The same for one width each. Every score comes from these functions: compiled in several places, a sum could be rounded
 * differently. */
typedef vec KeyDots(const float *, const float *, int64_t);
#define KEY_DOTS(NAME, DIM)                                                                                     \
    static __attribute__((noinline)) vec NAME(const float *q, const float *keys, int64_t dim) {                 \
        (void)dim;                                                                                              \
        return dots_of_keys(q, keys, DIM);                                                                      \
    }
KEY_DOTS(dots_64, 64)  /* constants keep the sums in registers */
KEY_DOTS(dots_128, 128)
KEY_DOTS(dots_any, dim)
static KeyDots *key_dots(int64_t dim) { return dim == 64 ? dots_64 : dim == 128 ? dots_128 : dots_any; }

/* Compute the scores of a block's queries with V keys from `position` on, those of the positions that a query's prefix
 * does not have included. */
static void score_keys(const Attention *a, int64_t position, const float *keys, float scale, vec *most) {
    KeyDots *dots = key_dots(a->dim);
    ivec lane;
    for (int k = 0; k < V; k++) lane[k] = k;
    for (int i = 0; i < a->count; i++) {
        int64_t left = a->prefix[i] - position;
        if (left <= 0) continue;
        vec score = dots(a->q[i], keys, a->dim) * scale;
        *(vec *)(a->scores + i * a->stride + position) = score;
        if (left < V) score = blend(lane < (int32_t)left, score, (vec){0} - INFINITY);
        most[i] = blend(score > most[i], score, most[i]);
    }
}

/* Compute the scores of all queries with the positions of their prefixes. */
static void score_prefixes(const Attention *a, float scale, vec *most) {
    float memory[a->is_bfloat16 ? V * a->dim : 1];
    int64_t last = 0;
    for (int i = 0; i < a->count; i++)
        if (a->prefix[i] > last) last = a->prefix[i];
    for (int64_t j = 0; j < last; j += V) {
        int64_t size = a->is_bfloat16 ? sizeof(uint16_t) : sizeof(float);
        const char *values = (const char *)a->values + j * a->dim * size;
        if (a->count <= QUERIES)  /* else they are in the cache */
            for (int64_t i = 0; i < V * a->dim * size; i += CACHE_LINE) __builtin_prefetch(values + i);
        score_keys(a, j, widened_rows(a, a->keys, j, V, memory), scale, most);
    }
}

/* Append a query's scores with the visible positions after its prefix; return the number of all its scores. With a
 * mask, the length is whole vectors. */
static int64_t score_rest(Attention *a, int i, float scale, float *most) {
    const float *mask = a->mask[i];
    float *row = a->scores + i * a->stride, memory[V * a->dim];
    int64_t seen = a->prefix[i];
    a->end[i] = seen;
    for (int64_t j = seen / V * V; mask && j < a->length; j += V) {
        int open = 0;
        for (int k = 0; k < V; k++) open += j + k >= a->prefix[i] && mask[j + k] == 0.0f;
        if (!open) continue;
        const float *keys = widened_rows(a, a->keys, j, V, memory);
        vec score = key_dots(a->dim)(a->q[i], keys, a->dim) * scale;
        for (int k = 0; k < V; k++) {
            if (j + k < a->prefix[i] || mask[j + k] != 0.0f) continue;
            if (score[k] > *most) *most = score[k];
            row[seen++] = score[k];
            a->end[i] = j + k + 1;
        }
    }
    return seen;
}

/* Move a query's `seen` weights to their positions, with zeros between them and up to `end`. */
static void spread_weights(const Attention *a, int i, int64_t seen, int64_t end) {
    float *row = a->scores + i * a->stride;
    if (seen == a->prefix[i]) {
        memset(row + seen, 0, (end - seen) * sizeof(float));
        return;
    }
    for (int64_t j = end, left = seen; left < j;) {
        j--;
        row[j] = j >= a->prefix[i] && a->mask[i][j] != 0.0f ? 0.0f : row[--left];
    }
}

static inline vec exp_minus_max(vec score, float most) {  /* 0 for a score of -INFINITY */
    return (vec)((ivec)exp_lanes(score - most) & (score > (vec){0} - INFINITY));
}

/* Replace scores [seen] by e^(score - most), and return their sum. */
static float exp_and_sum(float *scores, int64_t seen, float most) {
    vec added = {0};
    int64_t j = 0;
    for (; j + V <= seen; j += V) {
        vec some = exp_minus_max(f32(scores + j), most);
        added += some;
        *(vec *)(scores + j) = some;
    }
    if (j < seen) {
        vec some = (vec){0} - INFINITY;
        memcpy(&some, scores + j, (seen - j) * sizeof(float));
        some = exp_minus_max(some, most);
        added += some;
        memcpy(scores + j, &some, (seen - j) * sizeof(float));
    }
    return sum_lanes(added);
}

/* Add P vectors of each of `rows` value rows, weighted by the scores of up to QUERIES queries, to `out` from element
 * `at` on. LOAD reads one vector and SIZE is its size in bytes. */
#define WEIGHTED_SUM(NAME, P, LOAD, SIZE)                                                                       \
    INLINE void NAME(const float *values, int64_t dim, int64_t rows, const float *scores, int64_t stride,       \
                     float *const *out, int64_t at, int count) {                                                \
        vec sum[QUERIES][P];                                                                                    \
        for (int i = 0; i < count; i++)                                                                         \
            for (int p = 0; p < P; p++) sum[i][p] = LOAD(out[i] + at + p * V, dim - at);                        \
        for (int64_t j = 0; j < rows; j++)                                                                      \
            for (int p = 0; p < P; p++) {                                                                       \
                vec value = LOAD(values + j * dim + at + p * V, dim - at);                                      \
                for (int i = 0; i < count; i++)                                                                 \
                    sum[i][p] = fused(value, (vec){0} + scores[i * stride + j], sum[i][p]);                     \
            }                                                                                                   \
        for (int i = 0; i < count; i++)                                                                         \
            for (int p = 0; p < P; p++) memcpy(out[i] + at + p * V, &sum[i][p], SIZE);                          \
    }
#define LOAD_ALL(x, left) (*(const vec *)(x))

WEIGHTED_SUM(weighted_sum_parts, PARTS, LOAD_ALL, sizeof(vec))
WEIGHTED_SUM(weighted_sum_1, 1, LOAD_ALL, sizeof(vec))
WEIGHTED_SUM(weighted_sum_rest, 1, load_partial, (dim - at) * sizeof(float))

INLINE void add_values(const float *values, int64_t dim, int64_t rows, const float *scores, int64_t stride,
                       float *const *out, int count) {
    int64_t d = 0;
    for (; d + PARTS * V <= dim; d += PARTS * V) weighted_sum_parts(values, dim, rows, scores, stride, out, d, count);
    for (; d + V <= dim; d += V) weighted_sum_1(values, dim, rows, scores, stride, out, d, count);
    if (d < dim) weighted_sum_rest(values, dim, rows, scores, stride, out, d, count);
}

/* Add the weighted values of a tile for up to QUERIES queries. A constant number keeps the sums in registers. */
static void add_tile(const Attention *a, const float *values, int64_t rows, const float *scores, float *const *out,
                     int count) {
    switch (count) {
        case 1: add_values(values, a->dim, rows, scores, a->stride, out, 1); break;
        case 2: add_values(values, a->dim, rows, scores, a->stride, out, 2); break;
        case 3: add_values(values, a->dim, rows, scores, a->stride, out, 3); break;
        default: add_values(values, a->dim, rows, scores, a->stride, out, QUERIES);
    }
}

/* Sum the values of all queries; ends [count] are those of the positions that each group of QUERIES reads. */
static void sum_values(const Attention *a, const int64_t *ends, const float *sums) {
    float memory[a->is_bfloat16 ? VALUE_TILE * a->dim : 1];
    int64_t last = 0;
    for (int i = 0; i < a->count; i++) {
        memset(a->out[i], 0, a->dim * sizeof(float));
        if (ends[i] > last) last = ends[i];
    }
    for (int64_t j = 0; j < last; j += VALUE_TILE) {
        const float *values = widened_rows(a, a->values, j, last - j < VALUE_TILE ? last - j : VALUE_TILE, memory);
        for (int i = 0; i < a->count; i += QUERIES) {
            int64_t rows = ends[i] - j < VALUE_TILE ? ends[i] - j : VALUE_TILE;
            int count = a->count - i < QUERIES ? a->count - i : QUERIES;
            if (rows > 0) add_tile(a, values, rows, a->scores + i * a->stride + j, a->out + i, count);
        }
    }
    for (int i = 0; i < a->count; i++)
        for (int64_t d = 0; d < a->dim; d++) a->out[i][d] /= sums[i];
}

/* Attend with the queries of a block. */
static void attend(Attention *a) {
    const float scale = 1.0f / sqrtf((float)a->dim);
    vec most[MOST_QUERIES];
    float sums[MOST_QUERIES];
    int64_t seen[MOST_QUERIES], ends[MOST_QUERIES];
    for (int i = 0; i < a->count; i++) most[i] = (vec){0} - INFINITY;
    score_prefixes(a, scale, most);
    for (int i = 0; i < a->count; i++) {
        float largest = -INFINITY;
        for (int k = 0; k < V; k++)
            if (most[i][k] > largest) largest = most[i][k];
        seen[i] = score_rest(a, i, scale, &largest);
        sums[i] = exp_and_sum(a->scores + i * a->stride, seen[i], largest);
    }
    for (int i = 0; i < a->count; i++) {
        int first = i / QUERIES * QUERIES;
        ends[i] = 0;
        for (int k = first; k < first + QUERIES && k < a->count; k++)
            if (a->end[k] > ends[i]) ends[i] = a->end[k];
        spread_weights(a, i, seen[i], ends[i]);
    }
    sum_values(a, ends, sums);
}
