/* Few votes that are there as numbers, v (rows, children, pose), a row for each parent of each example.

All that a routing asks of them, and all gradients of that, are derivatives of one number. With weights a of pairs,
b and s of the components of a parent's pose, and deviations e = v - center,

    E = sum over rows, children i and components p of  a_i b_p e_ip  +  a_i^power s_p e_ip^2.

A sum over the children is dE/db or dE/ds, a sum over the pose is dE/da, and dE/dv is the gradient in the votes. One
pass over the votes finds those that are asked for. Of what is not given, a counts as one, all else as zero; where there
is a center, `room` is for the deviations of AT_ONCE children.
*/

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef int64_t i64;
#define EXPORT __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))
#define AT_ONCE 4 /* children that are gone through together */
#define COMPONENTS _Pragma("omp simd") for (i64 p = 0; p < pose; p++)
#define CHILDREN _Pragma("GCC unroll 4") for (i64 k = 0; k < count; k++)

/* rows of one example follow each other: `parents` of them; `columns` is 1 where they share their weights of pairs */
#define DERIVE_ARGUMENTS(REAL) \
    i64 rows, i64 parents, i64 columns, i64 children, i64 pose, i64 power, const REAL *restrict votes, \
    const REAL *restrict pairs, const REAL *restrict center, const REAL *restrict linear, const REAL *restrict square, \
    REAL *restrict to_votes, REAL *restrict to_pairs, REAL *restrict to_linear, REAL *restrict to_square, \
    REAL *restrict room
#define DERIVE_GIVEN() rows, parents, columns, children, pose, power, VOTES_GIVEN
#define VOTES_GIVEN votes, pairs, center, linear, square, to_votes, to_pairs, to_linear, to_square, room

#define ARGUMENTS_OF_SOME(REAL) \
    const REAL *restrict votes, const REAL *restrict pairs, const REAL *restrict center, const REAL *restrict linear, \
    const REAL *restrict square, REAL *restrict to_votes, REAL *restrict to_pairs, REAL *restrict to_linear, \
    REAL *restrict to_square
#define MOVE(pointer, by) (pointer ? pointer + (by) : 0)
#define SOME \
    votes + vote, MOVE(pairs, pair), MOVE(center, at), MOVE(linear, at), MOVE(square, at), MOVE(to_votes, vote), \
    MOVE(to_pairs, pair), MOVE(to_linear, at), MOVE(to_square, at)

#define DERIVE(REAL) \
typedef REAL Four_##REAL __attribute__((vector_size(4 * sizeof(REAL)), aligned(sizeof(REAL)), may_alias)); \
/* products of some children's numbers, or of their squares, with one row */ \
INLINE void dot_##REAL(i64 count, i64 pose, int squares, const REAL *row, const REAL *e, REAL *found) { \
    CHILDREN found[k] = 0; \
    if (!row) return; \
    Four_##REAL sum[AT_ONCE] = {{0}}; \
    i64 p = 0; \
    for (; p + 4 <= pose; p += 4) { \
        Four_##REAL factor = *(const Four_##REAL *)(row + p); \
        CHILDREN { \
            Four_##REAL number = *(const Four_##REAL *)(e + k * pose + p); \
            if (squares) number *= number; \
            sum[k] += factor * number; \
        } \
    } \
    CHILDREN found[k] = (sum[k][0] + sum[k][1]) + (sum[k][2] + sum[k][3]); \
    for (; p < pose; p++) CHILDREN found[k] += row[p] * (squares ? e[k * pose + p] * e[k * pose + p] : e[k * pose + p]); \
} \
/* some children of one row; all pointers are theirs */ \
INLINE void derive_some_##REAL(i64 count, int add, i64 pose, i64 power, REAL *restrict room, ARGUMENTS_OF_SOME(REAL)) { \
    REAL weight[AT_ONCE], of_square[AT_ONCE]; \
    CHILDREN { \
        weight[k] = pairs ? pairs[k] : (REAL)1; \
        of_square[k] = power == 2 ? weight[k] * weight[k] : weight[k]; \
    } \
    const REAL *restrict e = votes; \
    if (center) { \
        CHILDREN COMPONENTS room[k * pose + p] = votes[k * pose + p] - center[p]; \
        e = room; \
    } \
    if (to_linear) COMPONENTS { \
        REAL sum = to_linear[p]; \
        CHILDREN sum += weight[k] * e[k * pose + p]; \
        to_linear[p] = sum; \
    } \
    if (to_square) COMPONENTS { \
        REAL sum = to_square[p]; \
        CHILDREN sum += of_square[k] * e[k * pose + p] * e[k * pose + p]; \
        to_square[p] = sum; \
    } \
    if (to_pairs) { \
        REAL one[AT_ONCE], two[AT_ONCE]; \
        dot_##REAL(count, pose, 0, linear, e, one); \
        dot_##REAL(count, pose, 1, square, e, two); \
        CHILDREN { \
            REAL found = one[k] + (power == 2 ? 2 * weight[k] * two[k] : two[k]); \
            to_pairs[k] = add ? to_pairs[k] + found : found; \
        } \
    } \
    if (!to_votes) return; \
    if (!square) CHILDREN COMPONENTS to_votes[k * pose + p] = weight[k] * linear[p]; \
    else if (!linear) CHILDREN COMPONENTS to_votes[k * pose + p] = 2 * of_square[k] * square[p] * e[k * pose + p]; \
    else CHILDREN COMPONENTS \
        to_votes[k * pose + p] = weight[k] * linear[p] + 2 * of_square[k] * square[p] * e[k * pose + p]; \
} \
INLINE void derive_of_##REAL(DERIVE_ARGUMENTS(REAL)) { \
    for (i64 row = 0; row < rows; row++) { \
        i64 at = row * pose, pair = (columns == 1 ? row / parents : row) * children, vote = row * children * pose; \
        int add = columns == 1 && row % parents; \
        if (to_linear) memset(to_linear + at, 0, pose * sizeof(REAL)); \
        if (to_square) memset(to_square + at, 0, pose * sizeof(REAL)); \
        i64 left = children; \
        for (; left >= AT_ONCE; left -= AT_ONCE, pair += AT_ONCE, vote += AT_ONCE * pose) \
            derive_some_##REAL(AT_ONCE, add, pose, power, room, SOME); \
        for (; left; left--, pair++, vote += pose) derive_some_##REAL(1, add, pose, power, room, SOME); \
    } \
} \
/* The common sizes of a pose are constants of their loops. */ \
INLINE void derive_sized_##REAL(DERIVE_ARGUMENTS(REAL)) { \
    if (pose == 16) derive_of_##REAL(rows, parents, columns, children, 16, power, VOTES_GIVEN); \
    else if (pose == 8) derive_of_##REAL(rows, parents, columns, children, 8, power, VOTES_GIVEN); \
    else derive_of_##REAL(rows, parents, columns, children, pose, power, VOTES_GIVEN); \
}

