/* What is done to single vectors: squashes, lengths, and the score of a share. Included by few.c. */
#define COMPONENTS_OF(size) _Pragma("omp simd") for (i64 p = 0; p < size; p++)

/* Squash by exponentials (Efficient-CapsNet 2021): v = s (1 - exp(-l)) / l for the length l of s, whose logit is
   log(exp(l) - 1). With gradients of poses, of scores or of both, their way back to s. Zero stays zero, with the identity
   as its gradient; its score is `lowest`, with gradient zero. */
#define EXPONENTIAL_ARGUMENTS(REAL) \
    i64 vectors, i64 size, double lowest, const REAL *restrict from, const REAL *restrict to_pose, \
    const REAL *restrict to_score, REAL *restrict pose, REAL *restrict score
#define EXPONENTIAL_GIVEN() vectors, size, lowest, from, to_pose, to_score, pose, score
#define EXPONENTIAL(REAL, OF) \
INLINE void exponential_sized_##REAL(EXPONENTIAL_ARGUMENTS(REAL)) { \
    for (i64 vector = 0; vector < vectors; vector++) { \
        const REAL *restrict s = from + vector * size, *restrict g = to_pose ? to_pose + vector * size : 0; \
        REAL *restrict v = pose + vector * size; \
        REAL unit = 1, squares = 0, product = 0; \
        for (i64 p = 0; p < size; p++) unit = OF(fmax)(unit, OF(fabs)(s[p])); \
        for (i64 p = 0; p < size; p++) squares += (s[p] / unit) * (s[p] / unit); \
        REAL length = unit * OF(sqrt)(squares), shorter = -OF(expm1)(-length); /* 1 - exp(-l) */ \
        REAL ratio = squares > 0 ? shorter / length : 1; \
        if (!to_pose && !to_score) { \
            for (i64 p = 0; p < size; p++) v[p] = ratio * s[p]; \
            score[vector] = squares > 0 ? length + OF(log)(shorter) : (REAL)lowest; \
            continue; \
        } \
        /* dv = ratio ds + (exp(-l) - ratio) (s/l) (s/l . ds), and the score's gradient is (s/l) / (1 - exp(-l)) */ \
        if (g) for (i64 p = 0; p < size; p++) product += squares > 0 ? s[p] / length * g[p] : 0; \
        REAL along = (1 - shorter - ratio) * product; \
        if (to_score && squares > 0) along += to_score[vector] / shorter; \
        for (i64 p = 0; p < size; p++) v[p] = (g ? ratio * g[p] : 0) + (squares > 0 ? along * (s[p] / length) : 0); \
    } \
}

/* Squash (Sabour 2017): v = s |s| / (1 + |s|^2), whose length has the logit log |s|^2, of which less than `tiny` counts as
   that. Poses, scores or both; with gradients of poses, of scores or of both, their way back to s, to `pose`. Lengths are
   in double precision, and of doubles in units of the largest component where that is above one. */
#define SQUASH_ARGUMENTS(REAL) \
    i64 vectors, i64 size, double tiny, const REAL *restrict from, const REAL *restrict to_pose, \
    const REAL *restrict to_score, REAL *restrict pose, REAL *restrict score
#define SQUASH_GIVEN() vectors, size, tiny, from, to_pose, to_score, pose, score
#define SQUASH(REAL) \
INLINE void squash_of_##REAL(SQUASH_ARGUMENTS(REAL)) { \
    for (i64 vector = 0; vector < vectors; vector++) { \
        const REAL *restrict s = from + vector * size, *restrict g = to_pose ? to_pose + vector * size : 0; \
        REAL *restrict v = pose ? pose + vector * size : 0; \
        double unit = 1, squares = 0, product = 0; \
        if (sizeof(REAL) == 8) for (i64 p = 0; p < size; p++) unit = s[p] < unit && -s[p] < unit ? unit : fabs(s[p]); \
        double inverse = 1 / unit, least = inverse * inverse; \
        _Pragma("omp simd reduction(+:squares)") for (i64 p = 0; p < size; p++) \
            squares += ((double)s[p] * inverse) * ((double)s[p] * inverse); \
        double length = sqrt(squares), one = least + squares; \
        double factor = squares > 0 ? length / one * inverse : 0 * squares; \
        if (!to_pose && !to_score) { \
            if (v) COMPONENTS_OF(size) v[p] = (REAL)(s[p] * factor); \
            if (score) score[vector] = (REAL)(log(squares < tiny ? tiny : squares) + 2 * log(unit)); \
            continue; \
        } \
        double along = 0; /* times s in units */ \
        if (g) { \
            _Pragma("omp simd reduction(+:product)") for (i64 p = 0; p < size; p++) product += s[p] * inverse * g[p]; \
            along = squares > 0 ? (least - squares) / (one * one * unit * length) * product : 0; \
        } \
        if (to_score && !(squares < tiny)) along += 2 * to_score[vector] / squares * inverse; \
        COMPONENTS_OF(size) v[p] = (REAL)((g ? factor * g[p] : 0) + along * (s[p] * inverse)); \
    } \
} \
INLINE void squash_sized_##REAL(SQUASH_ARGUMENTS(REAL)) { \
    if (size == 16) squash_of_##REAL(vectors, 16, tiny, from, to_pose, to_score, pose, score); \
    else squash_of_##REAL(vectors, size, tiny, from, to_pose, to_score, pose, score); \
}
/* One through the length of each vector, or of a vector of the square `shortest` where it is shorter; with a gradient its
   way back to the vectors. */
#define LENGTHS_ARGUMENTS(REAL) \
    i64 vectors, i64 size, double shortest, const REAL *restrict from, const REAL *restrict grad, REAL *restrict to
