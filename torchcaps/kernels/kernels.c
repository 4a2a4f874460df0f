/* Votes by a weight for each pair, made in registers and used at once.
 *
 * A vote is v[c][h] = sum_d x[c][d] W[d][h] + B[c][h], less an origin. All that a routing asks for are sums over the
 * children, sums over the pose, and the way back to poses and weights:
 *
 *   sums   first[j][p]  = sum_i a[j][i] (v - center),  second[j][p] = sum_i a[j][i] (v - center)^2,
 *          or the mean of v by the weights a, and the second sum around that mean
 *   dots   out[j][i]    = sum_p (linear[j][p] + square[j][p] (v - center)) (v - center) + plus[j]
 *   carry  the gradient of v is sum_k a_k[j][i] (linear_k[j][p] + 2 square_k[j][p] (v - center)),
 *          from which follow those of x, W and B
 *
 * Children are the lanes of a vector: a tile holds LANES of them. Children are groups of types, i = group * types + t,
 * and groups share the weights. Letters as in docs/design.md; m counts rows, which are examples and positions.
 *
 * Every entry point is one parallel region: a task is taken by whoever is free, on the threads of PyTorch's OpenMP
 * library if it is GNU's, else on threads that begin and end with the call. Results do not depend on the number of
 * threads.
 */
#ifndef LEVEL

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))
#define MOST_THREADS 64

typedef int64_t i64;

typedef struct { /* sizes; kernels/library.py has the same */
    i64 rows, groups, types, parents, pose_rows, columns, out_columns;
    i64 bias_groups; /* 0: no bias; 1: groups share it; else one for each group */
    i64 threads;
} Sizes;

typedef struct {
    void (*run)(void *job, i64 task);
    void *job;
    i64 tasks;
    atomic_llong next;
} Work;

static void *take_tasks(void *argument) {
    Work *work = argument;
    for (;;) {
        i64 task = atomic_fetch_add(&work->next, 1);
        if (task >= work->tasks) return NULL;
        work->run(work->job, task);
    }
}

static void take_tasks_in_team(void *argument) { take_tasks(argument); }

/* GOMP_parallel of the OpenMP library that PyTorch uses, if there is one. Its threads wait for work in a loop for a
   while after each of PyTorch's operations; threads of our own would have to share the cores with them. */
static void (*parallel)(void (*)(void *), void *, unsigned, unsigned);
EXPORT void use_team(void *function) { parallel = (void (*)(void (*)(void *), void *, unsigned, unsigned))function; }

/* All tasks, on as many threads as are allowed and can be had. */
static void run_tasks(void (*run)(void *, i64), void *job, i64 tasks, i64 threads) {
    Work work = {run, job, tasks, 0};
    pthread_t others[MOST_THREADS];
    i64 wanted = (threads < tasks ? threads : tasks) - 1, started = 0;
    if (wanted > MOST_THREADS) wanted = MOST_THREADS;
    if (wanted > 0 && parallel) {
        parallel(take_tasks_in_team, &work, (unsigned)wanted + 1, 0);
        return;
    }
    while (started < wanted && pthread_create(&others[started], NULL, take_tasks, &work) == 0) started++;
    take_tasks(&work);
    for (i64 k = 0; k < started; k++) pthread_join(others[k], NULL);
}

/* What to do with the votes of a tile for one parent: sums over children, sums over the pose, or the way back. */
enum { SUMS, DOTS, CARRY };

/* In how many parts the rows go back, or the tiles in tasks: whatever the threads, so that results do not depend on
 * them. */
enum { CARRY_PARTS = 8, CARRY_TASKS = 32 };

#define EACH(index, count) _Pragma("GCC unroll 4") for (i64 index = 0; index < (count); index++)
#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLES /* two vectors into one by __builtin_shufflevector */
/* Every second number of two vectors, from the first or the second on. */
#define PAIRS_2(o) o, o + 2
#define PAIRS_4(o) PAIRS_2(o), PAIRS_2(o + 4)
#define PAIRS_8(o) PAIRS_4(o), PAIRS_4(o + 8)
#define PAIRS_16(o) PAIRS_8(o), PAIRS_8(o + 16)
#define PAIRS_OF_(lanes, o) PAIRS_##lanes(o)
#define PAIRS_OF(lanes, o) PAIRS_OF_(lanes, o)
#define PAIRS(o) PAIRS_OF(LANES, o)
#endif
#define JOIN_(name, type, level) name##_##type##level
#define JOIN(name, type, level) JOIN_(name, type, level)
#define NAME(name) JOIN(name, REAL, LEVEL)

