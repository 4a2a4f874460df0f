/* Convolutions by an implicit matrix product: included by kernels.c, once for each number type and generation of
 * processors.
 *
 * Unfolded features are a matrix with a row for each tap of the window (channel, row, column) and a column for each
 * output. Laid out with its padding, an image holds every such row: tap k's begins at[k] numbers after the first tap's.
 * So nothing is unfolded, and rows run through whole planes: a position for each place of the window down and across,
 * a few of which at the end of each line are no outputs. A stride is undone by one plane for each place between steps.
 *
 *   forward     out[o][p]      = sum_k weight[o][k] image[at[k] + p]
 *   to weights  weight'[o][k]  = sum_p out'[o][p] image[at[k] + p]      out' is zero where there is no output
 *   to image    image'[at[k] + p] += sum_o weight[o][k] out'[o][p]                                                  */
typedef struct {
    i64 examples, in_channels, out_channels, rows, columns, high, wide, down, across, top, left, threads, back, parts;
    i64 failed;
    REAL *features;          /* example channel row column */
    const REAL *weight, *bias; /* output channel, then channel, row and column of the window; bias or null */
    REAL *outputs;           /* or, on the way back, their gradient */
    REAL *to_features;       /* or null */
    REAL *to_weight;         /* or null: the share of each part of the examples */
    REAL *packed;            /* weights in blocks of TALL_BLOCK rows, set here */
} NAME(Implicit);

/* Blocks that are multiplied in registers: rows of weights by vectors of positions, rows of gradients by taps. */
#if WIDE == 4
enum { NAME(TALL_BLOCK) = 6, NAME(WIDE_BLOCK) = 4, NAME(TALL_DOTS) = 4, NAME(WIDE_DOTS) = 6 };
#else
enum { NAME(TALL_BLOCK) = 6, NAME(WIDE_BLOCK) = 2, NAME(TALL_DOTS) = 3, NAME(WIDE_DOTS) = 3 };
#endif
#define TALL_BLOCK NAME(TALL_BLOCK)
#define WIDE_BLOCK NAME(WIDE_BLOCK)
#define TALL_DOTS NAME(TALL_DOTS)
#define WIDE_DOTS NAME(WIDE_DOTS)
#define FURTHER_TAPS (TALL_BLOCK + WIDE_DOTS) /* more than fill up a block */
#define POSITIONS_AT_ONCE 1024 /* their numbers stay in the caches while all blocks pass */

typedef struct {
    i64 out_rows, out_columns;
    i64 pitch, lines;     /* numbers in a line of a plane, lines in a plane */
    i64 positions, plane; /* whole vectors; the last ones and their taps are still in the plane */
    i64 image, taps;      /* numbers in all planes of an image; rows of the matrix */
} NAME(Grid);

INLINE i64 NAME(round_up)(i64 count, i64 by) { return (count + by - 1) / by * by; }

INLINE NAME(Grid) NAME(measure_grid)(const NAME(Implicit) *s) {
    NAME(Grid) z;
    i64 further_rows = (s->high - 1) / s->down, further_columns = (s->wide - 1) / s->across;
    z.out_rows = (s->rows + 2 * s->top - s->high) / s->down + 1;
    z.out_columns = (s->columns + 2 * s->left - s->wide) / s->across + 1;
    z.pitch = z.out_columns + further_columns, z.lines = z.out_rows + further_rows;
    z.positions = NAME(round_up)((z.out_rows - 1) * z.pitch + z.out_columns, WIDE_BLOCK * LANES);
    z.plane = NAME(round_up)(z.positions + further_rows * z.pitch + further_columns, LANES);
    z.image = s->in_channels * s->down * s->across * z.plane;
    z.taps = s->in_channels * s->high * s->wide;
    return z;
}

/* Where the rows of all taps begin; of those that fill up a block, anywhere. */
INLINE void NAME(find_taps)(const NAME(Implicit) *s, const NAME(Grid) *z, i64 *at) {
    for (i64 c = 0; c < s->in_channels; c++)
        for (i64 k = 0; k < s->high; k++)
            for (i64 l = 0; l < s->wide; l++) {
                i64 plane = (c * s->down + k % s->down) * s->across + l % s->across;
                *at++ = plane * z->plane + k / s->down * z->pitch + l / s->across;
            }
    for (i64 k = 0; k < FURTHER_TAPS; k++) *at++ = 0;
}

