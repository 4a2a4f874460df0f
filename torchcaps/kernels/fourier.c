/* Convolutions by Fourier transforms: included by kernels.c, once for each number type and generation of processors.
 *
 * A convolution on a grid is a product for each of its frequencies. Here are the transforms of planes to points,
 * (point, image, channel), and back; the products over channels are matrix products, made elsewhere.
 *
 * A plane of a stride of `down` and `across` is as many grids, one for each place in a step, and these are further
 * channels: (place, channel). Rows and columns are transformed one after the other, by real matrices whose rows are
 * cosines and sines of a frequency. Where one of both has a frequency with a sine, the sums of both give complex numbers
 * re - i im. The product of two of them takes three real ones, and what this needs is part of the transforms:
 *
 *   features a + ib, a = re, b = -im          points a + b, a, b
 *   turned window c + id, c = re, d = im      points c, d - c, c + d
 *   p, q, r of the products of these          p - r + i (p + q) back to outputs
 *
 * Channels are the lanes. */
#ifndef FOURIER_KINDS
#define FOURIER_KINDS
enum { FEATURES, WINDOW, OUTPUTS };
#endif

typedef struct {
    i64 images, channels, rows, columns; /* of the tensor */
    i64 first, many;                     /* channels that are transformed */
    i64 top, left, down, across;         /* zeros before rows and columns; stride */
    i64 there_down, there_across;        /* positions of the grid that planes have */
    i64 high, wide;                      /* the grid */
    i64 kind, back, channels_last, threads, failed;
    i64 next;                              /* numbers from one point to the next */
    REAL *image;                           /* image channel row column, or image row column channel */
    REAL *points;                          /* point image (place channel) */
    const REAL *for_rows, *for_columns;    /* frequency position: those without a sine, then pairs of cosine and sine */
} NAME(Fourier);

/* to[k] = sum_x matrix[k][x] from[x] for a few k. */
INLINE void NAME(multiply_few)(
    const REAL *matrix, i64 by_k, i64 by_x, i64 few, i64 count, const VEC *from, i64 from_by, VEC *to, i64 to_by
) {
    VEC sum[5] = {0};
    for (i64 x = 0; x < count; x++) {
        VEC at = from[x * from_by];
        _Pragma("GCC unroll 5") for (i64 k = 0; k < few; k++) sum[k] += matrix[k * by_k + x * by_x] * at;
    }
    _Pragma("GCC unroll 5") for (i64 k = 0; k < few; k++) to[k * to_by] = sum[k];
}

INLINE void NAME(multiply)(
    const REAL *matrix, i64 by_k, i64 by_x, i64 results, i64 count, const VEC *from, i64 from_by, VEC *to, i64 to_by
) {
    i64 k = 0;
    for (; k + 5 <= results; k += 5, matrix += 5 * by_k, to += 5 * to_by)
        NAME(multiply_few)(matrix, by_k, by_x, 5, count, from, from_by, to, to_by);
    if (results - k == 4) NAME(multiply_few)(matrix, by_k, by_x, 4, count, from, from_by, to, to_by);
    else if (results - k == 3) NAME(multiply_few)(matrix, by_k, by_x, 3, count, from, from_by, to, to_by);
    else if (results - k == 2) NAME(multiply_few)(matrix, by_k, by_x, 2, count, from, from_by, to, to_by);
    else if (results - k == 1) NAME(multiply_few)(matrix, by_k, by_x, 1, count, from, from_by, to, to_by);
}

/* The three points of a complex number, or the number of its points; `at` goes on to the next. */
INLINE void NAME(exchange)(i64 kind, i64 back, VEC *re, VEC *im, REAL **at, i64 next, i64 there) {
    REAL *to = *at;
    *at += 3 * next;
    VEC p, q, r;
    if (back) {
        p = NAME(load)(to, there, there), q = NAME(load)(to + next, there, there);
        r = NAME(load)(to + 2 * next, there, there);
        if (kind == FEATURES) *re = p + q, *im = -p - r;
        else if (kind == WINDOW) *re = p - q + r, *im = q + r;
        else *re = 2 * (p - r), *im = -2 * (p + q);
        return;
    }
    if (kind == FEATURES) p = *re - *im, q = *re, r = -*im;
    else if (kind == WINDOW) p = *re, q = *im - *re, r = *re + *im;
    else p = 2 * (*re - *im), q = -2 * *im, r = -2 * *re;
    NAME(store)(to, p, there), NAME(store)(to + next, q, there), NAME(store)(to + 2 * next, r, there);
}

/* The points of the cosines and sines of a grid, or these of the points. */
INLINE void NAME(exchange_grid)(const NAME(Fourier) *w, i64 back, VEC *grid, REAL *at, i64 there) {
    i64 wide = w->wide, plain_down = 2 - w->high % 2, plain_across = 2 - wide % 2; /* frequencies without a sine */
    for (i64 l = 0; l < w->high; l += l < plain_down ? 1 : 2)
        for (i64 k = 0; k < wide; k += k < plain_across ? 1 : 2) {
            VEC *cc = grid + l * wide + k, *cs = cc + 1, *sc = cc + wide, *ss = sc + 1;
            if (l < plain_down && k < plain_across) {
                if (back) *cc = NAME(load)(at, there, there);
                else NAME(store)(at, *cc, there);
                at += w->next;
            } else if (l < plain_down || k < plain_across) {
                NAME(exchange)(w->kind, back, cc, l < plain_down ? cs : sc, &at, w->next, there);
            } else { /* the frequencies (l, k) and (l, -k) */
                VEC re = *cc - *ss, im = *sc + *cs, other = *cc + *ss, turned = *sc - *cs;
                NAME(exchange)(w->kind, back, &re, &im, &at, w->next, there);
                NAME(exchange)(w->kind, back, &other, &turned, &at, w->next, there);
                if (back) *cc = re + other, *ss = other - re, *sc = im + turned, *cs = im - turned;
            }
        }
}

