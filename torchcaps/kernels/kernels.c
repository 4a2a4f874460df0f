/* Votes by a weight for each pair, made in registers and used at once; and squash.
 *
 * A vote is v[c][h] = sum_d x[c][d] W[d][h] + B[c][h], less an origin. All that a routing asks for are sums over the
 * children, sums over the pose, and the way back to poses and weights:
 *
 *   sums   first[j][p]  = sum_i a[j][i] (v - center),  second[j][p] = sum_i a[j][i] (v - center)^2
 *   dots   out[j][i]    = sum_p (linear[j][p] + square[j][p] (v - center)) (v - center) + plus[j]
 *   carry  the gradient of v is sum_k a_k[j][i] (linear_k[j][p] + 2 square_k[j][p] (v - center)),
 *          from which follow those of x, W and B
 *
 * Children are the lanes of a vector: a tile holds LANES of them. Children are groups of types, i = group * types + t,
 * and groups share the weights. Letters as in docs/design.md; m counts rows, which are examples and positions.
 *
 * Every entry point runs its tasks on threads of its own, which begin and end with the call: no runtime to agree with,
 * nothing that spins, and a task is taken by whoever is free. Results do not depend on the number of threads.
 */
#ifndef REAL

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))
#define MOST_THREADS 64
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(TORCHCAPS_ONE_TARGET)
#define CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define CLONES
#endif

typedef int64_t i64;