/* Images to planes, or planes back to images. */
INLINE void NAME(lay_planes)(const NAME(Implicit) *s, const NAME(Grid) *z, REAL *image, REAL *planes, i64 back) {
    i64 step = s->across;
    if (back && (z->lines * s->down < s->rows + s->top || z->pitch * step < s->columns + s->left))
        memset(image, 0, s->in_channels * s->rows * s->columns * sizeof(REAL)); /* pixels that no window sees */
    if (!back) memset(planes, 0, z->image * sizeof(REAL));
    for (i64 place = 0; place < s->in_channels * s->down * step; place++, planes += z->plane) {
        i64 channel = place / (s->down * step), v = place / step % s->down, u = place % step, shift = u - s->left;
        i64 first = shift < 0 ? (step - 1 - shift) / step : 0, last = (s->columns - shift + step - 1) / step;
        if (last > z->pitch) last = z->pitch;
        for (i64 y = 0; y < z->lines; y++) {
            i64 row = y * s->down + v - s->top;
            if (row < 0 || row >= s->rows) continue;
            REAL *line = planes + y * z->pitch, *pixels = image + (channel * s->rows + row) * s->columns + shift;
            if (last <= first) continue;
            if (step == 1 && back) memcpy(pixels + first, line + first, (last - first) * sizeof(REAL));
            else if (step == 1) memcpy(line + first, pixels + first, (last - first) * sizeof(REAL));
            else if (back) for (i64 x = first; x < last; x++) pixels[x * step] = line[x];
            else if (step == 2) _Pragma("omp simd") for (i64 x = first; x < last; x++) line[x] = pixels[x * 2];
            else for (i64 x = first; x < last; x++) line[x] = pixels[x * step];
        }
    }
}

/* `count` rows of a matrix in blocks of TALL_BLOCK: (block, column, row), zero beyond the last row. */
INLINE void NAME(pack_blocks)(const REAL *from, i64 count, i64 columns, i64 by_row, i64 by_column, REAL *to) {
    for (i64 first = 0; first < count; first += TALL_BLOCK)
        for (i64 k = 0; k < columns; k++)
            for (i64 r = first; r < first + TALL_BLOCK; r++) *to++ = r < count ? from[r * by_row + k * by_column] : 0;
}

INLINE VEC NAME(load_all)(const REAL *from) {
    VEC found;
    memcpy(&found, from, sizeof found);
    return found;
}

/* A block of weights times rows that begin at[k] numbers after `from`. */
INLINE void NAME(multiply_rows)(
    const REAL *weight, const REAL *from, const i64 *at, i64 count, VEC sum[TALL_BLOCK][WIDE_BLOCK]
) {
    for (i64 k = 0; k < count; k++, weight += TALL_BLOCK) {
        VEC seen[WIDE_BLOCK];
        EACH(v, WIDE_BLOCK) seen[v] = NAME(load_all)(from + at[k] + v * LANES);
        _Pragma("GCC unroll 6") for (i64 r = 0; r < TALL_BLOCK; r++)
            EACH(v, WIDE_BLOCK) sum[r][v] += weight[r] * seen[v];
    }
}

/* Some positions of an output channel, less those that are no outputs. */
INLINE void NAME(take_outputs)(const NAME(Grid) *z, const REAL *line, i64 first, i64 last, REAL bias, REAL *to) {
    for (i64 y = first / z->pitch; y < z->out_rows && y * z->pitch < last; y++) {
        i64 from = y * z->pitch, begin = first > from ? first - from : 0;
        i64 end = last - from < z->out_columns ? last - from : z->out_columns;
        const REAL *at = line + from - first;
        _Pragma("omp simd") for (i64 x = begin; x < end; x++) to[y * z->out_columns + x] = at[x] + bias;
    }
}

