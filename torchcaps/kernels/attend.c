/* One step of attention over few votes (examples, parents, children, pose): couplings are the softmax over the parents of the
   votes' products with `parent` (examples, parents, pose), times `scale`, and each parent's total is the sum of the votes by
   them. With a gradient of the total, and of the couplings if there is one, the way back to votes and parents, to `to_votes`
   and `total`; `room` is for the pairs of one example. Included by few.c. */

#define ATTEND_ARGUMENTS(REAL) \
    i64 examples, i64 parents, i64 children, i64 pose, double scale, const REAL *restrict votes, \
    const REAL *restrict parent, const REAL *restrict grad, const REAL *restrict to_coupling, REAL *restrict coupling, \
    REAL *restrict total, REAL *restrict to_votes, REAL *restrict room
#define ATTEND_GIVEN() \
    examples, parents, children, pose, scale, votes, parent, grad, to_coupling, coupling, total, to_votes, room
#define SOME_CHILDREN 64
#define EACH_OF(count) _Pragma("omp simd") for (i64 k = 0; k < (count); k++)

#define ATTEND(REAL, OF) \
/* the derivatives of one example in weights of pairs, or in what belongs to parents */ \
INLINE void over_pose_##REAL(i64 parents, i64 children, i64 pose, const REAL *votes, const REAL *rows, REAL *pairs) { \
    derive_sized_##REAL(parents, parents, parents, children, pose, 1, votes, 0, 0, rows, 0, 0, pairs, 0, 0, 0); \
} \
INLINE void over_children_##REAL(i64 parents, i64 children, i64 pose, const REAL *votes, const REAL *pairs, REAL *rows) { \
    derive_sized_##REAL(parents, parents, parents, children, pose, 1, votes, pairs, 0, 0, 0, 0, 0, rows, 0, 0); \
} \
/* the softmax over parents of numbers (parents, children) times a scale, in place */ \
INLINE void share_##REAL(i64 parents, i64 children, REAL scale, REAL *restrict pairs) { \
    for (i64 first = 0; first < children; first += SOME_CHILDREN) { \
        i64 count = children - first < SOME_CHILDREN ? children - first : SOME_CHILDREN; \
        REAL most[SOME_CHILDREN], sum[SOME_CHILDREN] = {0}; \
        EACH_OF(count) most[k] = scale * pairs[first + k]; \
        for (i64 j = 0; j < parents; j++) { \
            REAL *restrict row = pairs + j * children + first; \
            EACH_OF(count) row[k] *= scale; \
            EACH_OF(count) most[k] = row[k] < most[k] ? most[k] : row[k]; \
        } \
        for (i64 j = 0; j < parents; j++) { \
            REAL *restrict row = pairs + j * children + first; \
            for (i64 k = 0; k < count; k++) row[k] = OF(exp)(row[k] - most[k]); \
            EACH_OF(count) sum[k] += row[k]; \
        } \
        EACH_OF(count) sum[k] = 1 / sum[k]; \
        for (i64 j = 0; j < parents; j++) EACH_OF(count) pairs[j * children + first + k] *= sum[k]; \
    } \
} \
INLINE void attend_back_##REAL(ATTEND_ARGUMENTS(REAL)) { \
    over_pose_##REAL(parents, children, pose, votes, grad, room); /* in the couplings */ \
    if (to_coupling) EACH_OF(parents * children) room[k] += to_coupling[k]; \
    for (i64 first = 0; first < children; first += SOME_CHILDREN) { \
        i64 count = children - first < SOME_CHILDREN ? children - first : SOME_CHILDREN; \
        REAL sum[SOME_CHILDREN] = {0}; \
        for (i64 j = 0; j < parents; j++) \
            EACH_OF(count) sum[k] += coupling[j * children + first + k] * room[j * children + first + k]; \
        for (i64 j = 0; j < parents; j++) { \
            REAL *restrict row = room + j * children + first; \
            EACH_OF(count) row[k] = (REAL)scale * coupling[j * children + first + k] * (row[k] - sum[k]); \
        } \
    } \
    over_children_##REAL(parents, children, pose, votes, room, total); \
    if (!to_votes) return; \
    for (i64 j = 0; j < parents; j++) \
        for (i64 i = 0; i < children; i++) { \
            REAL of_grad = coupling[j * children + i], of_parent = room[j * children + i]; \
            REAL *restrict to = to_votes + (j * children + i) * pose; \
            EACH_OF(pose) to[k] = of_grad * grad[j * pose + k] + of_parent * parent[j * pose + k]; \
        } \
} \
INLINE void attend_sized_##REAL(ATTEND_ARGUMENTS(REAL)) { \
    for (i64 n = 0; n < examples; n++) { \
        i64 vote = n * parents * children * pose, pair = n * parents * children, at = n * parents * pose; \
        over_pose_##REAL(parents, children, pose, votes + vote, parent + at, coupling + pair); \
        share_##REAL(parents, children, (REAL)scale, coupling + pair); \
        if (!grad) over_children_##REAL(parents, children, pose, votes + vote, coupling + pair, total + at); \
        else \
            attend_back_##REAL( \
                1, parents, children, pose, scale, votes + vote, parent + at, grad + at, MOVE(to_coupling, pair), \
                coupling + pair, total + at, MOVE(to_votes, vote), room \
            ); \
    } \
}
