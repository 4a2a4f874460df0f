/* What is done to single vectors, and its way back: included by kernels.c, once for each number type and generation of
 * processors. Vectors lie one after the other, (vectors, size).
 *
 *   squash       the squash of Sabour 2017 and the logits of the lengths
 *   exponential  the same by exponentials, of Efficient-CapsNet 2021
 *   lengths      one through the length
 *   unit         unit vectors
 *   rivals       of rows of logarithms of masses, the logit of each parent's share */
typedef struct { /* kernels/few.py has the same */
    i64 vectors, size;
    double least;               /* of a length, its square or its logit, see below */
    const REAL *from;
    const REAL *grad, *to_score; /* of the vectors `to` and of the scores; backward if there is one of them */
    REAL *to;                    /* forward the result, backward the gradient in `from` */
    REAL *score;                 /* forward, of squashes */
} NAME(Vectors);

typedef double NAME(doubles) __attribute__((vector_size(4 * sizeof(double))));

/* The squared length of a vector times a factor, in double precision. */
INLINE double NAME(square_exactly)(i64 size, double factor, const REAL *s) {
    NAME(doubles) sum = {0};
    i64 p = 0;
    for (; p + 4 <= size; p += 4) {
        NAME(doubles) number = __builtin_convertvector(*(const NAME(four) *)(s + p), NAME(doubles)) * factor;
        sum += number * number;
    }
    double found = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    for (; p < size; p++) found += (s[p] * factor) * (s[p] * factor);
    return found;
}

/* The product of two vectors, the first times a factor, in double precision. */
INLINE double NAME(multiply_exactly)(i64 size, double factor, const REAL *s, const REAL *g) {
    NAME(doubles) sum = {0};
    i64 p = 0;
    for (; p + 4 <= size; p += 4) {
        NAME(doubles) one = __builtin_convertvector(*(const NAME(four) *)(s + p), NAME(doubles));
        sum += one * factor * __builtin_convertvector(*(const NAME(four) *)(g + p), NAME(doubles));
    }
    double found = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    for (; p < size; p++) found += s[p] * factor * g[p];
    return found;
}