typedef struct { /* sizes; kernels/native.py has the same */
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

/* All tasks, on as many threads as are allowed and can be had. */
static void run_tasks(void (*run)(void *, i64), void *job, i64 tasks, i64 threads) {
    Work work = {run, job, tasks, 0};
    pthread_t others[MOST_THREADS];
    i64 wanted = (threads < tasks ? threads : tasks) - 1, started = 0;
    if (wanted > MOST_THREADS) wanted = MOST_THREADS;
    while (started < wanted && pthread_create(&others[started], NULL, take_tasks, &work) == 0) started++;
    take_tasks(&work);
    for (i64 k = 0; k < started; k++) pthread_join(others[k], NULL);
}



/* Numbers in a 64-byte vector: what packed weights are laid out for. */
#define REAL float
#define NAME(name) name##_float
#define LANES 16
#include "kernels.c"
#undef REAL
#undef NAME
#undef LANES
#define REAL double
#define NAME(name) name##_double
#define LANES 8
#include "kernels.c"

/* What the caller takes the structures to be: a library of another version does not fit. */
EXPORT i64 layout(void) { return sizeof(Sizes) * 1000 + sizeof(Job_float); }

#else /* what follows is compiled once for each number type */

typedef REAL NAME(vec) __attribute__((vector_size(64)));
#define VEC NAME(vec)

INLINE i64 NAME(tiles)(const Sizes *s) { return (s->types + LANES - 1) / LANES; }

INLINE VEC NAME(splat)(REAL number) { return number - (VEC){0}; }

/* LANES numbers, zero from `there` on. */
INLINE VEC NAME(load)(const REAL *from, i64 there) {
    VEC found = {0};
    if (there >= LANES) memcpy(&found, from, sizeof(VEC));
    else for (i64 l = 0; l < there; l++) found[l] = from[l];
    return found;
}

INLINE void NAME(store)(REAL *to, VEC numbers, i64 there) {
    if (there >= LANES) memcpy(to, &numbers, sizeof(VEC));
    else for (i64 l = 0; l < there; l++) to[l] = numbers[l];
}

INLINE REAL NAME(total)(VEC numbers) {
    REAL sum = 0;
    for (int l = 0; l < LANES; l++) sum += numbers[l];
    return sum;
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

/* weight (t, j, d, h) -> (tile, j, d, h, lane) */
typedef struct { const Sizes *s; const REAL *from; VEC *to; } NAME(PackJob);

CLONES static void NAME(pack_tile)(void *job, i64 tile) {
    NAME(PackJob) *pack = job;
    const Sizes *s = pack->s;
    i64 each = s->parents * s->columns * s->out_columns, first = tile * LANES;
    NAME(turn)(pack->from + first * each, each, each, s->types - first, pack->to + tile * each);
}

EXPORT void NAME(pack)(const Sizes *s, const REAL *from, REAL *to) {
    NAME(PackJob) job = {s, from, (VEC *)to};
    run_tasks(NAME(pack_tile), &job, NAME(tiles)(s), s->threads);
}

typedef struct {
    const Sizes *s;
    const REAL *pose;               /* m i c d */
    const VEC *weight;              /* packed */
    const REAL *bias, *origin;      /* bias_groups t j p; m j p */
    i64 columns;                    /* of pairs: parents, or 1 where all share one */
    const REAL *pairs, *center;     /* m columns i; m j p */
    const REAL *linear, *square, *plus; /* m j p, m j p, m j */
    REAL *first, *second, *out;     /* m j p, m j p, m j i */
    /* carry: factors lie one after the other */
    i64 factors;
    const REAL *const *factor_pairs; /* each m (columns) i */
    const i64 *factor_columns;
    REAL *to_pose, *to_weight, *to_bias; /* as pose; t j d h; bias_groups t j p */
    i64 tile_rows;
    i64 failed; /* no memory for the tiles */
} NAME(Job);

/* The votes of a tile for one parent. `c`, `d` and `h` are constants wherever the sizes are common. */
INLINE void NAME(build)(
    const VEC *x, const VEC *w, const VEC *bias, const REAL *origin, i64 c, i64 d, i64 h, VEC *v
) {
    for (i64 row = 0; row < c; row++)
        for (i64 k = 0; k < h; k++) {
            VEC sum = bias ? bias[row * h + k] : (VEC){0};
            for (i64 l = 0; l < d; l++) sum += x[row * d + l] * w[l * h + k];
            v[row * h + k] = origin ? sum - origin[row * h + k] : sum;
        }
}

INLINE void NAME(build_any)(
    const Sizes *s, const VEC *x, const VEC *w, const VEC *bias, const REAL *origin, VEC *v
) {
    i64 c = s->pose_rows, d = s->columns, h = s->out_columns;
    if (c == 1 && d == 8 && h == 16) NAME(build)(x, w, bias, origin, 1, 8, 16, v);
    else if (c == 4 && d == 4 && h == 4) NAME(build)(x, w, bias, origin, 4, 4, 4, v);
    else if (d == 8) NAME(build)(x, w, bias, origin, c, 8, h, v);
    else if (d == 4) NAME(build)(x, w, bias, origin, c, 4, h, v);
    else NAME(build)(x, w, bias, origin, c, d, h, v);
}

/* Memory for tiles, aligned as vectors want it. */
INLINE VEC *NAME(room)(i64 vectors) {
    void *found = NULL;
    return posix_memalign(&found, 64, (vectors ? vectors : 1) * sizeof(VEC)) == 0 ? found : NULL;
}

/* The children of rows from `start` on, tile by tile: (row, group, tile, c d, lane). */
INLINE void NAME(turn_poses)(const NAME(Job) *job, i64 start, i64 rows, VEC *x) {
    const Sizes *s = job->s;
    i64 size = s->pose_rows * s->columns, tiles = NAME(tiles)(s);
    for (i64 r = 0; r < rows * s->groups; r++)
        for (i64 tile = 0; tile < tiles; tile++) {
            const REAL *from = job->pose + ((start * s->groups + r) * s->types + tile * LANES) * size;
            NAME(turn)(from, size, size, s->types - tile * LANES, x + (r * tiles + tile) * size);
        }
}

/* The bias of one tile for one parent, if there is any. */
INLINE const VEC *NAME(bias_of)(const NAME(Job) *job, i64 group, i64 tile, i64 j, VEC *to) {
    const Sizes *s = job->s;
    if (!s->bias_groups) return NULL;
    i64 pose = s->pose_rows * s->out_columns, g = s->bias_groups == 1 ? 0 : group;
    const REAL *from = job->bias + ((g * s->types + tile * LANES) * s->parents + j) * pose;
    NAME(turn)(from, s->parents * pose, pose, s->types - tile * LANES, to);
    return to;
}

CLONES static void NAME(sum_rows)(void *argument, i64 task) {
    NAME(Job) *job = argument;
    const Sizes *s = job->s;
    i64 pose = s->pose_rows * s->out_columns, tiles = NAME(tiles)(s), size = s->pose_rows * s->columns;
    i64 start = task * job->tile_rows, children = s->groups * s->types;
    i64 rows = s->rows - start < job->tile_rows ? s->rows - start : job->tile_rows;
    VEC *x = NAME(room)(rows * s->groups * tiles * size), *v = NAME(room)(pose * 2);
    VEC *sums = NAME(room)(rows * pose * 2), *bias = v + pose;
    if (!x || !v || !sums) {
        job->failed = 1, free(x), free(v), free(sums);
        return;
    }
    NAME(turn_poses)(job, start, rows, x);
    for (i64 j = 0; j < s->parents; j++) {
        memset(sums, 0, rows * pose * 2 * sizeof(VEC));
        for (i64 tile = 0; tile < tiles; tile++) {
            const VEC *w = job->weight + (tile * s->parents + j) * s->columns * s->out_columns;
            for (i64 g = 0; g < s->groups; g++) {
                const VEC *b = NAME(bias_of)(job, g, tile, j, bias);
                for (i64 r = 0; r < rows; r++) {
                    i64 m = start + r;
                    const REAL *from = job->pairs + (m * job->columns + (job->columns == 1 ? 0 : j)) * children;
                    VEC a = NAME(load)(from + g * s->types + tile * LANES, s->types - tile * LANES);
                    const REAL *origin = job->origin ? job->origin + (m * s->parents + j) * pose : NULL;
                    NAME(build_any)(s, x + ((r * s->groups + g) * tiles + tile) * size, w, b, origin, v);
                    VEC *first = sums + r * pose * 2, *second = first + pose;
                    const REAL *center = job->center ? job->center + (m * s->parents + j) * pose : NULL;
                    if (!job->second) {
                        for (i64 p = 0; p < pose; p++) first[p] += a * (center ? v[p] - center[p] : v[p]);
                        continue;
                    }
                    for (i64 p = 0; p < pose; p++) {
                        VEC deviation = center ? v[p] - center[p] : v[p], weighted = a * deviation;
                        first[p] += weighted;
                        second[p] += weighted * deviation;
                    }
                }
            }
        }
        for (i64 r = 0; r < rows; r++)
            for (i64 p = 0; p < pose; p++) {
                i64 place = ((start + r) * s->parents + j) * pose + p;
                job->first[place] = NAME(total)(sums[r * pose * 2 + p]);
                if (job->second) job->second[place] = NAME(total)(sums[r * pose * 2 + pose + p]);
            }
    }
    free(x), free(v), free(sums);
}

CLONES static void NAME(dot_rows)(void *argument, i64 task) {
    NAME(Job) *job = argument;
    const Sizes *s = job->s;
    i64 pose = s->pose_rows * s->out_columns, tiles = NAME(tiles)(s), size = s->pose_rows * s->columns;
    i64 start = task * job->tile_rows, children = s->groups * s->types;
    i64 rows = s->rows - start < job->tile_rows ? s->rows - start : job->tile_rows;
    VEC *x = NAME(room)(rows * s->groups * tiles * size), *v = NAME(room)(pose * 2), *bias = v + pose;
    if (!x || !v) {
        job->failed = 1, free(x), free(v);
        return;
    }
    NAME(turn_poses)(job, start, rows, x);
    for (i64 j = 0; j < s->parents; j++)
        for (i64 tile = 0; tile < tiles; tile++) {
            const VEC *w = job->weight + (tile * s->parents + j) * s->columns * s->out_columns;
            for (i64 g = 0; g < s->groups; g++) {
                const VEC *b = NAME(bias_of)(job, g, tile, j, bias);
                for (i64 r = 0; r < rows; r++) {
                    i64 parent = (start + r) * s->parents + j;
                    const REAL *origin = job->origin ? job->origin + parent * pose : NULL;
                    const REAL *center = job->center ? job->center + parent * pose : NULL;
                    const REAL *linear = job->linear ? job->linear + parent * pose : NULL;
                    NAME(build_any)(s, x + ((r * s->groups + g) * tiles + tile) * size, w, b, origin, v);
                    VEC sum = NAME(splat)(job->plus ? job->plus[parent] : 0), more = {0};
                    if (!job->square) {
                        for (i64 p = 0; p < pose; p++) sum += linear[p] * (center ? v[p] - center[p] : v[p]);
                    } else {
                        const REAL *square = job->square + parent * pose;
                        for (i64 p = 0; p < pose; p++) {
                            VEC deviation = center ? v[p] - center[p] : v[p];
                            if (linear) sum += linear[p] * deviation;
                            more += square[p] * (deviation * deviation);
                        }
                    }
                    REAL *to = job->out + parent * children + g * s->types + tile * LANES;
                    NAME(store)(to, sum + more, s->types - tile * LANES);
                }
            }
        }
    free(x), free(v);
}

/* From the gradient of one tile's votes for one parent to those of its poses, weights and biases. */
INLINE void NAME(carry_pair)(
    const NAME(Job) *job, i64 parent, const VEC *a, const VEC *x, const VEC *w, const VEC *bias, i64 c, i64 d, i64 h,
    VEC *v, VEC *grad, VEC *to_x, VEC *to_w, VEC *to_b
) {
    i64 pose = c * h, stride = job->s->rows * job->s->parents * pose;
    const REAL *linear = job->linear + parent * pose;
    if (job->square) {
        const REAL *origin = job->origin ? job->origin + parent * pose : NULL;
        const REAL *center = job->center ? job->center + parent * pose : NULL;
        const REAL *square = job->square + parent * pose;
        NAME(build)(x, w, bias, origin, c, d, h, v);
        for (i64 p = 0; p < pose; p++) grad[p] = (VEC){0};
        for (i64 k = 0; k < job->factors; k++)
            for (i64 p = 0; p < pose; p++) grad[p] += a[k] * square[k * stride + p];
        for (i64 p = 0; p < pose; p++) grad[p] *= 2 * (center ? v[p] - center[p] : v[p]);
    } else {
        for (i64 p = 0; p < pose; p++) grad[p] = (VEC){0};
    }
    for (i64 k = 0; k < job->factors; k++)
        for (i64 p = 0; p < pose; p++) grad[p] += a[k] * linear[k * stride + p];
    for (i64 l = 0; l < d; l++)
        for (i64 k = 0; k < h; k++) {
            VEC sum = to_w[l * h + k];
            for (i64 row = 0; row < c; row++) sum += x[row * d + l] * grad[row * h + k];
            to_w[l * h + k] = sum;
        }
    for (i64 row = 0; row < c; row++)
        for (i64 l = 0; l < d; l++) {
            VEC sum = to_x[row * d + l];
            for (i64 k = 0; k < h; k++) sum += w[l * h + k] * grad[row * h + k];
            to_x[row * d + l] = sum;
        }
    if (to_b) for (i64 p = 0; p < pose; p++) to_b[p] += grad[p];
}

INLINE void NAME(carry_any)(
    const NAME(Job) *job, i64 parent, const VEC *a, const VEC *x, const VEC *w, const VEC *bias, VEC *to_x, VEC *to_w,
    VEC *to_b, VEC *spare
) {
    i64 c = job->s->pose_rows, d = job->s->columns, h = job->s->out_columns;
    if (c * h == 16) {
        VEC v[16], grad[16];
        if (c == 1 && d == 8) NAME(carry_pair)(job, parent, a, x, w, bias, 1, 8, 16, v, grad, to_x, to_w, to_b);
        else if (c == 4 && d == 4) NAME(carry_pair)(job, parent, a, x, w, bias, 4, 4, 4, v, grad, to_x, to_w, to_b);
        else NAME(carry_pair)(job, parent, a, x, w, bias, c, d, h, v, grad, to_x, to_w, to_b);
    } else {
        VEC *v = spare, *grad = spare + c * h;
        NAME(carry_pair)(job, parent, a, x, w, bias, c, d, h, v, grad, to_x, to_w, to_b);
    }
}

/* Gradients of one tile of children: of its poses and of its weights, each complete. */
CLONES static void NAME(carry_tile)(void *argument, i64 tile) {
    NAME(Job) *job = argument;
    const Sizes *s = job->s;
    i64 c = s->pose_rows, d = s->columns, h = s->out_columns, pose = c * h, size = c * d;
    i64 there = s->types - tile * LANES, children = s->groups * s->types, most = job->tile_rows;
    VEC *x = NAME(room)(2 * most * size), *to_x = x + most * size;
    i64 together = 1 + (24 << 10) / (2 * d * h * (i64)sizeof(VEC));
    if (together > s->parents) together = s->parents;
    VEC *bias = NAME(room)((together + 2) * pose + job->factors), *spare = bias + together * pose;
    VEC *a = spare + 2 * pose;
    const VEC *b = NULL;
    VEC *to_w = NAME(room)(s->parents * d * h), *to_b = NAME(room)(s->parents * pose);
    if (!x || !bias || !to_w || !to_b) {
        job->failed = 1, free(x), free(bias), free(to_w), free(to_b);
        return;
    }
    memset(to_w, 0, s->parents * d * h * sizeof(VEC));
    for (i64 g = 0; g < s->groups; g++) {
        if (g == 0 || s->bias_groups > 1) memset(to_b, 0, s->parents * pose * sizeof(VEC));
        for (i64 start = 0; start < s->rows; start += most) {
            i64 rows = s->rows - start < most ? s->rows - start : most;
            for (i64 r = 0; r < rows; r++) {
                i64 child = ((start + r) * s->groups + g) * s->types + tile * LANES;
                NAME(turn)(job->pose + child * size, size, size, there, x + r * size);
            }
            memset(to_x, 0, rows * size * sizeof(VEC));
            /* Some parents at a time, whose weights stay in the nearest cache; what belongs to them lies side by side. */
            for (i64 chunk = 0; chunk < s->parents; chunk += together) {
                i64 last = chunk + together < s->parents ? chunk + together : s->parents;
                if (job->square)
                    for (i64 j = chunk; j < last; j++) b = NAME(bias_of)(job, g, tile, j, bias + (j - chunk) * pose);
                for (i64 r = 0; r < rows; r++)
                    for (i64 j = chunk; j < last; j++) {
                        i64 m = start + r;
                        for (i64 k = 0; k < job->factors; k++) {
                            i64 columns = job->factor_columns[k], row = m * columns + (columns == 1 ? 0 : j);
                            const REAL *from = job->factor_pairs[k] + row * children + g * s->types;
                            a[k] = NAME(load)(from + tile * LANES, there);
                        }
                        NAME(carry_any)(
                            job, m * s->parents + j, a, x + r * size,
                            job->weight + (tile * s->parents + j) * d * h, b ? bias + (j - chunk) * pose : NULL,
                            to_x + r * size, to_w + j * d * h, job->to_bias ? to_b + j * pose : NULL, spare
                        );
                    }
            }
            if (job->to_pose)
                for (i64 r = 0; r < rows; r++) {
                    i64 child = ((start + r) * s->groups + g) * s->types + tile * LANES;
                    NAME(turn_back)(to_x + r * size, size, size, there, job->to_pose + child * size);
                }
        }
        if (job->to_bias && (g == s->groups - 1 || s->bias_groups > 1)) {
            i64 place = (s->bias_groups > 1 ? g : 0) * s->types + tile * LANES, each = s->parents * pose;
            NAME(turn_back)(to_b, each, each, there, job->to_bias + place * each);
        }
    }
    if (job->to_weight) {
        i64 each = s->parents * d * h;
        NAME(turn_back)(to_w, each, each, there, job->to_weight + tile * LANES * each);
    }
    free(x), free(bias), free(to_w), free(to_b);
}

/* Rows that a task takes: few enough for its poses and sums to stay near the core, many enough to read the weights
 * seldom, and as many tasks as threads. */
INLINE i64 NAME(rows_of_task)(const Sizes *s) {
    i64 children = s->groups * s->types * s->pose_rows * s->columns, pose = s->pose_rows * s->out_columns;
    i64 most = (512 << 10) / (children * (i64)sizeof(REAL) + 1), sums = (24 << 10) / (2 * pose * 64);
    i64 rows = most < sums ? most : sums;
    if (rows < 4) rows = 4;
    i64 share = (s->rows + s->threads - 1) / s->threads;
    return rows < share ? rows : share;
}

EXPORT void NAME(sums)(NAME(Job) *job) {
    job->tile_rows = NAME(rows_of_task)(job->s);
    run_tasks(NAME(sum_rows), job, (job->s->rows + job->tile_rows - 1) / job->tile_rows, job->s->threads);
}

EXPORT void NAME(dots)(NAME(Job) *job) {
    job->tile_rows = NAME(rows_of_task)(job->s);
    run_tasks(NAME(dot_rows), job, (job->s->rows + job->tile_rows - 1) / job->tile_rows, job->s->threads);
}

EXPORT void NAME(carry)(NAME(Job) *job) {
    i64 size = job->s->pose_rows * job->s->columns;
    job->tile_rows = 1 + (128 << 10) / (2 * size * 64);
    run_tasks(NAME(carry_tile), job, NAME(tiles)(job->s), job->s->threads);
}

/* s |s| / (1 + |s|^2) of each of so many vectors, in units of the largest component where that is above one. */
INLINE double NAME(in_units)(const REAL *from, i64 size, double *unit) {
    double squares = 0, most = 1;
    if (sizeof(REAL) == 8)
        for (i64 k = 0; k < size; k++) most = from[k] < most && -from[k] < most ? most : fabs(from[k]);
    for (i64 k = 0; k < size; k++) squares += (from[k] / most) * (from[k] / most);
    *unit = most;
    return squares;
}

EXPORT void NAME(squash)(i64 vectors, i64 size, const REAL *from, REAL *to) {
    for (i64 n = 0; n < vectors; n++, from += size, to += size) {
        double unit, squares = NAME(in_units)(from, size, &unit);
        double factor = squares > 0 ? sqrt(squares) / (1 / (unit * unit) + squares) / unit : 0 * squares;
        for (i64 k = 0; k < size; k++) to[k] = (REAL)(from[k] * factor);
    }
}

EXPORT void NAME(squash_back)(i64 vectors, i64 size, const REAL *from, const REAL *grad, REAL *to) {
    for (i64 n = 0; n < vectors; n++, from += size, grad += size, to += size) {
        double unit, squares = NAME(in_units)(from, size, &unit), along = 0, one = 1 / (unit * unit) + squares;
        double length = sqrt(squares), factor = squares > 0 ? length / one / unit : 0 * squares;
        for (i64 k = 0; k < size; k++) along += from[k] / unit * grad[k];
        double turn = squares > 0 ? (1 / (unit * unit) - squares) / (one * one * unit * length) * along : 0;
        for (i64 k = 0; k < size; k++) to[k] = (REAL)(factor * grad[k] + turn * (from[k] / unit));
    }
}

/* log |s|^2, and with a gradient its way back: 2 s / |s|^2, zero where the logarithm is cut off at `tiny`. */
EXPORT void NAME(length_score)(i64 vectors, i64 size, double tiny, const REAL *from, const REAL *grad, REAL *to) {
    for (i64 n = 0; n < vectors; n++, from += size) {
        double unit, squares = NAME(in_units)(from, size, &unit);
        if (!grad) to[n] = (REAL)(log(squares < tiny ? tiny : squares) + 2 * log(unit));
        else
            for (i64 k = 0; k < size; k++)
                to[n * size + k] = squares < tiny ? 0 : (REAL)(2 * grad[n] * (from[k] / unit) / squares / unit);
    }
}
#undef VEC
#endif
