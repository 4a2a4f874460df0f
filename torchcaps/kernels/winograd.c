/* Windows of 3x3 by Winograd's transforms: included by kernels.c, once for each number type and generation of processors.
 *
 * A tile of 4x4 outputs sees 6x6 inputs. In one dimension, outputs = A' (G weights * B' inputs), with matrices that
 * evaluate polynomials at 0, 3/4, -3/4, 3/2, -3/2 and infinity, so that a tile takes 36 products for each pair of
 * channels instead of 144. The products are matrix products over the channels, made elsewhere; here are the transforms
 * of images to points, (point, channel, example tile), and back:
 *
 *   SEE      the inputs of every tile, B' (6x6) B        SEE_BACK     points to the gradient of images: B (6x6) B'
 *   ANSWER   points to the outputs, A' (6x6) A           ANSWER_BACK  the gradient of outputs to points: A (4x4) A'
 *
 * Tiles are the lanes. An image is first split by the place of a pixel in its tile, so that what tiles have at one place
 * lies side by side. */
#ifndef WINOGRAD_STEPS
#define WINOGRAD_STEPS
enum { SEE, SEE_BACK, ANSWER, ANSWER_BACK };
#define MOST_TILES 256 /* of one plane at once: their numbers stay in the first caches */
#define BEYOND (LANES > 4 ? LANES : 4) /* tiles after the last: they go by vectors, and by fours */
#endif

typedef struct {
    i64 examples, channels, rows, columns, top, left, tiles_down, tiles_across, step, threads;
    REAL *image;  /* example channel row column */
    REAL *points; /* point channel (example tile) */
} NAME(Winograd);

/* B' of six numbers, in place. */
INLINE void NAME(see)(VEC *d, i64 by) {
    const REAL a = 0.75, b = 1.5, aa = a * a, bb = b * b;
    VEC d0 = d[0], d1 = d[by], d2 = d[2 * by], d3 = d[3 * by], d4 = d[4 * by], d5 = d[5 * by];
    VEC even = d4 - bb * d2, odd = a * (d3 - bb * d1), further = d4 - aa * d2, oddly = b * (d3 - aa * d1);
    d[0] = aa * bb * d0 - (aa + bb) * d2 + d4;
    d[by] = even + odd, d[2 * by] = even - odd, d[3 * by] = further + oddly, d[4 * by] = further - oddly;
    d[5 * by] = aa * bb * d1 - (aa + bb) * d3 + d5;
}

/* B of six numbers, in place: the transpose. */
INLINE void NAME(see_back)(VEC *d, i64 by) {
    const REAL a = 0.75, b = 1.5, aa = a * a, bb = b * b;
    VEC d0 = d[0], d5 = d[5 * by], even = d[by] + d[2 * by], odd = a * (d[by] - d[2 * by]);
    VEC further = d[3 * by] + d[4 * by], oddly = b * (d[3 * by] - d[4 * by]);
    d[0] = aa * bb * d0;
    d[by] = aa * bb * d5 - bb * odd - aa * oddly;
    d[2 * by] = -(aa + bb) * d0 - bb * even - aa * further;
    d[3 * by] = odd + oddly - (aa + bb) * d5;
    d[4 * by] = d0 + even + further;
    d[5 * by] = d5;
}

/* A' of six numbers: four. */
INLINE void NAME(answer)(VEC *d, i64 by) {
    const REAL a = 0.75, b = 1.5;
    VEC even = d[by] + d[2 * by], odd = a * (d[by] - d[2 * by]), far = d[3 * by] + d[4 * by];
    VEC oddly = b * (d[3 * by] - d[4 * by]);
    d[0] = d[0] + even + far;
    d[by] = odd + oddly;
    d[2 * by] = a * a * even + b * b * far;
    d[3 * by] = a * a * odd + b * b * oddly + d[5 * by];
}

/* A of four numbers: six. */
INLINE void NAME(answer_back)(VEC *d, i64 by) {
    const REAL a = 0.75, b = 1.5;
    VEC d0 = d[0], d3 = d[3 * by], odd = a * (d[by] + a * a * d3), oddly = b * (d[by] + b * b * d3);
    VEC even = d0 + a * a * d[2 * by], far = d0 + b * b * d[2 * by];
    d[by] = even + odd, d[2 * by] = even - odd, d[3 * by] = far + oddly, d[4 * by] = far - oddly, d[5 * by] = d3;
}

/* Four tiles of four pixels each, turned: four places of four tiles each; and the other way round. */
typedef REAL NAME(quad) __attribute__((vector_size(4 * sizeof(REAL))));

INLINE NAME(quad) NAME(load_quad)(const REAL *from) {
    NAME(quad) found;
    memcpy(&found, from, sizeof found);
    return found;
}

