/* Shared weights in closed form: included by kernels.c, once for each number type and generation of processors.
 *
 * With the features of a pose, phi = (its numbers, the products x[c][d] x[c][e] for d <= e, 1), logits are inner products
 * with theta, and the moments of what each parent wins of the children follow from them:
 *
 *   moments[j][f] = sum_i used[i][j] phi[i][f],   used[i][j] = presence[i] softmax_j(theta[j] . phi[i])
 *
 * A tile of children at a time: neither features nor pairs are ever in memory. Parents are the lanes. */
typedef struct {
    i64 examples, children, pose_rows, columns, parents, threads;
    const REAL *pose, *presence; /* n i (c d), n i */
    const REAL *theta;           /* n j f; NULL: one parent, who wins everything */
    REAL *moments;               /* n j f; backward their gradient */
    REAL *to_pose, *to_presence, *to_theta;
    i64 back, parts, failed;
    VEC *shares; /* of each part in the moments, or in the gradient of theta: f j, or f of one parent */
} NAME(Closed);

#define CHILDREN_AT_ONCE 64
#define CHILDREN_OF_PART 1024 /* whatever the threads, so that results do not depend on them */

INLINE i64 NAME(count_features)(const NAME(Closed) *c) {
    return c->pose_rows * (c->columns + c->columns * (c->columns + 1) / 2) + 1;
}

INLINE i64 NAME(vectors_of)(i64 numbers) { return (numbers + LANES - 1) / LANES; }

/* out[m][n] += sum_k a[m * row + k * next] b[k][n] in registers; rows of `b` and `out` are `stride` vectors apart. */
INLINE void NAME(add_block)(
    const REAL *a, i64 row, i64 next, const VEC *b, VEC *out, i64 stride, i64 count, i64 tall, i64 wide
) {
    VEC sum[TALL][WIDE];
    EACH(m, tall) EACH(n, wide) sum[m][n] = out[m * stride + n];
    for (i64 k = 0; k < count; k++) {
        VEC at[WIDE];
        EACH(n, wide) at[n] = b[k * stride + n];
        EACH(m, tall) {
            VEC x = NAME(splat)(a[m * row + k * next]);
            EACH(n, wide) sum[m][n] += x * at[n];
        }
    }
    EACH(m, tall) EACH(n, wide) out[m * stride + n] = sum[m][n];
}

/* The same of so many rows and vectors. */
static void NAME(add_product)(const REAL *a, i64 row, i64 next, const VEC *b, VEC *out, i64 rows, i64 count, i64 vectors) {
    for (i64 v = 0; v < vectors; v += vectors - v >= WIDE ? WIDE : 1)
        for (i64 r = 0; r < rows; r += rows - r >= TALL ? TALL : 1) {
            i64 many = rows - r >= TALL, broad = vectors - v >= WIDE;
            VEC *to = out + r * vectors + v;
            if (many && broad) NAME(add_block)(a + r * row, row, next, b + v, to, vectors, count, TALL, WIDE);
            else if (many) NAME(add_block)(a + r * row, row, next, b + v, to, vectors, count, TALL, 1);
            else if (broad) NAME(add_block)(a + r * row, row, next, b + v, to, vectors, count, 1, WIDE);
            else NAME(add_block)(a + r * row, row, next, b + v, to, vectors, count, 1, 1);
        }
}

/* The features of so many children, `width` numbers apart. */
INLINE void NAME(find_features)(i64 c, i64 d, const REAL *restrict x, i64 children, i64 width, REAL *restrict to) {
    for (i64 i = 0; i < children; i++, x += c * d, to += width) {
        REAL *out = to + c * d;
        memcpy(to, x, c * d * sizeof(REAL));
        for (i64 row = 0; row < c; row++)
            for (i64 k = 0; k < d; k++)
                for (i64 l = k; l < d; l++) *out++ = x[row * d + k] * x[row * d + l];
        *out = 1;
    }
}

/* From the gradient of the features to that of the poses. */
INLINE void NAME(pull_features)(
    i64 c, i64 d, const REAL *restrict x, i64 children, i64 width, const REAL *restrict grad, REAL *restrict to
) {
    for (i64 i = 0; i < children; i++, x += c * d, grad += width, to += c * d) {
        const REAL *in = grad + c * d;
        memcpy(to, grad, c * d * sizeof(REAL));
        for (i64 row = 0; row < c; row++)
            for (i64 k = 0; k < d; k++)
                for (i64 l = k; l < d; l++, in++) {
                    to[row * d + k] += *in * x[row * d + l];
                    to[row * d + l] += *in * x[row * d + k];
                }
    }
}

