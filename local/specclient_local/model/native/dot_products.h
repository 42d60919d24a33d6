/* Products by the processor's dot products: pairs of bfloat16, and groups of int8 or int4 weights with int8 rows.
 *
 * Rows are converted before a product, each by itself, so a row's result does not depend on the other rows.
 *
 * Panels of N = 64 or 16 outputs hold, one after the other,
 *   BFLOAT16_PAIRS  for each two inputs:          [N][2] bfloat16
 *   INT8_GROUPS     for each GROUP of 32 inputs:  [8][N][4] uint8, each weight plus 128; [N] bfloat16 scales
 *   INT4_GROUPS     for each GROUP of 32 inputs:  [4][N][4] uint8, two weights plus 8 each: those of the first 16
 *                                                 inputs in the low halves; [N] bfloat16 scales
 *   INT4_ZEROS      the same with weights from 0 to 15, followed by [N] uint8 zero points
 * The row of a product of groups is [groups][GROUP] int8, [groups] float32 scales and [groups] int32 sums of its numbers
 * times -128, -8 or -1, by which the weights' offsets or zero points are subtracted.
 */
#include "matmul.h"

#if defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

#define GROUP 32             /* inputs that share a scale */
#define QUAD 4               /* int8 numbers that a dot product multiplies and adds in each lane */
#define QUADS (GROUP / QUAD)
#define MAX_INT8 127.0f
#define INT8_OFFSET 128      /* that is added to weights, so that they are unsigned */
#define INT4_OFFSET 8
#define ROUNDER 12582912.0f  /* adding and subtracting 1.5 * 2^23 rounds a small float32 to an integer */

typedef uint8_t bytes_vec __attribute__((vector_size(VECTOR), aligned(1)));

static int64_t groups_of(int64_t in) { return (in + GROUP - 1) / GROUP; }

/* Bytes of a panel of W outputs. */
static int64_t panel_bytes(const Linear *l) {
    switch (l->kind) {
        case BFLOAT16_PAIRS: return (l->in + 1) / 2 * 2 * W * 2;
        case INT8_GROUPS: return groups_of(l->in) * (GROUP + 2) * W;
        case INT4_GROUPS: return groups_of(l->in) * (GROUP / 2 + 2) * W;
        case INT4_ZEROS: return groups_of(l->in) * (GROUP / 2 + 3) * W;
        default: return l->in * W * BYTES[l->kind];
    }
}

static int is_converted(const Linear *l) { return l->kind >= BFLOAT16_PAIRS; }

/* Bytes between the converted rows of a product: a multiple of the vectors' size. */
static int64_t converted_stride(const Linear *l) {
    int64_t bytes = l->kind == BFLOAT16_PAIRS ? (l->in + 1) / 2 * 4 : groups_of(l->in) * (GROUP + 8);
    return (bytes + 63) / 64 * 64;
}

/* ---- rows ---- */

/* Round a float32 to bfloat16, ties to even; a NaN stays one. */
static uint16_t rounded_bfloat16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void convert_to_bfloat16(const float *x, int64_t n, uint16_t *row) {
    int64_t i = 0;
#if defined(__AVX512BF16__)
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((__m256i *)(row + i), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x + i)));
#endif
    for (; i < n; i++) row[i] = rounded_bfloat16(x[i]);
    if (n % 2) row[n] = 0;
}

/* Store GROUP numbers as int8; return their scale, and their sum in *sum. A number that is not finite makes the
 * scale NaN. */
static float convert_group(const float *x, int8_t *row, int32_t *sum) {
    enum { N = GROUP / V };
    vec v[N], most = {0}, poison = {0};
    for (int i = 0; i < N; i++) {
        v[i] = f32(x + i * V);
        poison += v[i] * 0.0f;
        vec size = (vec)((ivec)v[i] & 0x7fffffff);
        most = (vec)(((size > most) & (ivec)size) | (~(size > most) & (ivec)most));
    }
    float largest = 0, broken = 0;
    for (int k = 0; k < V; k++) {
        if (most[k] > largest) largest = most[k];
        broken += poison[k];
    }
    float inverse = largest > 0 ? MAX_INT8 / largest : 0;
    ivec total = {0};
    for (int i = 0; i < N; i++) {
        ivec number = __builtin_convertvector((v[i] * inverse + ROUNDER) - ROUNDER, ivec);
        total += number;
        i8s narrow = __builtin_convertvector(number, i8s);
        memcpy(row + i * V, &narrow, sizeof narrow);
    }
    *sum = 0;
    for (int k = 0; k < V; k++) *sum += total[k];
    return largest / MAX_INT8 + broken;
}