#define COMPONENTS_OF(p, size) _Pragma("omp simd") for (i64 p = 0; p < size; p++)
/* A kernel for vectors of any size, in which the most common one is a constant of the loops. */
#define OVER_VECTORS(name) \
    static void NAME(name)(void *argument) { \
        const NAME(Vectors) *s = argument; \
        if (s->size == 16) NAME(name##_of)(s, 16); \
        else NAME(name##_of)(s, s->size); \
    }

/* v = s |s| / (1 + |s|^2), whose length has the logit log |s|^2, of which less than `least` counts as that. Poses, scores or
   both. Lengths are in double precision, and of doubles in units of the largest component where that is above one. */
INLINE void NAME(squash_of)(const NAME(Vectors) *job, i64 size) {
    for (i64 vector = 0; vector < job->vectors; vector++) {
        const REAL *restrict s = job->from + vector * size, *restrict g = MOVE(job->grad, vector * size);
        REAL *restrict v = MOVE(job->to, vector * size);
        double unit = 1;
        if (sizeof(REAL) == 8) for (i64 p = 0; p < size; p++) unit = s[p] < unit && -s[p] < unit ? unit : fabs(s[p]);
        double inverse = 1 / unit, least = inverse * inverse, squares = NAME(square_exactly)(size, inverse, s);
        double length = sqrt(squares), one = least + squares;
        double factor = squares > 0 ? length / one * inverse : 0 * squares;
        if (!job->grad && !job->to_score) {
            if (v) COMPONENTS_OF(p, size) v[p] = (REAL)(s[p] * factor);
            double there = squares < job->least ? job->least : squares;
            if (job->score) job->score[vector] = (REAL)(there < 3e38 ? OF(log)((REAL)there) : log(there)) + (REAL)(2 * log(unit));
            continue;
        }
        double along = 0; /* times s in units */
        if (g && squares > 0)
            along = (least - squares) / (one * one * unit * length) * NAME(multiply_exactly)(size, inverse, s, g);
        if (job->to_score && !(squares < job->least)) along += 2 * job->to_score[vector] / squares * inverse;
        COMPONENTS_OF(p, size) v[p] = (REAL)((g ? factor * g[p] : 0) + along * (s[p] * inverse));
    }
}
OVER_VECTORS(squash)

/* v = s (1 - exp(-l)) / l for the length l of s, whose logit is log(exp(l) - 1). Zero stays zero, with the identity as its
   gradient; its score is `least`, with gradient zero. */
INLINE void NAME(exponential_of)(const NAME(Vectors) *job, i64 size) {
    for (i64 vector = 0; vector < job->vectors; vector++) {
        const REAL *restrict s = job->from + vector * size, *restrict g = MOVE(job->grad, vector * size);
        REAL *restrict v = job->to + vector * size;
        REAL unit = 1, squares = 0, product = 0;
        for (i64 p = 0; p < size; p++) unit = OF(fmax)(unit, OF(fabs)(s[p]));
        for (i64 p = 0; p < size; p++) squares += (s[p] / unit) * (s[p] / unit);
        REAL length = unit * OF(sqrt)(squares), shorter = -OF(expm1)(-length); /* 1 - exp(-l) */
        REAL ratio = squares > 0 ? shorter / length : 1;
        if (!g && !job->to_score) {
            for (i64 p = 0; p < size; p++) v[p] = ratio * s[p];
            job->score[vector] = squares > 0 ? length + OF(log)(shorter) : (REAL)job->least;
            continue;
        }
        /* dv = ratio ds + (exp(-l) - ratio) (s/l) (s/l . ds), and the score's gradient is (s/l) / (1 - exp(-l)) */
        if (g) for (i64 p = 0; p < size; p++) product += squares > 0 ? s[p] / length * g[p] : 0;
        REAL along = (1 - shorter - ratio) * product;
        if (job->to_score && squares > 0) along += job->to_score[vector] / shorter;
        for (i64 p = 0; p < size; p++) v[p] = (g ? ratio * g[p] : 0) + (squares > 0 ? along * (s[p] / length) : 0);
    }
}
OVER_VECTORS(exponential)

/* The squared lengths of some vectors. */
INLINE void NAME(square)(i64 count, i64 size, const REAL *s, REAL *found) {
    NAME(four) sum[AT_ONCE] = {{0}};
    i64 p = 0;
    for (; p + 4 <= size; p += 4) EACH(k, count) {
        NAME(four) number = *(const NAME(four) *)(s + k * size + p);
        sum[k] += number * number;
    }
    EACH(k, count) found[k] = (sum[k][0] + sum[k][1]) + (sum[k][2] + sum[k][3]);
    for (; p < size; p++) EACH(k, count) found[k] += s[k * size + p] * s[k * size + p];
}

/* One through the length of each vector, or of a vector of the square `least` where it is shorter. */
INLINE void NAME(lengths_of)(const NAME(Vectors) *job, i64 size) {
    if (!job->grad) { /* all squares first, so that their roots are taken in vectors */
        REAL *restrict to = job->to, least = (REAL)job->least;
        i64 vector = 0;
        for (; vector + AT_ONCE <= job->vectors; vector += AT_ONCE)
            NAME(square)(AT_ONCE, size, job->from + vector * size, to + vector);
        for (; vector < job->vectors; vector++) NAME(square)(1, size, job->from + vector * size, to + vector);
        _Pragma("omp simd") for (vector = 0; vector < job->vectors; vector++)
            to[vector] = 1 / OF(sqrt)(to[vector] < least ? least : to[vector]);
        return;
    }
    for (i64 vector = 0; vector < job->vectors; vector++) {
        const REAL *restrict s = job->from + vector * size;
        REAL squares = 0, least = (REAL)job->least;
        _Pragma("omp simd reduction(+:squares)") for (i64 p = 0; p < size; p++) squares += s[p] * s[p];
        REAL inverse = 1 / OF(sqrt)(squares < least ? least : squares);
        REAL factor = squares < least ? 0 : -job->grad[vector] * inverse * inverse * inverse;
        REAL *restrict to = job->to + vector * size;
        COMPONENTS_OF(p, size) to[p] = factor * s[p];
    }
}
OVER_VECTORS(lengths)

/* Each vector through its length, or through `least` where it is shorter. */
INLINE void NAME(unit_of)(const NAME(Vectors) *job, i64 size) {
    for (i64 vector = 0; vector < job->vectors; vector++) {
        const REAL *restrict s = job->from + vector * size, *restrict g = job->grad ? job->grad + vector * size : s;
        REAL *restrict to = job->to + vector * size;
        double most = 0;
        if (sizeof(REAL) == 8) for (i64 p = 0; p < size; p++) most = s[p] <= most && -s[p] <= most ? most : fabs(s[p]);
        double scale = most > 0 ? 1 / most : 1;
        double squares = NAME(square_exactly)(size, scale, s);
        double length = sqrt(squares) / scale, inverse = 1 / (length < job->least ? job->least : length);
        double along = job->grad && !(length < job->least) ? NAME(multiply_exactly)(size, scale, s, g) / squares * scale : 0;
        COMPONENTS_OF(p, size) to[p] = (REAL)((g[p] - along * s[p]) * inverse);
    }
}
OVER_VECTORS(unit)

/* The logarithm of the mass of all parents but j as a share of all. Parent j itself counts as next to nothing among its
   rivals, exp(least), so that even a parent alone has a rival. */
INLINE double NAME(log_rivals)(const REAL *m, i64 parents, i64 j, double all, double least) {
    double itself = m[j] - all;
    if (itself < -0.7) return log1p(-exp(itself)); /* a share below a half */
    double most = itself + least, sum = 0;
    for (i64 k = 0; k < parents; k++) if (k != j && m[k] - all > most) most = m[k] - all;
    for (i64 k = 0; k < parents; k++) sum += exp((k == j ? itself + least : m[k] - all) - most);
    return most + log(sum);
}

/* The logit of each parent's share of the mass of all, log m_j - log r_j with the mass r_j of its rivals, of vectors of the
   logarithms of masses. */
static void NAME(rivals)(void *argument) {
    const NAME(Vectors) *job = argument;
    i64 parents = job->size;
    for (i64 row = 0; row < job->vectors; row++) {
        const REAL *m = job->from + row * parents, *g = MOVE(job->grad, row * parents);
        REAL *out = job->to + row * parents;
        double most = m[0], sum = 0, sent = 0;
        for (i64 k = 1; k < parents; k++) most = m[k] > most ? m[k] : most;
        for (i64 k = 0; k < parents; k++) sum += exp(m[k] - most);
        double all = most + log(sum);
        if (!g) {
            for (i64 j = 0; j < parents; j++)
                out[j] = (REAL)(m[j] - all - NAME(log_rivals)(m, parents, j, all, job->least));
            continue;
        }
        /* The score of j has the gradient -m_k / r_j in the logarithm of a rival's mass m_k. */
        for (i64 j = 0; j < parents; j++)
            if (m[j] - all < -0.7) sent += g[j] / (1 - exp(m[j] - all));
        for (i64 k = 0; k < parents; k++) {
            double share = exp(m[k] - all), log_rivals = NAME(log_rivals)(m, parents, k, all, job->least);
            double own = m[k] - all < -0.7 ? g[k] / (1 - share) : 0;
            out[k] = (REAL)(g[k] * (1 - exp(m[k] - all + job->least - log_rivals)) - share * (sent - own));
        }
        for (i64 j = 0; j < parents; j++)
            if (!(m[j] - all < -0.7)) { /* one or two of them */
                double log_rivals = NAME(log_rivals)(m, parents, j, all, job->least);
                for (i64 k = 0; k < parents; k++)
                    if (k != j) out[k] -= (REAL)(g[j] * exp(m[k] - all - log_rivals));
            }
    }
}
