/* The sum of all votes, where all parents have the same weights of children: total (rows, parents, c h) of poses (rows,
   groups, types, c d), weights of children `scale` (rows, groups, types) and vote weights (types, parents, d h), without
   votes. With a gradient of the total, its way back to all three; `room` is for as many numbers as poses have. Included by
   few.c. */

#define ALIKE_ARGUMENTS(REAL) \
    i64 rows, i64 groups, i64 types, i64 parents, i64 c, i64 d, i64 h, const REAL *restrict pose, \
    const REAL *restrict scale, const REAL *restrict weight, const REAL *restrict grad, REAL *restrict total, \
    REAL *restrict to_pose, REAL *restrict to_scale, REAL *restrict to_weight, REAL *restrict room
#define ALIKE_GIVEN() rows, groups, types, parents, c, d, h, ALIKE_TENSORS
#define ALIKE_TENSORS pose, scale, weight, grad, total, to_pose, to_scale, to_weight, room
#define LINES_AT_ONCE 8 /* rows of poses */
#define PARENTS_AT_ONCE 4
#define COLUMNS_AT_ONCE 8
#define POSE_OF(line) ((line) / c * groups * types * c + (line) % c) * d
#define TOTAL_OF(line, parent) (((line) / c * parents + (parent)) * c + (line) % c) * h
#define UNROLL(index, count) _Pragma("GCC unroll 8") for (i64 index = 0; index < (count); index++)