static void convert_to_groups(const float *x, int64_t n, int32_t offset, int8_t *row) {
    int64_t groups = groups_of(n);
    float *scale = (float *)(row + groups * GROUP);
    int32_t *sum = (int32_t *)(scale + groups);
    for (int64_t g = 0; g < groups; g++) {
        float last[GROUP] = {0};
        const float *from = x + g * GROUP;
        if (n - g * GROUP < GROUP) from = memcpy(last, from, (n - g * GROUP) * sizeof(float));
        scale[g] = convert_group(from, row + g * GROUP, sum + g);
        sum[g] *= -offset;
    }
}

/* Convert a row of l->in numbers for the product with l. */
static void convert_row(const Linear *l, const float *x, void *row) {
    if (l->kind == BFLOAT16_PAIRS) convert_to_bfloat16(x, l->in, row);
    else convert_to_groups(x, l->in, l->kind == INT8_GROUPS ? INT8_OFFSET : l->kind == INT4_GROUPS ? INT4_OFFSET : 1, row);
}

/* ---- dot products of each lane ---- */

static inline ivec repeated(const void *quad) {
    int32_t bits;
    memcpy(&bits, quad, sizeof bits);
    return (ivec){0} + bits;
}

static inline ivec bytes(const char *at) {  /* V uint8 numbers as int32, by way of int16 */
    typedef uint8_t u8s __attribute__((vector_size(V), aligned(1)));
    typedef uint16_t u16s __attribute__((vector_size(2 * V)));
    return __builtin_convertvector(__builtin_convertvector(*(const u8s *)at, u16s), ivec);
}

/* sum + the product of four unsigned weights and four signed numbers in each lane. */
#if defined(__AVX512VNNI__) && VECTOR == 64
static inline ivec dot_quads(ivec sum, ivec weights, ivec x) {
    return (ivec)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)weights, (__m512i)x);
}
#elif defined(__AVXVNNI__) && VECTOR == 32
static inline ivec dot_quads(ivec sum, ivec weights, ivec x) {
    return (ivec)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)weights, (__m256i)x);
}
#elif defined(__AVX2__) && VECTOR == 32
static inline ivec dot_quads(ivec sum, ivec weights, ivec x) {  /* as 16-bit numbers: the even ones, then the odd */
    __m256i w = (__m256i)weights, low = _mm256_set1_epi16(255), n = (__m256i)x;
    __m256i even = _mm256_madd_epi16(_mm256_and_si256(w, low), _mm256_srai_epi16(_mm256_slli_epi16(n, 8), 8));
    __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(w, 8), _mm256_srai_epi16(n, 8));
    return sum + (ivec)_mm256_add_epi32(even, odd);
}
#elif defined(__ARM_FEATURE_MATMUL_INT8)
static inline ivec dot_quads(ivec sum, ivec weights, ivec x) {
    return (ivec)vusdotq_s32((int32x4_t)sum, (uint8x16_t)weights, (int8x16_t)x);
}
#elif defined(__ARM_FEATURE_DOTPROD)
static inline ivec dot_quads(ivec sum, ivec weights, ivec x) {  /* of signed numbers: (w - 128) x + 128 x */
    int32x4_t none = vdupq_n_s32(0), numbers = vdotq_s32(none, vdupq_n_s8(1), (int8x16_t)x);
    int8x16_t signed_weights = (int8x16_t)veorq_u8((uint8x16_t)weights, vdupq_n_u8(128));
    return sum + (ivec)vdotq_s32(vshlq_n_s32(numbers, 7), signed_weights, (int8x16_t)x);
}
#else
static inline ivec dot_quads(ivec sum, ivec weights, ivec x) {
    for (int i = 0; i < QUAD; i++) sum += (weights >> 8 * i & 255) * (x << (24 - 8 * i) >> 24);
    return sum;
}
#endif

