/* One step of attention over few votes, and its way back: included by kernels.c, once for each number type and generation of
 * processors.
 *
 * Couplings are the softmax over the parents of the votes' products with `parent`, times `factor`, and each parent's total is
 * the sum of the votes by them. Votes are (examples, parents, children, pose), couplings (examples, parents, children), parents
 * and totals (examples, parents, pose). */
typedef struct { /* kernels/few.py has the same */
    i64 examples, parents, children, pose;
    double factor;
    const REAL *votes, *parent;
    const REAL *grad;        /* of the totals; NULL: forward */
    const REAL *to_coupling; /* of the couplings; NULL: none */
    REAL *coupling;
    REAL *out;      /* totals, or the gradient of the parents */
    REAL *to_votes; /* NULL: not asked for */
    REAL *room;     /* for the pairs of one example, backward */
} NAME(Attention);

#define SOME_CHILDREN 64
#define EACH_OF(k, count) _Pragma("omp simd") for (i64 k = 0; k < (count); k++)

/* The products of one example's votes with a row of each parent. */
static void NAME(over_pose)(const NAME(Attention) *s, const REAL *votes, const REAL *rows, REAL *pairs) {
    NAME(derive)(&(NAME(Derivatives)){
        .rows = s->parents, .parents = s->parents, .columns = s->parents, .children = s->children, .pose = s->pose,
        .power = 1, .votes = votes, .linear = rows, .to_pairs = pairs,
    });
}

/* The sums of one example's votes by weights of pairs. */
static void NAME(over_children)(const NAME(Attention) *s, const REAL *votes, const REAL *pairs, REAL *rows) {
    NAME(derive)(&(NAME(Derivatives)){
        .rows = s->parents, .parents = s->parents, .columns = s->parents, .children = s->children, .pose = s->pose,
        .power = 1, .votes = votes, .pairs = pairs, .to_linear = rows,
    });
}

/* The softmax over parents of numbers (parents, children) times the factor, in place. */
INLINE void NAME(softmax)(const NAME(Attention) *s, REAL *restrict pairs) {
    REAL factor = (REAL)s->factor;
    for (i64 first = 0; first < s->children; first += SOME_CHILDREN) {
        i64 count = s->children - first < SOME_CHILDREN ? s->children - first : SOME_CHILDREN;
        REAL most[SOME_CHILDREN], sum[SOME_CHILDREN] = {0};
        EACH_OF(k, count) most[k] = factor * pairs[first + k];
        for (i64 j = 0; j < s->parents; j++) {
            REAL *restrict row = pairs + j * s->children + first;
            EACH_OF(k, count) row[k] *= factor;
            EACH_OF(k, count) most[k] = row[k] < most[k] ? most[k] : row[k];
        }
        for (i64 j = 0; j < s->parents; j++) {
            REAL *restrict row = pairs + j * s->children + first;
            for (i64 k = 0; k < count; k++) row[k] = OF(exp)(row[k] - most[k]);
            EACH_OF(k, count) sum[k] += row[k];
        }
        EACH_OF(k, count) sum[k] = 1 / sum[k];
        for (i64 j = 0; j < s->parents; j++) EACH_OF(k, count) pairs[j * s->children + first + k] *= sum[k];
    }
}

/* The way back of one example, from the places of its votes, pairs and parents on. */
INLINE void NAME(attend_back)(const NAME(Attention) *s, i64 vote, i64 pair, i64 at) {
    i64 parents = s->parents, children = s->children, pose = s->pose;
    const REAL *coupling = s->coupling + pair, *grad = s->grad + at;
    REAL *room = s->room;
    NAME(over_pose)(s, s->votes + vote, grad, room); /* in the couplings */
    if (s->to_coupling) EACH_OF(k, parents * children) room[k] += s->to_coupling[pair + k];
    for (i64 first = 0; first < children; first += SOME_CHILDREN) {
        i64 count = children - first < SOME_CHILDREN ? children - first : SOME_CHILDREN;
        REAL sum[SOME_CHILDREN] = {0};
        for (i64 j = 0; j < parents; j++) {
            i64 row = j * children + first;
            EACH_OF(k, count) sum[k] += coupling[row + k] * room[row + k];
        }
        for (i64 j = 0; j < parents; j++) {
            i64 row = j * children + first;
            EACH_OF(k, count) room[row + k] = (REAL)s->factor * coupling[row + k] * (room[row + k] - sum[k]);
        }
    }
    NAME(over_children)(s, s->votes + vote, room, s->out + at);
    if (!s->to_votes) return;
    for (i64 j = 0; j < parents; j++)
        for (i64 i = 0; i < children; i++) {
            REAL of_grad = coupling[j * children + i], of_parent = room[j * children + i];
            const REAL *restrict g = grad + j * pose, *restrict y = s->parent + at + j * pose;
            REAL *restrict to = s->to_votes + vote + (j * children + i) * pose;
            EACH_OF(k, pose) to[k] = of_grad * g[k] + of_parent * y[k];
        }
}

static void NAME(attend)(void *argument) {
    const NAME(Attention) *s = argument;
    for (i64 n = 0; n < s->examples; n++) {
        i64 pair = n * s->parents * s->children, vote = pair * s->pose, at = n * s->parents * s->pose;
        NAME(over_pose)(s, s->votes + vote, s->parent + at, s->coupling + pair);
        NAME(softmax)(s, s->coupling + pair);
        if (s->grad) NAME(attend_back)(s, vote, pair, at);
        else NAME(over_children)(s, s->votes + vote, s->coupling + pair, s->out + at);
    }
}
