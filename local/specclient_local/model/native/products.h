/* Turns rows and panels of weights into sums, each from the first input to the last.
 *
 * Weights are laid out in groups of 64 outputs, [out / 64][in][64], the last ones in panels of 16, so that one
 * row streams them from memory in order, and several rows use each panel while it is in the cache.
 */
#include <stdint.h>
#include <string.h>

#define W 16        /* outputs of a panel, numbers of a vector */
#define ROWS 6      /* rows that share a panel's registers */
#define AHEAD 2048  /* numbers that are asked of memory before they are needed */
#define LINE 64     /* bytes that memory gives at once */

typedef float vec __attribute__((vector_size(64), aligned(4)));
typedef int32_t ivec __attribute__((vector_size(64)));

typedef int8_t bytes __attribute__((vector_size(16), aligned(1)));
typedef int16_t svec __attribute__((vector_size(32)));
typedef uint16_t uppers __attribute__((vector_size(32), aligned(2)));

/* Panels of numbers of a kind; with scales, one an output, that the sums are multiplied with, or without. */
enum { FULL, EIGHTH, UPPER, KINDS };
static const int64_t BYTES[KINDS] = {sizeof(float), sizeof(int8_t), sizeof(uint16_t)};
typedef struct { const void *panels; const float *bias, *scale; int64_t out, in, kind; } Linear;

static inline vec full(const float *w) { return *(const vec *)w; }
static inline vec eighth(const int8_t *w) {
    svec half = __builtin_convertvector(*(const bytes *)w, svec);  /* in one step gcc goes number by number */
    return __builtin_convertvector(__builtin_convertvector(half, ivec), vec);
}
static inline vec upper(const uint16_t *w) {  /* bfloat16: a float's upper half, the lower one being zeros */
    return (vec)(__builtin_convertvector(*(const uppers *)w, ivec) << 16);
}

#define PRODUCT(KIND, NUMBER, R, P)                                                                         \
    static void KIND##_##R##_##P(const void *panels, const float *scale, const float *bias, const float *x, \
                                 int64_t sx, int64_t in, float *y, int64_t sy, int64_t out,                 \
                                 int64_t ahead) {                                                           \
        const NUMBER *w = panels;                                                                           \
        vec sum[R][P], add[P];                                                                              \
        for (int p = 0; p < P; p++) {                                                                       \
            add[p] = (vec){0};                                                                              \
            if (bias) memcpy(&add[p], bias + p * W, sizeof add[p]);                                         \
            for (int r = 0; r < R; r++) sum[r][p] = scale ? (vec){0} : add[p];                              \
        }                                                                                                   \
        for (int64_t k = 0; k < in; k++)                                                                    \
            for (int p = 0; p < P; p++) {                                                                   \
                vec weight = KIND(w + (k * P + p) * W);                                                     \
                if (p * W * sizeof(NUMBER) % LINE == 0) __builtin_prefetch(w + (k * P + p) * W + ahead);    \
                for (int r = 0; r < R; r++) sum[r][p] += weight * x[r * sx + k];                            \
            }                                                                                               \
        for (int p = 0; p < P; p++) {                                                                       \
            int64_t left = out - p * W;                                                                     \
            for (int r = 0; r < R; r++) {                                                                   \
                if (scale) sum[r][p] = sum[r][p] * full(scale + p * W) + add[p];                            \
                memcpy(y + r * sy + p * W, &sum[r][p], sizeof(float) * (left < W ? left : W));              \
            }                                                                                               \
        }                                                                                                   \
    }

#define PRODUCTS_OF(KIND, NUMBER)                                                                            \
    PRODUCT(KIND, NUMBER, 1, 4) PRODUCT(KIND, NUMBER, 2, 4) PRODUCT(KIND, NUMBER, 3, 4)                      \
    PRODUCT(KIND, NUMBER, 4, 4) PRODUCT(KIND, NUMBER, 5, 4) PRODUCT(KIND, NUMBER, 6, 4)                      \
    PRODUCT(KIND, NUMBER, 1, 1) PRODUCT(KIND, NUMBER, 2, 1) PRODUCT(KIND, NUMBER, 3, 1)                      \
    PRODUCT(KIND, NUMBER, 4, 1) PRODUCT(KIND, NUMBER, 5, 1) PRODUCT(KIND, NUMBER, 6, 1)

PRODUCTS_OF(full, float)
PRODUCTS_OF(eighth, int8_t)
PRODUCTS_OF(upper, uint16_t)

typedef void Product(const void *, const float *, const float *, const float *, int64_t, int64_t, float *,
                     int64_t, int64_t, int64_t);
static Product *const PRODUCTS[KINDS][2][ROWS] = {
    {{full_1_1, full_2_1, full_3_1, full_4_1, full_5_1, full_6_1},
     {full_1_4, full_2_4, full_3_4, full_4_4, full_5_4, full_6_4}},
    {{eighth_1_1, eighth_2_1, eighth_3_1, eighth_4_1, eighth_5_1, eighth_6_1},
     {eighth_1_4, eighth_2_4, eighth_3_4, eighth_4_4, eighth_5_4, eighth_6_4}},
    {{upper_1_1, upper_2_1, upper_3_1, upper_4_1, upper_5_1, upper_6_1},
     {upper_1_4, upper_2_4, upper_3_4, upper_4_4, upper_5_4, upper_6_4}},
};

/* y [some, count * W] = x [some, in] w + bias, of up to ROWS rows and some neighbouring panels of a group or more. */
static void product(const Linear *l, int64_t begin, int64_t count, const float *x, int64_t sx, int64_t some,
                    float *y, int64_t sy, int64_t ahead) {
    for (int64_t p = begin, step; p < begin + count; p += step, y += step * W) {
        step = (p / 4 + 1) * 4 * W <= l->out ? 4 : 1;  /* a last group that is not full is panels */
        PRODUCTS[l->kind][step == 4][some - 1](
            (const char *)l->panels + p * l->in * W * BYTES[l->kind], l->scale ? l->scale + p * W : 0,
            l->bias ? l->bias + p * W : 0, x, sx, l->in, y, sy, l->out - p * W, ahead);
    }
}
