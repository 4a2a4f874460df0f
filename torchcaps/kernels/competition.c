/* Who competes for a child: included by kernels.c, once for each number type and generation of processors.
 *
 * The softmax over all parents that see a child. Logits and shares are n q j i, what belongs to
 * children is n q i. Where fields overlap, `child_of` says which child of the grid is at each place of each field, and
 * `seen_by` at which places (field, place) a child is. */
typedef struct {
    i64 examples, positions, parents, children; /* of one field */
    i64 places, spots, watchers;                /* k in a field, s in the grid, m that may see one child */
    const i64 *child_of, *seen_by;              /* q k -> s; s m -> q k, or all of them: nobody; NULL: no overlap */
    const unsigned char *there;                 /* q i; NULL: all are there */
    i64 orphan, in_logs, threads; /* in_logs: `mass` is the logarithm of it */
    const REAL *logits, *present; /* n q j i; logarithms n q i, only with `mass`. -inf keeps a child from a parent. */
    REAL *share, *mass;           /* n q j i; n q j; NULL: shares of the child, else of the mass of the parent */
    REAL *peak, *sum; /* n q i: the largest logit of a child, and the sum of exp(logit - peak): its inverse, or with
                         `mass` its logarithm */
    const REAL *to_share, *to_mass;
    REAL *to_logits, *to_present;
    i64 rows_of_task, failed;
} NAME(Competition);

INLINE VEC NAME(pick)(NAME(mask) which, VEC one, VEC other) {
    return (VEC)((which & (NAME(mask))one) | (~which & (NAME(mask))other));
}

INLINE VEC NAME(larger)(VEC one, VEC other) { return NAME(pick)(one > other, one, other); }

/* e^x of numbers up to zero: 2^n by the bits of n, and a series for the rest; zero where it would be subnormal. */
INLINE VEC NAME(exp)(VEC x) {
    static const double inverse[] = { /* of factorials */
        1, 1, 1 / 2., 1 / 6., 1 / 24., 1 / 120., 1 / 720., 1 / 5040., 1 / 40320., 1 / 362880., 1 / 3628800.,
        1 / 39916800., 1 / 479001600., 1 / 6227020800.,
    };
    int single = sizeof(REAL) == 4, bits = single ? 23 : 52, bias = single ? 127 : 1023, terms = single ? 7 : 13;
    REAL shift = single ? 12582912.0 : 6755399441055744.0; /* 1.5 * 2^bits: numbers of this size are whole */
    VEC shifted = x * (REAL)1.4426950408889634 + shift, whole = shifted - shift;
    VEC rest = x - whole * (single ? (REAL)0.693359375 : (REAL)0.693147180369123816490);
    rest -= whole * (single ? (REAL)-2.12194440e-4 : (REAL)1.90821492927058770002e-10);
    VEC series = NAME(splat)((REAL)inverse[terms]);
    _Pragma("GCC unroll 16") for (int k = terms - 1; k >= 0; k--) series = series * rest + (REAL)inverse[k];
    VEC power = (VEC)(((NAME(mask))shifted + bias) << bits);
    return NAME(pick)(x < (single ? (REAL)-87.3 : (REAL)-708.3), (VEC){0}, series * power);
}

/* `count` numbers at `from`, of which the vector at `first` is read; absent ones are zero. */
INLINE VEC NAME(at)(const REAL *from, i64 first, i64 count) { return NAME(load)(from + first, count - first, 0); }

/* The logarithm of the share of a parent that a child is kept from, and other numbers far below all that count. */
#define KEPT (sizeof(REAL) == 4 ? (REAL)-1.7e38 : (REAL)-8.9e307)
INLINE NAME(mask) NAME(is_kept)(VEC logits) { return logits < (sizeof(REAL) == 4 ? (REAL)-3.4e38 : (REAL)-1.7e308); }

/* The largest logit and the sum of exponentials of each child of one field. */
INLINE void NAME(sum_field)(const NAME(Competition) *c, const REAL *logits, REAL *peak, REAL *sum) {
    for (i64 i = 0; i < c->children; i += LANES) {
        VEC most = NAME(at)(logits, i, c->children), total = {0};
        for (i64 j = 1; j < c->parents; j++) most = NAME(larger)(NAME(at)(logits + j * c->children, i, c->children), most);
        most = NAME(pick)(NAME(is_kept)(most), NAME(splat)(KEPT), most); /* kept from all of them */
        for (i64 j = 0; j < c->parents; j++) total += NAME(exp)(NAME(at)(logits + j * c->children, i, c->children) - most);
        NAME(store)(peak + i, most, c->children - i);
        NAME(store)(sum + i, total, c->children - i);
    }
}

/* From the sums of the exponentials of so many children to what is kept of them. */
INLINE void NAME(finish_sums)(const NAME(Competition) *c, i64 count, REAL *peak, REAL *sum) {
    for (i64 i = 0; i < count; i++) {
        if (c->orphan) { /* one more logit of zero */
            REAL most = peak[i] > 0 ? peak[i] : 0;
            sum[i] = sum[i] * (REAL)exp(peak[i] - most) + (REAL)exp(-most), peak[i] = most;
        }
        sum[i] = !c->mass ? 1 / sum[i] : sizeof(REAL) == 4 ? (REAL)logf((float)sum[i]) : (REAL)log(sum[i]);
    }
}