/* An example's outputs of one of `parts` of the channels. */
static void NAME(convolve_example)(void *job, i64 task) {
    NAME(Implicit) *s = job;
    NAME(Grid) z = NAME(measure_grid)(s);
    i64 example = task / s->parts, blocks = (s->out_channels + TALL_BLOCK - 1) / TALL_BLOCK, part = task % s->parts;
    VEC *room = NAME(room)((z.image + TALL_BLOCK * POSITIONS_AT_ONCE) / LANES);
    i64 *at = malloc((z.taps + FURTHER_TAPS) * sizeof(i64));
    if (!room || !at) s->failed = 1;
    else {
        REAL *planes = (REAL *)room, *lines = planes + z.image;
        REAL *outputs = s->outputs + example * s->out_channels * z.out_rows * z.out_columns;
        NAME(find_taps)(s, &z, at);
        NAME(lay_planes)(s, &z, s->features + example * s->in_channels * s->rows * s->columns, planes, 0);
        for (i64 first = 0; first < z.positions; first += POSITIONS_AT_ONCE) {
            i64 last = first + POSITIONS_AT_ONCE < z.positions ? first + POSITIONS_AT_ONCE : z.positions;
            for (i64 block = part * blocks / s->parts; block < (part + 1) * blocks / s->parts; block++) {
                for (i64 p = first; p < last; p += WIDE_BLOCK * LANES) {
                    VEC sum[TALL_BLOCK][WIDE_BLOCK] = {0};
                    NAME(multiply_rows)(s->packed + block * z.taps * TALL_BLOCK, planes + p, at, z.taps, sum);
                    _Pragma("GCC unroll 6") for (i64 r = 0; r < TALL_BLOCK; r++)
                        memcpy(lines + r * POSITIONS_AT_ONCE + p - first, sum[r], sizeof sum[r]);
                }
                for (i64 r = 0; r < TALL_BLOCK && block * TALL_BLOCK + r < s->out_channels; r++) {
                    i64 o = block * TALL_BLOCK + r;
                    NAME(take_outputs)(
                        &z, lines + r * POSITIONS_AT_ONCE, first, last, s->bias ? s->bias[o] : 0,
                        outputs + o * z.out_rows * z.out_columns
                    );
                }
            }
        }
    }
    free(room), free(at);
}

/* Gradients of all outputs times all taps of an example, added to those of the weights. */
INLINE void NAME(add_to_weights)(
    const NAME(Implicit) *s, const NAME(Grid) *z, const REAL *grads, const REAL *planes, const i64 *at, REAL *to_weight
) {
    for (i64 first = 0; first < z->positions; first += POSITIONS_AT_ONCE) {
        i64 last = first + POSITIONS_AT_ONCE < z->positions ? first + POSITIONS_AT_ONCE : z->positions;
        for (i64 o = 0; o < s->out_channels; o += TALL_DOTS)
            for (i64 k = 0; k < z->taps; k += WIDE_DOTS) {
                VEC sum[TALL_DOTS][WIDE_DOTS] = {0};
                const REAL *above = grads + o * z->positions, *below[WIDE_DOTS];
                for (i64 w = 0; w < WIDE_DOTS; w++) below[w] = planes + at[k + w];
                for (i64 p = first; p < last; p += LANES) {
                    VEC seen[WIDE_DOTS];
                    _Pragma("GCC unroll 6") for (i64 w = 0; w < WIDE_DOTS; w++) seen[w] = NAME(load_all)(below[w] + p);
                    EACH(t, TALL_DOTS) {
                        VEC grad = NAME(load_all)(above + t * z->positions + p);
                        _Pragma("GCC unroll 6") for (i64 w = 0; w < WIDE_DOTS; w++) sum[t][w] += grad * seen[w];
                    }
                }
                REAL found[TALL_DOTS][WIDE_DOTS];
                NAME(totals)(&sum[0][0], TALL_DOTS * WIDE_DOTS, &found[0][0]);
                for (i64 t = 0; t < TALL_DOTS && o + t < s->out_channels; t++)
                    for (i64 w = 0; w < WIDE_DOTS && k + w < z->taps; w++)
                        to_weight[(o + t) * z->taps + k + w] += found[t][w];
            }
    }
}