/* H components of a vote are a vector. */
#define ALIKE_SIZED(REAL, H) \
typedef REAL Part_##H##_##REAL __attribute__((vector_size(H * sizeof(REAL)), aligned(sizeof(REAL)), may_alias)); \
INLINE REAL total_##H##_##REAL(Part_##H##_##REAL part) { \
    REAL numbers[H], all = 0; \
    memcpy(numbers, &part, sizeof(numbers)); \
    Four_##REAL fours = {0}; /* not one after the other */ \
    for (i64 k = 0; k + 4 <= H; k += 4) fours += *(const Four_##REAL *)(numbers + k); \
    for (i64 k = H / 4 * 4; k < H; k++) all += numbers[k]; \
    return all + ((fours[0] + fours[1]) + (fours[2] + fours[3])); \
} \
INLINE void alike_some_##H##_##REAL(i64 lines, i64 some, i64 line, i64 parent, i64 first, ALIKE_ARGUMENTS(REAL)) { \
    Part_##H##_##REAL sum[LINES_AT_ONCE] = {{0}}; \
    const REAL *restrict x[LINES_AT_ONCE]; \
    UNROLL(m, lines) x[m] = room + POSE_OF(line + m); \
    for (i64 group = 0; group < groups; group++) \
        for (i64 type = 0; type < types; type++) { \
            const REAL *restrict w = weight + (type * parents + parent) * d * h + first; \
            for (i64 l = 0; l < d; l++) \
                UNROLL(j, some) { \
                    Part_##H##_##REAL part = *(const Part_##H##_##REAL *)(w + (j * d + l) * h); \
                    UNROLL(m, lines) sum[j * lines + m] += x[m][l] * part; \
                } \
            UNROLL(m, lines) x[m] += c * d; \
        } \
    UNROLL(j, some) UNROLL(m, lines) \
        *(Part_##H##_##REAL *)(total + TOTAL_OF(line + m, parent + j) + first) = sum[j * lines + m]; \
} \
INLINE void alike_forward_##H##_##REAL(ALIKE_ARGUMENTS(REAL)) { \
    for (i64 first = 0; first < h; first += H) { \
        i64 line = 0, parent; \
        for (; line + LINES_AT_ONCE <= rows * c; line += LINES_AT_ONCE) \
            for (parent = 0; parent < parents; parent++) \
                alike_some_##H##_##REAL(LINES_AT_ONCE, 1, line, parent, first, ALIKE_GIVEN()); \
        for (; line < rows * c; line++) { \
            for (parent = 0; parent + PARENTS_AT_ONCE <= parents; parent += PARENTS_AT_ONCE) \
                alike_some_##H##_##REAL(1, PARENTS_AT_ONCE, line, parent, first, ALIKE_GIVEN()); \
            for (; parent < parents; parent++) alike_some_##H##_##REAL(1, 1, line, parent, first, ALIKE_GIVEN()); \
        } \
    } \
} \
/* some columns of the poses and weights of one type of child */ \
INLINE void alike_back_##H##_##REAL(i64 columns, i64 type, i64 column, ALIKE_ARGUMENTS(REAL)) { \
    const REAL *restrict w = weight + type * parents * d * h + column * h; \
    REAL *restrict to_w = to_weight + type * parents * d * h + column * h; \
    for (i64 group = 0; group < groups; group++) { \
        i64 child = (group * types + type) * c * d + column; \
        for (i64 line = 0; line < rows * c; line++) { \
            Part_##H##_##REAL sum[COLUMNS_AT_ONCE] = {{0}}; \
            for (i64 parent = 0; parent < parents; parent++) \
                for (i64 first = 0; first < h; first += H) { \
                    Part_##H##_##REAL g = *(const Part_##H##_##REAL *)(grad + TOTAL_OF(line, parent) + first); \
                    UNROLL(l, columns) sum[l] += g * *(const Part_##H##_##REAL *)(w + (parent * d + l) * h + first); \
                } \
            UNROLL(l, columns) to_pose[POSE_OF(line) + child + l] = total_##H##_##REAL(sum[l]); \
        } \
    } \
    for (i64 parent = 0; parent < parents; parent++) \
        for (i64 first = 0; first < h; first += H) { \
            Part_##H##_##REAL sum[COLUMNS_AT_ONCE] = {{0}}; \
            for (i64 group = 0; group < groups; group++) { \
                i64 child = (group * types + type) * c * d + column; \
                for (i64 line = 0; line < rows * c; line++) { \
                    Part_##H##_##REAL g = *(const Part_##H##_##REAL *)(grad + TOTAL_OF(line, parent) + first); \
                    UNROLL(l, columns) sum[l] += room[POSE_OF(line) + child + l] * g; \
                } \
            } \
            UNROLL(l, columns) *(Part_##H##_##REAL *)(to_w + (parent * d + l) * h + first) = sum[l]; \
        } \
} \
INLINE void alike_##H##_##REAL(ALIKE_ARGUMENTS(REAL)) { \
    if (!grad) { \
        alike_forward_##H##_##REAL(ALIKE_GIVEN()); \
        return; \
    } \
    for (i64 type = 0; type < types; type++) { \
        i64 column = 0; \
        for (; column + COLUMNS_AT_ONCE <= d; column += COLUMNS_AT_ONCE) \
            alike_back_##H##_##REAL(COLUMNS_AT_ONCE, type, column, ALIKE_GIVEN()); \
        for (; column + 4 <= d; column += 4) alike_back_##H##_##REAL(4, type, column, ALIKE_GIVEN()); \
        for (; column < d; column++) alike_back_##H##_##REAL(1, type, column, ALIKE_GIVEN()); \
    } \
}

#define ALIKE(REAL) \
ALIKE_SIZED(REAL, 16) \
ALIKE_SIZED(REAL, 4) \
ALIKE_SIZED(REAL, 1) \
INLINE void alike_sized_##REAL(ALIKE_ARGUMENTS(REAL)) { \
    i64 children = rows * groups * types, each = c * d; \
    for (i64 child = 0; child < children; child++) \
        for (i64 k = 0; k < each; k++) room[child * each + k] = scale[child] * pose[child * each + k]; \
    if (c == 1 && h % 16 == 0) alike_16_##REAL(rows, groups, types, parents, 1, d, h, ALIKE_TENSORS); \
    else if (h % 4 == 0) alike_4_##REAL(rows, groups, types, parents, c, d, h, ALIKE_TENSORS); \
    else alike_1_##REAL(rows, groups, types, parents, c, d, h, ALIKE_TENSORS); \
    if (!grad) return; \
    for (i64 child = 0; child < children; child++) { \
        REAL along = 0; \
        for (i64 k = 0; k < each; k++) along += to_pose[child * each + k] * pose[child * each + k]; \
        for (i64 k = 0; k < each; k++) to_pose[child * each + k] *= scale[child]; \
        if (to_scale) to_scale[child] = along; \
    } \
}
