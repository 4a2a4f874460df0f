/* Few votes, and sums of votes, straight from poses and vote weights: included by kernels.c, once for each number type and
 * generation of processors. A vote is v[c][h] = sum_d x[c][d] W[d][h].
 *
 *   make       the votes
 *   sum_up     the total sum_i scale_i v_i of each parent, without votes
 *   carry_few  from the gradient of the votes, or of the totals, to those of poses, weights and scales
 *
 * Where all children are of one type and have the same scale for all parents, they are added up before they vote.
 *
 * Nothing is packed. Poses are m g t c d: rows m (examples and positions), and groups g of t types of children that share
 * weights. Weights are t j d h with the parents j, votes m j g t c h, totals m j c h. */
typedef struct { /* kernels/few.py has the same */
    i64 rows, groups, types, parents, pose_rows, columns, out_columns;
    i64 scales; /* parents, or 1 where all parents have the same scale; 0: votes, not totals */
    i64 threads;
    double factor; /* the scale of all where there is no `scale` */
    const REAL *pose, *weight;
    const REAL *scale; /* m scales g t, or NULL */
    REAL *out;         /* votes or totals */
    const REAL *grad;  /* of these */
    REAL *to_pose, *to_weight, *to_scale; /* to_scale may be NULL */
    REAL *room; /* carry_few: for twice as many numbers as poses have, or pooled poses; sum_up: for those
                   with lines above SHORT_LINE */
} NAME(Linear);

#define LINES_AT_ONCE 8 /* a line is a row of a pose */
#define PARENTS_AT_ONCE 4
#define SHORT_LINE 64 /* pooled lines up to this length have room on the stack; kernels/few.py has the same */
#define UNROLL(index, count) _Pragma("GCC unroll 16") for (i64 index = 0; index < (count); index++)

/* Whether children are added up before they vote. */
INLINE int NAME(are_pooled)(const NAME(Linear) *s) { return s->scales == 1 && s->types == 1 && s->groups > 1; }

/* Whether all scales of LINES_AT_ONCE lines are the same, as in uniform routing. */
INLINE int NAME(are_even)(const NAME(Linear) *s, i64 line) {
    if (!s->scale) return 1;
    if (s->scales != 1) return 0;
    i64 children = s->groups * s->types, first = line / s->pose_rows, last = (line + LINES_AT_ONCE - 1) / s->pose_rows;
    const REAL *scale = s->scale + first * children;
    int differ = 0;
    _Pragma("omp simd reduction(|:differ)") for (i64 k = 1; k < (last - first + 1) * children; k++)
        differ |= scale[k] != scale[0];
    return !differ;
}

/* Rows of the large blocks are as long as a vector; where vectors have four numbers there are small blocks only. */
#if BYTES == 64
#define D 8
#define H 16
#define LARGE(name) NAME(name##_8x16)
#include "linear_blocks.c"
#elif BYTES == 32
#define D 8
#define H 8
#define LARGE(name) NAME(name##_8x8)
#include "linear_blocks.c"
#else
#define LARGE(name) NAME(name##_4x4)
#endif
#define D 4
#define H 4
#include "linear_blocks.c"

INLINE void NAME(make_of)(const NAME(Linear) *s, i64 d, i64 h) {
    i64 c = s->pose_rows, children = s->groups * s->types;
    for (i64 t = 0; t < s->types; t++)
        for (i64 j = 0; j < s->parents; j++) {
            const REAL *w = s->weight + (t * s->parents + j) * d * h;
            VEC lines[8]; /* of weights, in registers for all children of the type */
            if (COMMON_SIZES && d == 8 && h == LANES) memcpy(lines, w, sizeof(lines));
            for (i64 m = 0; m < s->rows; m++)
                for (i64 i = t; i < children; i += s->types)
                    for (i64 row = 0; row < c; row++) {
                        const REAL *x = s->pose + ((m * children + i) * c + row) * d;
                        REAL *restrict v = s->out + (((m * s->parents + j) * children + i) * c + row) * h;
                        if (COMMON_SIZES && h == LANES) { /* a vote is a vector */
                            VEC sum = {0}, at;
                            if (d == 8) UNROLL(l, 8) sum += x[l] * lines[l];
                            else for (i64 l = 0; l < d; l++) memcpy(&at, w + l * h, sizeof(VEC)), sum += x[l] * at;
                            memcpy(v, &sum, sizeof(VEC));
                            continue;
                        }
                        for (i64 k = 0; k < h; k++) v[k] = x[0] * w[k];
                        for (i64 l = 1; l < d; l++)
                            _Pragma("omp simd") for (i64 k = 0; k < h; k++) v[k] += x[l] * w[l * h + k];
                    }
        }
}

static void NAME(make)(void *argument) {
    const NAME(Linear) *s = argument;
    if (COMMON_SIZES && s->columns == 8 && s->out_columns == 16) NAME(make_of)(s, 8, 16);
    else if (COMMON_SIZES && s->columns == 4 && s->out_columns == 4) NAME(make_of)(s, 4, 4);
    else NAME(make_of)(s, s->columns, s->out_columns);
}