/* The code once for each generation of processors. BYTES are those of a vector, which is never longer than a register:
 * compilers keep longer ones in memory. TALL and WIDE: so many rows of poses and components of votes are multiplied in
 * registers, from one read of the weights; as many as there are registers for. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(TORCHCAPS_ONE_TARGET)
#define LEVELS 3
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4")
#define LEVEL _v4
#define BYTES 64
#define FLOATS 16
#define DOUBLES 8
#define TALL 4
#define WIDE 4
#include "kernels.c"
#undef LEVEL
#undef BYTES
#undef FLOATS
#undef DOUBLES
#undef WIDE
#undef TALL
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define LEVEL _v3
#define BYTES 32
#define FLOATS 8
#define DOUBLES 4
#define TALL 4
#define WIDE 2
#include "kernels.c"
#undef LEVEL
#undef BYTES
#undef FLOATS
#undef DOUBLES
#undef WIDE
#undef TALL
#pragma GCC pop_options
#else
#define LEVELS 1
#endif
#define LEVEL _any
#define BYTES 16
#define FLOATS 4
#define DOUBLES 2
#define TALL 4
#define WIDE 2
#include "kernels.c"

#if LEVELS == 3
#define CHOOSE(name) __builtin_cpu_supports("x86-64-v4") ? name##_v4 : __builtin_cpu_supports("x86-64-v3") ? name##_v3 : name##_any
#else
#define CHOOSE(name) name##_any
#endif
#define ENTRY(name, type) \
    EXPORT void name##_##type(void *job) { (CHOOSE(name##_##type))(job); }
#define ENTRIES(type) \
    ENTRY(sums, type) \
    ENTRY(dots, type) \
    ENTRY(carry, type) \
    ENTRY(compete, type) \
    ENTRY(closed, type) \
    ENTRY(winograd, type) \
    ENTRY(fourier, type) \
    ENTRY(implicit, type) \
    ENTRY(norm, type) \
    ENTRY(make, type) \
    ENTRY(sum_up, type) \
    ENTRY(carry_few, type) \
    ENTRY(derive, type) \
    ENTRY(attend, type) \
    ENTRY(squash, type) \
    ENTRY(exponential, type) \
    ENTRY(lengths, type) \
    ENTRY(unit, type) \
    ENTRY(rivals, type) \
    ENTRY(units, type) \
    EXPORT void turn_poses_##type( \
        i64 rows, i64 groups, i64 types, i64 c, i64 d, const type *scale, type *pose, type *turned, i64 back, i64 threads \
    ) { (CHOOSE(turn_poses_##type))(rows, groups, types, c, d, scale, pose, turned, back, threads); } \
    EXPORT i64 lanes_##type(void) { return (CHOOSE(lanes_##type))(); } \
    EXPORT void pack_##type( \
        i64 rows, i64 groups, i64 types, i64 each, const type *from, type *to, i64 threads \
    ) { (CHOOSE(pack_##type))(rows, groups, types, each, from, to, threads); }

ENTRIES(float)
ENTRIES(double)

/* What the caller takes the structures and the order of packed numbers to be: a library of another version does not fit. */
EXPORT i64 layout(void) {
    i64 parts[] = {
        sizeof(Sizes), sizeof(Job_float_any), sizeof(Competition_float_any), sizeof(Closed_float_any),
        sizeof(Winograd_float_any), sizeof(Fourier_float_any), sizeof(Implicit_float_any), sizeof(Norm_float_any), 13,
    };
    i64 all = 0;
    for (unsigned k = 0; k < sizeof parts / sizeof parts[0]; k++) all = (all * 1009 + parts[k]) % 1000000007;
    return all;
}

#elif !defined(REAL) /* one generation of processors */

/* LANES are the numbers in a vector: what packed weights are laid out for. */
#define REAL float
#define OF(function) function##f
#define INTEGER int32_t
#define LANES FLOATS
#define COMMON_SIZES 1
#include "kernels.c"
#undef REAL
#undef OF
#undef INTEGER
#undef LANES
#undef COMMON_SIZES
#define REAL double
#define OF(function) function
#define INTEGER int64_t
#define LANES DOUBLES
#define COMMON_SIZES 0 /* few route in double precision: not worth the code */
#include "kernels.c"
#undef REAL
#undef OF
#undef INTEGER
#undef LANES
#undef COMMON_SIZES

#else /* what follows is compiled once for each of both number types */

typedef REAL NAME(vec) __attribute__((vector_size(BYTES)));
typedef INTEGER NAME(mask) __attribute__((vector_size(BYTES)));
#define VEC NAME(vec)

static i64 NAME(lanes)(void) { return LANES; }

INLINE i64 NAME(tiles)(const Sizes *s) { return (s->types + LANES - 1) / LANES; }

INLINE VEC NAME(splat)(REAL number) { return number - (VEC){0}; }

/* LANES numbers, zero from `there` on; `readable` numbers are in memory from there. */
INLINE VEC NAME(load)(const REAL *from, i64 there, i64 readable) {
    VEC found = {0};
    if (there >= LANES) memcpy(&found, from, sizeof(VEC));
    else if (readable >= LANES) {
        NAME(mask) lanes;
        for (INTEGER l = 0; l < LANES; l++) lanes[l] = l < there ? -1 : 0;
        memcpy(&found, from, sizeof(VEC));
        found = (VEC)((NAME(mask))found & lanes);
    } else { /* in pieces of powers of two */
        REAL *to = (REAL *)&found;
        if (there & 8) memcpy(to, from, 8 * sizeof(REAL)), to += 8, from += 8;
        if (there & 4) memcpy(to, from, 4 * sizeof(REAL)), to += 4, from += 4;
        for (i64 l = 0; l < (there & 3); l++) to[l] = from[l];
    }
    return found;
}

/* The first `there` of them: in pieces of powers of two. */
INLINE void NAME(store)(REAL *to, VEC numbers, i64 there) {
    const REAL *from = (const REAL *)&numbers;
    if (there >= LANES) {
        memcpy(to, from, sizeof(VEC));
        return;
    }
    if (there & 8) memcpy(to, from, 8 * sizeof(REAL)), to += 8, from += 8;
    if (there & 4) memcpy(to, from, 4 * sizeof(REAL)), to += 4, from += 4;
    for (i64 l = 0; l < (there & 3); l++) to[l] = from[l];
}

INLINE REAL NAME(total)(VEC numbers) {
    REAL sum = 0;
    for (int l = 0; l < LANES; l++) sum += numbers[l];
    return sum;
}

/* The sum of each of so many vectors. */
INLINE void NAME(totals)(const VEC *from, i64 count, REAL *to) {
    i64 done = 0;
#ifdef SHUFFLES
    for (; done + LANES <= count; done += LANES) { /* neighbors in two vectors, then their neighbors, and so on */
        VEC part[LANES];
        _Pragma("GCC unroll 16") for (int k = 0; k < LANES; k++) part[k] = from[done + k];
        _Pragma("GCC unroll 4") for (int left = LANES / 2; left > 0; left /= 2)
            _Pragma("GCC unroll 8") for (int k = 0; k < left; k++)
                part[k] = __builtin_shufflevector(part[2 * k], part[2 * k + 1], PAIRS(0))
                    + __builtin_shufflevector(part[2 * k], part[2 * k + 1], PAIRS(1));
        memcpy(to + done, part, sizeof(VEC));
    }
#endif
    for (; done < count; done++) to[done] = NAME(total)(from[done]);
}