/* From the gradient of the votes (rows, parents, groups, types, c h) to those of the poses (rows, groups, types, c d) and
   of the weights (types, parents, d h) that they were made of; `room` is for d h numbers. */
#define CARRY_ARGUMENTS(REAL) \
    i64 rows, i64 groups, i64 types, i64 parents, i64 c, i64 d, i64 h, const REAL *restrict pose, \
    const REAL *restrict weight, const REAL *restrict grad, REAL *restrict to_pose, REAL *restrict to_weight, \
    REAL *restrict room
#define CARRY_GIVEN() rows, groups, types, parents, c, d, h, TENSORS_GIVEN
#define TENSORS_GIVEN pose, weight, grad, to_pose, to_weight, room

/* The rows of the poses and votes of one type of child, one after the other. */
#define PLACES \
    for (i64 row = 0; row < rows; row++) \
        for (i64 group = 0; group < groups; group++) \
            for (i64 line = 0, i = group * types + type; line < c; line++)
#define POSE ((row * groups * types + i) * c + line) * d
#define VOTE (((row * parents + parent) * groups * types + i) * c + line) * h

#define CARRY(REAL) \
INLINE void carry_few_any_size_##REAL(CARRY_ARGUMENTS(REAL)) { \
    memset(to_weight, 0, types * parents * d * h * sizeof(REAL)); \
    for (i64 type = 0; type < types; type++) PLACES { \
        const REAL *restrict x = pose + POSE; \
        memset(room, 0, d * h * sizeof(REAL)); \
        for (i64 parent = 0; parent < parents; parent++) { \
            const REAL *restrict w = weight + (type * parents + parent) * d * h, *restrict g = grad + VOTE; \
            REAL *restrict to_w = to_weight + (type * parents + parent) * d * h; \
            for (i64 l = 0; l < d; l++) \
                for (i64 k = 0; k < h; k++) { \
                    room[l * h + k] += w[l * h + k] * g[k]; \
                    to_w[l * h + k] += x[l] * g[k]; \
                } \
        } \
        for (i64 l = 0; l < d; l++) { \
            REAL sum = 0; \
            for (i64 k = 0; k < h; k++) sum += room[l * h + k]; \
            to_pose[POSE + l] = sum; \
        } \
    } \
} \
CARRY_SIZED(REAL, 8, 16) \
CARRY_SIZED(REAL, 4, 4) \
INLINE void carry_few_sized_##REAL(CARRY_ARGUMENTS(REAL)) { \
    if (d == 8 && h == 16) carry_few_8_16_##REAL(rows, groups, types, parents, c, 8, 16, TENSORS_GIVEN); \
    else if (d == 4 && h == 4) carry_few_4_4_##REAL(rows, groups, types, parents, c, 4, 4, TENSORS_GIVEN); \
    else carry_few_any_size_##REAL(rows, groups, types, parents, c, d, h, TENSORS_GIVEN); \
}