/* Each child of the grid once, of all fields that it is in, to `room` for s t numbers twice; and back to the fields. */
INLINE void NAME(join_fields)(const NAME(Competition) *c, REAL *peak, REAL *sum, REAL *room) {
    i64 types = c->children / c->places, all = c->positions * c->places;
    REAL *peaks = room, *sums = room + c->spots * types;
    for (i64 s = 0; s < c->spots; s++)
        for (i64 t = 0; t < types; t += LANES) {
            VEC most = {0}, total = {0};
            i64 seen = 0;
            for (i64 m = 0; m < c->watchers; m++) {
                i64 place = c->seen_by[s * c->watchers + m];
                if (place == all) continue;
                VEC here = NAME(at)(peak + place * types, t, types);
                most = seen++ ? NAME(larger)(here, most) : here;
            }
            for (i64 m = 0; m < c->watchers; m++) {
                i64 place = c->seen_by[s * c->watchers + m];
                if (place == all) continue;
                total += NAME(at)(sum + place * types, t, types) * NAME(exp)(NAME(at)(peak + place * types, t, types) - most);
            }
            NAME(store)(peaks + s * types + t, most, types - t);
            NAME(store)(sums + s * types + t, total, types - t);
        }
    NAME(finish_sums)(c, c->spots * types, peaks, sums);
    for (i64 place = 0; place < all; place++) {
        i64 s = c->child_of[place];
        if (s == c->spots) continue; /* padding */
        memcpy(peak + place * types, peaks + s * types, types * sizeof(REAL));
        memcpy(sum + place * types, sums + s * types, types * sizeof(REAL));
    }
}

/* Shares of the child: of one field. */
INLINE void NAME(share_children)(const NAME(Competition) *c, const REAL *l, const REAL *peak, const REAL *sum, REAL *to) {
    for (i64 j = 0; j < c->parents; j++, l += c->children, to += c->children)
        for (i64 i = 0; i < c->children; i += LANES) {
            VEC part = NAME(exp)(NAME(at)(l, i, c->children) - NAME(at)(peak, i, c->children));
            NAME(store)(to + i, part * NAME(at)(sum, i, c->children), c->children - i);
        }
}

/* Shares of the parents' masses, in logarithms, which do not underflow: of one field. `base` is room for i numbers. */
INLINE void NAME(share_mass)(
    const NAME(Competition) *c, const REAL *l, const REAL *present, const REAL *peak, const REAL *sum, REAL *to,
    REAL *mass, REAL *base
) {
    for (i64 i = 0; i < c->children; i++) base[i] = (present ? present[i] : 0) - sum[i];
    for (i64 j = 0; j < c->parents; j++, l += c->children, to += c->children) {
        VEC most = NAME(splat)(l[0] - peak[0] + base[0]), total = {0};
        most = NAME(pick)(NAME(is_kept)(NAME(splat)(l[0])), NAME(splat)(KEPT), most);
        for (i64 i = 0; i < c->children; i += LANES) {
            VEC own = NAME(at)(l, i, c->children);
            VEC used = own - NAME(at)(peak, i, c->children) + NAME(at)(base, i, c->children);
            used = NAME(pick)(NAME(is_kept)(own), NAME(splat)(KEPT), used);
            NAME(store)(to + i, used, c->children - i);
            if (c->children - i >= LANES) most = NAME(larger)(used, most);
            else for (i64 k = i; k < c->children; k++) most[0] = to[k] > most[0] ? to[k] : most[0];
        }
        REAL top = most[0];
        for (i64 k = 1; k < LANES; k++) top = most[k] > top ? most[k] : top;
        for (i64 i = 0; i < c->children; i += LANES) {
            VEC part = NAME(exp)(NAME(at)(to, i, c->children) - top);
            NAME(store)(to + i, part, c->children - i);
            part = NAME(at)(to, i, c->children); /* nothing beyond the last child */
            total += part;
        }
        REAL all = NAME(total)(total);
        for (i64 i = 0; i < c->children; i += LANES)
            NAME(store)(to + i, NAME(at)(to, i, c->children) * (1 / all), c->children - i);
        mass[j] = (REAL)(c->in_logs ? top + log(all) : exp(top + log(all)));
    }
}