/* `count` numbers of each of LANES children, `stride` apart, with the children innermost; absent ones are zero. */
INLINE void NAME(turn)(const REAL *from, i64 stride, i64 count, i64 there, VEC *to) {
    REAL *out = (REAL *)to;
    if (there >= LANES) {
        for (i64 k = 0; k < count; k++)
            for (i64 l = 0; l < LANES; l++) out[k * LANES + l] = from[l * stride + k];
    } else {
        memset(out, 0, count * sizeof(VEC));
        for (i64 l = 0; l < there; l++)
            for (i64 k = 0; k < count; k++) out[k * LANES + l] = from[l * stride + k];
    }
}

INLINE void NAME(turn_back)(const VEC *from, i64 stride, i64 count, i64 there, REAL *to) {
    const REAL *in = (const REAL *)from;
    for (i64 l = 0; l < (there < LANES ? there : LANES); l++)
        for (i64 k = 0; k < count; k++) to[l * stride + k] = in[k * LANES + l];
}

/* `each` numbers of (row, group, t) -> (group, tile, row, each, lane): weights, biases (rows of one) and poses. */
typedef struct { i64 rows, groups, types, each; const REAL *from; VEC *to; } NAME(PackJob);

static void NAME(pack_part)(void *job, i64 part) {
    const NAME(PackJob) *p = job;
    i64 tiles = (p->types + LANES - 1) / LANES, row = part / (p->groups * tiles), place = part % (p->groups * tiles);
    i64 group = place / tiles, first = place % tiles * LANES;
    const REAL *from = p->from + ((row * p->groups + group) * p->types + first) * p->each;
    NAME(turn)(from, p->each, p->each, p->types - first, p->to + (place * p->rows + row) * p->each);
}

static void NAME(pack)(i64 rows, i64 groups, i64 types, i64 each, const REAL *from, REAL *to, i64 threads) {
    NAME(PackJob) job = {rows, groups, types, each, from, (VEC *)to};
    run_tasks(NAME(pack_part), &job, rows * groups * ((types + LANES - 1) / LANES), threads);
}

typedef struct {
    const Sizes *s;
    const VEC *pose, *weight, *bias; /* packed: g tile m (c d); tile j (d h); bias_groups tile j p */
    const REAL *origin;              /* m j p */
    i64 columns;                     /* of pairs: parents, or 1 where all share one */
    i64 moments;                     /* sums: whether around the mean */
    const REAL *pairs, *center;      /* m columns i; m j p */
    const REAL *linear, *square, *plus; /* m j p, m j p, m j */
    REAL *first, *second, *out;      /* m j p, m j p, m j i */
    /* carry: factors lie one after the other */
    i64 factors;
    const REAL *const *factor_pairs; /* each m (columns) i */
    const i64 *factor_columns;
    REAL *to_pose, *to_weight, *to_bias; /* m i (c d); t j d h; bias_groups t j p */
    i64 add;                             /* whether the last two are added to what is there */
    i64 tile_rows, tile_parents, parts;
    VEC *shares; /* of several parts: their gradients of weights, then of biases */
    i64 failed; /* no memory for the tiles */
} NAME(Job);

/* Vectors that the sums of one row take for one parent: the first, the second, and the mass of moments. */
INLINE i64 NAME(size_of_sums)(const NAME(Job) *job, i64 pose) {
    return job->moments ? 2 * pose + 1 : job->second ? 2 * pose : pose;
}

/* Rows of poses whose votes are made together, so that weights are read once for all: examples where poses are vectors,
 * the rows of one pose where they are matrices. What belongs to one row is `step` numbers from that of the next. */
typedef struct {
    const VEC *x;
    const VEC *bias;
    const VEC *pairs;
    const VEC *ratios; /* each child's weight as a part of all up to it, for moments */
    VEC *sums, *to_x, *to_bias;
    i64 place; /* in what parents have, m j p */
    i64 step, bias_step, pairs_step, sums_step, place_step;
} NAME(Rows);

/* v[m][n] = sum_l x[m][l] w[l][k + n] + bias, less origin and center. All of `d`, `h`, `tall` and `wide` are constants
 * wherever the sizes are common. */
INLINE void NAME(build)(
    const NAME(Job) *job, const NAME(Rows) *r, const VEC *restrict w, i64 d, i64 h, i64 k, i64 tall, i64 wide,
    VEC v[TALL][WIDE]
) {
    EACH(m, tall) EACH(n, wide) v[m][n] = r->bias ? r->bias[m * r->bias_step + k + n] : (VEC){0};
    for (i64 l = 0; l < d; l++) {
        VEC at[WIDE];
        EACH(n, wide) at[n] = w[l * h + k + n];
        EACH(m, tall) {
            VEC x = r->x[m * r->step + l];
            EACH(n, wide) v[m][n] += x * at[n];
        }
    }
    if (job->origin)
        EACH(m, tall) EACH(n, wide) v[m][n] -= job->origin[r->place + m * r->place_step + k + n];
    if (job->center)
        EACH(m, tall) EACH(n, wide) v[m][n] -= job->center[r->place + m * r->place_step + k + n];
}

/* Mean and squares around it with one child more in each lane: exact however far the mean is from zero (Welford). */
INLINE void NAME(add_moment)(VEC v, VEC weight, VEC ratio, VEC *mean, VEC *squares) {
    VEC off = v - *mean;
    *mean += ratio * off;
    *squares += weight * off * (v - *mean);
}

/* A weight as a part of the mass, to which it is added. */
INLINE VEC NAME(add_mass)(VEC weight, VEC *mass) {
    *mass += weight;
    VEC nothing = (VEC)(*mass == 0 & (NAME(mask))NAME(splat)(1)); /* one in its place */
    return weight / (*mass + nothing);
}