/* ---- kernels: R rows with P adjacent panels ---- */

#if defined(__AVX512BF16__)
#define PAIR_KERNEL(R, P)                                                                                       \
    static void pairs_##R##_##P(const Linear *l, const void *panels, const float *bias, const void *rows,       \
                                int64_t stride, float *y, int64_t sy, int64_t out, int64_t ahead) {             \
        const char *w = panels;                                                                                 \
        __m512 sum[R][P];                                                                                       \
        for (int p = 0; p < P; p++)                                                                             \
            for (int r = 0; r < R; r++) sum[r][p] = bias ? _mm512_loadu_ps(bias + p * W) : _mm512_setzero_ps(); \
        for (int64_t k = 0; k < (l->in + 1) / 2; k++, w += P * CACHE_LINE) {                                    \
            __m512bh weight[P];                                                                                 \
            for (int p = 0; p < P; p++) {                                                                       \
                if (ahead) _mm_prefetch(w + p * CACHE_LINE + ahead, _MM_HINT_T0);                               \
                weight[p] = (__m512bh)_mm512_loadu_si512(w + p * CACHE_LINE);                                   \
            }                                                                                                   \
            for (int r = 0; r < R; r++) {                                                                       \
                __m512bh x = (__m512bh)repeated((const char *)rows + r * stride + 4 * k);                       \
                for (int p = 0; p < P; p++) sum[r][p] = _mm512_dpbf16_ps(sum[r][p], weight[p], x);              \
            }                                                                                                   \
        }                                                                                                       \
        for (int p = 0; p < P; p++) {                                                                           \
            int64_t left = out - p * W;                                                                         \
            if (left <= 0) break;                                                                               \
            for (int r = 0; r < R; r++)                                                                         \
                store_sums(y + r * sy + p * W, (vec)sum[r][p], left);                                           \
        }                                                                                                       \
    }
#else
#define PAIR_KERNEL(R, P) enum { no_pairs_##R##_##P };
#define pairs_1_1 0
#endif

#define READ_INT8(w, q) (ivec)*(const bytes_vec *)((w) + (q) * lines)
#define LOW_INT4(w, q) ((ivec)*(const bytes_vec *)((w) + (q) * lines) & 0x0f0f0f0f)
#define HIGH_INT4(w, q) ((ivec)*(const bytes_vec *)((w) + ((q) - QUADS / 2) * lines) >> 4 & 0x0f0f0f0f)
#define READ_INT4(w, q) (q < QUADS / 2 ? LOW_INT4(w, q) : HIGH_INT4(w, q))

/* T vectors of outputs at a time are multiplied with all rows, so that the sums of a group stay in registers. */
#define GROUP_KERNEL(NAME, READ, SIZE, ZEROS, R, P)                                                             \
    static void NAME##_##R##_##P(const Linear *l, const void *panels, const float *bias, const void *rows,      \
                                 int64_t stride, float *y, int64_t sy, int64_t out, int64_t ahead) {            \
        enum { ALL = P * W / V, T = TILE(R, P), BLOCK_BYTES = P * W * (SIZE + 2 + ZEROS), lines = P * W * QUAD }; \
        int64_t groups = groups_of(l->in);                                                                      \
        const char *w = panels, *row = rows;                                                                    \
        vec sum[R][ALL];                                                                                        \
        for (int p = 0; p < ALL; p++)                                                                           \
            for (int r = 0; r < R; r++) sum[r][p] = bias ? f32(bias + p * V) : (vec){0};                        \
        for (int64_t g = 0; g < groups; g++, w += BLOCK_BYTES)                                                  \
            for (int t = 0; t < ALL; t += T) {                                                                  \
                ivec dots[R][T];                                                                                \
                if (ahead && !t)                                                                                \
                    for (int i = 0; i < BLOCK_BYTES; i += CACHE_LINE) __builtin_prefetch(w + i + ahead);        \
                for (int r = 0; r < R; r++) {                                                                   \
                    const char *sums = row + r * stride + groups * (GROUP + 4) + 4 * g;                         \
                    for (int p = 0; p < T; p++)                                                                 \
                        dots[r][p] = ZEROS ? repeated(sums) * bytes(w + P * W * (SIZE + 2) + (t + p) * V) : repeated(sums); \
                }                                                                                               \
                _Pragma("GCC unroll 8") for (int q = 0; q < QUADS; q++) {                                       \
                    ivec weight[T];                                                                             \
                    for (int p = 0; p < T; p++) weight[p] = READ(w + (t + p) * VECTOR, q);                      \
                    for (int r = 0; r < R; r++) {                                                               \
                        ivec x = repeated(row + r * stride + g * GROUP + q * QUAD);                             \
                        for (int p = 0; p < T; p++) dots[r][p] = dot_quads(dots[r][p], weight[p], x);           \
                    }                                                                                           \
                }                                                                                               \
                for (int p = 0; p < T; p++) {                                                                   \
                    vec scale = bf16((const uint16_t *)(w + P * W * SIZE) + (t + p) * V);                       \
                    for (int r = 0; r < R; r++) {                                                               \
                        const float own = *(const float *)(row + r * stride + groups * GROUP + 4 * g);          \
                        sum[r][t + p] += __builtin_convertvector(dots[r][p], vec) * (scale * own);              \
                    }                                                                                           \
                }                                                                                               \
            }                                                                                                   \
        for (int p = 0; p < ALL; p++) {                                                                         \
            int64_t left = out - p * V;                                                                         \
            if (left <= 0) break;                                                                               \
            for (int r = 0; r < R; r++)                                                                         \
                store_sums(y + r * sy + p * V, sum[r][p], left);                                                \
        }                                                                                                       \
    }

