/* Weighted poses for one matrix product with the vote weights of all types: included by kernels.c, once for each number
 * type and generation of processors. Poses (row, group, type, c, d) times weights (row, group, type), summed over the
 * groups, are (row, c, type, d); or back, where all groups get the same numbers times their weights. */
typedef struct {
    i64 groups, types, pose_rows, columns, back;
    const REAL *scale; /* or nothing: ones */
    REAL *pose, *turned;
} NAME(Turned);

INLINE void NAME(turn_row_of)(const NAME(Turned) *w, i64 row, i64 c, i64 d) {
    for (i64 g = 0; g < w->groups; g++)
        for (i64 t = 0; t < w->types; t++) {
            i64 child = (row * w->groups + g) * w->types + t;
            REAL scale = w->scale ? w->scale[child] : 1;
            _Pragma("GCC unroll 4") for (i64 k = 0; k < c; k++) {
                REAL *restrict pose = w->pose + (child * c + k) * d;
                REAL *restrict turned = w->turned + ((row * c + k) * w->types + t) * d;
                if (w->back) _Pragma("omp simd") for (i64 l = 0; l < d; l++) pose[l] = scale * turned[l];
                else if (g == 0) _Pragma("omp simd") for (i64 l = 0; l < d; l++) turned[l] = scale * pose[l];
                else _Pragma("omp simd") for (i64 l = 0; l < d; l++) turned[l] += scale * pose[l];
            }
        }
}

static void NAME(turn_row)(void *job, i64 row) {
    const NAME(Turned) *w = job;
    if (COMMON_SIZES && w->pose_rows == 4 && w->columns == 4) NAME(turn_row_of)(w, row, 4, 4);
    else NAME(turn_row_of)(w, row, w->pose_rows, w->columns);
}

static void NAME(turn_poses)(
    i64 rows, i64 groups, i64 types, i64 c, i64 d, const REAL *scale, REAL *pose, REAL *turned, i64 back, i64 threads
) {
    NAME(Turned) job = {groups, types, c, d, back, scale, pose, turned};
    run_tasks(NAME(turn_row), &job, rows, threads);
}