static void NAME(compete_rows)(void *argument, i64 task) {
    NAME(Competition) *c = argument;
    i64 i = c->children, q = c->positions, last = (task + 1) * c->rows_of_task;
    REAL *room = malloc((2 * c->spots * (c->places ? i / c->places : 0) + i) * sizeof(REAL));
    if (!room) {
        c->failed = 1;
        return;
    }
    for (i64 n = task * c->rows_of_task; n < last && n < c->examples; n++) {
        REAL *peak = c->peak + n * q * i, *sum = c->sum + n * q * i;
        for (i64 at = 0; at < q; at++)
            NAME(sum_field)(c, c->logits + (n * q + at) * c->parents * i, peak + at * i, sum + at * i);
        if (c->seen_by) NAME(join_fields)(c, peak, sum, room + i);
        else NAME(finish_sums)(c, q * i, peak, sum);
        for (i64 k = 0; c->there && k < q * i; k++)
            if (!c->there[k]) peak[k] = sizeof(REAL) == 4 ? (REAL)8.5e37 : (REAL)4.4e307, sum[k] = 0;
        for (i64 at = 0; at < q; at++) {
            i64 row = n * q + at, first = row * c->parents * i;
            if (!c->mass) NAME(share_children)(c, c->logits + first, peak + at * i, sum + at * i, c->share + first);
            else
                NAME(share_mass)(
                    c, c->logits + first, c->present ? c->present + row * i : NULL, peak + at * i, sum + at * i,
                    c->share + first, c->mass + row * c->parents, room
                );
        }
    }
    free(room);
}

/* The gradient in what the softmax was taken of, before each child's own share of it is taken away; its sums over parents
 * to `total`. */
INLINE void NAME(pull_shares)(const NAME(Competition) *c, i64 row, REAL *total) {
    i64 i = c->children;
    const REAL *share = c->share + row * c->parents * i, *grad = c->to_share + row * c->parents * i;
    REAL *to = c->to_logits + row * c->parents * i;
    memset(total, 0, i * sizeof(REAL));
    const REAL *logits = c->logits + row * c->parents * i; /* not read without masses */
    for (i64 j = 0; j < c->parents; j++, share += i, grad += i, to += i, logits += i) {
        REAL plus = 0;
        if (c->mass) {
            VEC along = {0};
            for (i64 k = 0; k < i; k += LANES) along += NAME(at)(share, k, i) * NAME(at)(grad, k, i);
            i64 parent = row * c->parents + j;
            plus = (c->to_mass ? c->to_mass[parent] * (c->in_logs ? 1 : c->mass[parent]) : 0) - NAME(total)(along);
        }
        for (i64 k = 0; k < i; k += LANES) {
            VEC part = NAME(at)(share, k, i) * (NAME(at)(grad, k, i) + plus);
            if (c->mass) part = NAME(pick)(NAME(is_kept)(NAME(at)(logits, k, i)), (VEC){0}, part);
            NAME(store)(to + k, part, i - k);
            NAME(store)(total + k, NAME(at)(total, k, i) + part, i - k);
        }
    }
}

static void NAME(compete_back_rows)(void *argument, i64 task) {
    NAME(Competition) *c = argument;
    i64 i = c->children, q = c->positions, types = c->places ? i / c->places : 0, last = (task + 1) * c->rows_of_task;
    REAL *room = malloc((c->spots * types + q * i) * sizeof(REAL)), *totals = room + q * i;
    if (!room) {
        c->failed = 1;
        return;
    }
    for (i64 n = task * c->rows_of_task; n < last && n < c->examples; n++) {
        for (i64 at = 0; at < q; at++) NAME(pull_shares)(c, n * q + at, room + at * i);
        if (c->to_present) memcpy(c->to_present + n * q * i, room, q * i * sizeof(REAL));
        if (c->seen_by) {
            memset(totals, 0, c->spots * types * sizeof(REAL));
            for (i64 place = 0; place < q * c->places; place++)
                for (i64 t = 0, s = c->child_of[place]; s < c->spots && t < types; t++)
                    totals[s * types + t] += room[place * types + t];
            for (i64 place = 0; place < q * c->places; place++)
                if (c->child_of[place] < c->spots)
                    memcpy(room + place * types, totals + c->child_of[place] * types, types * sizeof(REAL));
        }
        for (i64 row = 0; row < q * c->parents; row++) {
            i64 from = (n * q * c->parents + row) * i, at = row / c->parents * i, child = n * q * i + at;
            for (i64 k = 0; k < i; k += LANES) {
                VEC share = NAME(at)(c->share + from, k, i);
                if (c->mass)
                    share = NAME(exp)(
                        NAME(at)(c->logits + from, k, i) - NAME(at)(c->peak + child, k, i) - NAME(at)(c->sum + child, k, i)
                    );
                if (c->mass) share = NAME(pick)(NAME(is_kept)(NAME(at)(c->logits + from, k, i)), (VEC){0}, share);
                VEC part = NAME(at)(c->to_logits + from, k, i) - share * NAME(at)(room + at, k, i);
                NAME(store)(c->to_logits + from + k, part, i - k);
            }
        }
    }
    free(room);
}

/* Forward, or with `to_share` backward. */
static void NAME(compete)(void *argument) {
    NAME(Competition) *c = argument;
    c->rows_of_task = c->seen_by ? 1 : 1 + (c->examples - 1) / (8 * c->threads);
    i64 tasks = (c->examples + c->rows_of_task - 1) / c->rows_of_task;
    run_tasks(c->to_share ? NAME(compete_back_rows) : NAME(compete_rows), c, tasks, c->threads);
}