/* Logits of one child to its shares, zero beyond the last parent. */
INLINE void NAME(share_child)(VEC *row, i64 parents, i64 vectors) {
    REAL *numbers = (REAL *)row;
    for (i64 j = parents; j < vectors * LANES; j++) numbers[j] = numbers[0];
    VEC most = row[0], total = {0};
    for (i64 v = 1; v < vectors; v++) most = NAME(larger)(row[v], most);
    REAL top = most[0];
    for (int l = 1; l < LANES; l++) top = most[l] > top ? most[l] : top;
    for (i64 v = 0; v < vectors; v++) row[v] = NAME(exp)(row[v] - top);
    for (i64 j = parents; j < vectors * LANES; j++) numbers[j] = 0;
    for (i64 v = 0; v < vectors; v++) total += row[v];
    REAL inverse = 1 / NAME(total)(total);
    for (i64 v = 0; v < vectors; v++) row[v] *= inverse;
}

/* (rows, columns), rows `width` numbers apart; or turned (columns, rows). */
INLINE void NAME(lay_out)(const REAL *from, i64 rows, i64 columns, VEC *to, i64 vectors, int turned) {
    REAL *out = (REAL *)to;
    for (i64 r = 0; r < rows; r++)
        for (i64 k = 0; k < columns; k++)
            out[turned ? k * vectors * LANES + r : r * vectors * LANES + k] = from[r * columns + k];
}

typedef struct { /* one task's room; a tile of children, and an example's matrices as left and as right factors */
    VEC *phi, *to_phi, *share, *used, *grad;
    VEC *theta, *theta_rows, *to_moments, *to_moment_rows;
} NAME(ClosedRoom);

/* One parent wins everything. */
INLINE void NAME(close_evenly)(const NAME(Closed) *c, const NAME(ClosedRoom) *r, i64 child, i64 here, i64 deep, VEC *sums) {
    for (i64 i = 0; i < here; i++) {
        REAL presence = c->presence[child + i];
        VEC along = {0};
        for (i64 v = 0; v < deep; v++)
            if (!c->back) sums[v] += presence * r->phi[i * deep + v];
            else {
                along += r->phi[i * deep + v] * r->to_moment_rows[v];
                r->to_phi[i * deep + v] = presence * r->to_moment_rows[v];
            }
        if (c->back) c->to_presence[child + i] = NAME(total)(along);
    }
}

/* A tile of children: what the parents win of them, and the way back. */
INLINE void NAME(close_tile)(const NAME(Closed) *c, const NAME(ClosedRoom) *r, i64 child, i64 here, VEC *sums) {
    i64 f = NAME(count_features)(c), vectors = NAME(vectors_of)(c->parents), deep = NAME(vectors_of)(f);
    const REAL *phi = (const REAL *)r->phi;
    memset(r->share, 0, here * vectors * sizeof(VEC));
    NAME(add_product)(phi, deep * LANES, 1, r->theta, r->share, here, f, vectors);
    for (i64 i = 0; i < here; i++) {
        NAME(share_child)(r->share + i * vectors, c->parents, vectors);
        for (i64 v = i * vectors; v < (i + 1) * vectors; v++) r->used[v] = c->presence[child + i] * r->share[v];
    }
    if (!c->back) {
        NAME(add_product)(phi, 1, deep * LANES, r->used, sums, f, here, vectors);
        return;
    }
    memset(r->grad, 0, here * vectors * sizeof(VEC));
    memset(r->to_phi, 0, here * deep * sizeof(VEC));
    NAME(add_product)(phi, deep * LANES, 1, r->to_moments, r->grad, here, f, vectors);
    NAME(add_product)((REAL *)r->used, vectors * LANES, 1, r->to_moment_rows, r->to_phi, here, c->parents, deep);
    for (i64 i = 0; i < here; i++) {
        VEC along = {0};
        for (i64 v = i * vectors; v < (i + 1) * vectors; v++) along += r->share[v] * r->grad[v];
        REAL all = NAME(total)(along);
        for (i64 v = i * vectors; v < (i + 1) * vectors; v++) r->grad[v] = r->used[v] * (r->grad[v] - all);
        c->to_presence[child + i] = all;
    }
    NAME(add_product)((REAL *)r->grad, vectors * LANES, 1, r->theta_rows, r->to_phi, here, c->parents, deep);
    NAME(add_product)(phi, 1, deep * LANES, r->grad, sums, f, here, vectors);
}