/* Positions of a grid that lie in the plane, for one place in a step. */
INLINE void NAME(find_there)(i64 size, i64 before, i64 step, i64 place, i64 positions, i64 *first, i64 *last) {
    *first = before > place ? (before - place + step - 1) / step : 0;
    *last = size + before > place ? (size + before - place + step - 1) / step : 0;
    if (*last > positions) *last = positions;
    if (*first > *last) *first = *last;
}

/* One vector of channels of an image: all its grids, to points or back. */
INLINE void NAME(exchange_planes)(const NAME(Fourier) *w, i64 back, VEC *plane, VEC *lines, VEC *grid, REAL *points, i64 there) {
    i64 high = w->high, wide = w->wide, columns = w->columns;
    for (i64 v = 0; v < w->down; v++)
        for (i64 u = 0; u < w->across; u++, points += w->many) {
            i64 top, bottom, left, right;
            NAME(find_there)(w->rows, w->top, w->down, v, w->there_down, &top, &bottom);
            NAME(find_there)(columns, w->left, w->across, u, w->there_across, &left, &right);
            const REAL *rows = w->for_rows + top, *across = w->for_columns + left;
            VEC *corner = plane + (top * w->down + v - w->top) * columns + left * w->across + u - w->left;
            if (back) {
                NAME(exchange_grid)(w, 1, grid, points, there);
                for (i64 k = 0; k < wide; k++)
                    NAME(multiply)(rows, 1, high, bottom - top, high, grid + k, wide, lines + k, wide);
                for (i64 y = 0; y < bottom - top; y++)
                    NAME(multiply)(
                        across, 1, wide, right - left, wide, lines + y * wide, 1, corner + y * w->down * columns, w->across
                    );
            } else {
                for (i64 y = 0; y < bottom - top; y++)
                    NAME(multiply)(
                        across, wide, 1, wide, right - left, corner + y * w->down * columns, w->across, lines + y * wide, 1
                    );
                for (i64 k = 0; k < wide; k++)
                    NAME(multiply)(rows, high, 1, high, bottom - top, lines + k, wide, grid + k, wide);
                NAME(exchange_grid)(w, 0, grid, points, there);
            }
        }
}

/* Planes of LANES channels, `size` apart, with the channels innermost, or these back to planes. */
INLINE void NAME(turn_planes)(REAL *image, i64 size, i64 there, VEC *plane, i64 back) {
    i64 whole = size / 4 * 4;
    for (i64 l = 0; l < there; l += 4) {
        i64 few = there - l < 4 ? there - l : 4;
        for (i64 p = 0; p < whole; p += 4) {
            NAME(quad) q[4];
            if (back) EACH(k, 4) q[k] = NAME(load_quad)((REAL *)(plane + p + k) + l);
            else EACH(k, 4) q[k] = NAME(load_quad)(image + (l + (k < few ? k : 0)) * size + p);
            NAME(turn_quads)(q);
            if (!back) EACH(k, 4) memcpy((REAL *)(plane + p + k) + l, q + k, sizeof q[k]);
            else for (i64 k = 0; k < few; k++) memcpy(image + (l + k) * size + p, q + k, sizeof q[k]);
        }
        for (i64 p = whole; p < size; p++)
            for (i64 k = 0; k < few; k++) {
                REAL *inner = (REAL *)(plane + p) + l + k, *outer = image + (l + k) * size + p;
                if (back) *outer = *inner;
                else *inner = *outer;
            }
    }
}

static void NAME(exchange_image)(void *job, i64 task) {
    NAME(Fourier) *w = job;
    i64 size = w->rows * w->columns, lines = w->there_down * w->wide;
    VEC *plane = NAME(room)(size + lines + w->high * w->wide);
    if (!plane) {
        w->failed = 1;
        return;
    }
    for (i64 channel = 0; channel < w->many; channel += LANES) {
        i64 there = w->many - channel < LANES ? w->many - channel : LANES;
        REAL *points = w->points + task * w->down * w->across * w->many + channel;
        i64 at = w->first + channel; /* beyond the images before */
        REAL *image = w->image + task * w->channels * size + (w->channels_last ? at : at * size);
        if (w->back) {
            memset(plane, 0, size * sizeof(VEC)); /* pixels that no window sees */
            NAME(exchange_planes)(w, 1, plane, plane + size, plane + size + lines, points, there);
            if (!w->channels_last) NAME(turn_planes)(image, size, there, plane, 1);
            else for (i64 p = 0; p < size; p++) NAME(store)(image + p * w->channels, plane[p], there);
        } else {
            if (!w->channels_last) NAME(turn_planes)(image, size, there, plane, 0);
            else for (i64 p = 0; p < size; p++) plane[p] = NAME(load)(image + p * w->channels, there, there);
            NAME(exchange_planes)(w, 0, plane, plane + size, plane + size + lines, points, there);
        }
    }
    free(plane);
}

static void NAME(fourier)(void *job) {
    NAME(Fourier) *w = job;
    run_tasks(NAME(exchange_image), w, w->images, w->threads);
}
