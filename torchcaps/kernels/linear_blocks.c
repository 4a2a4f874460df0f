/* Blocks of D by H vote weights in registers: included by linear.c, once for each size of a block. Vote weights of other
 * sizes are several blocks. */
#define BLOCK_(name, d, h) name##_##d##x##h
#define BLOCK(name, d, h) BLOCK_(name, d, h)
#define SIZED(name) NAME(BLOCK(name, D, H))
#define ROW SIZED(row)       /* H components of a vote */
#define COLUMN SIZED(column) /* D components of a pose */
typedef REAL ROW __attribute__((vector_size(H * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));
typedef REAL COLUMN __attribute__((vector_size(D * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));

/* H components of the totals of so many parents for so many lines, from the first of each on. `even`: all children have
   the same scale. */
INLINE void SIZED(sum_some)(
    const NAME(Linear) *s, i64 lines, i64 parents, int even, i64 line, i64 parent, i64 component
) {
    i64 c = s->pose_rows, d = s->columns, h = s->out_columns, children = s->groups * s->types;
    i64 next_scale = s->scales == 1 ? 0 : children; /* that of the next parent */
    const REAL *x[LINES_AT_ONCE], *scale[LINES_AT_ONCE];
    UNROLL(n, lines) {
        i64 m = (line + n) / c, row = (line + n) % c;
        x[n] = s->pose + (m * children * c + row) * d;
        scale[n] = s->scale ? s->scale + m * s->scales * children + parent * next_scale : NULL;
    }
    ROW sum[LINES_AT_ONCE] = {{0}};
    for (i64 i = 0, type = 0; i < children; i++, type = type + 1 == s->types ? 0 : type + 1) {
        const REAL *w = s->weight + (type * s->parents + parent) * d * h + component;
        ROW votes[LINES_AT_ONCE] = {{0}}, *to = even ? sum : votes;
        for (i64 l = 0; l < d; l++)
            UNROLL(j, parents) {
                ROW part = *(const ROW *)(w + (j * d + l) * h);
                UNROLL(n, lines) to[j * lines + n] += x[n][l] * part;
            }
        if (!even)
            UNROLL(j, parents) UNROLL(n, lines) sum[j * lines + n] += scale[n][j * next_scale + i] * votes[j * lines + n];
        UNROLL(n, lines) x[n] += c * d;
    }
    UNROLL(j, parents) UNROLL(n, lines) {
        i64 m = (line + n) / c, row = (line + n) % c;
        ROW *to = (ROW *)(s->out + ((m * s->parents + parent + j) * c + row) * h + component);
        *to = (!even ? 1 : scale[n] ? scale[n][0] : (REAL)s->factor) * sum[j * lines + n];
    }
}

/* The same for all parents of one line. */
INLINE void SIZED(sum_line)(const NAME(Linear) *s, int even, i64 line, i64 component) {
    i64 parent = 0;
    for (; parent + PARENTS_AT_ONCE <= s->parents; parent += PARENTS_AT_ONCE)
        SIZED(sum_some)(s, 1, PARENTS_AT_ONCE, even, line, parent, component);
    for (; parent < s->parents; parent++) SIZED(sum_some)(s, 1, 1, even, line, parent, component);
}

/* The totals of LINES_AT_ONCE lines from this one on, or of those that are left. */
INLINE void SIZED(sum_lines)(const NAME(Linear) *s, i64 line) {
    i64 left = s->rows * s->pose_rows - line;
    int even = left >= LINES_AT_ONCE ? NAME(are_even)(s, line) : !s->scale;
    for (i64 component = 0; component < s->out_columns; component += H) {
        if (left >= LINES_AT_ONCE) {
            for (i64 parent = 0; parent < s->parents; parent++)
                if (even) SIZED(sum_some)(s, LINES_AT_ONCE, 1, 1, line, parent, component);
                else SIZED(sum_some)(s, LINES_AT_ONCE, 1, 0, line, parent, component);
            continue;
        }
        for (i64 n = 0; n < left; n++)
            if (even) SIZED(sum_line)(s, 1, line + n, component);
            else SIZED(sum_line)(s, 0, line + n, component);
    }
}

/* One line of all children together. */
INLINE void SIZED(pool_line)(const NAME(Linear) *s, i64 line, REAL *pooled) {
    i64 c = s->pose_rows, d = s->columns, m = line / c;
    for (i64 column = 0; column < d; column += D) {
        const REAL *x = s->pose + (m * s->groups * c + line % c) * d + column;
        const REAL *scale = s->scale ? s->scale + m * s->groups : NULL;
        COLUMN sum = {0};
        for (i64 group = 0; group < s->groups; group++, x += c * d)
            sum += (scale ? scale[group] : 1) * *(const COLUMN *)x;
        *(COLUMN *)(pooled + column) = (scale ? 1 : (REAL)s->factor) * sum;
    }
}

INLINE REAL SIZED(dot)(const REAL *x, const COLUMN *y) {
    COLUMN products = *(const COLUMN *)x * *y;
    REAL sum = 0;
    UNROLL(l, D) sum += products[l];
    return sum;
}

/* D by H weights, lines of which are `h` apart, column by column. */
INLINE void SIZED(turn)(const REAL *w, i64 h, REAL *turned) {
#if defined(SHUFFLES) && defined(__AVX512F__) && D * H >= 2 * LANES
    enum { COUNT = D * H / LANES };
    VEC part[COUNT], next[COUNT];
    UNROLL(l, D) memcpy((REAL *)part + l * H, w + l * h, H * sizeof(REAL));
    /* Number (l, k) is at place l H + k. Each step takes the last bit of all places to the front: in the end it is at k D + l. */
    UNROLL(step, H == 16 ? 4 : 2) {
        UNROLL(v, COUNT / 2) {
            next[v] = __builtin_shufflevector(part[2 * v], part[2 * v + 1], PAIRS(0));
            next[v + COUNT / 2] = __builtin_shufflevector(part[2 * v], part[2 * v + 1], PAIRS(1));
        }
        UNROLL(v, COUNT) part[v] = next[v];
    }
    memcpy(turned, part, sizeof(part));
#else
    UNROLL(k, H) UNROLL(l, D) turned[k * D + l] = w[l * h + k];
#endif
}

/* Gradients by one block of the weights of one type of child and one parent. Those of poses, of which `x` has the type's own
   one after the other, are added to `to_x`, those of scales to to_scale. */
INLINE void SIZED(carry_block)(
    const NAME(Linear) *s, i64 type, i64 parent, i64 column, i64 component, const REAL *x, REAL *to_x
) {
    i64 c = s->pose_rows, d = s->columns, h = s->out_columns;
    i64 groups = s->groups, types = s->types, children = groups * types;
    i64 block = (type * s->parents + parent) * d * h + column * h + component;
    COLUMN turned[H]; /* the weights, column by column */
    ROW sum[D] = {{0}};
    REAL room[D * H];
    SIZED(turn)(s->weight + block, h, room);
    UNROLL(k, H) turned[k] = *(const COLUMN *)(room + k * D);
    const REAL *scales = s->scale ? s->scale + (s->scales == 1 ? 0 : parent) * children + type : NULL;
    REAL *to_scales = s->to_scale ? s->to_scale + (s->scales == 1 ? 0 : parent) * children + type : NULL;
    i64 next_row = s->scales * children, next_child = s->scales ? 0 : s->types * c * h;
    const REAL *arriving = s->grad + (parent * (s->scales ? 1 : children) + (s->scales ? 0 : type)) * c * h + component;
    i64 next_grad = s->parents * (s->scales ? 1 : children) * c * h;
    x += column, to_x += column;
    for (i64 m = 0, rows = s->rows; m < rows; m++, arriving += next_grad)
        for (i64 group = 0; group < groups; group++) {
            i64 pair = m * next_row + group * types;
            REAL scale = scales ? scales[pair] : (REAL)s->factor;
            for (i64 row = 0; row < c; row++, x += d, to_x += d) {
                const REAL *g = arriving + group * next_child + row * h;
                ROW scaled = scale * *(const ROW *)g;
                COLUMN even = {0}, odd = {0}; /* two sums, so that one need not wait for the other */
                UNROLL(k, H) *(k % 2 ? &odd : &even) += g[k] * turned[k];
                UNROLL(l, D) sum[l] += x[l] * scaled;
                COLUMN found = even + odd;
                *(COLUMN *)to_x += scale * found;
                if (to_scales) to_scales[pair] += SIZED(dot)(x, &found);
            }
        }
    UNROLL(l, D) *(ROW *)(s->to_weight + block + l * h) = sum[l];
}

INLINE void SIZED(carry_pair)(const NAME(Linear) *s, i64 type, i64 parent, const REAL *x, REAL *to_x) {
    for (i64 column = 0; column < s->columns; column += D)
        for (i64 component = 0; component < s->out_columns; component += H)
            SIZED(carry_block)(s, type, parent, column, component, x, to_x);
}

#undef BLOCK_
#undef BLOCK
#undef SIZED
#undef ROW
#undef COLUMN
#undef D
#undef H
