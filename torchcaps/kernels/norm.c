/* Swish, x / (1 + e^-x), and batch norm of its result as one: included by kernels.c, once for each number type and
 * generation of processors. A channel of all examples is a task and stays in the cache from its mean to its result. */
typedef struct {
    i64 examples, channels, size, threads;
    double eps;
    const REAL *from;         /* example channel (row column) */
    const REAL *weight, *bias; /* channel */
    REAL *mean, *variance;    /* channel, of Swish's results: made forward, read backward */
    REAL *to;                 /* forward the result, backward the gradient in `from` */
    const REAL *grad;         /* of the result: backward if there is one */
    REAL *to_weight, *to_bias;
} NAME(Norm);

INLINE VEC NAME(sigmoid)(VEC x) {
    VEC small = NAME(exp)(NAME(pick)(x < 0, x, -x));
    return NAME(pick)(x < 0, small, NAME(splat)(1)) / (1 + small);
}

/* A loop over the vectors of a plane: `first` is the place of each, `there` how many of its lanes are in the plane. */
#define EACH_VECTOR(first, there, size) \
    for (i64 first = 0, there = size; there > 0; first += LANES, there -= LANES)
#define READ(from, first, there) NAME(load)((from) + (first), there, 0)

INLINE VEC NAME(keep_lanes)(VEC numbers, i64 there) { return there >= LANES ? numbers : NAME(load)((REAL *)&numbers, there, LANES); }

static void NAME(norm_channel)(void *job, i64 channel) {
    const NAME(Norm) *s = job;
    i64 size = s->size, next = s->channels * size;
    const REAL *from = s->from + channel * size;
    REAL *to = s->to + channel * size;
    double sum = 0, squares = 0, many = (double)s->examples * size;
    for (i64 e = 0; e < s->examples; e++) {
        VEC part = {0};
        EACH_VECTOR(p, there, size) {
            VEC x = READ(from + e * next, p, there), y = x * NAME(sigmoid)(x);
            NAME(store)(to + e * next + p, y, there);
            part += y; /* of zero it is zero */
        }
        sum += NAME(total)(part);
    }
    REAL mean = (REAL)(sum / many);
    for (i64 e = 0; e < s->examples; e++) {
        VEC part = {0};
        EACH_VECTOR(p, there, size) {
            VEC apart = NAME(keep_lanes)(READ(to + e * next, p, there) - mean, there);
            part += apart * apart;
        }
        squares += NAME(total)(part);
    }
    s->mean[channel] = mean, s->variance[channel] = (REAL)(squares / many);
    REAL scale = (REAL)(s->weight[channel] / sqrt(squares / many + s->eps)), bias = s->bias[channel];
    for (i64 e = 0; e < s->examples; e++)
        EACH_VECTOR(p, there, size)
            NAME(store)(to + e * next + p, (READ(to + e * next, p, there) - mean) * scale + bias, there);
}

static void NAME(norm_channel_back)(void *job, i64 channel) {
    const NAME(Norm) *s = job;
    i64 size = s->size, next = s->channels * size;
    const REAL *from = s->from + channel * size, *grad = s->grad + channel * size;
    REAL *to = s->to + channel * size, mean = s->mean[channel];
    double inverse = 1 / sqrt(s->variance[channel] + s->eps), to_bias = 0, to_weight = 0;
    for (i64 e = 0; e < s->examples; e++) {
        VEC plain = {0}, along = {0};
        EACH_VECTOR(p, there, size) {
            VEC x = READ(from + e * next, p, there), g = READ(grad + e * next, p, there), half = NAME(sigmoid)(x);
            NAME(store)(to + e * next + p, half, there); /* for the second time */
            plain += g, along += g * (x * half - mean);
        }
        to_bias += NAME(total)(plain), to_weight += NAME(total)(along);
    }
    to_weight *= inverse;
    s->to_bias[channel] = (REAL)to_bias, s->to_weight[channel] = (REAL)to_weight;
    double many = (double)s->examples * size, scale = s->weight[channel] * inverse;
    REAL a = (REAL)scale, b = (REAL)(scale * to_bias / many), c = (REAL)(scale * inverse * to_weight / many);
    for (i64 e = 0; e < s->examples; e++)
        EACH_VECTOR(p, there, size) {
            VEC x = READ(from + e * next, p, there), g = READ(grad + e * next, p, there);
            VEC half = READ(to + e * next, p, there), back = a * g - b - c * (x * half - mean);
            NAME(store)(to + e * next + p, back * half * (1 + x * (1 - half)), there);
        }
}

static void NAME(norm)(void *job) {
    NAME(Norm) *s = job;
    run_tasks(s->grad ? NAME(norm_channel_back) : NAME(norm_channel), s, s->channels, s->threads);
}
#undef EACH_VECTOR
#undef READ
