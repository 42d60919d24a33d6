/* Matrix products of rows with packed weights. Each output is summed from the first input to the last.
 *
 * Weights are packed in groups of 64 outputs, [out / 64][in][64]; a last group that is not full is packed in
 * panels of 16. One row then streams the weights from memory in order, and several rows use each panel while it
 * is in the cache.
 */
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

#define W 16                    /* outputs of a panel */
#define ROWS 6                  /* rows that are multiplied with a panel at once */
#define BLOCK 512               /* inputs whose weights stay in the cache while several tiles of sums use them */
#define PREFETCH_DISTANCE 2048  /* elements between a load and its prefetch */
#define CACHE_LINE 64           /* bytes */

/* VECTOR is the size of the processor's vectors in bytes, SUMS the number of its registers that hold sums while the
 * others hold factors. gcc keeps larger vectors in memory instead of registers. */
#if defined(__AVX512F__)
#define VECTOR 64
#define SUMS 24
#elif defined(__AVX__)
#define VECTOR 32
#define SUMS 12
#elif defined(__aarch64__)
#define VECTOR 16
#define SUMS 24
#else
#define VECTOR 16
#define SUMS 12
#endif
#define V (VECTOR / 4)  /* elements of a vector */

typedef float vec __attribute__((vector_size(VECTOR), aligned(4)));
typedef int32_t ivec __attribute__((vector_size(VECTOR)));

typedef int8_t i8s __attribute__((vector_size(V), aligned(1)));
typedef int16_t i16s __attribute__((vector_size(2 * V)));
typedef uint16_t bf16s __attribute__((vector_size(2 * V), aligned(2)));

/* A packed matrix. `kind` is its element type; `scale` (one per output, NULL for none) multiplies the sums. */
enum { FLOAT32, INT8, BFLOAT16, BFLOAT16_PAIRS, INT8_GROUPS, INT4_GROUPS, INT4_ZEROS, KINDS };  /* from BFLOAT16_PAIRS on: dot_products.h */
static const int64_t BYTES[BFLOAT16_PAIRS] = {sizeof(float), sizeof(int8_t), sizeof(uint16_t)};
typedef struct { const void *panels; const float *bias, *scale; int64_t out, in, kind; } Linear;

static inline vec f32(const float *w) { return *(const vec *)w; }
static inline vec i8(const int8_t *w) {  /* by way of int16: gcc converts int8 to int32 one by one */
    i16s half = __builtin_convertvector(*(const i8s *)w, i16s);
    return __builtin_convertvector(__builtin_convertvector(half, ivec), vec);
}
static inline vec bf16(const uint16_t *w) {  /* bfloat16 is the upper half of a float32 */
#if VECTOR == 64  /* gcc would convert two halves and join them */
    return (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)w)), 16);
#else
    return (vec)(__builtin_convertvector(*(const bf16s *)w, ivec) << 16);
#endif
}

