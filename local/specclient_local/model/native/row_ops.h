/* Operations on rows of a model: norms, rotations, attention, gates, argmax. */
#include <math.h>

#include "dot_products.h"

#define QUERIES 4      /* queries of one key head that are computed together */
#define PARTS FLOOR_2(SUMS / QUERIES)  /* vectors of each value row that are summed at once */
#define GATES (2 * W)  /* gate outputs in a group of panels; as many `up` outputs follow them */
#define INLINE static inline __attribute__((always_inline)) void

typedef struct {
    const float *input_norm, *post_norm, *qk_norm;
    Linear qkv, o, gate_up, down;
    int64_t sliding;
} Layer;
typedef struct {  /* how an EAGLE head combines token and state: by matrix fc (EAGLE-1) or two norms (EAGLE-3) */
    const float *token_norm, *state_norm;
    Linear fc;
    int64_t normed_residual, normed_states;  /* whether the residual and the returned states are normalised */
} Fusion;
typedef struct {
    int64_t hidden, heads, kv_heads, dim, ff, layers;
    double eps;
    const float *embedding, *norm;  /* norm is NULL if the head reads rows without one */
    Linear head;
    const Layer *layer;
    const Fusion *fusion;   /* EAGLE heads only, else NULL */
    const int64_t *vocab_ids;  /* token id of each output of the head; NULL if they are equal */
} Model;

/* Return the sum of a vector's elements: halves are added until four are left, whose order is fixed. */
static float sum_lanes(vec v) {
    typedef float quad __attribute__((vector_size(16)));
    quad q[V / 4];
    memcpy(q, &v, sizeof v);
    for (int n = V / 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++) q[i] += q[i + n];
    return (q[0][0] + q[0][2]) + (q[0][1] + q[0][3]);
}

/* Load `left` elements, followed by zeros. The end of a row is computed as a vector as well: a compiler that
 * vectorises a scalar loop may round it differently in one place than in another. */
static vec load_partial(const float *x, int64_t left) {
    vec v = {0};
    memcpy(&v, x, left * sizeof(float));
    return v;
}

/* Return the dot product of two rows as one partial sum per lane. */
static inline vec dot_lanes(const float *a, const float *b, int64_t n) {
    vec sum = {0};
    int64_t i = 0;
    for (; i + V <= n; i += V) sum += *(const vec *)(a + i) * *(const vec *)(b + i);
    if (i < n) sum += load_partial(a + i, n - i) * load_partial(b + i, n - i);
    return sum;
}

static float dot(const float *a, const float *b, int64_t n) { return sum_lanes(dot_lanes(a, b, n)); }

