/* Turns what products give into rows of a model: norms, rotations, attention, gates. */
#include <math.h>

#include "products.h"

#define QUERIES 4      /* queries that share a key */
#define GATES (2 * W)  /* gates that stand in a group of panels, beside what they let through */
#define INLINE static inline __attribute__((always_inline)) void

typedef struct {
    const float *input_norm, *post_norm, *qk_norm;
    Linear qkv, o, gate_up, down;
    int64_t sliding;
} Layer;
typedef struct {  /* how an EAGLE head makes a row of a token and a state: by fc of both (EAGLE-1), or by two norms */
    const float *token_norm, *state_norm;
    Linear fc;
    int64_t normed_residual, normed_states;  /* whether its residual and the states it gives are normalised */
} Fusion;
typedef struct {
    int64_t hidden, heads, kv_heads, dim, ff, layers;
    double eps;
    const float *embedding, *norm;  /* without a norm the head reads rows as they are */
    Linear head;
    const Layer *layer;
    const Fusion *fusion;   /* NULL but of an EAGLE head */
    const int64_t *spoken;  /* tokens that the head's outputs stand for; NULL where they are the same */
} Model;

static float total(vec v) {
    typedef float half __attribute__((vector_size(32)));
    typedef float quarter __attribute__((vector_size(16)));
    half h[2];
    quarter q[2];
    memcpy(h, &v, sizeof v);
    h[0] += h[1];
    memcpy(q, h, sizeof q);
    q[0] += q[1];
    return (q[0][0] + q[0][2]) + (q[0][1] + q[0][3]);
}

/* Read up to a vector's numbers, zeros after them. Ends of rows are vectors too: a compiler that turns a loop
 * over single numbers into vectors may round them otherwise in one place than in another. */
static vec part(const float *x, int64_t left) {
    vec v = {0};
    memcpy(&v, x, left * sizeof(float));
    return v;
}

/* Return the products of two rows, summed into a vector. */
static inline vec products(const float *a, const float *b, int64_t n) {
    vec sum = {0};
    int64_t i = 0;
    for (; i + W <= n; i += W) sum += *(const vec *)(a + i) * *(const vec *)(b + i);
    if (i < n) sum += part(a + i, n - i) * part(b + i, n - i);
    return sum;
}

static float dot(const float *a, const float *b, int64_t n) { return total(products(a, b, n)); }