/* The same in registers. */
#define CARRY_SIZED(REAL, D, H) \
typedef REAL Pose_##D##_##H##_##REAL __attribute__((vector_size(D * sizeof(REAL)), aligned(sizeof(REAL)), may_alias)); \
typedef REAL Vote_##D##_##H##_##REAL __attribute__((vector_size(H * sizeof(REAL)), aligned(sizeof(REAL)), may_alias)); \
INLINE void carry_few_##D##_##H##_##REAL(CARRY_ARGUMENTS(REAL)) { \
    (void)room; \
    for (i64 type = 0; type < types; type++) \
        for (i64 parent = 0; parent < parents; parent++) { \
            const REAL *restrict w = weight + (type * parents + parent) * D * H; \
            REAL *restrict to_w = to_weight + (type * parents + parent) * D * H; \
            Pose_##D##_##H##_##REAL turned[H] = {{0}}; \
            Vote_##D##_##H##_##REAL sum[D] = {{0}}; \
            _Pragma("GCC unroll 16") for (i64 k = 0; k < H; k++) \
                _Pragma("GCC unroll 8") for (i64 l = 0; l < D; l++) turned[k][l] = w[l * H + k]; \
            PLACES { \
                const REAL *restrict x = pose + POSE, *restrict g = grad + VOTE; \
                Vote_##D##_##H##_##REAL vote = *(const Vote_##D##_##H##_##REAL *)g; \
                Pose_##D##_##H##_##REAL *restrict to_x = (void *)(to_pose + POSE), found = {0}; \
                _Pragma("GCC unroll 8") for (i64 l = 0; l < D; l++) sum[l] += x[l] * vote; \
                _Pragma("GCC unroll 16") for (i64 k = 0; k < H; k++) found += g[k] * turned[k]; \
                if (parent) found += *to_x; \
                *to_x = found; \
            } \
            _Pragma("GCC unroll 8") for (i64 l = 0; l < D; l++) *(Vote_##D##_##H##_##REAL *)(to_w + l * H) = sum[l]; \
        } \
}

#include "alike.c"
#include "attend.c"
#include "vectors.c"

#define FLOAT_OF(name) name##f
#define DOUBLE_OF(name) name

#define VERSION(name, REAL, level, target, arguments, given) \
    target static void name##_##REAL##level(arguments(REAL)) { name##_sized_##REAL(given()); }

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(TORCHCAPS_ONE_TARGET)
#define VERSIONS(name, REAL, arguments, given) \
    VERSION(name, REAL, _v4, __attribute__((target("arch=x86-64-v4"))), arguments, given) \
    VERSION(name, REAL, _v3, __attribute__((target("arch=x86-64-v3"))), arguments, given) \
    VERSION(name, REAL, _any, , arguments, given)
#define CHOOSE(name) \
    (__builtin_cpu_supports("x86-64-v4") ? name##_v4 : __builtin_cpu_supports("x86-64-v3") ? name##_v3 : name##_any)
#else
#define VERSIONS(name, REAL, arguments, given) VERSION(name, REAL, _any, , arguments, given)
#define CHOOSE(name) name##_any
#endif

#define KERNEL(name, REAL, arguments, given) \
    VERSIONS(name, REAL, arguments, given) \
    EXPORT void name##_##REAL(arguments(REAL)) { CHOOSE(name##_##REAL)(given()); }
#define KERNELS(REAL, OF) \
    DERIVE(REAL) \
    CARRY(REAL) \
    ALIKE(REAL) \
    ATTEND(REAL, OF) \
    SQUASH(REAL) \
    EXPONENTIAL(REAL, OF) \
    LENGTHS(REAL, OF) \
    UNIT(REAL) \
    RIVALS(REAL) \
    KERNEL(derive, REAL, DERIVE_ARGUMENTS, DERIVE_GIVEN) \
    KERNEL(carry_few, REAL, CARRY_ARGUMENTS, CARRY_GIVEN) \
    KERNEL(alike, REAL, ALIKE_ARGUMENTS, ALIKE_GIVEN) \
    KERNEL(attend, REAL, ATTEND_ARGUMENTS, ATTEND_GIVEN) \
    KERNEL(squash, REAL, SQUASH_ARGUMENTS, SQUASH_GIVEN) \
    KERNEL(lengths, REAL, LENGTHS_ARGUMENTS, LENGTHS_GIVEN) \
    KERNEL(unit, REAL, UNIT_ARGUMENTS, UNIT_GIVEN) \
    KERNEL(rivals, REAL, RIVALS_ARGUMENTS, RIVALS_GIVEN) \
    KERNEL(exponential, REAL, EXPONENTIAL_ARGUMENTS, EXPONENTIAL_GIVEN)

KERNELS(float, FLOAT_OF)
KERNELS(double, DOUBLE_OF)