/* Return the sums of four vectors, each by the additions of sum_lanes(), in a third of the instructions. */
static inline void sum_lanes_of_4(const vec v[4], float *sums) {
#define PICK __builtin_shufflevector
#if V == 16 && (defined(__clang__) || __GNUC__ >= 12)
    vec ab = PICK(v[0], v[1], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
             PICK(v[0], v[1], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    vec cd = PICK(v[2], v[3], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
             PICK(v[2], v[3], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    vec q = PICK(ab, cd, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
            PICK(ab, cd, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    q += PICK(q, q, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    q += PICK(q, q, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
    for (int i = 0; i < 4; i++) sums[i] = q[4 * i];
#elif V == 8 && (defined(__clang__) || __GNUC__ >= 12)
    for (int i = 0; i < 4; i += 2) {
        vec q = PICK(v[i], v[i + 1], 0, 1, 2, 3, 8, 9, 10, 11) + PICK(v[i], v[i + 1], 4, 5, 6, 7, 12, 13, 14, 15);
        q += PICK(q, q, 2, 3, 0, 1, 6, 7, 4, 5);
        q += PICK(q, q, 1, 0, 3, 2, 5, 4, 7, 6);
        sums[i] = q[0], sums[i + 1] = q[4];
    }
#else
    for (int i = 0; i < 4; i++) sums[i] = sum_lanes(v[i]);
#endif
}

static void rms_norm(const float *x, const float *weight, int64_t n, double eps, float *y) {
    float scale = 1.0f / sqrtf(dot(x, x, n) / n + (float)eps);
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * scale * weight[i];
}

static vec blend(ivec chosen, vec a, vec b) { return (vec)((chosen & (ivec)a) | (~chosen & (ivec)b)); }

/* e^x with a relative error of about 1e-7: 2^n times a polynomial of the remainder (expf of Cephes). */
static vec exp_lanes(vec x) {
    vec zero = {0};
    x = blend(x < zero - 87.0f, zero - 87.0f, x);
    x = blend(x > zero + 88.0f, zero + 88.0f, x);
    vec n = x * 1.44269504f + (zero + 12582912.0f);  /* x / ln 2; adding 1.5 * 2^23 rounds it to an integer */
    n = n - 12582912.0f;
    x = x - n * 0.693359375f;  /* x - n ln 2, in two steps to keep its low bits */
    x = x + n * 2.12194440e-4f;
    vec p = zero + 1.9875691500e-4f;
    p = p * x + 1.3981999507e-3f;
    p = p * x + 8.3334519073e-3f;
    p = p * x + 4.1665795894e-2f;
    p = p * x + 1.6666665459e-1f;
    p = p * x + 5.0000001201e-1f;
    p = p * x * x + x + 1.0f;
    ivec power = (__builtin_convertvector(n, ivec) + 127) << 23;  /* the bits of 2^n as a float32 */
    vec scale;
    memcpy(&scale, &power, sizeof scale);
    return p * scale;
}

/* Return the index of the largest element: the first of equal ones, and the first NaN if there is one.
 * The tie rule of greedy verification; see decoding/verify.py. */
static int64_t argmax(const float *x, int64_t n, float *value) {
    vec most;
    ivec nan = {0};
    for (int k = 0; k < V; k++) most[k] = -INFINITY;
    int64_t i = 0;
    for (; i + V <= n; i += V) {
        vec v = f32(x + i);
        nan |= v != v;
        most = blend(v > most, v, most);
    }
    float best = -INFINITY;
    int none = 0;
    for (int k = 0; k < V; k++) {
        none |= nan[k];
        if (most[k] > best) best = most[k];
    }
    for (; i < n; i++) {
        none |= x[i] != x[i];
        if (x[i] > best) best = x[i];
    }
    for (i = 0; none ? x[i] == x[i] : x[i] != best;) i++;
    *value = x[i];
    return i;
}

static inline vec silu(vec x) {
    vec one = {0};
    one += 1.0f;
    return x / (one + exp_lanes(-x));
}

static void silu_multiply(const float *gate, const float *up, int64_t n, float *y) {  /* n is a multiple of W */
    for (int64_t i = 0; i < n; i += V) *(vec *)(y + i) = silu(f32(gate + i)) * f32(up + i);
}

/* x += silu(h) */
static void add_silu(const float *h, int64_t n, float *x) {
    vec some = {0}, sum = {0};
    for (int64_t i = 0; i < n; i += V) {
        int64_t left = n - i < V ? n - i : V;
        memcpy(&some, h + i, left * sizeof(float));
        memcpy(&sum, x + i, left * sizeof(float));
        sum += silu(some);
        memcpy(x + i, &sum, left * sizeof(float));
    }
}

/* Normalise (if the model does) and rotate a row's queries and keys, and store keys and values in the cache, whose
 * heads are `stride` elements apart. */
static void rotate_and_store_row(const Model *m, const Layer *layer, const float *turns, float *qkv,
                                 float *cache, int64_t stride) {
    for (int64_t head = 0; head < m->heads + m->kv_heads; head++) {
        float *v = qkv + head * m->dim;
        if (layer->qk_norm) rms_norm(v, layer->qk_norm + head * m->dim, m->dim, m->eps, v);
        for (int64_t i = 0; i < m->dim; i += 2) {
            float re = v[i], im = v[i + 1], c = turns[i], s = turns[i + 1];
            v[i] = fmaf(re, c, -(im * s));  /* fixes which product is fused, whatever the compiler */
            v[i + 1] = fmaf(re, s, im * c);
        }
    }
    for (int64_t i = 0; i < 2 * m->kv_heads; i++)
        memcpy(cache + i * stride, qkv + (m->heads + i) * m->dim, m->dim * sizeof(float));
}

/* Sum P vectors of each value row, weighted by the scores of up to QUERIES queries. READ loads one vector and SIZE
 * is its size in bytes. */
#define WEIGHTED_SUM(NAME, P, READ, SIZE)                                                                       \
    INLINE NAME(const float *values, int64_t dim, int64_t end, const float *scores,                             \
                int64_t length, const float *sum, float *const *out, int64_t at, int count) {                   \
        vec taken[QUERIES][P] = {{{0}}};                                                                        \
        for (int64_t j = 0; j < end; j++)                                                                       \
            for (int p = 0; p < P; p++) {                                                                       \
                vec value = READ(values + j * dim + p * V, dim - at);                                           \
                for (int i = 0; i < count; i++) taken[i][p] += value * scores[i * length + j];                  \
            }                                                                                                   \
        for (int i = 0; i < count; i++)                                                                         \
            for (int p = 0; p < P; p++) {                                                                       \
                taken[i][p] /= sum[i];                                                                          \
                memcpy(out[i] + at + p * V, &taken[i][p], SIZE);                                                \
            }                                                                                                   \
    }
#define LOAD_ALL(x, left) (*(const vec *)(x))

WEIGHTED_SUM(weighted_sum_parts, PARTS, LOAD_ALL, sizeof(vec))
WEIGHTED_SUM(weighted_sum_1, 1, LOAD_ALL, sizeof(vec))
WEIGHTED_SUM(weighted_sum_rest, 1, load_partial, (dim - at) * sizeof(float))

static inline vec exp_minus_max(vec score, float most) {  /* 0 for a score of -INFINITY (masked) */
    return (vec)((ivec)exp_lanes(score - most) & (score > (vec){0} - INFINITY));
}

/* Replace scores [seen] by e^(score - most), and store their sum in *sum. */
static void exp_and_sum(float *scores, int64_t seen, float most, float *sum) {
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
    *sum = sum_lanes(added);
}

/* Attend with up to QUERIES queries of one key head, all of which see the first `open` positions; scores
 * [QUERIES][length] is scratch memory.
 *
 * The scores of the visible positions are contiguous while they are summed. A row of a tree is therefore summed
 * in the same order as if its ancestors were neighbours in the cache, which keeps its bits equal to a chain's.
 */
INLINE attend_queries(const Model *m, const float *keys, const float *values, const float *const *q,
                const float *const *mask, float *const *out, int count, int64_t open, int64_t length,
                float *scores) {
    const float scale = 1.0f / sqrtf((float)m->dim);
    float most[QUERIES], sum[QUERIES];
    int64_t dim = m->dim, fours = open / 4 * 4, end = fours, seen[QUERIES];
    for (int i = 0; i < count; i++) most[i] = -INFINITY, seen[i] = fours;
    for (int64_t j = 0; j < fours; j += 4) {
        for (int64_t d = 0; d < 4 * dim; d += CACHE_LINE / sizeof(float)) __builtin_prefetch(values + j * dim + d);
        for (int i = 0; i < count; i++) {
            vec sums[4];
            float *score = scores + i * length + j;
            for (int k = 0; k < 4; k++) sums[k] = dot_lanes(q[i], keys + (j + k) * dim, dim);
            sum_lanes_of_4(sums, score);
            for (int k = 0; k < 4; k++) {
                score[k] *= scale;
                if (score[k] > most[i]) most[i] = score[k];
            }
        }
    }
    for (int64_t j = fours; j < length; j++)
        for (int i = 0; i < count; i++) {
            if (mask[i] && mask[i][j] != 0.0f) continue;
            float score = dot(q[i], keys + j * dim, dim) * scale;
            if (score > most[i]) most[i] = score;
            scores[i * length + seen[i]++] = score;
            end = j + 1;
        }
    for (int i = 0; i < count; i++) {
        float *row = scores + i * length;
        exp_and_sum(row, seen[i], most[i], sum + i);
        for (int64_t j = end, left = seen[i]; left < j;) {  /* move the scores back to their positions, zeros between */
            j--;
            row[j] = mask[i] && mask[i][j] != 0.0f ? 0.0f : row[--left];
        }
        memset(out[i], 0, dim * sizeof(float));
    }
    int64_t d = 0;
    for (; d + PARTS * V <= dim; d += PARTS * V)
        weighted_sum_parts(values + d, dim, end, scores, length, sum, out, d, count);
    for (; d + V <= dim; d += V) weighted_sum_1(values + d, dim, end, scores, length, sum, out, d, count);
    if (d < dim) weighted_sum_rest(values + d, dim, end, scores, length, sum, out, d, count);
}

/* Dispatch on the number of queries: if it is a constant, the sums stay in registers. */
static void attend(const Model *m, const float *keys, const float *values, const float *const *q,
                   const float *const *mask, float *const *out, int count, int64_t open, int64_t length,
                   float *scores) {
    switch (count) {
        case 1: attend_queries(m, keys, values, q, mask, out, 1, open, length, scores); break;
        case 2: attend_queries(m, keys, values, q, mask, out, 2, open, length, scores); break;
        case 3: attend_queries(m, keys, values, q, mask, out, 3, open, length, scores); break;
        default: attend_queries(m, keys, values, q, mask, out, QUERIES, open, length, scores);
    }
}
