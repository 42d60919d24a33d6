/* Check of the numbers of a checkpoint: whether all are finite. Include thread_team.h first. */
#include <stdatomic.h>
#include <stdint.h>

#define CHECKED_BYTES (1 << 18)  /* bytes of a piece that one thread checks */

typedef struct {
    const void *data;
    int64_t bytes, width, exponent;  /* bytes of a number, and its exponent bits: all set for inf and NaN */
    atomic_long *infinite;           /* is set to 1 if any number is not finite */
} ValueCheck;

/* Return whether any of `count` numbers has all exponent bits set. The compiler makes vector operations of it. */
static int any_infinite_16(const uint16_t *x, int64_t count, uint16_t exponent) {
    uint16_t found = 0;
    for (int64_t i = 0; i < count; i++) found |= (uint16_t)-((x[i] & exponent) == exponent);
    return found != 0;
}

static int any_infinite_32(const uint32_t *x, int64_t count, uint32_t exponent) {
    uint32_t found = 0;
    for (int64_t i = 0; i < count; i++) found |= -(uint32_t)((x[i] & exponent) == exponent);
    return found != 0;
}

static void run_check(Worker *worker) {
    const ValueCheck *t = worker->task;
    for (int64_t piece; (piece = claim(worker, (t->bytes + CHECKED_BYTES - 1) / CHECKED_BYTES)) >= 0;) {
        int64_t begin = piece * CHECKED_BYTES, left = t->bytes - begin;
        int64_t count = (left < CHECKED_BYTES ? left : CHECKED_BYTES) / t->width;
        const char *at = (const char *)t->data + begin;
        int found = t->width == 2 ? any_infinite_16((const uint16_t *)at, count, (uint16_t)t->exponent)
                                  : any_infinite_32((const uint32_t *)at, count, (uint32_t)t->exponent);
        if (found) atomic_store_explicit(t->infinite, 1, memory_order_relaxed);
    }
    end_stage(worker);
}

/* Return whether all numbers are finite; `width` is 2 or 4, and `exponent` the exponent bits of a number. */
int64_t specclient_all_finite(const void *data, int64_t count, int64_t width, int64_t exponent, int64_t threads) {
    atomic_long infinite = 0;
    ValueCheck task = {data, count * width, width, exponent, &infinite};
    run_on_team(run_check, &task, threads);
    return !atomic_load(&infinite);
}
