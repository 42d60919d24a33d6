/* Prints the products of fixed rows and weights in groups of int8 and int4, and checks that a row's product has the
 * same bits in every number of rows, and with zero points of 8. Compiled for other processors than the machine's own by test_arm.py. */
#include "entry_points.c"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_ROWS = 14 };

static uint32_t state = 1;

static float number(void) {  /* from -1 to 1 */
    state = state * 1664525u + 1013904223u;
    return (float)((int32_t)state / 2147483648.0);
}

static float *numbers(int64_t count) {
    float *found = aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
    for (int64_t i = 0; i < count; i++) found[i] = number();
    return found;
}

/* Return the panels of a matrix in INT4_GROUPS with zero points of 8 after each block. */
static char *with_zeros(const Linear *l) {
    Linear other = *l;
    other.kind = INT4_ZEROS;
    char *panels = aligned_alloc(64, (specclient_packed_bytes(&other) + 4095) / 64 * 64), *to = panels;
    const char *from = l->panels;
    for (int64_t p = 0, step; p * W < l->out; p += step) {
        step = (p / 4 + 1) * 4 * W <= l->out ? 4 : 1;
        int64_t block = step * W * (GROUP / 2 + 2);
        for (int64_t g = 0; g < groups_of(l->in); g++, from += block, to += block + step * W) {
            memcpy(to, from, block);
            memset(to + block, INT4_OFFSET, step * W);
        }
    }
    return panels;
}

static int check(int64_t kind, int64_t out, int64_t in) {
    float *weight = numbers(out * in), *x = numbers(MOST_ROWS * in), *bias = numbers(out + W);
    float *all = numbers(MOST_ROWS * out), *some = numbers(MOST_ROWS * out);
    int64_t row[out], differing = 0;
    Linear l = {0, bias, 0, out, in, kind};
    for (int64_t i = 0; i < out; i++) row[i] = i;
    l.panels = aligned_alloc(64, (specclient_packed_bytes(&l) + 4095) / 64 * 64);
    Packing packing = {&l, weight, in, 0, row};
    specclient_pack(&packing, 1);
    char *converted = aligned_alloc(64, MOST_ROWS * specclient_converted_bytes(&l));
    specclient_linear(&l, x, MOST_ROWS, all, converted, 1);
    for (int64_t rows = 1; rows < MOST_ROWS; rows++) {
        specclient_linear(&l, x, rows, some, converted, 1);
        differing += memcmp(all, some, rows * out * sizeof(float)) != 0;
    }
    if (kind == INT4_GROUPS) {
        l.panels = with_zeros(&l);
        l.kind = INT4_ZEROS;
        specclient_linear(&l, x, MOST_ROWS, some, converted, 1);
        differing += memcmp(all, some, MOST_ROWS * out * sizeof(float)) != 0;
    }
    for (int64_t i = 0; i < MOST_ROWS * out; i++) {
        double exact = bias[i % out];
        for (int64_t k = 0; k < in; k++) exact += (double)weight[i % out * in + k] * x[i / out * in + k];
        printf("%.8g %.8g\n", all[i], exact);
    }
    return differing;
}

int main(void) {
    int differing = 0;
    for (int64_t kind = INT8_GROUPS; kind <= INT4_GROUPS; kind++)
        differing += check(kind, 80, 96) + check(kind, 64, 75);
    return differing != 0;
}