/* Return four vectors' totals, each by the additions of total(), in a third of the instructions. */
static inline void totals(const vec v[4], float *sums) {
#if defined(__clang__) || __GNUC__ >= 12
#define PICK __builtin_shufflevector
    vec ab = PICK(v[0], v[1], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
             PICK(v[0], v[1], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    vec cd = PICK(v[2], v[3], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
             PICK(v[2], v[3], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    vec q = PICK(ab, cd, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
            PICK(ab, cd, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    q += PICK(q, q, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    q += PICK(q, q, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
    for (int i = 0; i < 4; i++) sums[i] = q[4 * i];
#else
    for (int i = 0; i < 4; i++) sums[i] = total(v[i]);
#endif
}

static void norm(const float *x, const float *weight, int64_t n, double eps, float *y) {
    float scale = 1.0f / sqrtf(dot(x, x, n) / n + (float)eps);
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * scale * weight[i];
}

static vec either(ivec chosen, vec a, vec b) { return (vec)((chosen & (ivec)a) | (~chosen & (ivec)b)); }

/* e^x to about 1e-7: 2^n times a polynomial of what is left (Cephes' expf). */
static vec exponential(vec x) {
    vec zero = {0};
    x = either(x < zero - 87.0f, zero - 87.0f, x);
    x = either(x > zero + 88.0f, zero + 88.0f, x);
    vec n = x * 1.44269504f + (zero + 12582912.0f);
    n = n - 12582912.0f;
    x = x - n * 0.693359375f;
    x = x + n * 2.12194440e-4f;
    vec p = zero + 1.9875691500e-4f;
    p = p * x + 1.3981999507e-3f;
    p = p * x + 8.3334519073e-3f;
    p = p * x + 4.1665795894e-2f;
    p = p * x + 1.6666665459e-1f;
    p = p * x + 5.0000001201e-1f;
    p = p * x * x + x + 1.0f;
    ivec power = (__builtin_convertvector(n, ivec) + 127) << 23;
    vec scale;
    memcpy(&scale, &power, sizeof scale);
    return p * scale;
}

/* Return the place of the largest number, the first of equal ones; the first NaN is larger than any number. */
static int64_t largest(const float *x, int64_t n, float *value) {
    vec most;
    ivec nan = {0};
    for (int k = 0; k < W; k++) most[k] = -INFINITY;
    int64_t i = 0;
    for (; i + W <= n; i += W) {
        vec v = full(x + i);
        nan |= v != v;
        most = either(v > most, v, most);
    }
    float best = -INFINITY;
    int none = 0;
    for (int k = 0; k < W; k++) {
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
    return x / (one + exponential(-x));
}

static void gated(const float *gate, const float *up, int64_t n, float *y) {  /* n: of whole vectors */
    for (int64_t i = 0; i < n; i += W) *(vec *)(y + i) = silu(full(gate + i)) * full(up + i);
}

/* x += silu(h) */
static void raised(const float *h, int64_t n, float *x) {
    vec some = {0}, sum = {0};
    for (int64_t i = 0; i < n; i += W) {
        int64_t left = n - i < W ? n - i : W;
        memcpy(&some, h + i, left * sizeof(float));
        memcpy(&sum, x + i, left * sizeof(float));
        sum += silu(some);
        memcpy(x + i, &sum, left * sizeof(float));
    }
}

/* Normalise (where the model does) and turn a row's queries and keys, and put keys and values in the cache, stride apart. */
static void turn(const Model *m, const Layer *layer, const float *turns, float *qkv, float *cache,
                 int64_t stride) {
    for (int64_t head = 0; head < m->heads + m->kv_heads; head++) {
        float *v = qkv + head * m->dim;
        if (layer->qk_norm) norm(v, layer->qk_norm + head * m->dim, m->dim, m->eps, v);
        for (int64_t i = 0; i < m->dim; i += 2) {
            float re = v[i], im = v[i + 1], c = turns[i], s = turns[i + 1];
            v[i] = fmaf(re, c, -(im * s));  /* which product is fused is not left to the compiler */
            v[i + 1] = fmaf(re, s, im * c);
        }
    }
    for (int64_t i = 0; i < 2 * m->kv_heads; i++)
        memcpy(cache + i * stride, qkv + (m->heads + i) * m->dim, m->dim * sizeof(float));
}

/* Add P vectors of each value row, by the scores of up to QUERIES queries; READ and SIZE are of one vector. */
#define WEIGH(NAME, P, READ, SIZE)                                                                 \
    INLINE NAME(const float *values, int64_t dim, int64_t end, const float *scores,                \
                int64_t length, const float *sum, float *const *out, int64_t at, int count) {      \
        vec taken[QUERIES][P] = {{{0}}};                                                           \
        for (int64_t j = 0; j < end; j++)                                                          \
            for (int p = 0; p < P; p++) {                                                          \
                vec value = READ(values + j * dim + p * W, dim - at);                              \
                for (int i = 0; i < count; i++) taken[i][p] += value * scores[i * length + j];     \
            }                                                                                      \
        for (int i = 0; i < count; i++)                                                            \
            for (int p = 0; p < P; p++) {                                                          \
                taken[i][p] /= sum[i];                                                             \
                memcpy(out[i] + at + p * W, &taken[i][p], SIZE);                                   \
            }                                                                                      \
    }
#define ALL(x, left) (*(const vec *)(x))

WEIGH(weigh_4, 4, ALL, sizeof(vec))
WEIGH(weigh_1, 1, ALL, sizeof(vec))
WEIGH(weigh_rest, 1, part, (dim - at) * sizeof(float))

static inline vec softened(vec score, float most) {  /* 0 where it is -INFINITY, as is what nobody sees */
    return (vec)((ivec)exponential(score - most) & (score > (vec){0} - INFINITY));
}

/* Turn scores [seen] into e^score, their sum into *sum. */
static void soften(float *scores, int64_t seen, float most, float *sum) {
    vec added = {0};
    int64_t j = 0;
    for (; j + W <= seen; j += W) {
        vec some = softened(full(scores + j), most);
        added += some;
        *(vec *)(scores + j) = some;
    }
    if (j < seen) {
        vec some = (vec){0} - INFINITY;
        memcpy(&some, scores + j, (seen - j) * sizeof(float));
        some = softened(some, most);
        added += some;
        memcpy(scores + j, &some, (seen - j) * sizeof(float));
    }
    *sum = total(added);
}

/* Attend with up to QUERIES queries of one key head, all of which see the first `open` positions; scores
 * [QUERIES][length] is scratch.
 *
 * A query's scores stand together while they are summed, whatever lies between the positions it sees: a row
 * of a tree is summed as it would be had its ancestors stood side by side.
 */
INLINE attended(const Model *m, const float *keys, const float *values, const float *const *q,
                const float *const *mask, float *const *out, int count, int64_t open, int64_t length,
                float *scores) {
    const float scale = 1.0f / sqrtf((float)m->dim);
    float most[QUERIES], sum[QUERIES];
    int64_t dim = m->dim, fours = open / 4 * 4, end = fours, seen[QUERIES];
    for (int i = 0; i < count; i++) most[i] = -INFINITY, seen[i] = fours;
    for (int64_t j = 0; j < fours; j += 4) {
        for (int64_t d = 0; d < 4 * dim; d += W) __builtin_prefetch(values + j * dim + d);
        for (int i = 0; i < count; i++) {
            vec sums[4];
            float *score = scores + i * length + j;
            for (int k = 0; k < 4; k++) sums[k] = products(q[i], keys + (j + k) * dim, dim);
            totals(sums, score);
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
        soften(row, seen[i], most[i], sum + i);
        for (int64_t j = end, left = seen[i]; left < j;) {  /* back to where they belong, zeros between */
            j--;
            row[j] = mask[i] && mask[i][j] != 0.0f ? 0.0f : row[--left];
        }
        memset(out[i], 0, dim * sizeof(float));
    }
    int64_t d = 0;
    for (; d + 4 * W <= dim; d += 4 * W) weigh_4(values + d, dim, end, scores, length, sum, out, d, count);
    for (; d + W <= dim; d += W) weigh_1(values + d, dim, end, scores, length, sum, out, d, count);
    if (d < dim) weigh_rest(values + d, dim, end, scores, length, sum, out, d, count);
}

/* With the number of queries known their sums stay in registers. */
static void attend(const Model *m, const float *keys, const float *values, const float *const *q,
                   const float *const *mask, float *const *out, int count, int64_t open, int64_t length,
                   float *scores) {
    switch (count) {
        case 1: attended(m, keys, values, q, mask, out, 1, open, length, scores); break;
        case 2: attended(m, keys, values, q, mask, out, 2, open, length, scores); break;
        case 3: attended(m, keys, values, q, mask, out, 3, open, length, scores); break;
        default: attended(m, keys, values, q, mask, out, QUERIES, open, length, scores);
    }
}
