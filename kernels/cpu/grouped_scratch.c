/* The working memory of grouped products: of tiles, else f32 copies of one group's operands. */
#include "kernels/cpu/grouped.h"
#include "kernels/cpu/tile.h"

enum { T = DT_TILE, SQUARE = T * T, MOST_ROWS = 512, PACKED = 3 << 17 };

/* Number of rows of `elements` elements that fit into `room` elements, to stay in L2 beside the weights. */
static int64_t rows_at_a_time(int64_t elements, int64_t room)
{
	const int64_t fit = room / elements / (2 * T) * (2 * T);

	return fit < 2 * T ? 2 * T : dt_min64(fit, MOST_ROWS);
}

bool dt_grouped_by_tiles(const struct dt_scratch_on *on, enum dt_grouped_of of, enum dt_dtype t, int64_t n,
			 int64_t n2, int64_t k)
{
	return (of == DT_GROUPED_DW ? on->amx : on->pairs) && t == DT_BF16 && n && k && n % T == 0 &&
	       n2 % T == 0 && k % T == 0;
}

struct dt_grouped_tiling dt_grouped_tiling(enum dt_grouped_of of, int64_t n, int64_t n2, int64_t k)
{
	const int64_t wide = n + n2;
	struct dt_grouped_tiling t = {.rows = rows_at_a_time(k, PACKED), .blocks = wide / T};

	if (of == DT_GROUPED_DX) {
		/* dy is read in place; the fewer rows at a time, the more often weights are packed. */
		t.rows = rows_at_a_time(wide, 4 * PACKED);
		t.blocks = k / T;
		t.words = 2 * SQUARE + 8 * wide + 2 * t.rows * T;
	} else if (of == DT_GROUPED_DW) {
		t.words = t.rows * k / 2 + t.rows * T;
	} else {
		t.words = t.rows * k / 2 + 2 * SQUARE;
	}
	return t;
}

static size_t tiles_bytes(const struct dt_scratch_on *on, const struct dt_grouped_shape *s,
			  enum dt_grouped_of of)
{
	const struct dt_grouped_tiling t = dt_grouped_tiling(of, s->n, s->n2, s->k);
	/* every group ends a piece; about eight tasks per thread */
	const int64_t pieces = of == DT_GROUPED_DW ? s->experts : s->m / t.rows + s->groups,
		      tasks = (pieces + 8 * on->threads) * DT_GROUPED_TASK;

	return (size_t)(dt_ceil_div(tasks, 64) * 64 + 4 * on->threads * t.words);
}

/* Bytes of a matrix in f32, if it is not f32 anyway; grouped.c: room_of. */
static size_t wide(enum dt_dtype t, int64_t rows, int64_t cols)
{
	return t == DT_F32 ? 0 : (size_t)dt_grouped_wide(rows, cols) * 4;
}

static size_t of_two(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* The products of one group that has all rows. plain: operands are not copied. */
static size_t group_bytes(const struct dt_grouped_shape *s, enum dt_dtype t, enum dt_grouped_of of,
			  bool plain)
{
	const size_t x = wide(t, s->m, s->k), y = wide(t, s->m, s->n), y2 = wide(t, s->m, s->n2),
		     w = wide(t, s->n, s->k), w2 = wide(t, s->n2, s->k);

	if (of == DT_GROUPED_DX)
		return x + (plain ? 0 : y + w + (s->n2 ? y2 + w2 : 0));
	if (of == DT_GROUPED_DW) /* dw is f32 */
		return plain ? 0 : x + of_two(y, y2);
	return plain ? of_two(y, y2) : x + of_two(y + w, s->n2 ? y2 + w2 : 0);
}

static size_t bytes_of(const struct dt_scratch_on *on, enum dt_dtype t, const struct dt_grouped_shape *s,
		       enum dt_grouped_of of)
{
	return dt_grouped_by_tiles(on, of, t, s->n, s->n2, s->k)
		       ? tiles_bytes(on, s, of)
		       : group_bytes(s, t, of, t == DT_BF16 && on->pairs);
}

size_t dt_grouped_matmul_scratch(const struct dt_scratch_on *on, enum dt_dtype t,
				 const struct dt_grouped_shape *s)
{
	return bytes_of(on, t, s, DT_GROUPED_Y);
}

size_t dt_grouped_matmul_dx_scratch(const struct dt_scratch_on *on, enum dt_dtype t,
				    const struct dt_grouped_shape *s)
{
	return bytes_of(on, t, s, DT_GROUPED_DX);
}

size_t dt_grouped_matmul_dw_scratch(const struct dt_scratch_on *on, enum dt_dtype t,
				    const struct dt_grouped_shape *s)
{
	return bytes_of(on, t, s, DT_GROUPED_DW);
}
/* SPDX-License-Identifier: Apache-2.0 */