/* Sums over the children of a tile, added to those of the tiles before. */
INLINE void NAME(add_sums)(
    const NAME(Job) *job, const NAME(Rows) *r, const VEC *w, i64 c, i64 d, i64 h, i64 k, i64 tall, i64 wide
) {
    VEC v[TALL][WIDE];
    NAME(build)(job, r, w, d, h, k, tall, wide, v);
    VEC *to = r->sums + k;
    if (job->moments) {
        EACH(m, tall) EACH(n, wide) {
            VEC *sum = to + m * r->sums_step + n;
            NAME(add_moment)(v[m][n], r->pairs[m * r->pairs_step], r->ratios[m * r->pairs_step], sum, sum + c * h);
        }
        return;
    }
    if (!job->second) {
        EACH(m, tall) EACH(n, wide) to[m * r->sums_step + n] += r->pairs[m * r->pairs_step] * v[m][n];
        return;
    }
    EACH(m, tall) EACH(n, wide) {
        VEC weighted = r->pairs[m * r->pairs_step] * v[m][n];
        to[m * r->sums_step + n] += weighted;
        to[m * r->sums_step + n + c * h] += weighted * v[m][n];
    }
}

/* Sums over the pose. */
INLINE void NAME(add_dots)(
    const NAME(Job) *job, const NAME(Rows) *r, const VEC *w, i64 d, i64 h, i64 k, i64 tall, i64 wide, VEC dots[TALL]
) {
    VEC v[TALL][WIDE];
    NAME(build)(job, r, w, d, h, k, tall, wide, v);
    EACH(m, tall) EACH(n, wide) {
        i64 place = r->place + m * r->place_step + k + n;
        if (!job->square) dots[m] += job->linear[place] * v[m][n];
        else if (!job->linear) dots[m] += job->square[place] * (v[m][n] * v[m][n]);
        else dots[m] += (job->linear[place] + job->square[place] * v[m][n]) * v[m][n];
    }
}

/* From the gradient of the votes to those of poses, weights and biases. The weights of pairs are `a[factor][m]`. */
INLINE void NAME(add_carried)(
    const NAME(Job) *job, const NAME(Rows) *r, const VEC *restrict w, VEC *restrict to_w, VEC *restrict grad,
    i64 d, i64 h, i64 pose, i64 tall, i64 wide_l, i64 wide
) {
    i64 stride = job->s->rows * job->s->parents * pose;
    for (i64 k = 0; k < h; k += wide) {
        VEC part[TALL][WIDE];
        EACH(m, tall) EACH(n, wide) part[m][n] = (VEC){0};
        const REAL *from = job->square ? job->square + r->place + k : NULL;
        if (from) {
            VEC v[TALL][WIDE];
            for (i64 f = 0; f < job->factors; f++)
                EACH(m, tall) EACH(n, wide)
                    part[m][n] += r->pairs[f * TALL + m * r->pairs_step] * from[f * stride + m * r->place_step + n];
            NAME(build)(job, r, w, d, h, k, tall, wide, v);
            EACH(m, tall) EACH(n, wide) part[m][n] *= 2 * v[m][n];
        }
        from = job->linear + r->place + k;
        for (i64 f = 0; f < job->factors; f++)
            EACH(m, tall) EACH(n, wide)
                part[m][n] += r->pairs[f * TALL + m * r->pairs_step] * from[f * stride + m * r->place_step + n];
        EACH(m, tall) EACH(n, wide) grad[m * h + k + n] = part[m][n];
        if (job->to_bias) EACH(m, tall) EACH(n, wide) r->to_bias[m * r->bias_step + k + n] += part[m][n];
        if (job->to_weight)
            for (i64 l = 0; l < d; l += wide_l) {
                VEC sum[WIDE][WIDE];
                EACH(i, wide_l) EACH(n, wide) sum[i][n] = to_w[(l + i) * h + k + n];
                EACH(m, tall) EACH(i, wide_l) {
                    VEC x = r->x[m * r->step + l + i];
                    EACH(n, wide) sum[i][n] += x * part[m][n];
                }
                EACH(i, wide_l) EACH(n, wide) to_w[(l + i) * h + k + n] = sum[i][n];
            }
    }
    if (!job->to_pose) return;
    for (i64 l = 0; l < d; l += wide_l) {
        VEC sum[TALL][WIDE];
        EACH(m, tall) EACH(i, wide_l) sum[m][i] = r->to_x[m * r->step + l + i];
        for (i64 k = 0; k < h; k++) {
            VEC at[WIDE];
            EACH(i, wide_l) at[i] = w[(l + i) * h + k];
            EACH(m, tall) EACH(i, wide_l) sum[m][i] += grad[m * h + k] * at[i];
        }
        EACH(m, tall) EACH(i, wide_l) r->to_x[m * r->step + l + i] = sum[m][i];
    }
}

INLINE void NAME(use)(
    const NAME(Job) *job, const NAME(Rows) *r, const VEC *w, i64 c, i64 d, i64 h, i64 tall, int what, VEC *to_w,
    VEC *grad, VEC dots[TALL]
) {
    if (what == CARRY) {
        if (d % WIDE == 0 && h % WIDE == 0) NAME(add_carried)(job, r, w, to_w, grad, d, h, c * h, tall, WIDE, WIDE);
        else NAME(add_carried)(job, r, w, to_w, grad, d, h, c * h, tall, 1, 1);
        return;
    }
    i64 k = 0;
    for (; k + WIDE <= h; k += WIDE)
        if (what == SUMS) NAME(add_sums)(job, r, w, c, d, h, k, tall, WIDE);
        else NAME(add_dots)(job, r, w, d, h, k, tall, WIDE, dots);
    for (; k < h; k++)
        if (what == SUMS) NAME(add_sums)(job, r, w, c, d, h, k, tall, 1);
        else NAME(add_dots)(job, r, w, d, h, k, tall, 1, dots);
}