INLINE void NAME(turn_quads)(NAME(quad) q[4]) {
#ifdef SHUFFLES
    NAME(quad) a = __builtin_shufflevector(q[0], q[1], 0, 4, 1, 5), b = __builtin_shufflevector(q[0], q[1], 2, 6, 3, 7);
    NAME(quad) c = __builtin_shufflevector(q[2], q[3], 0, 4, 1, 5), d = __builtin_shufflevector(q[2], q[3], 2, 6, 3, 7);
    q[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5), q[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
    q[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5), q[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
#else
    NAME(quad) from[4] = {q[0], q[1], q[2], q[3]};
    EACH(k, 4) q[k] = (NAME(quad)){from[0][k], from[1][k], from[2][k], from[3][k]};
#endif
}

/* The pixels of a strip of tiles by their place in a tile of `size`, `place[k][l][tile]`; zero outside of the image. */
INLINE void NAME(split)(const NAME(Winograd) *w, const REAL *plane, i64 first, i64 down, i64 size, i64 room, REAL *place) {
    i64 across = w->tiles_across, width = 4 * across + size - 4;
    i64 there = w->left + w->columns < width ? w->columns : width - w->left;
    REAL line[4 * across + 20]; /* tiles are read by fours, and what they see of the next one */
    memset(line, 0, sizeof line);
    for (i64 k = 0; k < 4; k++) /* rows 4 and 5 of a tile are rows 0 and 1 of the next one */
        for (i64 y = 0; y < down + (k < size - 4); y++) {
            i64 row = 4 * (first + y) + k - w->top;
            REAL *to = place + k * size * room + y * across;
            if (row < 0 || row >= w->rows) {
                for (i64 l = 0; l < size; l++) memset(to + l * room, 0, across * sizeof(REAL));
                continue;
            }
            const REAL *from = plane + row * w->columns;
            memcpy(line + w->left, from, there * sizeof(REAL));
            for (i64 x = 0; x < across; x += 4) { /* what is beyond a row is overwritten by the next one */
                NAME(quad) q[4];
                EACH(l, 4) q[l] = NAME(load_quad)(line + 4 * (x + l));
                NAME(turn_quads)(q);
                EACH(l, 4) memcpy(to + l * room + x, q + l, sizeof q[l]);
                if (size == 4) continue;
                EACH(l, 4) q[l] = NAME(load_quad)(line + 4 * (x + l + 1));
                NAME(turn_quads)(q);
                EACH(l, 2) memcpy(to + (4 + l) * room + x, q + l, sizeof q[l]);
            }
        }
}

INLINE void NAME(see_plane)(const NAME(Winograd) *w, i64 task, i64 first, i64 down, i64 size) {
    i64 across = w->tiles_across, tiles = w->tiles_down * across, many = w->examples * tiles, here = down * across;
    i64 example = task / w->channels, channel = task % w->channels, room = here + across + BEYOND;
    REAL place[4 * size * room];
    NAME(split)(w, w->image + task * w->rows * w->columns, first, down, size, room, place);
    REAL *to = w->points + channel * many + example * tiles + first * across;
    i64 next = w->channels * many;
    for (i64 f = 0; f < here; f += LANES) {
        VEC d[36];
        for (i64 l = 0; l < size; l++) {
            for (i64 k = 0; k < size; k++)
                memcpy(d + 6 * k + l, place + ((k & 3) * size + l) * room + f + (k >> 2) * across, sizeof(VEC));
            if (size == 6) NAME(see)(d + l, 6);
            else NAME(answer_back)(d + l, 6);
        }
        _Pragma("GCC unroll 6") for (i64 k = 0; k < 6; k++) {
            if (size == 6) NAME(see)(d + 6 * k, 1);
            else NAME(answer_back)(d + 6 * k, 1);
            for (i64 l = 0; l < 6; l++) NAME(store)(to + (6 * k + l) * next + f, d[6 * k + l], here - f);
        }
    }
}

/* Points of a strip of tiles to its pixels by their place in a tile of `size`: 4 for outputs, 6 for gradients of inputs. */
INLINE void NAME(join)(const NAME(Winograd) *w, i64 task, i64 first, i64 here, i64 size, i64 room, REAL *place) {
    i64 across = w->tiles_across, tiles = w->tiles_down * across, many = w->examples * tiles, next = w->channels * many;
    const REAL *from = w->points + task % w->channels * many + task / w->channels * tiles + first * across;
    for (i64 f = 0; f < here; f += LANES) {
        VEC d[36];
        for (i64 l = 0; l < 6; l++) {
            for (i64 k = 0; k < 6; k++) d[6 * k + l] = NAME(load)(from + (6 * k + l) * next + f, here - f, here - f);
            if (size == 6) NAME(see_back)(d + l, 6);
            else NAME(answer)(d + l, 6);
        }
        _Pragma("GCC unroll 6") for (i64 k = 0; k < size; k++) {
            if (size == 6) NAME(see_back)(d + 6 * k, 1);
            else NAME(answer)(d + 6 * k, 1);
            for (i64 l = 0; l < size; l++) memcpy(place + (size * k + l) * room + f, d + 6 * k + l, sizeof(VEC));
        }
    }
}

static void NAME(answer_plane)(const NAME(Winograd) *w, i64 task, i64 first, i64 down) {
    i64 across = w->tiles_across, room = down * across + BEYOND;
    REAL place[16 * room];
    NAME(join)(w, task, first, down * across, 4, room, place);
    REAL *plane = w->image + task * w->rows * w->columns;
    for (i64 y = 0; y < down; y++)
        for (i64 k = 0; k < 4 && 4 * (first + y) + k < w->rows; k++) {
            REAL *to = plane + (4 * (first + y) + k) * w->columns;
            const REAL *at = place + 4 * k * room + y * across;
            i64 x = 0;
            for (; 4 * x + 16 <= w->columns; x += 4) {
                NAME(quad) q[4];
                EACH(l, 4) q[l] = NAME(load_quad)(at + l * room + x);
                NAME(turn_quads)(q);
                memcpy(to + 4 * x, q, sizeof q);
            }
            for (x *= 4; x < w->columns; x++) to[x] = at[x % 4 * room + x / 4];
        }
}

/* Two rows and columns of a tile are also its neighbors': they are added there, those of the last tiles to `edge`. */
INLINE void NAME(add_overlaps)(i64 down, i64 across, i64 room, REAL *place, REAL *edge) {
    i64 here = down * across;
    for (i64 k = 0; k < 2; k++)
        for (i64 l = 0; l < 6; l++) {
            REAL *to = place + (6 * k + l) * room + across;
            const REAL *from = place + (6 * (k + 4) + l) * room;
            _Pragma("omp simd") for (i64 t = 0; t < here - across; t++) to[t] += from[t];
        }
    for (i64 k = 0; k < 6; k++)
        for (i64 l = 0; l < 2; l++) {
            REAL *to = place + (6 * k + l) * room + 1, *from = place + (6 * k + l + 4) * room;
            for (i64 y = 0; y < down; y++) {
                edge[2 * (6 * y + k) + l] = from[y * across + across - 1];
                from[y * across + across - 1] = 0;
            }
            _Pragma("omp simd") for (i64 t = 0; t < here - 1; t++) to[t] += from[t];
        }
}

static void NAME(see_back_plane)(const NAME(Winograd) *w, i64 task, i64 first, i64 down) {
    i64 across = w->tiles_across, room = down * across + BEYOND, width = 4 * across + 16; /* written by fours of tiles */
    REAL place[36 * room], edge[12 * down], lines[(4 * down + 2) * width];
    NAME(join)(w, task, first, down * across, 6, room, place);
    NAME(add_overlaps)(down, across, room, place, edge);
    for (i64 row = 0; row < 4 * down + 2; row++) {
        i64 y = row / 4 < down ? row / 4 : down - 1, k = row - 4 * y;
        const REAL *at = place + 6 * k * room + y * across;
        for (i64 x = 0; x < across; x += 4) {
            NAME(quad) q[4];
            EACH(l, 4) q[l] = NAME(load_quad)(at + l * room + x);
            NAME(turn_quads)(q);
            memcpy(lines + row * width + 4 * x, q, sizeof q);
        }
        EACH(l, 2) lines[row * width + 4 * across + l] = edge[2 * (6 * y + k) + l];
    }
    for (i64 row = 0; row < 4 * down + 2; row++) {
        i64 to = 4 * first + row - w->top;
        if (to < 0 || to >= w->rows) continue;
        REAL *pixels = w->image + (task * w->rows + to) * w->columns;
        const REAL *line = lines + row * width + w->left;
        if (first == 0 || row > 1) memcpy(pixels, line, w->columns * sizeof(REAL));
        else _Pragma("omp simd") for (i64 x = 0; x < w->columns; x++) pixels[x] += line[x]; /* of the strip above too */
    }
}

static void NAME(transform_plane)(void *job, i64 task) {
    const NAME(Winograd) *w = job;
    i64 most = MOST_TILES / w->tiles_across;
    if (most < 1) most = 1;
    for (i64 first = 0; first < w->tiles_down; first += most) {
        i64 down = w->tiles_down - first < most ? w->tiles_down - first : most;
        if (w->step == SEE) NAME(see_plane)(w, task, first, down, 6);
        else if (w->step == ANSWER_BACK) NAME(see_plane)(w, task, first, down, 4);
        else if (w->step == ANSWER) NAME(answer_plane)(w, task, first, down);
        else NAME(see_back_plane)(w, task, first, down);
    }
}

static void NAME(winograd)(void *job) {
    NAME(Winograd) *w = job;
    run_tasks(NAME(transform_plane), w, w->examples * w->channels, w->threads);
}