/* As in linear_blocks.c, for any size of weights. */
static void NAME(sum_lines_any)(const NAME(Linear) *s, i64 first) {
    i64 c = s->pose_rows, d = s->columns, h = s->out_columns, children = s->groups * s->types;
    for (i64 line = first; line < first + LINES_AT_ONCE && line < s->rows * c; line++)
        for (i64 parent = 0; parent < s->parents; parent++) {
            i64 m = line / c, row = line % c;
            const REAL *scale = s->scale ? s->scale + (m * s->scales + (s->scales == 1 ? 0 : parent)) * children : NULL;
            REAL *restrict total = s->out + ((m * s->parents + parent) * c + row) * h;
            memset(total, 0, h * sizeof(REAL));
            for (i64 i = 0; i < children; i++) {
                const REAL *x = s->pose + ((m * children + i) * c + row) * d;
                const REAL *w = s->weight + (i % s->types * s->parents + parent) * d * h;
                for (i64 l = 0; l < d; l++) {
                    REAL factor = (scale ? scale[i] : (REAL)s->factor) * x[l];
                    _Pragma("omp simd") for (i64 k = 0; k < h; k++) total[k] += factor * w[l * h + k];
                }
            }
        }
}

static void NAME(pool_line_any)(const NAME(Linear) *s, i64 line, REAL *restrict pooled) {
    i64 c = s->pose_rows, d = s->columns, m = line / c;
    const REAL *restrict x = s->pose + (m * s->groups * c + line % c) * d;
    memset(pooled, 0, d * sizeof(REAL));
    for (i64 group = 0; group < s->groups; group++, x += c * d) {
        REAL scale = s->scale ? s->scale[m * s->groups + group] : (REAL)s->factor;
        _Pragma("omp simd") for (i64 l = 0; l < d; l++) pooled[l] += scale * x[l];
    }
}

static void NAME(carry_pair_any)(const NAME(Linear) *s, i64 type, i64 parent, const REAL *x, REAL *to_x) {
    i64 c = s->pose_rows, d = s->columns, h = s->out_columns, children = s->groups * s->types;
    const REAL *restrict w = s->weight + (type * s->parents + parent) * d * h;
    REAL *restrict to_w = s->to_weight + (type * s->parents + parent) * d * h;
    memset(to_w, 0, d * h * sizeof(REAL));
    for (i64 m = 0; m < s->rows; m++)
        for (i64 i = type; i < children; i += s->types) {
            i64 place = s->scales ? m * s->parents + parent : (m * s->parents + parent) * children + i;
            i64 pair = (m * s->scales + (s->scales == 1 ? 0 : parent)) * children + i;
            REAL scale = s->scale ? s->scale[pair] : (REAL)s->factor;
            for (i64 row = 0; row < c; row++, x += d, to_x += d) {
                const REAL *restrict g = s->grad + (place * c + row) * h;
                REAL along = 0;
                for (i64 l = 0; l < d; l++) {
                    REAL factor = scale * x[l], found = 0;
                    _Pragma("omp simd reduction(+:found)") for (i64 k = 0; k < h; k++) {
                        found += w[l * h + k] * g[k];
                        to_w[l * h + k] += factor * g[k];
                    }
                    to_x[l] += scale * found;
                    along += x[l] * found;
                }
                if (s->to_scale) s->to_scale[pair] += along;
            }
        }
}

/* Which blocks fit the weights; torchcaps/votes/summed.py has the same for long vectors. */
enum { NAME(ANY_BLOCK), NAME(SMALL_BLOCK), NAME(LARGE_BLOCK) };
INLINE int NAME(block_of)(const NAME(Linear) *s) {
    if (BYTES >= 32 && s->columns % 8 == 0 && s->out_columns % (BYTES / 4) == 0) return NAME(LARGE_BLOCK);
    return s->columns % 4 == 0 && s->out_columns % 4 == 0 ? NAME(SMALL_BLOCK) : NAME(ANY_BLOCK);
}

/* So many lines of all children together. */
static void NAME(pool)(const NAME(Linear) *s, i64 first, i64 lines, REAL *pooled) {
    int block = NAME(block_of)(s);
    for (i64 line = first; line < first + lines; line++, pooled += s->columns)
        if (block == NAME(LARGE_BLOCK)) LARGE(pool_line)(s, line, pooled);
        else if (block == NAME(SMALL_BLOCK)) NAME(pool_line_4x4)(s, line, pooled);
        else NAME(pool_line_any)(s, line, pooled);
}