typedef struct { /* a tile of children of one group, for one parent */
    i64 start, rows, group, tile, j;
    const VEC *x; /* of the row at `start` */
    const VEC *w, *bias;
    VEC *sums, *to_x, *to_w, *to_bias, *pairs, *grad;
} NAME(Tile);

/* The weights of the pairs of a tile: those of absent children are zero. */
INLINE VEC NAME(pairs_of)(const NAME(Job) *job, const NAME(Tile) *t, const REAL *pairs, i64 columns, i64 m) {
    const Sizes *s = job->s;
    i64 row = m * columns + (columns == 1 ? 0 : t->j);
    i64 place = (row * s->groups + t->group) * s->types + t->tile * LANES;
    i64 all = s->rows * columns * s->groups * s->types;
    return NAME(load)(pairs + place, s->types - t->tile * LANES, all - place);
}

INLINE void NAME(use_rows)(const NAME(Job) *job, const NAME(Tile) *t, i64 r, i64 c, i64 d, i64 h, i64 tall, int what) {
    const Sizes *s = job->s;
    i64 pose = c * h, size = c * d, examples = c == 1 ? tall : 1, m = t->start + r, parent = m * s->parents + t->j;
    i64 each = NAME(size_of_sums)(job, pose);
    VEC a[TALL], ratios[TALL], totals[TALL], dots[TALL];
    if (what == SUMS) EACH(n, examples) {
        a[n] = NAME(pairs_of)(job, t, job->pairs, job->columns, m + n);
        if (job->moments) ratios[n] = NAME(add_mass)(a[n], t->sums + (r + n) * each + 2 * pose);
    }
    if (what == CARRY)
        for (i64 f = 0; f < job->factors; f++)
            EACH(n, examples)
                t->pairs[f * TALL + n] = NAME(pairs_of)(job, t, job->factor_pairs[f], job->factor_columns[f], m + n);
    EACH(n, tall) totals[n] = (VEC){0};
    for (i64 row = 0; row < c; row += c == 1 ? 1 : tall) {
        NAME(Rows) rows = {
            t->x + r * size + row * d, t->bias ? t->bias + row * h : NULL, what == CARRY ? t->pairs : a, ratios,
            t->sums ? t->sums + r * each + row * h : NULL, t->to_x ? t->to_x + r * size + row * d : NULL,
            t->to_bias ? t->to_bias + row * h : NULL, parent * pose + row * h,
            d, c == 1 ? 0 : h, c == 1, c == 1 ? each : h, c == 1 ? s->parents * pose : h,
        };
        EACH(n, tall) dots[n] = (VEC){0};
        NAME(use)(job, &rows, t->w, c, d, h, tall, what, t->to_w, t->grad, dots);
        EACH(n, tall) totals[c == 1 ? n : 0] += dots[n];
    }
    if (what == DOTS) EACH(n, examples) {
        VEC sum = totals[n] + NAME(splat)(job->plus ? job->plus[parent + n * s->parents] : 0);
        REAL *to = job->out + ((parent + n * s->parents) * s->groups + t->group) * s->types + t->tile * LANES;
        NAME(store)(to, sum, s->types - t->tile * LANES);
    }
}

INLINE void NAME(use_tile_of)(const NAME(Job) *job, const NAME(Tile) *t, i64 c, i64 d, i64 h, int what) {
    i64 r = 0;
    if (c == 1)
        for (; r + TALL <= t->rows; r += TALL) NAME(use_rows)(job, t, r, 1, d, h, TALL, what);
    else if (COMMON_SIZES && c == 4)
        for (; r < t->rows; r++) NAME(use_rows)(job, t, r, 4, d, h, TALL, what);
    for (; r < t->rows; r++) NAME(use_rows)(job, t, r, c, d, h, 1, what);
}

INLINE void NAME(use_tile)(const NAME(Job) *job, const NAME(Tile) *t, int what) {
    i64 c = job->s->pose_rows, d = job->s->columns, h = job->s->out_columns;
    if (COMMON_SIZES && c == 1 && d == 8 && h == 16) NAME(use_tile_of)(job, t, 1, 8, 16, what);
    else if (COMMON_SIZES && c == 4 && d == 4 && h == 4) NAME(use_tile_of)(job, t, 4, 4, 4, what);
    else NAME(use_tile_of)(job, t, c, d, h, what);
}

/* Memory for tiles, aligned as vectors want it. */
INLINE VEC *NAME(room)(i64 vectors) {
    void *found = NULL;
    return posix_memalign(&found, 64, (vectors ? vectors : 1) * sizeof(VEC)) == 0 ? found : NULL;
}

INLINE const VEC *NAME(bias_of)(const NAME(Job) *job, i64 group, i64 tile, i64 j) {
    const Sizes *s = job->s;
    if (!s->bias_groups) return NULL;
    i64 place = ((s->bias_groups == 1 ? 0 : group) * NAME(tiles)(s) + tile) * s->parents + j;
    return job->bias + place * s->pose_rows * s->out_columns;
}

INLINE NAME(Tile) NAME(tile_at)(const NAME(Job) *job, i64 start, i64 rows, i64 group, i64 tile, i64 j) {
    const Sizes *s = job->s;
    return (NAME(Tile)){
        start, rows, group, tile, j,
        job->pose + ((group * NAME(tiles)(s) + tile) * s->rows + start) * s->pose_rows * s->columns,
        job->weight + (tile * s->parents + j) * s->columns * s->out_columns, NAME(bias_of)(job, group, tile, j),
        NULL, NULL, NULL, NULL, NULL, NULL,
    };
}

/* Sums over all tiles for one parent in registers, two components at a time: where all that a row reads stays in the
 * nearest caches. `m` is the first of so many examples as are tall, or the one of matrices. */