#define LENGTHS_GIVEN() vectors, size, shortest, from, grad, to
#define LENGTHS(REAL, OF) \
INLINE void lengths_of_##REAL(LENGTHS_ARGUMENTS(REAL)) { \
    for (i64 vector = 0; vector < vectors; vector++, from += size) { \
        REAL squares = 0; \
        _Pragma("omp simd reduction(+:squares)") for (i64 p = 0; p < size; p++) squares += from[p] * from[p]; \
        REAL inverse = 1 / OF(sqrt)(squares < (REAL)shortest ? (REAL)shortest : squares); \
        if (!grad) { \
            to[vector] = inverse; \
            continue; \
        } \
        REAL factor = squares < (REAL)shortest ? 0 : -grad[vector] * inverse * inverse * inverse; \
        COMPONENTS_OF(size) to[vector * size + p] = factor * from[p]; \
    } \
} \
INLINE void lengths_sized_##REAL(LENGTHS_ARGUMENTS(REAL)) { \
    if (size == 16) lengths_of_##REAL(vectors, 16, shortest, from, grad, to); \
    else lengths_of_##REAL(vectors, size, shortest, from, grad, to); \
}

/* Each vector through its length, or through `shortest` where it is shorter; with a gradient its way back. */
#define UNIT_ARGUMENTS LENGTHS_ARGUMENTS
#define UNIT_GIVEN LENGTHS_GIVEN
#define UNIT(REAL) \
INLINE void unit_of_##REAL(UNIT_ARGUMENTS(REAL)) { \
    for (i64 vector = 0; vector < vectors; vector++, from += size, to += size) { \
        const REAL *restrict g = grad ? grad + vector * size : from; \
        double most = 0, squares = 0, product = 0; \
        if (sizeof(REAL) == 8) for (i64 p = 0; p < size; p++) most = from[p] <= most && -from[p] <= most ? most : fabs(from[p]); \
        double scale = most > 0 ? 1 / most : 1; \
        _Pragma("omp simd reduction(+:squares, product)") for (i64 p = 0; p < size; p++) { \
            squares += (from[p] * scale) * (from[p] * scale); \
            product += (from[p] * scale) * g[p]; \
        } \
        double length = sqrt(squares) / scale, inverse = 1 / (length < shortest ? shortest : length); \
        double along = grad && !(length < shortest) ? product / squares * scale : 0; \
        COMPONENTS_OF(size) to[p] = (REAL)((g[p] - along * from[p]) * inverse); \
    } \
} \
INLINE void unit_sized_##REAL(UNIT_ARGUMENTS(REAL)) { \
    if (size == 16) unit_of_##REAL(vectors, 16, shortest, from, grad, to); \
    else unit_of_##REAL(vectors, size, shortest, from, grad, to); \
}

/* The logit of each parent's share of the mass of all, of the logarithms of masses (rows, parents): log m_j - log r_j with
   the mass r_j of its rivals, to which itself it counts as next to nothing, exp(lowest). With a gradient its way back. */
#define RIVALS_ARGUMENTS(REAL) \
    i64 rows, i64 parents, double lowest, const REAL *restrict log_mass, const REAL *restrict grad, REAL *restrict to
#define RIVALS_GIVEN() rows, parents, lowest, log_mass, grad, to
#define RIVALS(REAL) \
INLINE double log_rivals_##REAL(const REAL *m, i64 parents, i64 j, double all, double lowest) { \
    double itself = m[j] - all; \
    if (itself < -0.7) return log1p(-exp(itself)); /* a share below a half */ \
    double most = itself + lowest, sum = 0; \
    for (i64 k = 0; k < parents; k++) if (k != j && m[k] - all > most) most = m[k] - all; \
    for (i64 k = 0; k < parents; k++) sum += exp((k == j ? itself + lowest : m[k] - all) - most); \
    return most + log(sum); \
} \
INLINE void rivals_sized_##REAL(RIVALS_ARGUMENTS(REAL)) { \
    for (i64 row = 0; row < rows; row++) { \
        const REAL *m = log_mass + row * parents, *g = grad ? grad + row * parents : 0; \
        REAL *out = to + row * parents; \
        double most = m[0], sum = 0, sent = 0; \
        for (i64 k = 1; k < parents; k++) most = m[k] > most ? m[k] : most; \
        for (i64 k = 0; k < parents; k++) sum += exp(m[k] - most); \
        double all = most + log(sum); \
        if (!g) { \
            for (i64 j = 0; j < parents; j++) \
                out[j] = (REAL)(m[j] - all - log_rivals_##REAL(m, parents, j, all, lowest)); \
            continue; \
        } \
        /* The score of j has the gradient -m_k / r_j in the logarithm of a rival's mass m_k. */ \
        for (i64 j = 0; j < parents; j++) \
            if (m[j] - all < -0.7) sent += g[j] / (1 - exp(m[j] - all)); \
        for (i64 k = 0; k < parents; k++) { \
            double share = exp(m[k] - all), log_rivals = log_rivals_##REAL(m, parents, k, all, lowest); \
            double own = m[k] - all < -0.7 ? g[k] / (1 - share) : 0; \
            out[k] = (REAL)(g[k] * (1 - exp(m[k] - all + lowest - log_rivals)) - share * (sent - own)); \
        } \
        for (i64 j = 0; j < parents; j++) \
            if (!(m[j] - all < -0.7)) { /* one or two of them */ \
                double log_rivals = log_rivals_##REAL(m, parents, j, all, lowest); \
                for (i64 k = 0; k < parents; k++) \
                    if (k != j) out[k] -= (REAL)(g[j] * exp(m[k] - all - log_rivals)); \
            } \
    } \
}