#define INT8_KERNEL(R, P) GROUP_KERNEL(int8_groups, READ_INT8, GROUP, 0, R, P)
#define INT4_KERNEL(R, P) GROUP_KERNEL(int4_groups, READ_INT4, GROUP / 2, 0, R, P)
#define ZEROS_KERNEL(R, P) GROUP_KERNEL(int4_zeros, READ_INT4, GROUP / 2, 1, R, P)
#define ALL_ROWS(KERNEL, P) KERNEL(1, P) KERNEL(2, P) KERNEL(3, P) KERNEL(4, P) KERNEL(5, P) KERNEL(6, P)
ALL_ROWS(PAIR_KERNEL, 1)
ALL_ROWS(PAIR_KERNEL, 4)
ALL_ROWS(INT8_KERNEL, 1)
ALL_ROWS(INT8_KERNEL, 4)
ALL_ROWS(INT4_KERNEL, 1)
ALL_ROWS(INT4_KERNEL, 4)
ALL_ROWS(ZEROS_KERNEL, 1)
ALL_ROWS(ZEROS_KERNEL, 4)

typedef void DotKernel(const Linear *, const void *, const float *, const void *, int64_t, float *, int64_t, int64_t,
                       int64_t);
#define BY_ROWS(NAME, P) {NAME##_1_##P, NAME##_2_##P, NAME##_3_##P, NAME##_4_##P, NAME##_5_##P, NAME##_6_##P}
static DotKernel *const DOT_KERNELS[KINDS - BFLOAT16_PAIRS][2][ROWS] = {
#if defined(__AVX512BF16__)
    {BY_ROWS(pairs, 1), BY_ROWS(pairs, 4)},
#else
    {{0}},
#endif
    {BY_ROWS(int8_groups, 1), BY_ROWS(int8_groups, 4)},
    {BY_ROWS(int4_groups, 1), BY_ROWS(int4_groups, 4)},
    {BY_ROWS(int4_zeros, 1), BY_ROWS(int4_zeros, 4)},
};

/* The same as multiply_panels() for converted rows, which are `stride` bytes apart. */
static void multiply_converted(const Linear *l, int64_t begin, int64_t count, const void *rows, int64_t stride,
                               int64_t some, float *y, int64_t sy, int64_t ahead) {
    int64_t size = panel_bytes(l);
    for (int64_t p = begin, step; p < begin + count; p += step, y += step * W) {
        step = (p / 4 + 1) * 4 * W <= l->out ? 4 : 1;
        DOT_KERNELS[l->kind - BFLOAT16_PAIRS][step == 4][some - 1](
            l, (const char *)l->panels + p * size, l->bias ? l->bias + p * W : 0, rows, stride, y, sy,
            l->out - p * W, ahead);
    }
}
