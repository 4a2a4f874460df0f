/* What routings ask of few votes that are there as numbers, and all gradients of that: included by kernels.c, once for each
 * number type and generation of processors.
 *
 * All of it are derivatives of one number. With weights a of pairs, b and s of the components of a parent's pose, and
 * deviations e = v - center,
 *
 *   E = sum over rows, children i and components p of  a_i b_p e_ip  +  a_i^power s_p e_ip^2.
 *
 * A sum over the children is dE/db or dE/ds, a sum over the pose is dE/da, and dE/dv is the gradient in the votes. One pass
 * over the votes finds those that are asked for. Votes are (rows, children, pose) with a row for each parent of each
 * example, parents innermost; weights of pairs are (rows, children), all else is (rows, pose). */
typedef struct { /* kernels/few.py has the same */
    i64 rows, parents;
    i64 columns; /* 1: the parents of an example share their weights of pairs */
    i64 children, pose, power;
    const REAL *votes;
    const REAL *pairs, *center, *linear, *square; /* a, center, b, s; NULL: ones, and zeros */
    REAL *to_votes, *to_pairs, *to_linear, *to_square; /* NULL: not asked for */
    REAL *room;                                        /* for the deviations of AT_ONCE children, if there is a center */
} NAME(Derivatives);

#define AT_ONCE 4 /* children that are gone through together */
#define COMPONENTS(p) _Pragma("omp simd") for (i64 p = 0; p < pose; p++)
#define MOVE(pointer, by) ((pointer) ? (pointer) + (by) : NULL)
typedef REAL NAME(four) __attribute__((vector_size(4 * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));

/* Products of some children's numbers, or of their squares, with one row. */
INLINE void NAME(dot)(i64 count, i64 pose, int squares, const REAL *row, const REAL *e, REAL *found) {
    EACH(k, count) found[k] = 0;
    if (!row) return;
    NAME(four) sum[AT_ONCE] = {{0}};
    i64 p = 0;
    for (; p + 4 <= pose; p += 4) {
        NAME(four) factor = *(const NAME(four) *)(row + p);
        EACH(k, count) {
            NAME(four) number = *(const NAME(four) *)(e + k * pose + p);
            if (squares) number *= number;
            sum[k] += factor * number;
        }
    }
    EACH(k, count) found[k] = (sum[k][0] + sum[k][1]) + (sum[k][2] + sum[k][3]);
    for (; p < pose; p++) EACH(k, count) {
        REAL number = e[k * pose + p];
        found[k] += row[p] * (squares ? number * number : number);
    }
}

/* `count` children of one row; `pair` and `vote` are the first one's places, `at` that of the row. With `add`, to_pairs has
   the sums of the parents before. */
INLINE void NAME(derive_some)(
    const NAME(Derivatives) *s, i64 count, i64 pose, int add, i64 pair, i64 vote, i64 at
) {
    const REAL *restrict votes = s->votes + vote, *restrict e = votes;
    const REAL *restrict center = MOVE(s->center, at), *restrict linear = MOVE(s->linear, at);
    const REAL *restrict square = MOVE(s->square, at);
    REAL *restrict to_votes = MOVE(s->to_votes, vote), *restrict to_pairs = MOVE(s->to_pairs, pair);
    REAL *restrict to_linear = MOVE(s->to_linear, at), *restrict to_square = MOVE(s->to_square, at);
    REAL weight[AT_ONCE], of_square[AT_ONCE]; /* a, and a^power */
    EACH(k, count) {
        weight[k] = s->pairs ? s->pairs[pair + k] : (REAL)1;
        of_square[k] = s->power == 2 ? weight[k] * weight[k] : weight[k];
    }
    if (center) {
        REAL *restrict room = s->room;
        EACH(k, count) COMPONENTS(p) room[k * pose + p] = votes[k * pose + p] - center[p];
        e = room;
    }
    if (to_linear) COMPONENTS(p) {
        REAL sum = to_linear[p];
        EACH(k, count) sum += weight[k] * e[k * pose + p];
        to_linear[p] = sum;
    }
    if (to_square) COMPONENTS(p) {
        REAL sum = to_square[p];
        EACH(k, count) sum += of_square[k] * e[k * pose + p] * e[k * pose + p];
        to_square[p] = sum;
    }
    if (to_pairs) {
        REAL one[AT_ONCE], two[AT_ONCE];
        NAME(dot)(count, pose, 0, linear, e, one);
        NAME(dot)(count, pose, 1, square, e, two);
        EACH(k, count) {
            REAL found = one[k] + (s->power == 2 ? 2 * weight[k] * two[k] : two[k]);
            to_pairs[k] = add ? to_pairs[k] + found : found;
        }
    }
    if (!to_votes) return;
    if (!square) EACH(k, count) COMPONENTS(p) to_votes[k * pose + p] = weight[k] * linear[p];
    else if (!linear)
        EACH(k, count) COMPONENTS(p) to_votes[k * pose + p] = 2 * of_square[k] * square[p] * e[k * pose + p];
    else
        EACH(k, count) COMPONENTS(p)
            to_votes[k * pose + p] = weight[k] * linear[p] + 2 * of_square[k] * square[p] * e[k * pose + p];
}

INLINE void NAME(derive_of)(const NAME(Derivatives) *s, i64 pose) {
    for (i64 row = 0; row < s->rows; row++) {
        i64 pair = (s->columns == 1 ? row / s->parents : row) * s->children, vote = row * s->children * pose;
        int add = s->columns == 1 && row % s->parents;
        if (s->to_linear) memset(s->to_linear + row * pose, 0, pose * sizeof(REAL));
        if (s->to_square) memset(s->to_square + row * pose, 0, pose * sizeof(REAL));
        i64 i = 0;
        for (; i + AT_ONCE <= s->children; i += AT_ONCE)
            NAME(derive_some)(s, AT_ONCE, pose, add, pair + i, vote + i * pose, row * pose);
        for (; i < s->children; i++) NAME(derive_some)(s, 1, pose, add, pair + i, vote + i * pose, row * pose);
    }
}

/* The common sizes of a pose are constants of their loops. */
static void NAME(derive)(void *argument) {
    const NAME(Derivatives) *s = argument;
    if (s->pose == 16) NAME(derive_of)(s, 16);
    else if (s->pose == 8) NAME(derive_of)(s, 8);
    else NAME(derive_of)(s, s->pose);
}
