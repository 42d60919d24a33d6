/* Packing of weights into the panels of dot_products.h, and rounding to 8 and 4 bits. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define RATIOS 8             /* scales that are tried for a group of 4-bit weights */
#define RATIO_STEP 0.04f     /* each cuts off this share of the largest weight more than the one before */

typedef struct {
    const Linear *l;
    const void *weight;      /* [rows][inputs], float32 or bfloat16 */
    int64_t inputs, is_bfloat16;
    const int64_t *row;      /* [outputs] the row of each output; -1 for zeros */
} Packing;

/* Copy GROUP weights of an output from input `begin` on as float32; those that do not exist are zero. */
static void read_group(const Packing *t, int64_t output, int64_t begin, float *x) {
    int64_t row = output < t->l->out ? t->row[output] : -1, left = t->inputs - begin;
    if (left > GROUP) left = GROUP;
    if (row < 0 || left < GROUP) memset(x, 0, GROUP * sizeof *x);
    if (row < 0 || left <= 0) return;
    int64_t from = row * t->inputs + begin;
    if (!t->is_bfloat16) {
        memcpy(x, (const float *)t->weight + from, left * sizeof *x);
        return;
    }
    const uint16_t *half = (const uint16_t *)t->weight + from;
    for (int64_t i = 0; i < left; i++) x[i] = widened_bfloat16(half[i]);
}

/* Return the integers from -limit to limit - 1 by which `scale` has to be multiplied to come closest to x. */
static inline vec rounded(vec x, float scale, float limit) {
    vec low = (vec){0} - limit, high = (vec){0} + (limit - 1);
    vec n = (x * (scale != 0 ? 1 / scale : 0) + ROUNDER) - ROUNDER;
    n = blend(n < low, low, n);
    return blend(n > high, high, n);
}

static float squared_error(const float *x, float scale, float limit) {
    vec error = {0};
    for (int i = 0; i < GROUP; i += V) {
        vec off = rounded(f32(x + i), scale, limit) * scale - f32(x + i);
        error += off * off;
    }
    return sum_lanes(error);
}

/* Round a group to integers from -limit to limit - 1, plus `limit`; return the scale. The scale is signed, so that
 * the largest weight, of either sign, is -limit times the scale. For 4 bits, smaller scales are tried as well. */
static uint16_t round_group(const float *x, float limit, int ratios, uint8_t *number) {
    float largest = 0, best = -1;
    uint16_t chosen = 0;
    for (int i = 0; i < GROUP; i++)
        if (fabsf(x[i]) > fabsf(largest)) largest = x[i];
    for (int i = 0; i < ratios; i++) {
        uint16_t half = rounded_bfloat16(largest * (1 - i * RATIO_STEP) / -limit);
        float error = squared_error(x, widened_bfloat16(half), limit);
        if (best < 0 || error < best) best = error, chosen = half;
    }
    for (int i = 0; i < GROUP; i += V) {
        vec n = rounded(f32(x + i), widened_bfloat16(chosen), limit) + limit;
        for (int k = 0; k < V; k++) number[i + k] = (uint8_t)n[k];
    }
    return chosen;
}

/* Copy pairs `begin` to `end` of output `n` of N, in bfloat16 as they are, to the panels. */
static void copy_pairs(const Packing *t, int64_t output, int64_t n, int64_t N, int64_t begin, int64_t end,
                       uint8_t *panel) {
    int64_t row = output < t->l->out ? t->row[output] : -1, whole = row < 0 ? 0 : t->inputs / 2, i = begin;
    const uint16_t *half = (const uint16_t *)t->weight + row * t->inputs;
    uint32_t *to = (uint32_t *)panel + n;
    for (; i < end && i < whole; i++) memcpy(to + i * N, half + 2 * i, sizeof *to);
    for (; i < end; i++) {
        to[i * N] = 0;
        if (row >= 0 && 2 * i < t->inputs) memcpy(to + i * N, half + 2 * i, sizeof *half);
    }
}

/* Copy the pairs of N outputs, a few inputs at a time, so that their panels stay in the cache. */
static void copy_panels(const Packing *t, int64_t first, int64_t N, uint8_t *panel) {
    int64_t pairs = (t->l->in + 1) / 2;
    for (int64_t begin = 0; begin < pairs; begin += GROUP) {
        int64_t end = begin + GROUP < pairs ? begin + GROUP : pairs;
        for (int64_t n = 0; n < N; n++) copy_pairs(t, first + n, n, N, begin, end, panel);
    }
}

/* Store GROUP inputs of output `n` of N in the panels' block of this group. */
static void pack_group(const Packing *t, const float *x, int64_t n, int64_t N, int64_t pairs, uint8_t *block) {
    uint8_t number[GROUP];
    if (t->l->kind == BFLOAT16_PAIRS) {
        uint16_t *half = (uint16_t *)block;
        for (int64_t i = 0; i < 2 * pairs; i++) half[(i / 2 * N + n) * 2 + i % 2] = rounded_bfloat16(x[i]);
        return;
    }
    int is_int8 = t->l->kind == INT8_GROUPS;
    uint16_t scale = round_group(x, is_int8 ? 128 : 8, is_int8 ? 1 : RATIOS, number);
    for (int i = 0; i < (is_int8 ? GROUP : GROUP / 2); i++)
        block[(i / QUAD * N + n) * QUAD + i % QUAD] = is_int8 ? number[i] : number[i] | number[i + GROUP / 2] << 4;
    memcpy(block + N * (is_int8 ? GROUP : GROUP / 2) + 2 * n, &scale, sizeof scale);
}

static void run_packing(Worker *worker) {
    const Packing *t = worker->task;
    const Linear *l = t->l;
    int64_t size = panel_bytes(l), panels = (l->out + W - 1) / W, pairs = (l->in + 1) / 2, groups = groups_of(l->in);
    for (int64_t piece; (piece = claim(worker, (panels + 3) / 4)) >= 0;) {
        int64_t first = piece * 4, N = (first + 4) * W <= l->out ? 4 * W : W;
        for (int64_t p = first; p < first + 4 && p < panels; p += N / W) {
            uint8_t *at = (uint8_t *)l->panels + p * size;
            if (l->kind == BFLOAT16_PAIRS && t->is_bfloat16) {
                copy_panels(t, p * W, N, at);
                continue;
            }
            for (int64_t g = 0; g < groups; g++) {
                int64_t left = pairs - g * GROUP / 2, own = left < GROUP / 2 ? left : GROUP / 2;
                for (int64_t n = 0; n < N; n++) {
                    float x[GROUP];
                    read_group(t, p * W + n, g * GROUP, x);
                    pack_group(t, x, n, N, own, at);
                }
                at += l->kind == BFLOAT16_PAIRS ? own * 4 * N : size / W / groups * N;
            }
        }
    }
    end_stage(worker);
}

/* Pack weights into l->panels, on up to `threads` threads. */
void specclient_pack(const Packing *packing, int64_t threads) { run_on_team(run_packing, packing, threads); }

/* Return the bytes of all panels of a matrix. */
int64_t specclient_packed_bytes(const Linear *l) { return (l->out + W - 1) / W * panel_bytes(l); }