static float widened_bfloat16(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* a * b + c, fused wherever the processor can: a compiler that may choose does not choose alike in all places. */
static inline vec fused(vec a, vec b, vec c) {
#if VECTOR == 64
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif VECTOR == 32 && defined(__FMA__)
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

/* Store the first `left` elements of a vector, or all if there are no more. */
static inline void store_sums(float *y, vec sums, int64_t left) {
    if (left >= V) memcpy(y, &sums, sizeof sums);
    else memcpy(y, &sums, left * sizeof(float));
}

/* The vectors of a tile of R rows: the largest power of two whose sums fit, at most those of P panels. */
#define FLOOR_2(n) ((n) >= 16 ? 16 : (n) >= 8 ? 8 : (n) >= 4 ? 4 : (n) >= 2 ? 2 : 1)
#define TILE(R, P) (FLOOR_2(SUMS / R) < P * W / V ? FLOOR_2(SUMS / R) : P * W / V)

/* Multiply R rows with P adjacent panels, a tile of sums after the other, and a block of inputs after the other, so
 * that the weights of the second tile are in the cache. */
#define PANEL_KERNEL(KIND, NUMBER, R, P)                                                                        \
    static void KIND##_##R##_##P(const void *panels, const float *scale, const float *bias, const float *x,     \
                                 int64_t sx, int64_t in, float *y, int64_t sy, int64_t out,                     \
                                 int64_t ahead) {                                                               \
        enum { ALL = P * W / V, T = TILE(R, P) };                                                               \
        vec sums[R][ALL], add[ALL];                                                                             \
        for (int p = 0; p < ALL; p++) {                                                                         \
            add[p] = (vec){0};                                                                                  \
            if (bias) memcpy(&add[p], bias + p * V, sizeof add[p]);                                             \
            for (int r = 0; r < R; r++) sums[r][p] = scale ? (vec){0} : add[p];                                 \
        }                                                                                                       \
        const int64_t block = T == ALL ? in : BLOCK;                                                            \
        for (int64_t begin = 0; begin < in; begin += block)                                                     \
            for (int t = 0; t < ALL; t += T) {                                                                  \
                const NUMBER *w = (const NUMBER *)panels + t * V;                                               \
                const int64_t end = begin + block < in ? begin + block : in;                                    \
                vec sum[R][T];                                                                                  \
                for (int r = 0; r < R; r++)                                                                     \
                    for (int p = 0; p < T; p++) sum[r][p] = sums[r][t + p];                                     \
                for (int64_t k = begin; k < end; k++) {                                                         \
                    if (t == 0)                                                                                 \
                        for (int p = 0; p < P * W; p += CACHE_LINE / sizeof(NUMBER))                            \
                            __builtin_prefetch(w + k * P * W + p + ahead);                                      \
                    for (int p = 0; p < T; p++) {                                                               \
                        vec weight = KIND(w + k * P * W + p * V);                                               \
                        for (int r = 0; r < R; r++) sum[r][p] += weight * x[r * sx + k];                        \
                    }                                                                                           \
                }                                                                                               \
                for (int r = 0; r < R; r++)                                                                     \
                    for (int p = 0; p < T; p++) sums[r][t + p] = sum[r][p];                                     \
            }                                                                                                   \
        for (int p = 0; p < ALL; p++) {                                                                         \
            int64_t left = out - p * V;                                                                         \
            if (left <= 0) break;                                                                               \
            for (int r = 0; r < R; r++) {                                                                       \
                if (scale) sums[r][p] = sums[r][p] * f32(scale + p * V) + add[p];                               \
                store_sums(y + r * sy + p * V, sums[r][p], left);                                               \
            }                                                                                                   \
        }                                                                                                       \
    }

#define PANEL_KERNELS(KIND, NUMBER)                                                                             \
    PANEL_KERNEL(KIND, NUMBER, 1, 4) PANEL_KERNEL(KIND, NUMBER, 2, 4)                                           \
    PANEL_KERNEL(KIND, NUMBER, 3, 4) PANEL_KERNEL(KIND, NUMBER, 4, 4)                                           \
    PANEL_KERNEL(KIND, NUMBER, 5, 4) PANEL_KERNEL(KIND, NUMBER, 6, 4)                                           \
    PANEL_KERNEL(KIND, NUMBER, 1, 1) PANEL_KERNEL(KIND, NUMBER, 2, 1)                                           \
    PANEL_KERNEL(KIND, NUMBER, 3, 1) PANEL_KERNEL(KIND, NUMBER, 4, 1)                                           \
    PANEL_KERNEL(KIND, NUMBER, 5, 1) PANEL_KERNEL(KIND, NUMBER, 6, 1)

PANEL_KERNELS(f32, float)
PANEL_KERNELS(i8, int8_t)
PANEL_KERNELS(bf16, uint16_t)

typedef void PanelKernel(const void *, const float *, const float *, const float *, int64_t, int64_t, float *,
                         int64_t, int64_t, int64_t);
static PanelKernel *const KERNELS[BFLOAT16_PAIRS][2][ROWS] = {
    {{f32_1_1, f32_2_1, f32_3_1, f32_4_1, f32_5_1, f32_6_1},
     {f32_1_4, f32_2_4, f32_3_4, f32_4_4, f32_5_4, f32_6_4}},
    {{i8_1_1, i8_2_1, i8_3_1, i8_4_1, i8_5_1, i8_6_1}, {i8_1_4, i8_2_4, i8_3_4, i8_4_4, i8_5_4, i8_6_4}},
    {{bf16_1_1, bf16_2_1, bf16_3_1, bf16_4_1, bf16_5_1, bf16_6_1},
     {bf16_1_4, bf16_2_4, bf16_3_4, bf16_4_4, bf16_5_4, bf16_6_4}},
};

/* y [some, count * W] = x [some, in] w + bias, for up to ROWS rows and `count` panels from `begin` on. `sx` and
 * `sy` are the row strides of x and y in elements. */
static void multiply_panels(const Linear *l, int64_t begin, int64_t count, const float *x, int64_t sx,
                            int64_t some, float *y, int64_t sy, int64_t ahead) {
    for (int64_t p = begin, step; p < begin + count; p += step, y += step * W) {
        step = (p / 4 + 1) * 4 * W <= l->out ? 4 : 1;  /* a last group that is not full is single panels */
        KERNELS[l->kind][step == 4][some - 1](
            (const char *)l->panels + p * l->in * W * BYTES[l->kind], l->scale ? l->scale + p * W : 0,
            l->bias ? l->bias + p * W : 0, x, sx, l->in, y, sy, l->out - p * W, ahead);
    }
}