INLINE void NAME(sum_tiles)(
    const NAME(Job) *job, i64 m, i64 j, i64 c, i64 d, i64 h, i64 tall, VEC *sums, VEC *ratios
) {
    const Sizes *s = job->s;
    i64 pose = c * h, examples = c == 1 ? tall : 1, tiles = NAME(tiles)(s), wide = h % 2 ? 1 : 2;
    i64 each = NAME(size_of_sums)(job, pose);
    if (job->moments)
        EACH(n, examples) {
            VEC *mass = sums + n * each + 2 * pose;
            *mass = (VEC){0};
            for (i64 g = 0; g < s->groups; g++)
                for (i64 tile = 0; tile < tiles; tile++) {
                    NAME(Tile) t = NAME(tile_at)(job, m, examples, g, tile, j);
                    VEC weight = NAME(pairs_of)(job, &t, job->pairs, job->columns, m + n);
                    ratios[(g * tiles + tile) * TALL + n] = NAME(add_mass)(weight, mass);
                }
        }
    for (i64 row = 0; row < c; row += c == 1 ? 1 : tall)
        for (i64 k = 0; k < h; k += wide) {
            VEC first[TALL][WIDE], second[TALL][WIDE];
            EACH(n, tall) EACH(o, wide) first[n][o] = second[n][o] = (VEC){0};
            for (i64 g = 0; g < s->groups; g++)
                for (i64 tile = 0; tile < tiles; tile++) {
                    NAME(Tile) t = NAME(tile_at)(job, m, examples, g, tile, j);
                    NAME(Rows) rows = {
                        t.x + row * d, t.bias ? t.bias + row * h : NULL, NULL, NULL, NULL, NULL, NULL,
                        (m * s->parents + j) * pose + row * h, d, c == 1 ? 0 : h, 0, 0, c == 1 ? s->parents * pose : h,
                    };
                    VEC v[TALL][WIDE], a[TALL];
                    EACH(n, examples) a[n] = NAME(pairs_of)(job, &t, job->pairs, job->columns, m + n);
                    if (wide == 2) NAME(build)(job, &rows, t.w, d, h, k, tall, 2, v);
                    else NAME(build)(job, &rows, t.w, d, h, k, tall, 1, v);
                    if (job->moments) {
                        const VEC *ratio = ratios + (g * tiles + tile) * TALL;
                        EACH(n, tall) EACH(o, wide) NAME(add_moment)(
                            v[n][o], a[c == 1 ? n : 0], ratio[c == 1 ? n : 0], &first[n][o], &second[n][o]
                        );
                        continue;
                    }
                    EACH(n, tall) EACH(o, wide) first[n][o] += a[c == 1 ? n : 0] * v[n][o];
                    if (job->second)
                        EACH(n, tall) EACH(o, wide) second[n][o] += a[c == 1 ? n : 0] * (v[n][o] * v[n][o]);
                }
            EACH(n, tall) EACH(o, wide) {
                VEC *to = sums + (c == 1 ? n * each : (row + n) * h) + k + o;
                to[0] = first[n][o];
                if (each > pose) to[pose] = second[n][o];
            }
        }
}

INLINE i64 NAME(sum_rows_of_parent)(
    const NAME(Job) *job, i64 m, i64 rows, i64 j, i64 c, i64 d, i64 h, VEC *sums, VEC *ratios
) {
    if (c == 1 && rows >= TALL) return NAME(sum_tiles)(job, m, j, 1, d, h, TALL, sums, ratios), TALL;
    if (COMMON_SIZES && c == 4) return NAME(sum_tiles)(job, m, j, 4, d, h, TALL, sums, ratios), 1;
    return NAME(sum_tiles)(job, m, j, c, d, h, 1, sums, ratios), 1;
}

/* Whether the weights stay in the second cache. A task goes through few rows and one parent at a time then, so that all
 * else is read in order; else tile by tile through all its rows and parents, so that weights are read from further away
 * as seldom as possible. */
INLINE int NAME(are_near)(const Sizes *s) {
    return NAME(tiles)(s) * s->parents * s->columns * s->out_columns * (i64)sizeof(VEC) <= 640 << 10;
}

/* Sums over the lanes, `pose` of them twice and the mass of each. */
static void NAME(write_sums)(const NAME(Job) *job, i64 start, i64 rows, i64 j, VEC *sums) {
    i64 pose = job->s->pose_rows * job->s->out_columns, each = NAME(size_of_sums)(job, pose);
    for (i64 r = 0; r < rows; r++, sums += each) {
        i64 place = ((start + r) * job->s->parents + j) * pose;
        if (job->moments) { /* those of the lanes become those of all */
            VEC mass = sums[2 * pose];
            REAL all = NAME(total)(mass);
            for (i64 k = 0; k < pose; k++) {
                VEC mean = sums[k];
                REAL middle = all == 0 ? 0 : NAME(total)(mass * mean) / all;
                sums[pose + k] += mass * (mean - middle) * (mean - middle);
                job->first[place + k] = middle;
            }
            NAME(totals)(sums + pose, pose, job->second + place);
            continue;
        }
        NAME(totals)(sums, pose, job->first + place);
        if (job->second) NAME(totals)(sums + pose, pose, job->second + place);
    }
}

/* The rows and parents of a task. */
typedef struct { i64 first, last, low, high; } NAME(Share);

INLINE NAME(Share) NAME(share_of)(const NAME(Job) *job, i64 task) {
    const Sizes *s = job->s;
    i64 chunks = (s->parents + job->tile_parents - 1) / job->tile_parents;
    i64 first = task / chunks * job->tile_rows, last = first + job->tile_rows;
    i64 low = task % chunks * job->tile_parents, high = low + job->tile_parents;
    return (NAME(Share)){first, last < s->rows ? last : s->rows, low, high < s->parents ? high : s->parents};
}

