/* Sums of unit votes and of their squares, straight from poses and vote weights: included by kernels.c, once for each number
 * type and generation of processors. Few rows at a time are made (linear.c), measured (vectors.c) and added up (derive.c), so
 * that their votes stay in a near cache. */
typedef struct { /* kernels/few.py has the same */
    NAME(Linear) linear; /* as for `make`; its `out` is room for the votes of `at_once` rows */
    i64 at_once;
    double least;           /* the square of a length, as for `lengths` */
    REAL *inverse;          /* room for the lengths of as many votes */
    REAL *total, *squares;  /* m j (c h) */
} NAME(Units);

static void NAME(units)(void *argument) {
    const NAME(Units) *s = argument;
    NAME(Linear) job = s->linear;
    i64 children = job.groups * job.types, pose = job.pose_rows * job.out_columns, left = s->linear.rows;
    NAME(Vectors) lengths = {.size = pose, .least = s->least, .from = job.out, .to = s->inverse};
    NAME(Derivatives) sums = {
        .parents = job.parents, .columns = job.parents, .children = children, .pose = pose, .power = 2, .votes = job.out,
        .pairs = s->inverse, .to_linear = s->total, .to_square = s->squares,
    };
    for (; left > 0; left -= job.rows) {
        job.rows = left < s->at_once ? left : s->at_once;
        sums.rows = job.rows * job.parents, lengths.vectors = sums.rows * children;
        NAME(make)(&job);
        NAME(lengths)(&lengths);
        NAME(derive)(&sums);
        job.pose += job.rows * children * job.pose_rows * job.columns;
        sums.to_linear += sums.rows * pose, sums.to_square += sums.rows * pose;
    }
}
