/* Operations on rows of a model: norms, rotations, gates, argmax. */
#include <math.h>

#include "dot_products.h"

#define GATES (2 * W)  /* gate outputs in a group of panels; as many `up` outputs follow them */
#define PICK __builtin_shufflevector
#if defined(__clang__) || __GNUC__ >= 12
#define HAS_PICK 1
#else
#define HAS_PICK 0
#endif

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

/* Rotate the pairs of a head: (re c - im s, re s + im c). The second product is rounded, then the first one is fused;
 * both are fixed, so that no compiler fuses another one. */
static void rotate(float *v, const float *turns, int64_t dim) {
    int64_t i = 0;
#if VECTOR == 64
    const __m512 sign = (__m512)_mm512_set1_epi64(0x80000000);
    for (; i + V <= dim; i += V) {
        __m512 x = _mm512_loadu_ps(v + i), turn = _mm512_loadu_ps(turns + i);
        __m512 crossed = (__m512)((__m512i)_mm512_permute_ps(turn, 0xb1) ^ (__m512i)sign);  /* -s, c */
        __m512 rounded = _mm512_mul_ps(_mm512_movehdup_ps(x), crossed);
        _mm512_storeu_ps(v + i, _mm512_fmadd_ps(_mm512_moveldup_ps(x), turn, rounded));
    }
#endif
    for (; i < dim; i += 2) {
        float re = v[i], im = v[i + 1], c = turns[i], s = turns[i + 1];
        v[i] = fmaf(re, c, -(im * s));
        v[i + 1] = fmaf(re, s, im * c);
    }
}

/* Normalise (if the model does) and rotate a row's queries and keys, and store keys and values in the cache, whose
 * heads are `stride` elements apart. */
static void rotate_and_store_row(const Model *m, const Layer *layer, const float *turns, float *qkv, void *cache,
                                 int64_t first, int64_t stride, int64_t is_bfloat16) {
    for (int64_t head = 0; head < m->heads + m->kv_heads; head++) {
        float *v = qkv + head * m->dim;
        if (layer->qk_norm) rms_norm(v, layer->qk_norm + head * m->dim, m->dim, m->eps, v);
        rotate(v, turns, m->dim);
    }
    for (int64_t i = 0; i < 2 * m->kv_heads; i++) {
        const float *v = qkv + (m->heads + i) * m->dim;
        if (is_bfloat16) convert_to_bfloat16(v, m->dim, (uint16_t *)cache + first + i * stride);
        else memcpy((float *)cache + first + i * stride, v, m->dim * sizeof(float));
    }
}