static void NAME(sum_lines)(void *argument, i64 task) {
    NAME(Linear) job = *(const NAME(Linear) *)argument, *s = &job;
    i64 line = task * LINES_AT_ONCE, left = s->rows * s->pose_rows - line;
    REAL room[LINES_AT_ONCE * SHORT_LINE];
    if (NAME(are_pooled)(s)) { /* those of this task are a job of their own */
        REAL *pooled = s->columns > SHORT_LINE ? s->room + line * s->columns : room;
        NAME(pool)(s, line, left < LINES_AT_ONCE ? left : LINES_AT_ONCE, pooled);
        job.pose = pooled - line * s->columns, job.groups = 1, job.scale = NULL, job.factor = 1;
    }
    int block = NAME(block_of)(s);
    if (block == NAME(LARGE_BLOCK)) LARGE(sum_lines)(s, line);
    else if (block == NAME(SMALL_BLOCK)) NAME(sum_lines_4x4)(s, line);
    else NAME(sum_lines_any)(s, line);
}

static void NAME(sum_up)(void *argument) {
    const NAME(Linear) *s = argument;
    run_tasks(NAME(sum_lines), argument, (s->rows * s->pose_rows + LINES_AT_ONCE - 1) / LINES_AT_ONCE, s->threads);
}

/* All poses of one type from where they lie to one after the other, or their gradients back. */
INLINE void NAME(gather)(const NAME(Linear) *s, i64 type, REAL *poses, REAL *gathered, int back) {
    i64 each = s->pose_rows * s->columns;
    for (i64 place = 0; place < s->rows * s->groups; place++) {
        REAL *there = poses + (place * s->types + type) * each, *here = gathered + place * each;
        memcpy(back ? there : here, back ? here : there, each * sizeof(REAL));
    }
}

INLINE void NAME(carry_pair)(const NAME(Linear) *s, i64 type, i64 parent, const REAL *x, REAL *to_x) {
    int block = NAME(block_of)(s);
    if (block == NAME(LARGE_BLOCK)) LARGE(carry_pair)(s, type, parent, x, to_x);
    else if (block == NAME(SMALL_BLOCK)) NAME(carry_pair_4x4)(s, type, parent, x, to_x);
    else NAME(carry_pair_any)(s, type, parent, x, to_x);
}

/* One part of `threads` of the types of children. */
static void NAME(carry_types)(void *argument, i64 task) {
    const NAME(Linear) *s = argument;
    i64 numbers = s->rows * s->groups * s->pose_rows * s->columns; /* of the poses of one type */
    i64 first = task * s->types / s->threads, end = (task + 1) * s->types / s->threads;
    for (i64 type = first; type < end; type++) {
        NAME(gather)(s, type, (REAL *)s->pose, s->room + 2 * type * numbers, 0);
        memset(s->room + (2 * type + 1) * numbers, 0, numbers * sizeof(REAL));
    }
    for (i64 parent = 0; parent < s->parents; parent++)
        for (i64 type = first; type < end; type++) {
            REAL *x = s->room + 2 * type * numbers, *to_x = x + numbers;
            NAME(carry_pair)(s, type, parent, x, to_x);
        }
    for (i64 type = first; type < end; type++) NAME(gather)(s, type, s->to_pose, s->room + (2 * type + 1) * numbers, 1);
}

/* The gradient of the pooled poses of one row, to the children and their scales. */
static void NAME(spread_row)(void *argument, i64 row) {
    const NAME(Linear) *s = argument;
    i64 each = s->pose_rows * s->columns;
    const REAL *restrict toward = s->room + (s->rows + row) * each;
    for (i64 child = row * s->groups; child < (row + 1) * s->groups; child++) {
        const REAL *restrict x = s->pose + child * each;
        REAL *restrict to_x = s->to_pose + child * each;
        REAL scale = s->scale ? s->scale[child] : (REAL)s->factor, along = 0;
        _Pragma("omp simd") for (i64 k = 0; k < each; k++) to_x[k] = scale * toward[k];
        if (!s->to_scale) continue;
        _Pragma("omp simd reduction(+:along)") for (i64 k = 0; k < each; k++) along += x[k] * toward[k];
        s->to_scale[child] = along;
    }
}

/* Through the vote of one child, the sum of all. */
static void NAME(carry_pooled)(const NAME(Linear) *s) {
    NAME(Linear) job = *s;
    i64 lines = s->rows * s->pose_rows, numbers = lines * s->columns;
    NAME(pool)(s, 0, lines, s->room);
    memset(s->room + numbers, 0, numbers * sizeof(REAL));
    job.groups = 1, job.scales = 0, job.scale = NULL, job.factor = 1, job.to_scale = NULL;
    for (i64 parent = 0; parent < s->parents; parent++) NAME(carry_pair)(&job, 0, parent, s->room, s->room + numbers);
    run_tasks(NAME(spread_row), (void *)s, s->rows, s->threads);
}

static void NAME(carry_few)(void *argument) {
    const NAME(Linear) *s = argument;
    if (NAME(are_pooled)(s)) {
        NAME(carry_pooled)(s);
        return;
    }
    if (s->to_scale) memset(s->to_scale, 0, s->rows * s->scales * s->groups * s->types * sizeof(REAL));
    run_tasks(NAME(carry_types), argument, s->threads, s->threads);
}

#undef LARGE