static void NAME(close_part)(void *argument, i64 task) {
    NAME(Closed) *c = argument;
    i64 f = NAME(count_features)(c), size = c->pose_rows * c->columns, vectors = NAME(vectors_of)(c->parents);
    i64 deep = NAME(vectors_of)(f), most = CHILDREN_AT_ONCE, n = task / c->parts, own = c->theta ? f * vectors : deep;
    i64 first = task % c->parts * CHILDREN_OF_PART, last = first + CHILDREN_OF_PART;
    i64 sizes[] = {
        most * deep, most * deep, most * vectors, most * vectors, most * vectors,
        f * vectors, c->parents * deep, f * vectors, c->parents * deep,
    }, all = 0;
    for (int k = 0; k < 9; k++) all += sizes[k];
    VEC *room = NAME(room)(all), *sums = c->shares + task * own, *parts[9];
    if (!room) {
        c->failed = 1;
        return;
    }
    memset(room, 0, all * sizeof(VEC)); /* beyond the last parent and feature there is nothing */
    memset(sums, 0, own * sizeof(VEC));
    for (i64 k = 0, at = 0; k < 9; at += sizes[k++]) parts[k] = room + at;
    NAME(ClosedRoom) r = {
        parts[0], parts[1], parts[2], parts[3], parts[4], parts[5], parts[6], parts[7], parts[8],
    };
    if (c->theta) {
        NAME(lay_out)(c->theta + n * c->parents * f, c->parents, f, r.theta, vectors, 1);
        NAME(lay_out)(c->theta + n * c->parents * f, c->parents, f, r.theta_rows, deep, 0);
    }
    if (c->back) {
        NAME(lay_out)(c->moments + n * c->parents * f, c->parents, f, r.to_moments, vectors, 1);
        NAME(lay_out)(c->moments + n * c->parents * f, c->parents, f, r.to_moment_rows, deep, 0);
    }
    if (last > c->children) last = c->children;
    for (i64 start = first; start < last; start += most) {
        i64 here = last - start < most ? last - start : most, child = n * c->children + start, d = c->columns;
        const REAL *x = c->pose + child * size;
        if (c->pose_rows == 4 && d == 4) NAME(find_features)(4, 4, x, here, deep * LANES, (REAL *)r.phi);
        else NAME(find_features)(c->pose_rows, d, x, here, deep * LANES, (REAL *)r.phi);
        if (c->theta) NAME(close_tile)(c, &r, child, here, sums);
        else NAME(close_evenly)(c, &r, child, here, deep, sums);
        if (!c->back) continue;
        const REAL *grad = (const REAL *)r.to_phi;
        if (c->pose_rows == 4 && d == 4) NAME(pull_features)(4, 4, x, here, deep * LANES, grad, c->to_pose + child * size);
        else NAME(pull_features)(c->pose_rows, d, x, here, deep * LANES, grad, c->to_pose + child * size);
    }
    free(room);
}

static void NAME(closed)(void *argument) {
    NAME(Closed) *c = argument;
    i64 f = NAME(count_features)(c), vectors = NAME(vectors_of)(c->parents);
    i64 own = c->theta ? f * vectors : NAME(vectors_of)(f);
    c->parts = (c->children + CHILDREN_OF_PART - 1) / CHILDREN_OF_PART;
    c->shares = NAME(room)(c->examples * c->parts * own);
    if (!c->shares) {
        c->failed = 1;
        return;
    }
    run_tasks(NAME(close_part), c, c->examples * c->parts, c->threads);
    REAL *to = c->back ? c->to_theta : c->moments;
    for (i64 n = 0; to && !c->failed && n < c->examples; n++)
        for (i64 j = 0; j < c->parents; j++)
            for (i64 k = 0; k < f; k++) {
                const REAL *from = (REAL *)(c->shares + n * c->parts * own) + (c->theta ? k * vectors * LANES + j : k);
                REAL sum = 0;
                for (i64 part = 0; part < c->parts; part++) sum += from[part * own * LANES];
                to[(n * c->parents + j) * f + k] = sum;
            }
    free(c->shares);
}
