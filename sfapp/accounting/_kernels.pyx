# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The array kernels of ``sfapp.accounting.kernels`` in C: the same numbers to the last bit, several times faster.

Each function works on some steps of a matrix and releases the interpreter's lock, so that threads share the
work. Shapes and units are those of the callers. The kernels add, subtract, compare and convert in the order in
which NumPy does.
"""

from libc.math cimport INFINITY, fabs
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

cdef extern from *:
    """
    #include <math.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>

    #pragma GCC diagnostic ignored "-Wpsabi" /* vectors are passed to inlined functions alone */

    /* Each loop is compiled for several instruction sets and chosen by the processor. */
    #define SFAPP_INLINE static inline __attribute__((always_inline))
    #if defined(__x86_64__)
    #define SFAPP_AVX2 __attribute__((target("avx2")))
    #define SFAPP_AVX512 __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw")))

    static int sfapp_level(void)
    {
        if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
            __builtin_cpu_supports("avx512bw"))
            return 2;
        return __builtin_cpu_supports("avx2") ? 1 : 0;
    }

    /* WIDE is the body for the widest registers. */
    #define SFAPP_VARIANTS(TYPE, NAME, WIDE, PARAMETERS, ARGUMENTS)      \\
        SFAPP_AVX512 static TYPE NAME##_avx512 PARAMETERS { return WIDE ARGUMENTS; }        \\
        SFAPP_AVX2 static TYPE NAME##_avx2 PARAMETERS { return NAME##_body ARGUMENTS; }     \\
        static TYPE NAME PARAMETERS                                      \\
        {                                                                \\
            if (sfapp_level() == 2) return NAME##_avx512 ARGUMENTS;      \\
            return NAME##_avx2 ARGUMENTS;                                \\
        }

    /* The same of a body that is told first whether the processor converts vectors of int64 to doubles. */
    #define SFAPP_CONVERTING(NAME, BODY, PARAMETERS, ...)                                        \\
        SFAPP_INLINE int NAME##_wide PARAMETERS { return BODY(1, __VA_ARGS__); }                \\
        SFAPP_INLINE int NAME##_body PARAMETERS { return BODY(0, __VA_ARGS__); }                \\
        SFAPP_VARIANTS(int, NAME, NAME##_wide, PARAMETERS, (__VA_ARGS__))
    #else
    static int sfapp_level(void) { return 1; }
    #define SFAPP_CONVERTING(NAME, BODY, PARAMETERS, ...) \\
        static int NAME PARAMETERS { return BODY(1, __VA_ARGS__); }
    #define SFAPP_VARIANTS(TYPE, NAME, WIDE, PARAMETERS, ARGUMENTS) \\
        static TYPE NAME PARAMETERS { return NAME##_body ARGUMENTS; }
    #endif

    #define SFAPP_TILE 2048 /* ranks at a time: their prefixes stay in the first cache */
    #define SFAPP_LANES 4

    typedef int64_t sfapp_vector __attribute__((vector_size(32), aligned(8)));
    typedef uint64_t sfapp_unsigned __attribute__((vector_size(32), aligned(8)));
    typedef double sfapp_doubles __attribute__((vector_size(32), aligned(8)));

    /* The larger and the smaller value of each lane. */
    #define SFAPP_MAX(a, b) (((a) & ((a) > (b))) | ((b) & ~((a) > (b))))
    #define SFAPP_MIN(a, b) (((b) & ((a) > (b))) | ((a) & ~((a) > (b))))

    /* The lanes of a vector with its halves exchanged. */
    #define SFAPP_ACROSS(a) __builtin_shuffle(a, (sfapp_vector){2, 3, 0, 1})

    /* In each lane, the largest and the next value of two pairs of them: the first pair is replaced. */
    SFAPP_INLINE void sfapp_merge(
        sfapp_vector *first, sfapp_vector *next, const sfapp_vector other, const sfapp_vector next_other)
    {
        const sfapp_vector lower = SFAPP_MIN(*first, other), higher = SFAPP_MAX(*next, next_other);
        *first = SFAPP_MAX(*first, other);
        *next = SFAPP_MAX(higher, lower);
    }

    /* Prefixes, and what is known at each boundary, of one step. `largest`, `sums` and `totals` may be NULL. */
    SFAPP_INLINE void sfapp_walk_step(
        const int counts_all,
        const int64_t *duration, ptrdiff_t stage_stride, ptrdiff_t stages, ptrdiff_t ranks,
        const int64_t *start, ptrdiff_t out_stride, int64_t *top, int64_t *leader, int64_t *second,
        int64_t *largest, int64_t *sums, int64_t *totals)
    {
        int64_t prefix[SFAPP_TILE];
        for (ptrdiff_t begin = 0; begin < ranks; begin += SFAPP_TILE) {
            const ptrdiff_t count = ranks - begin < SFAPP_TILE ? ranks - begin : SFAPP_TILE;
            if (start) memcpy(prefix, start + begin, count * sizeof(int64_t));
            else memset(prefix, 0, count * sizeof(int64_t));
            for (ptrdiff_t stage = 0; stage < stages; stage++) {
                const int64_t *spent = duration + stage * stage_stride + begin;
                sfapp_vector first[2] = {{0}}, next[2] = {{0}}, most[2] = {{0}}, sum[2] = {{0}};
                for (int half = 0; half < 2; half++)
                    for (int lane = 0; lane < SFAPP_LANES; lane++)
                        first[half][lane] = next[half][lane] = most[half][lane] = INT64_MIN;
                ptrdiff_t rank = 0;
                for (; rank + 2 * SFAPP_LANES <= count; rank += 2 * SFAPP_LANES)
                    for (int half = 0; half < 2; half++) { /* two independent vectors at a time */
                        const ptrdiff_t at = rank + half * SFAPP_LANES;
                        const sfapp_vector d = *(const sfapp_vector *)(spent + at);
                        const sfapp_vector p = *(sfapp_vector *)(prefix + at) + d;
                        *(sfapp_vector *)(prefix + at) = p;
                        const sfapp_vector lower = SFAPP_MIN(first[half], p);
                        first[half] = SFAPP_MAX(first[half], p);
                        next[half] = SFAPP_MAX(next[half], lower);
                        if (counts_all) {
                            most[half] = SFAPP_MAX(most[half], d);
                            sum[half] += d;
                        }
                    }
                sfapp_merge(&first[0], &next[0], first[1], next[1]);
                sfapp_merge(&first[0], &next[0], SFAPP_ACROSS(first[0]), SFAPP_ACROSS(next[0]));
                int64_t best = first[0][0], other = next[0][0], widest = INT64_MIN, whole = 0;
                if (first[0][1] > best) { other = best > next[0][1] ? best : next[0][1]; best = first[0][1]; }
                else if (first[0][1] > other) other = first[0][1];
                if (counts_all) {
                    most[0] = SFAPP_MAX(most[0], most[1]);
                    sum[0] += sum[1];
                    for (int lane = 0; lane < SFAPP_LANES; lane++) {
                        widest = most[0][lane] > widest ? most[0][lane] : widest;
                        whole += sum[0][lane];
                    }
                }
                for (; rank < count; rank++) {
                    const int64_t p = prefix[rank] += spent[rank];
                    if (p > best) { other = best > other ? best : other; best = p; }
                    else if (p > other) other = p;
                    if (spent[rank] > widest) widest = spent[rank];
                    whole += spent[rank];
                }
                const ptrdiff_t cell = stage * out_stride;
                if (begin == 0 || best > top[cell]) {
                    ptrdiff_t place = 0;
                    while (prefix[place] != best) place++;
                    second[cell] = begin > 0 && top[cell] > other ? top[cell] : other;
                    top[cell] = best;
                    leader[cell] = begin + place;
                } else if (best > second[cell]) second[cell] = best;
                if (counts_all) {
                    if (begin == 0 || widest > largest[cell]) largest[cell] = widest;
                    sums[cell] = (begin ? sums[cell] : 0) + whole;
                }
            }
            if (totals) memcpy(totals + begin, prefix, count * sizeof(int64_t));
        }
        if (ranks == 1)
            for (ptrdiff_t stage = 0; stage < stages; stage++) second[stage * out_stride] = top[stage * out_stride];
    }

    SFAPP_INLINE int sfapp_step_boundaries_body(
        const int64_t *duration, ptrdiff_t stage_stride, ptrdiff_t stages, ptrdiff_t ranks,
        const int64_t *start, ptrdiff_t out_stride, int64_t *top, int64_t *leader, int64_t *second,
        int64_t *largest, int64_t *sums, int64_t *totals)
    {
        if (largest)
            sfapp_walk_step(1, duration, stage_stride, stages, ranks, start, out_stride, top, leader, second,
                            largest, sums, totals);
        else
            sfapp_walk_step(0, duration, stage_stride, stages, ranks, start, out_stride, top, leader, second,
                            largest, sums, totals);
        return 0;
    }

    SFAPP_VARIANTS(
        int, sfapp_step_boundaries, sfapp_step_boundaries_body,
        (const int64_t *duration, ptrdiff_t stage_stride, ptrdiff_t stages, ptrdiff_t ranks,
         const int64_t *start, ptrdiff_t out_stride, int64_t *top, int64_t *leader, int64_t *second,
         int64_t *largest, int64_t *sums, int64_t *totals),
        (duration, stage_stride, stages, ranks, start, out_stride, top, leader, second, largest, sums, totals))

    #define SFAPP_SEARCH 512 /* ranks in a block; only the block of the maximum is searched for the leader */

    typedef int64_t sfapp_wide __attribute__((vector_size(64), aligned(8)));

    /* The frontier and the leaders of one step only. Four vectors of ranks keep their prefixes in
       registers through all stages, so `VECTOR` has the width of a register. `room` holds one vector a stage. */
    #define SFAPP_STEP_FRONTIER(NAME, VECTOR)                                                              \\
    SFAPP_INLINE int NAME(                                                                                 \\
        const int64_t *duration, ptrdiff_t stage_stride, ptrdiff_t stages, ptrdiff_t ranks,                \\
        ptrdiff_t out_stride, int64_t *top, int64_t *leader, int64_t *room)                                \\
    {                                                                                                      \\
        enum { lanes = sizeof(VECTOR) / sizeof(int64_t) };                                             \\
        VECTOR *const most = (VECTOR *)room;                                                           \\
        for (ptrdiff_t begin = 0; begin < ranks; begin += SFAPP_SEARCH) {                              \\
            const ptrdiff_t end = ranks - begin < SFAPP_SEARCH ? ranks : begin + SFAPP_SEARCH;         \\
            for (ptrdiff_t i = 0; i < lanes * stages; i++) room[i] = INT64_MIN;                        \\
            ptrdiff_t rank = begin;                                                                    \\
            for (; rank + 4 * lanes <= end; rank += 4 * lanes) {                                       \\
                VECTOR a = {0}, b = {0}, c = {0}, d = {0};                                             \\
                for (ptrdiff_t stage = 0; stage < stages; stage++) {                                   \\
                    const VECTOR *spent = (const VECTOR *)(duration + stage * stage_stride + rank);    \\
                    a += spent[0];                                                                     \\
                    b += spent[1];                                                                     \\
                    c += spent[2];                                                                     \\
                    d += spent[3];                                                                     \\
                    const VECTOR one = SFAPP_MAX(a, b), other = SFAPP_MAX(c, d), both = SFAPP_MAX(one, other);\\
                    most[stage] = SFAPP_MAX(most[stage], both);                                        \\
                }                                                                                      \\
            }                                                                                          \\
            for (; rank < end; rank++) {                                                               \\
                int64_t prefix = 0;                                                                    \\
                for (ptrdiff_t stage = 0; stage < stages; stage++) {                                   \\
                    prefix += duration[stage * stage_stride + rank];                                   \\
                    if (prefix > room[lanes * stage]) room[lanes * stage] = prefix;                    \\
                }                                                                                      \\
            }                                                                                          \\
            for (ptrdiff_t stage = 0; stage < stages; stage++) {                                       \\
                const ptrdiff_t cell = stage * out_stride;                                             \\
                int64_t best = INT64_MIN;                                                              \\
                for (int i = 0; i < lanes; i++)                                                        \\
                    if (room[lanes * stage + i] > best) best = room[lanes * stage + i];                \\
                if (begin == 0 || best > top[cell]) {                                                  \\
                    top[cell] = best;                                                                  \\
                    leader[cell] = begin;                                                              \\
                }                                                                                      \\
            }                                                                                          \\
        }                                                                                              \\
        for (ptrdiff_t stage = 0; stage < stages; stage++) {                                           \\
            const ptrdiff_t cell = stage * out_stride, begin = leader[cell];                           \\
            const ptrdiff_t count = ranks - begin < SFAPP_SEARCH ? ranks - begin : SFAPP_SEARCH;       \\
            int64_t prefix[SFAPP_SEARCH] = {0};                                                        \\
            for (ptrdiff_t earlier = 0; earlier <= stage; earlier++) {                                 \\
                const int64_t *spent = duration + earlier * stage_stride + begin;                      \\
                for (ptrdiff_t place = 0; place < count; place++) prefix[place] += spent[place];       \\
            }                                                                                          \\
            ptrdiff_t place = 0;                                                                       \\
            while (prefix[place] != top[cell]) place++;                                                \\
            leader[cell] = begin + place;                                                              \\
        }                                                                                              \\
        return 0;                                                                                      \\
    }

    SFAPP_STEP_FRONTIER(sfapp_step_frontier_wide, sfapp_wide)
    SFAPP_STEP_FRONTIER(sfapp_step_frontier_body, sfapp_vector)

    SFAPP_VARIANTS(
        int, sfapp_step_frontier, sfapp_step_frontier_wide,
        (const int64_t *duration, ptrdiff_t stage_stride, ptrdiff_t stages, ptrdiff_t ranks,
         ptrdiff_t out_stride, int64_t *top, int64_t *leader, int64_t *room),
        (duration, stage_stride, stages, ranks, out_stride, top, leader, room))

    /* The largest of some values; lanes by hand, since a compiler may not reorder comparisons of floats. */
    SFAPP_INLINE double sfapp_largest(const double *x, ptrdiff_t count)
    {
        double most = x[0];
        ptrdiff_t place = 0;
        if (count >= 16) {
            sfapp_doubles lanes[4];
            for (int i = 0; i < 4; i++) lanes[i] = *(const sfapp_doubles *)(x + 4 * i);
            for (place = 16; place + 16 <= count; place += 16)
                for (int i = 0; i < 4; i++) {
                    const sfapp_doubles value = *(const sfapp_doubles *)(x + place + 4 * i);
                    const sfapp_vector above = value > lanes[i];
                    lanes[i] = (sfapp_doubles)(((sfapp_vector)value & above) | ((sfapp_vector)lanes[i] & ~above));
                }
            for (int i = 0; i < 16; i++) most = lanes[i / 4][i % 4] > most ? lanes[i / 4][i % 4] : most;
        }
        for (; place < count; place++) most = x[place] > most ? x[place] : most;
        return most;
    }

    /* Doubles of int64, rounded as by the processor; `converts` says whether it does so with vectors. The upper
       and the lower half of each value are the fractions of two doubles, whose sum is rounded once. */
    SFAPP_INLINE sfapp_doubles sfapp_as_doubles(const int converts, const int64_t *values)
    {
        const sfapp_vector x = *(const sfapp_vector *)values;
        if (converts) return __builtin_convertvector(x, sfapp_doubles);
        const sfapp_unsigned lower = ((sfapp_unsigned)x & 0xffffffffu) | 0x4330000000000000u;
        const sfapp_unsigned upper = ((sfapp_unsigned)x >> 32) ^ 0x4530000080000000u;
        return ((sfapp_doubles)upper - 0x1.00000801p+84) + (sfapp_doubles)lower;
    }

    /* What lies above the level, at least 0. */
    SFAPP_INLINE sfapp_doubles sfapp_over(sfapp_doubles spent, sfapp_doubles level)
    {
        const sfapp_doubles over = spent - level;
        return (sfapp_doubles)((sfapp_vector)over & (over > 0));
    }

    /* The baseline of a vector of ranks from `rank` on: one for each rank, or the same for all. */
    SFAPP_INLINE sfapp_doubles sfapp_level_at(const double *level, ptrdiff_t level_rank, ptrdiff_t rank)
    {
        if (level_rank) return *(const sfapp_doubles *)(level + rank);
        return (sfapp_doubles){level[0], level[0], level[0], level[0]};
    }

    /* The makespans of one step with the recorded stages of each broad stage clipped to their baselines. */
    SFAPP_INLINE int sfapp_clip_totals(
        const int converts,
        const int64_t *duration, ptrdiff_t stage_stride, ptrdiff_t stages, ptrdiff_t ranks,
        const int64_t *owner, ptrdiff_t broads, const int64_t *total,
        const double *level, ptrdiff_t level_stage, ptrdiff_t level_rank, ptrdiff_t out_stride, double *most)
    {
        double whole[SFAPP_TILE], left[SFAPP_TILE];
        for (ptrdiff_t begin = 0; begin < ranks; begin += SFAPP_TILE) {
            const ptrdiff_t count = ranks - begin < SFAPP_TILE ? ranks - begin : SFAPP_TILE;
            const ptrdiff_t even = count - count % SFAPP_LANES;
            for (ptrdiff_t rank = 0; rank < even; rank += SFAPP_LANES)
                *(sfapp_doubles *)(whole + rank) = sfapp_as_doubles(converts, total + begin + rank);
            for (ptrdiff_t rank = even; rank < count; rank++) whole[rank] = (double)total[begin + rank];
            for (ptrdiff_t broad = 0; broad < broads; broad++) {
                const double *from = whole;
                for (ptrdiff_t stage = 0; stage < stages; stage++) {
                    if (owner[stage] != broad) continue;
                    const int64_t *spent = duration + stage * stage_stride + begin;
                    const double *b = level + stage * level_stage + (level_rank ? begin : 0);
                    for (ptrdiff_t rank = 0; rank < even; rank += SFAPP_LANES)
                        *(sfapp_doubles *)(left + rank) = *(const sfapp_doubles *)(from + rank) -
                            sfapp_over(sfapp_as_doubles(converts, spent + rank), sfapp_level_at(b, level_rank, rank));
                    for (ptrdiff_t rank = even; rank < count; rank++) {
                        const double over = (double)spent[rank] - b[level_rank ? rank : 0];
                        left[rank] = from[rank] - (over > 0 ? over : 0);
                    }
                    from = left;
                }
                const double here = sfapp_largest(from, count);
                double *cell = most + broad * out_stride;
                if (begin == 0 || here > *cell) *cell = here;
            }
        }
        return 0;
    }

    SFAPP_CONVERTING(
        sfapp_clipped_makespan, sfapp_clip_totals,
        (const int64_t *duration, ptrdiff_t stage_stride, ptrdiff_t stages, ptrdiff_t ranks,
         const int64_t *owner, ptrdiff_t broads, const int64_t *total,
         const double *level, ptrdiff_t level_stage, ptrdiff_t level_rank, ptrdiff_t out_stride, double *most),
        duration, stage_stride, stages, ranks, owner, broads, total, level, level_stage, level_rank,
        out_stride, most)

    /* The frontier of one step with some stages clipped to their baselines. */
    SFAPP_INLINE int sfapp_clip_prefixes(
        const int converts,
        const int64_t *duration, ptrdiff_t stage_stride, ptrdiff_t stages, ptrdiff_t ranks,
        const int64_t *is_clipped, const double *level, ptrdiff_t level_stage, ptrdiff_t level_rank,
        ptrdiff_t out_stride, double *top)
    {
        double prefix[SFAPP_TILE];
        for (ptrdiff_t begin = 0; begin < ranks; begin += SFAPP_TILE) {
            const ptrdiff_t count = ranks - begin < SFAPP_TILE ? ranks - begin : SFAPP_TILE;
            const ptrdiff_t even = count - count % SFAPP_LANES;
            memset(prefix, 0, count * sizeof(double));
            for (ptrdiff_t stage = 0; stage < stages; stage++) {
                const int64_t *spent = duration + stage * stage_stride + begin;
                const double *b = level + stage * level_stage + (level_rank ? begin : 0);
                for (ptrdiff_t rank = 0; rank < even; rank += SFAPP_LANES) {
                    const sfapp_doubles d = sfapp_as_doubles(converts, spent + rank);
                    const sfapp_doubles unclipped = *(sfapp_doubles *)(prefix + rank) + d;
                    *(sfapp_doubles *)(prefix + rank) = !is_clipped[stage] ? unclipped :
                        unclipped - sfapp_over(d, sfapp_level_at(b, level_rank, rank));
                }
                for (ptrdiff_t rank = even; rank < count; rank++) {
                    const double d = (double)spent[rank], over = d - b[level_rank ? rank : 0];
                    prefix[rank] = prefix[rank] + d - (is_clipped[stage] && over > 0 ? over : 0);
                }
                const double most = sfapp_largest(prefix, count);
                double *cell = top + stage * out_stride;
                if (begin == 0 || most > *cell) *cell = most;
            }
        }
        return 0;
    }

    SFAPP_CONVERTING(
        sfapp_clipped_frontier, sfapp_clip_prefixes,
        (const int64_t *duration, ptrdiff_t stage_stride, ptrdiff_t stages, ptrdiff_t ranks,
         const int64_t *is_clipped, const double *level, ptrdiff_t level_stage, ptrdiff_t level_rank,
         ptrdiff_t out_stride, double *top),
        duration, stage_stride, stages, ranks, is_clipped, level, level_stage, level_rank, out_stride, top)

    /* Exact selection. `SFAPP_SELECT` makes one function for each type of values. */
    #define SFAPP_SMALL 128
    #define SFAPP_PICK(VECTOR, MASK, A, B) \\
        ((VECTOR)(((sfapp_vector)(A) & (MASK)) | ((sfapp_vector)(B) & ~(MASK))))
    #define SFAPP_SAMPLE 127

    #define SFAPP_SELECT(NAME, T, VECTOR, LEAST, LARGEST)                                                  \\
    /* The value at a sorted position is the largest of those that no more values than that lie below. */  \\
    SFAPP_INLINE int NAME##_few_body(const T *x, ptrdiff_t n, ptrdiff_t k, ptrdiff_t last, T *low, T *high) { \\
        enum { together = 4 }; /* vectors, which share what is loaded and do not wait for each other */      \\
        T padded[SFAPP_SMALL + together * SFAPP_LANES];                                                    \\
        memcpy(padded, x, n * sizeof(T));                                                                  \\
        for (ptrdiff_t i = n; i < n + together * SFAPP_LANES; i++) padded[i] = LARGEST;                    \\
        VECTOR at_k = {LEAST, LEAST, LEAST, LEAST}, at_last = at_k;                                        \\
        for (ptrdiff_t i = 0; i < n; i += together * SFAPP_LANES) {                                        \\
            const VECTOR *here = (const VECTOR *)(padded + i);                                             \\
            sfapp_vector above[together] = {{0}};                                                          \\
            for (ptrdiff_t j = 0; j < n; j++)                                                              \\
                for (int which = 0; which < together; which++) above[which] -= here[which] > padded[j];    \\
            for (int which = 0; which < together; which++) {                                               \\
                const sfapp_vector grows_k = (above[which] <= k) & (here[which] > at_k);                   \\
                const sfapp_vector grows_last = (above[which] <= last) & (here[which] > at_last);          \\
                at_k = SFAPP_PICK(VECTOR, grows_k, here[which], at_k);                                     \\
                at_last = SFAPP_PICK(VECTOR, grows_last, here[which], at_last);                            \\
            }                                                                                              \\
        }                                                                                                  \\
        *low = at_k[0];                                                                                    \\
        *high = at_last[0];                                                                                \\
        for (int lane = 1; lane < SFAPP_LANES; lane++) {                                                   \\
            *low = at_k[lane] > *low ? at_k[lane] : *low;                                                  \\
            *high = at_last[lane] > *high ? at_last[lane] : *high;                                         \\
        }                                                                                                  \\
        return 0;                                                                                          \\
    }                                                                                                      \\
    SFAPP_VARIANTS(                                                                                        \\
        int, NAME##_few, NAME##_few_body,                                                                  \\
        (const T *x, ptrdiff_t n, ptrdiff_t k, ptrdiff_t last, T *low, T *high), (x, n, k, last, low, high)) \\
    static void NAME##_sort(T *x, ptrdiff_t n) {                                                           \\
        for (ptrdiff_t i = 1; i < n; i++) {                                                                \\
            const T value = x[i];                                                                          \\
            ptrdiff_t place = i;                                                                           \\
            for (; place > 0 && x[place - 1] > value; place--) x[place] = x[place - 1];                    \\
            x[place] = value;                                                                              \\
        }                                                                                                  \\
    }                                                                                                      \\
    static int NAME##_order(const void *a, const void *b) {                                                \\
        const T one = *(const T *)a, other = *(const T *)b;                                                \\
        return (one > other) - (one < other);                                                              \\
    }                                                                                                      \\
    /* The values at the sorted positions k and `last`, k or k + 1; `room` holds 2 n values. */            \\
    static void NAME(const T *x, ptrdiff_t n, ptrdiff_t k, ptrdiff_t last, T *room, T *low, T *high) {     \\
        T *const rooms[2] = {room, room + n};                                                              \\
        ptrdiff_t wider = 1;                                                                               \\
        for (int round = 0; n > SFAPP_SMALL && round < 32; round++) {                                      \\
            T sample[SFAPP_SAMPLE];                                                                        \\
            const ptrdiff_t taken = n > 4096 ? SFAPP_SAMPLE : 47;                                          \\
            for (ptrdiff_t i = 0; i < taken; i++) sample[i] = x[i * n / taken];                            \\
            NAME##_sort(sample, taken);                                                                    \\
            const ptrdiff_t middle = k * taken / n, spread = wider * (taken > 47 ? 14 : 9);                \\
            const T from = sample[middle > spread ? middle - spread : 0];                                  \\
            const T to = sample[middle + spread < taken ? middle + spread : taken - 1];                    \\
            T *const target = rooms[x == rooms[0]];                                                        \\
            ptrdiff_t below = 0, inside = 0;                                                               \\
            for (ptrdiff_t i = 0; i < n; i++) {                                                            \\
                const T value = x[i];                                                                      \\
                target[inside] = value;                                                                    \\
                inside += (value >= from) & (value <= to);                                                 \\
                below += value < from;                                                                     \\
            }                                                                                              \\
            if (k < below || last >= below + inside) { wider *= 2; continue; } /* the sample missed */     \\
            if (from == to) { *low = *high = from; return; }                                               \\
            if (inside == n) break;                                                                        \\
            x = target; n = inside; k -= below; last -= below; wider = 1;                                  \\
        }                                                                                                  \\
        if (n <= SFAPP_SMALL) { NAME##_few(x, n, k, last, low, high); return; }                            \\
        T *const rest = rooms[x == rooms[0]];                                                              \\
        memcpy(rest, x, n * sizeof(T));                                                                    \\
        qsort(rest, n, sizeof(T), NAME##_order);                                                           \\
        *low = rest[k];                                                                                    \\
        *high = rest[last];                                                                                \\
    }

    SFAPP_SELECT(sfapp_select_integers, int64_t, sfapp_vector, INT64_MIN, INT64_MAX)
    SFAPP_SELECT(sfapp_select_floats, double, sfapp_doubles, -INFINITY, INFINITY)
    """
    int sfapp_level() noexcept nogil
    int sfapp_step_frontier(
        const int64_t *, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, int64_t *, int64_t *,
        int64_t *) noexcept nogil
    int sfapp_step_boundaries(
        const int64_t *, Py_ssize_t, Py_ssize_t, Py_ssize_t, const int64_t *, Py_ssize_t, int64_t *, int64_t *,
        int64_t *, int64_t *, int64_t *, int64_t *) noexcept nogil
    int sfapp_clipped_makespan(
        const int64_t *, Py_ssize_t, Py_ssize_t, Py_ssize_t, const int64_t *, Py_ssize_t, const int64_t *,
        const double *, Py_ssize_t, Py_ssize_t, Py_ssize_t, double *) noexcept nogil
    int sfapp_clipped_frontier(
        const int64_t *, Py_ssize_t, Py_ssize_t, Py_ssize_t, const int64_t *, const double *, Py_ssize_t,
        Py_ssize_t, Py_ssize_t, double *) noexcept nogil
    void sfapp_select_integers(
        const int64_t *, Py_ssize_t, Py_ssize_t, Py_ssize_t, int64_t *, int64_t *, int64_t *) noexcept nogil
    void sfapp_select_floats(
        const double *, Py_ssize_t, Py_ssize_t, Py_ssize_t, double *, double *, double *) noexcept nogil


VERSION = 3
"""Raised when functions are added or change: a module compiled from an older source is not used."""

IS_SUPPORTED = sfapp_level() > 0
"""Whether this processor has the vector instructions that make the kernels faster than NumPy."""


def frontier(
    const int64_t[:, :, ::1] duration_SNR,
    int64_t[:, ::1] frontier_SN,
    int64_t[:, ::1] leader_SN,
    Py_ssize_t begin,
    Py_ssize_t end,
):
    """Fill in frontier and leaders of the steps ``begin`` to ``end`` (exclusive)."""
    cdef Py_ssize_t stages = duration_SNR.shape[0], steps = duration_SNR.shape[1], ranks = duration_SNR.shape[2]
    cdef Py_ssize_t stride = steps * ranks, step
    cdef int64_t *room = <int64_t *>malloc(8 * stages * sizeof(int64_t))
    if room == NULL:
        raise MemoryError()
    with nogil:
        for step in range(begin, end):
            sfapp_step_frontier(
                &duration_SNR[0, step, 0],
                stride,
                stages,
                ranks,
                steps,
                &frontier_SN[0, step],
                &leader_SN[0, step],
                room,
            )
    free(room)


def boundaries(
    const int64_t[:, :, ::1] duration_SNR,
    const int64_t[:, ::1] start_NR,
    int64_t[:, ::1] frontier_SN,
    int64_t[:, ::1] leader_SN,
    int64_t[:, ::1] second_SN,
    int64_t[:, ::1] largest_SN,
    int64_t[:, ::1] sum_SN,
    int64_t[:, ::1] total_NR,
    Py_ssize_t begin,
    Py_ssize_t end,
):
    """Fill in frontier, leaders and runners-up of the steps ``begin`` to ``end`` (exclusive).

    ``start_NR`` and ``total_NR`` may be None; ``largest_SN`` and ``sum_SN`` may be None together.
    """
    cdef Py_ssize_t stages = duration_SNR.shape[0], steps = duration_SNR.shape[1], ranks = duration_SNR.shape[2]
    cdef Py_ssize_t stride = steps * ranks, step
    cdef const int64_t *start = NULL
    cdef int64_t *largest = NULL
    cdef int64_t *sums = NULL
    cdef int64_t *totals = NULL
    if start_NR is not None:
        start = &start_NR[0, 0]
    if largest_SN is not None:
        largest, sums = &largest_SN[0, 0], &sum_SN[0, 0]
    if total_NR is not None:
        totals = &total_NR[0, 0]
    with nogil:
        for step in range(begin, end):
            sfapp_step_boundaries(
                &duration_SNR[0, step, 0],
                stride,
                stages,
                ranks,
                start + step * ranks if start != NULL else NULL,
                steps,
                &frontier_SN[0, step],
                &leader_SN[0, step],
                &second_SN[0, step],
                largest + step if largest != NULL else NULL,
                sums + step if sums != NULL else NULL,
                totals + step * ranks if totals != NULL else NULL,
            )


def clipped_makespan(
    const int64_t[:, :, ::1] duration_SNR,
    const int64_t[:, ::1] total_NR,
    const double[:, :, ::1] level,
    const int64_t[::1] broad_of_S,
    double[:, ::1] clipped_BN,
    Py_ssize_t begin,
    Py_ssize_t end,
):
    """Fill in F[S,t] with each broad stage clipped to its baseline, for some steps (``end`` exclusive).

    ``level`` is broadcast over an axis (steps or ranks) of length one.
    """
    cdef Py_ssize_t stages = duration_SNR.shape[0], ranks = duration_SNR.shape[2], step
    cdef Py_ssize_t stride = duration_SNR.shape[1] * ranks
    cdef Py_ssize_t by_step = level.shape[2] if level.shape[1] > 1 else 0
    cdef Py_ssize_t by_rank = level.shape[2] > 1
    with nogil:
        for step in range(begin, end):
            sfapp_clipped_makespan(
                &duration_SNR[0, step, 0],
                stride,
                stages,
                ranks,
                &broad_of_S[0],
                clipped_BN.shape[0],
                &total_NR[step, 0],
                &level[0, 0, 0] + step * by_step,
                level.shape[1] * level.shape[2],
                by_rank,
                clipped_BN.shape[1],
                &clipped_BN[0, step],
            )


def clipped_frontier(
    const int64_t[:, :, ::1] duration_SNR,
    const double[:, :, ::1] level,
    const int64_t[::1] is_clipped_S,
    double[:, ::1] frontier_SN,
    Py_ssize_t begin,
    Py_ssize_t end,
):
    """Fill in the frontier with some stages clipped, for the steps ``begin`` to ``end`` (exclusive)."""
    cdef Py_ssize_t stages = duration_SNR.shape[0], ranks = duration_SNR.shape[2], step
    cdef Py_ssize_t stride = duration_SNR.shape[1] * ranks
    cdef Py_ssize_t by_step = level.shape[2] if level.shape[1] > 1 else 0
    cdef Py_ssize_t by_rank = level.shape[2] > 1
    with nogil:
        for step in range(begin, end):
            sfapp_clipped_frontier(
                &duration_SNR[0, step, 0],
                stride,
                stages,
                ranks,
                &is_clipped_S[0],
                &level[0, 0, 0] + step * by_step,
                level.shape[1] * level.shape[2],
                by_rank,
                frontier_SN.shape[1],
                &frontier_SN[0, step],
            )


ctypedef fused number:
    int64_t
    double


def middle_rows(const number[:, ::1] x_MR, double[::1] lower_M, double[::1] median_M, Py_ssize_t begin, Py_ssize_t end):
    """Fill in the lower middle value and the median of the rows ``begin`` to ``end`` (exclusive)."""
    cdef Py_ssize_t ranks = x_MR.shape[1], row
    cdef number low, high
    cdef number *room = <number *> malloc(2 * ranks * sizeof(number))
    if room == NULL:
        raise MemoryError
    with nogil:
        for row in range(begin, end):
            if number is int64_t:
                sfapp_select_integers(&x_MR[row, 0], ranks, (ranks - 1) // 2, ranks // 2, room, &low, &high)
            else:
                sfapp_select_floats(&x_MR[row, 0], ranks, (ranks - 1) // 2, ranks // 2, room, &low, &high)
            lower_M[row] = <double> low
            median_M[row] = (<double> low + <double> high) / 2
    free(room)


def continued_fraction(double x, double a, double b):
    """Return ``noise.continued_fraction``."""
    cdef double fraction = 1.0, c = 1.0, d = 0.0, numerator, half
    cdef int term
    for term in range(300):
        half = term // 2
        if term == 0:
            numerator = 1.0
        elif term % 2 == 0:
            numerator = half * (b - half) * x / ((a + 2 * half - 1.0) * (a + 2 * half))
        else:
            numerator = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1.0))
        d = 1.0 / away_from_zero(1.0 + numerator * d)
        c = away_from_zero(1.0 + numerator / c)
        fraction *= c * d
        if fabs(1.0 - c * d) < 1e-12:
            break
    return fraction


cdef double away_from_zero(double value) noexcept:
    return value if fabs(value) > 1e-300 else 1e-300


def series_noise(const double[::1] value_N, double jump, Py_ssize_t block, Py_ssize_t least_blocks):
    """Return ``noise.series_noise``."""
    cdef Py_ssize_t steps = value_N.shape[0], blocks = steps // block, first = 0, step, inside
    cdef double largest = -1.0, low, high, before = 0.0, after = 0.0
    cdef double *room = <double *> malloc(5 * steps * sizeof(double))
    if room == NULL:
        raise MemoryError
    cdef double *change = room + 2 * steps
    cdef double *value = room + 3 * steps
    cdef double *mean = room + 4 * steps
    for step in range(steps):
        value[step] = value_N[step]
    for step in range(steps - 1):
        change[step] = fabs(value[step + 1] - value[step])
        if change[step] > largest:
            largest, first = change[step], step + 1
    sfapp_select_floats(change, steps - 1, (steps - 2) // 2, (steps - 1) // 2, room, &low, &high)
    if largest > jump * ((low + high) / 2) and block <= first <= steps - block:
        for step in range(first):
            before += value[step]
        for step in range(first, steps):
            after += value[step]
        after = after / (steps - first) - before / first
        if fabs(after) >= largest / 2.0:
            for step in range(first, steps):
                value[step] -= after
    if blocks < least_blocks:
        blocks = 0
    for step in range(blocks):
        mean[step] = 0.0
        for inside in range(step * block, (step + 1) * block):
            mean[step] += value[inside]
        mean[step] /= block
    found = (
        squared_difference(value, steps, 1),
        squared_difference(value, steps, 2),
        squared_difference(mean, blocks, 1),
        squared_difference(mean, blocks, 2),
    )
    free(room)
    return found


cdef double squared_difference(const double *series, Py_ssize_t count, Py_ssize_t lag) noexcept:
    cdef double total = 0.0, difference
    cdef Py_ssize_t place
    for place in range(count - lag):
        difference = series[place + lag] - series[place]
        total += difference * difference
    return total / (count - lag) if count > lag else 0.0


def saved(
    const double[:, ::1] position_NR,
    const double[:, ::1] late_NK,
    const int64_t[::1] rank_K,
    double[::1] saved_N,
    double[::1] alone_K,
):
    """Fill in ``lateness_cost.saved``, and ``lateness_cost.saved_alone`` summed over the steps."""
    cdef Py_ssize_t steps = position_NR.shape[0], ranks = position_NR.shape[1], count = rank_K.shape[0]
    cdef Py_ssize_t step, rank, k
    cdef double latest, second, rest, own, late, position
    cdef double *row = <double *> malloc(ranks * sizeof(double))
    if row == NULL:
        raise MemoryError
    for k in range(count):
        alone_K[k] = 0.0
    for step in range(steps):
        latest = second = -INFINITY
        for rank in range(ranks):
            position = row[rank] = position_NR[step, rank]
            if position > latest:
                latest, second = position, latest
            elif position > second:
                second = position
        for k in range(count):
            own, late = row[rank_K[k]], late_NK[step, k]
            if late < 0.0:
                late = 0.0
            row[rank_K[k]] = own - late
            rest = second if own == latest else latest
            alone_K[k] += latest - (rest if rest > own - late else own - late)
        rest = -INFINITY
        for rank in range(ranks):
            if row[rank] > rest:
                rest = row[rank]
        saved_N[step] = latest - rest
    free(row)


def slack_later(
    const double[:, ::1] reached_NR, const double[:, ::1] before_NR, const double[:, ::1] total_CR, double[:, ::1] later_CR
):
    """Fill in ``lateness_cost.Slack.later``."""
    cdef Py_ssize_t steps = reached_NR.shape[0], cost, rank, low, high, middle
    for cost in range(total_CR.shape[0]):
        for rank in range(total_CR.shape[1]):
            low, high = 0, steps
            while low < high:
                middle = (low + high) // 2
                if reached_NR[middle, rank] < total_CR[cost, rank]:
                    low = middle + 1
                else:
                    high = middle
            later_CR[cost, rank] = (total_CR[cost, rank] + before_NR[low, rank]) / (low + 1)