static void NAME(sum_rows)(void *argument, i64 task) {
    NAME(Job) *job = argument;
    const Sizes *s = job->s;
    NAME(Share) own = NAME(share_of)(job, task);
    i64 c = s->pose_rows, d = s->columns, h = s->out_columns, each = NAME(size_of_sums)(job, c * h), near = NAME(are_near)(s);
    i64 rows = own.last - own.first, all = each * (near ? TALL : rows * (own.high - own.low));
    VEC *sums = NAME(room)(all + s->groups * NAME(tiles)(s) * TALL), *ratios = sums + all;
    if (!sums) {
        job->failed = 1;
        return;
    }
    for (i64 m = own.first, done = 0; near && m < own.last; m += done)
        for (i64 j = own.low; j < own.high; j++) {
            if (COMMON_SIZES && c == 1 && d == 8 && h == 16)
                done = NAME(sum_rows_of_parent)(job, m, own.last - m, j, 1, 8, 16, sums, ratios);
            else if (COMMON_SIZES && c == 4 && d == 4 && h == 4)
                done = NAME(sum_rows_of_parent)(job, m, own.last - m, j, 4, 4, 4, sums, ratios);
            else done = NAME(sum_rows_of_parent)(job, m, own.last - m, j, c, d, h, sums, ratios);
            NAME(write_sums)(job, m, done, j, sums);
        }
    if (!near) {
        memset(sums, 0, all * sizeof(VEC));
        for (i64 tile = 0; tile < NAME(tiles)(s); tile++)
            for (i64 j = own.low; j < own.high; j++)
                for (i64 g = 0; g < s->groups; g++) {
                    NAME(Tile) t = NAME(tile_at)(job, own.first, rows, g, tile, j);
                    t.sums = sums + (j - own.low) * rows * each;
                    NAME(use_tile)(job, &t, SUMS);
                }
        for (i64 j = own.low; j < own.high; j++)
            NAME(write_sums)(job, own.first, rows, j, sums + (j - own.low) * rows * each);
    }
    free(sums);
}

static void NAME(dot_rows)(void *argument, i64 task) {
    NAME(Job) *job = argument;
    const Sizes *s = job->s;
    NAME(Share) own = NAME(share_of)(job, task);
    i64 near = NAME(are_near)(s), rows = near ? 4 : own.last - own.first, parents = near ? 1 : own.high - own.low;
    for (i64 start = own.first; start < own.last; start += rows)
        for (i64 chunk = own.low; chunk < own.high; chunk += parents)
            for (i64 tile = 0; tile < NAME(tiles)(s); tile++)
                for (i64 j = chunk; j < chunk + parents; j++)
                    for (i64 g = 0; g < s->groups; g++) {
                        i64 here = own.last - start < rows ? own.last - start : rows;
                        NAME(Tile) t = NAME(tile_at)(job, start, here, g, tile, j);
                        NAME(use_tile)(job, &t, DOTS);
                    }
}

/* Shares of `parts`, `step` vectors from one to the next, added up and with the lanes outermost: (part, each, lane) ->
 * (type, each); in place of what is there, or added to it. */
INLINE void NAME(unpack)(const VEC *from, i64 parts, i64 step, i64 types, i64 each, i64 add, REAL *to) {
    for (i64 k = 0; k < each; k++) {
        VEC sum = from[k];
        for (i64 part = 1; part < parts; part++) sum += from[part * step + k];
        for (i64 l = 0; l < types; l++) to[l * each + k] = add ? to[l * each + k] + sum[l] : sum[l];
    }
}

/* The same of all that belongs to some tiles: (part, group, tile, each, lane) -> (group, type, each). */
INLINE void NAME(unpack_tiles)(
    const NAME(Job) *job, const VEC *from, i64 parts, i64 groups, i64 low, i64 high, i64 each, REAL *to
) {
    i64 types = job->s->types, own = high - low;
    for (i64 g = 0; g < groups; g++)
        for (i64 tile = low; tile < high; tile++) {
            i64 there = types - tile * LANES < LANES ? types - tile * LANES : LANES;
            const VEC *share = from + (g * own + tile - low) * each;
            NAME(unpack)(share, parts, groups * own * each, there, each, job->add, to + (g * types + tile * LANES) * each);
        }
}

/* Gradients of some tiles of children in some rows: of the poses, and shares of those of weights and biases. */
INLINE void NAME(carry_tiles)(
    const NAME(Job) *job, i64 first, i64 last, i64 most, i64 low, i64 high, i64 chunks, VEC *to_x, VEC *to_w, VEC *to_b
) {
    const Sizes *s = job->s;
    i64 d = s->columns, h = s->out_columns, pose = s->pose_rows * h, size = s->pose_rows * d, own = high - low;
    i64 block = 4;
    VEC *a = to_x + most * size;
    for (i64 start = first; start < last; start += most)
        for (i64 tile = low; tile < high; tile++)
            for (i64 g = 0; g < s->groups; g++) {
                i64 rows = last - start < most ? last - start : most;
                memset(to_x, 0, rows * size * sizeof(VEC));
                for (i64 chunk = 0; chunk < s->parents; chunk += chunks)
                    for (i64 r = 0; r < rows; r += block)
                        for (i64 j = chunk; j < chunk + chunks && j < s->parents; j++) {
                            i64 here = rows - r < block ? rows - r : block, bias = s->bias_groups == 1 ? 0 : g;
                            NAME(Tile) t = NAME(tile_at)(job, start + r, here, g, tile, j);
                            t.to_x = to_x + r * size, t.pairs = a, t.grad = a + job->factors * TALL;
                            t.to_w = to_w + ((tile - low) * s->parents + j) * d * h;
                            if (job->to_bias) t.to_bias = to_b + ((bias * own + tile - low) * s->parents + j) * pose;
                            NAME(use_tile)(job, &t, CARRY);
                        }
                if (job->to_pose)
                    for (i64 r = 0; r < rows; r++) {
                        i64 child = ((start + r) * s->groups + g) * s->types + tile * LANES;
                        NAME(turn_back)(to_x + r * size, size, size, s->types - tile * LANES, job->to_pose + child * size);
                    }
            }
}