/* The gradient of an example's planes. */
INLINE void NAME(make_plane_grads)(
    const NAME(Implicit) *s, const NAME(Grid) *z, const REAL *grads, const i64 *at, const i64 *output_at, REAL *planes
) {
    i64 most = POSITIONS_AT_ONCE / 4; /* of all output channels */
    memset(planes, 0, z->image * sizeof(REAL));
    for (i64 first = 0; first < z->positions; first += most)
        for (i64 k = 0; k < z->taps; k += TALL_BLOCK)
            for (i64 p = first; p < first + most && p < z->positions; p += WIDE_BLOCK * LANES) {
                VEC sum[TALL_BLOCK][WIDE_BLOCK] = {0};
                NAME(multiply_rows)(s->packed + k * s->out_channels, grads + p, output_at, s->out_channels, sum);
                _Pragma("GCC unroll 6") for (i64 r = 0; r < TALL_BLOCK; r++) /* rows of zeros fill up the last block */
                    EACH(v, WIDE_BLOCK) {
                        REAL *to = planes + at[k + r] + p + v * LANES;
                        VEC now = NAME(load_all)(to) + sum[r][v];
                        memcpy(to, &now, sizeof now);
                    }
            }
}

/* The gradients of a part of the examples, and its share of the weights'. */
static void NAME(carry_examples)(void *job, i64 part) {
    NAME(Implicit) *s = job;
    NAME(Grid) z = NAME(measure_grid)(s);
    i64 pixels = s->in_channels * s->rows * s->columns, channels = NAME(round_up)(s->out_channels, TALL_DOTS);
    VEC *room = NAME(room)((z.image + channels * z.positions) / LANES);
    i64 *at = malloc((z.taps + FURTHER_TAPS + s->out_channels) * sizeof(i64)), *output_at = at + z.taps + FURTHER_TAPS;
    if (!room || !at) {
        s->failed = 1, free(room), free(at);
        return;
    }
    REAL *planes = (REAL *)room, *grads = planes + z.image;
    NAME(find_taps)(s, &z, at);
    for (i64 o = 0; o < s->out_channels; o++) output_at[o] = o * z.positions;
    memset(grads, 0, channels * z.positions * sizeof(REAL));
    for (i64 e = part * s->examples / s->parts; e < (part + 1) * s->examples / s->parts; e++) {
        for (i64 o = 0; o < s->out_channels; o++)
            for (i64 y = 0; y < z.out_rows; y++) {
                const REAL *from = s->outputs + ((e * s->out_channels + o) * z.out_rows + y) * z.out_columns;
                memcpy(grads + o * z.positions + y * z.pitch, from, z.out_columns * sizeof(REAL));
            }
        if (s->to_weight) {
            NAME(lay_planes)(s, &z, s->features + e * pixels, planes, 0);
            NAME(add_to_weights)(s, &z, grads, planes, at, s->to_weight + part * s->out_channels * z.taps);
        }
        if (s->to_features) {
            NAME(make_plane_grads)(s, &z, grads, at, output_at, planes);
            NAME(lay_planes)(s, &z, s->to_features + e * pixels, planes, 1);
        }
    }
    free(room), free(at);
}

static void NAME(implicit)(void *job) {
    NAME(Implicit) *s = job;
    i64 taps = s->in_channels * s->high * s->wide, rows = s->back ? taps : s->out_channels;
    s->packed = malloc(NAME(round_up)(rows, TALL_BLOCK) * (s->back ? s->out_channels : taps) * sizeof(REAL));
    if (!s->packed) s->failed = 1;
    else if (s->back) {
        NAME(pack_blocks)(s->weight, taps, s->out_channels, 1, taps, s->packed);
        run_tasks(NAME(carry_examples), s, s->parts, s->threads);
    } else {
        NAME(pack_blocks)(s->weight, s->out_channels, taps, taps, 1, s->packed);
        run_tasks(NAME(convolve_example), s, s->examples * s->parts, s->threads);
    }
    free(s->packed);
}
#undef TALL_BLOCK
#undef WIDE_BLOCK
#undef TALL_DOTS
#undef WIDE_DOTS