/* Where there are many weights, a task has some tiles, one after the other, whose gradients are taken to their place
 * while they are in the cache. Where there are few, which stay in the second cache, it has some rows, and its share of
 * the gradients is added to the others' at the end. */
static void NAME(carry_part)(void *argument, i64 task) {
    NAME(Job) *job = argument;
    const Sizes *s = job->s;
    i64 d = s->columns, h = s->out_columns, pose = s->pose_rows * h, size = s->pose_rows * d, tiles = NAME(tiles)(s);
    i64 each = s->parents * d * h, each_bias = s->parents * pose, biases = job->to_bias ? s->bias_groups : 0;
    i64 many = job->parts == 1, most = many ? 64 : 4, own = each + biases * each_bias;
    VEC *to_x = NAME(room)(most * size + (job->factors + h) * TALL + (many ? own : 0));
    if (!to_x) {
        job->failed = 1;
        return;
    }
    if (many) {
        /* Some parents at a time, whose weights stay in the nearest cache; what belongs to them lies side by side. */
        i64 chunks = 1 + (24 << 10) / (2 * d * h * (i64)sizeof(VEC)), tasks = tiles < CARRY_TASKS ? tiles : CARRY_TASKS;
        VEC *to_w = to_x + most * size + (job->factors + h) * TALL, *to_b = to_w + each;
        for (i64 tile = tiles * task / tasks; tile < tiles * (task + 1) / tasks; tile++) {
            memset(to_w, 0, own * sizeof(VEC));
            NAME(carry_tiles)(job, 0, s->rows, most, tile, tile + 1, chunks, to_x, to_w, to_b);
            if (job->to_weight) NAME(unpack_tiles)(job, to_w, 1, 1, tile, tile + 1, each, job->to_weight);
            if (job->to_bias) NAME(unpack_tiles)(job, to_b, 1, biases, tile, tile + 1, each_bias, job->to_bias);
        }
    } else {
        i64 first = task * job->tile_rows, last = first + job->tile_rows < s->rows ? first + job->tile_rows : s->rows;
        VEC *to_w = job->shares + task * tiles * each, *to_b = job->shares + tiles * (job->parts * each + task * biases * each_bias);
        NAME(carry_tiles)(job, first, last, most, 0, tiles, s->parents, to_x, to_w, to_b);
    }
    free(to_x);
}

/* How the rows and parents are shared out. Near weights: as many tasks as threads, each with all parents. Else as many
 * rows as one read of the weights can serve, and as many parents as the second cache has room for the sums of, but some
 * for each thread. Always whole blocks of rows, and sums in one order, so that results do not depend on the threads. */
INLINE i64 NAME(share_out)(NAME(Job) *job) {
    const Sizes *s = job->s;
    i64 near = NAME(are_near)(s), share = near ? (s->rows + s->threads - 1) / s->threads : s->rows;
    job->tile_rows = share > 32 ? 32 : (share + TALL - 1) / TALL * TALL;
    i64 blocks = (s->rows + job->tile_rows - 1) / job->tile_rows;
    job->tile_parents = s->parents;
    if (!near) {
        i64 most = (640 << 10) / (job->tile_rows * 2 * s->pose_rows * s->out_columns * (i64)sizeof(VEC));
        i64 chunks = (s->threads + blocks - 1) / blocks, fair = (s->parents + chunks - 1) / chunks;
        job->tile_parents = most < 1 ? 1 : most < fair ? most : fair;
    }
    return blocks * ((s->parents + job->tile_parents - 1) / job->tile_parents);
}

static void NAME(sums)(void *argument) {
    NAME(Job) *job = argument;
    i64 tasks = NAME(share_out)(job);
    run_tasks(NAME(sum_rows), job, tasks, job->s->threads);
}

static void NAME(dots)(void *argument) {
    NAME(Job) *job = argument;
    i64 tasks = NAME(share_out)(job);
    run_tasks(NAME(dot_rows), job, tasks, job->s->threads);
}

static void NAME(carry)(void *argument) {
    NAME(Job) *job = argument;
    const Sizes *s = job->s;
    i64 tiles = NAME(tiles)(s), each = s->parents * s->columns * s->out_columns;
    i64 biases = job->to_bias ? s->bias_groups : 0, each_bias = s->parents * s->pose_rows * s->out_columns;
    job->parts = NAME(are_near)(s) && s->rows >= 64 ? CARRY_PARTS : 1;
    if (job->parts == 1) {
        run_tasks(NAME(carry_part), job, tiles < CARRY_TASKS ? tiles : CARRY_TASKS, s->threads);
        return;
    }
    job->tile_rows = ((s->rows + job->parts - 1) / job->parts + TALL - 1) / TALL * TALL;
    i64 all = job->parts * tiles * (each + biases * each_bias);
    job->shares = NAME(room)(all);
    if (!job->shares) {
        job->failed = 1;
        return;
    }
    memset(job->shares, 0, all * sizeof(VEC));
    run_tasks(NAME(carry_part), job, job->parts, s->threads);
    if (job->to_weight) NAME(unpack_tiles)(job, job->shares, job->parts, 1, 0, tiles, each, job->to_weight);
    if (job->to_bias)
        NAME(unpack_tiles)(job, job->shares + job->parts * tiles * each, job->parts, biases, 0, tiles, each_bias, job->to_bias);
    free(job->shares);
}

#include "competition.c"
#include "closed.c"
#include "winograd.c"
#include "fourier.c"
#include "implicit.c"
#include "norm.c"
#include "turned.c"
#include "linear.c"
#include "derive.c"
#include "attend.c"
#include "vectors.c"
#include "units.c"
#undef VEC
#endif
