/* Grouped products by tiles, see grouped.h. */
#include "kernels/cpu/grouped.h"
#include "kernels/cpu/tile.h"

enum { T = DT_TILE, SQUARE = T * T, DEEP = 128 };

struct task {
	int64_t row, rows, expert; /* for dw only the expert: it may have rows in several groups */
	int64_t first, last;	   /* blocks of T columns of the result; for dw of T rows */
};
_Static_assert(sizeof(struct task) == DT_GROUPED_TASK, "scratch of tasks");

struct work {
	const struct dt_grouped_call *c;
	const struct dt_grouped *g;
	const struct dt_tile *t;
	int64_t rows;	/* rows of a group processed at a time, a multiple of 2 T */
	int64_t blocks; /* number of blocks that first and last of a task index */
	int64_t room;	/* words of scratch per thread */
	bool accumulate;
	void (*fn)(const struct work *w, const struct task *k, uint32_t *room);
};

static DT_SIMD void narrow_tile_row(uint16_t *to, const float *from, int64_t n)
{
	dt_narrow(to, from, n);
}

/* Stores rows of sum, T floats each, transposed as T columns of t from (first, col) on. */
static void put(struct dt_tensor t, int64_t first, int64_t rows, int64_t col, const float *sum)
{
	for (int64_t r = 0; r < rows; r++)
		narrow_tile_row(dt_at(t, (first + r) * dt_cols(t) + col), sum + r * T, T);
}

/* Address of an expert's T-row block in w, followed by those in w2. */
static char *block_at(const struct dt_grouped_call *c, int64_t expert, int64_t block)
{
	const int64_t in_w = c->n / T;

	return block < in_w ? dt_at(c->w, (expert * c->n + block * T) * c->k)
			    : dt_at(c->w2, (expert * c->n2 + (block - in_w) * T) * c->k);
}

/* row[i] = address of row i of n; `step` is the row stride in bf16 elements. */
static void rows_of(const void *row[T], const char *from, int64_t step, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		row[i] = from + 2 * i * step;
}

/*
 * sum [T, T] = T rows of weights at a times the packed operand b, DEEP words at a time, which stay in L1. The
 * first product of a block prefetches the next block of weights.
 */
static void forward_block(const struct work *w, float *sum, const uint32_t *a, const uint32_t *b,
			  int64_t wide, bool ask)
{
	const int64_t words = w->c->k / 2;

	for (int64_t q = 0; q < words; q += DEEP)
		for (int64_t r = 0; r < T; r += 16) {
			const uint32_t *from = a + r * words + q;

			w->t->mul_asking(sum + r * T, T, from, words, b + q * T, T, wide,
					 dt_min64(DEEP, words - q), q > 0,
					 (struct dt_tile_next){ask ? from + T * words : NULL, 64, 4 * words});
		}
}

/*
 * y^T = w x^T: weights are operand a in their own layout, and are read once; x is packed once for all of
 * them. Each block of the result is transposed when it is stored.
 */
static void forward(const struct work *w, const struct task *k, uint32_t *room)
{
	const struct dt_grouped_call *c = w->c;
	const int64_t words = c->k / 2;
	uint32_t *b = room, *sum = room + w->rows * words, *turned = sum + SQUARE;
	const void *row[T];

	for (int64_t i = 0; i < k->rows; i += T) {
		const int64_t n = dt_min64(T, k->rows - i);

		rows_of(row, dt_at(c->x, (k->row + i) * c->k), c->k, n);
		dt_tile_pack_lanes(w->t, b + i * words, row, DT_BF16, n, c->k);
	}
	for (int64_t j = k->first; j < k->last; j++) {
		const uint32_t *a = (const uint32_t *)block_at(c, k->expert, j);

		for (int64_t i = 0; i < k->rows; i += T) {
			const int64_t n = dt_min64(T, k->rows - i), wide = dt_ceil_div(n, 16) * 16;

			forward_block(w, (float *)sum, a, b + i * words, wide, i == 0);
			for (int64_t r = 0; r < T; r += 16)
				w->t->turn(turned + r, sum + r * T, wide);
			put(c->y, k->row + i, n, j * T, (const float *)turned);
		}
	}
}

/*
 * Packs into b pairs of rows of the expert's weights, `words` of them from pair `first` on, for one or two
 * blocks of columns from block j on.
 */
static void pack_weights(const struct work *w, const struct task *k, int64_t j, int64_t wide, int64_t first,
			 int64_t words, uint32_t *b)
{
	const void *row[T];

	for (int64_t i = 0; i < 2 * words; i += T)
		for (int64_t p = 0; p < wide; p++) {
			const char *from = block_at(w->c, k->expert, (2 * first + i) / T);

			rows_of(row, from + 2 * (j + p) * T, w->c->k, T);
			dt_tile_pack_depth(w->t, b + p * SQUARE + i / 2 * T, row, DT_BF16, T, T);
		}
}

/* Copies the last rows of dy, padded to 16 rows with zeros. */
static void fill_up(uint32_t *tail, const struct work *w, const struct task *k)
{
	const int64_t words = (w->c->n + w->c->n2) / 2, left = k->rows % 16, n = left * words;

	if (left)
		memcpy(tail, dt_at(w->c->y, (k->row + k->rows - left) * 2 * words), (size_t)n * 4);
	memset(tail + n, 0, (size_t)(16 * words - n) * 4);
}

/*
 * dx = dy w by 2 T columns, and 2 T rows of w at a time, which are packed for all rows of dy: pieces of a row
 * shorter than four lines reach half the memory bandwidth. The rows after the next are prefetched meanwhile,
 * 16 with each product.
 */
static void inputs_block(const struct work *w, const struct task *k, int64_t j, int64_t wide, uint32_t *room)
{
	const struct dt_grouped_call *c = w->c;
	const int64_t words = (c->n + c->n2) / 2, ld = 2 * c->k;
	uint32_t *tail = room + 2 * SQUARE;
	float *sum = (float *)(tail + 16 * words);

	for (int64_t q = 0; q < words; q += T) {
		const int64_t n = dt_min64(T, words - q);
		const bool more = q + T < words;
		const char *next =
			block_at(c, k->expert, more ? 2 * (q + T) / T : 0) + 2 * (more ? j : j + 2) * T;
		int64_t asked = 0;

		pack_weights(w, k, j, wide, q, n, room);
		for (int64_t i = 0; i < k->rows; i += 16)
			for (int64_t p = 0; p < wide; p++, asked += 16) {
				const uint32_t *a =
					k->rows - i < 16 ? tail : dt_at(c->y, (k->row + i) * 2 * words);

				w->t->mul_asking(sum + (p * w->rows + i) * T, T, a + q, words,
						 room + p * SQUARE, T, T, n, q > 0,
						 (struct dt_tile_next){
							 asked < 2 * T ? next + asked * ld : NULL, 64, ld});
			}
	}
	for (int64_t p = 0; p < wide; p++)
		put(c->x, k->row, k->rows, (j + p) * T, sum + p * w->rows * T);
}

static void inputs(const struct work *w, const struct task *k, uint32_t *room)
{
	fill_up(room + 2 * SQUARE, w, k);
	for (int64_t j = k->first; j < k->last; j += 2)
		inputs_block(w, k, j, dt_min64(2, k->last - j), room);
}

/* Words along this many rows, rounded up for tiles. */
static int64_t depth(int64_t rows)
{
	return dt_ceil_div(rows, 32) * 16;
}

/* out[word][T]: pairs of rows of t from row `first` on, T columns from col on. */
static void pack_pairs(const struct work *w, uint32_t *out, struct dt_tensor t, int64_t first, int64_t rows,
		       int64_t col)
{
	const void *row[T];

	for (int64_t i = 0; i < rows; i += T) {
		const int64_t n = dt_min64(T, rows - i);

		rows_of(row, dt_at(t, (first + i) * dt_cols(t) + col), dt_cols(t), n);
		dt_tile_pack_depth(w->t, out + i / 2 * T, row, DT_BF16, n, T);
	}
}

/* T rows of dw += dy^T x over rows of one group, with x packed at b. Prefetches the sums of the next
 * block. */
static void weights_block(const struct work *w, int64_t row, int64_t rows, float *to, int64_t block,
			  const uint32_t *b, uint32_t *room, bool add)
{
	const int64_t stride = w->rows / 2 * T, words = depth(rows), k = w->c->k;
	uint32_t *a = room, *pairs = room + stride;

	pack_pairs(w, pairs, w->c->y, row, rows, block * T);
	for (int64_t i = 0; i < words; i += 16) /* a: T columns of dy as squares of T by 16 words */
		w->t->turn(a + i / T * SQUARE + i % T, pairs + i * T, T);
	for (int64_t j = 0; j < k; j += T)
		for (int64_t i = 0; i < words; i += T)
			for (int64_t r = 0; r < T; r += 16)
				w->t->mul_asking(
					to + r * k + j, k, a + (i + r) * T, T, b + j / T * stride + i * T, T,
					T, dt_min64(T, words - i), add || i,
					(struct dt_tile_next){i ? NULL : to + r * k + j + T, 64, 4 * k});
}

/* dw: the expert's groups in order, some rows of each at a time. */
static void weights(const struct work *w, const struct task *k, uint32_t *room)
{
	const struct dt_grouped_call *c = w->c;
	const int64_t stride = w->rows / 2 * T;
	bool add = w->accumulate;

	for (int64_t g = k->expert; g < w->g->n; g += w->g->experts)
		for (int64_t i = w->g->first[g]; i < w->g->first[g + 1]; i += w->rows, add = true) {
			const int64_t n = dt_min64(w->rows, w->g->first[g + 1] - i);

			for (int64_t j = 0; j < c->k / T; j++)
				pack_pairs(w, room + j * stride, c->x, i, n, j * T);
			for (int64_t j = k->first; j < k->last; j++)
				weights_block(w, i, n, (float *)block_at(c, k->expert, j), j, room,
					      room + c->k / T * stride, add);
		}
	for (int64_t j = k->first; !add && j < k->last; j++)
		memset(block_at(c, k->expert, j), 0, (size_t)(T * c->k) * sizeof(float));
}

/* Splits each task into `parts` tasks by its blocks; input tasks are at every parts-th entry. Returns their
 * number. */
static int64_t cut(struct task *task, int64_t n, int64_t parts, int64_t blocks)
{
	for (int64_t i = 0; i < n * parts; i += parts)
		for (int64_t p = parts - 1; p >= 0; p--) {
			task[i + p] = task[i];
			task[i + p].first = blocks * p / parts;
			task[i + p].last = blocks * (p + 1) / parts;
		}
	return n * parts;
}

static int64_t pieces(const struct work *w, int64_t group)
{
	return dt_ceil_div(w->g->first[group + 1] - w->g->first[group], w->rows);
}

/* Lists the tasks of w in `task` unless that is NULL, each split in `parts`. Returns their number. */
static int64_t list(const struct work *w, struct task *task, int64_t parts)
{
	int64_t n = 0;

	for (int64_t e = 0; w->fn == weights && e < w->g->experts; e++, n++)
		if (task)
			task[n * parts] = (struct task){.expert = e};
	for (int64_t g = 0; w->fn != weights && g < w->g->n; g++)
		for (int64_t i = 0; i < pieces(w, g); i++, n++) {
			const int64_t row = w->g->first[g] + i * w->rows;

			if (task)
				task[n * parts] = (struct task){
					row, dt_min64(w->rows, w->g->first[g + 1] - row), g % w->g->experts};
		}
	return task ? cut(task, n, parts, w->blocks) : n;
}

/* scratch: the bytes of any groups, so that it does not grow with those of a later call. */
static int run(struct work *w, size_t scratch)
{
	struct dt_dev *dev = w->c->dev;
	/* Groups differ in size: about eight tasks per thread balance them. */
	const int64_t n = list(w, NULL, 1), threads = dev->nthreads;
	const int64_t enough = n && threads > 1 ? dt_ceil_div(8 * threads, n) : 1,
		      parts = dt_min64(enough, w->blocks);
	const size_t tasks = (size_t)(n * parts) * sizeof(struct task), before = (tasks + 63) / 64 * 64;
	struct task *task;

	if (!n || !parts)
		return 0;
	task = dt_cpu_scratch(dev, scratch);
	if (!task)
		return -ENOMEM;
	list(w, task, parts);
#pragma omp parallel num_threads(dev->nthreads)
	{
		uint32_t *room = (uint32_t *)((char *)task + before) + omp_get_thread_num() * w->room;

		dt_tile_begin(w->t, T);
#pragma omp for schedule(dynamic)
		for (int64_t i = 0; i < n * parts; i++)
			w->fn(w, &task[i], room);
		dt_tile_end(w->t);
	}
	return 0;
}

int dt_grouped_tiles(const struct dt_grouped_call *c, const struct dt_grouped *g, enum dt_grouped_of of,
		     bool accumulate)
{
	static void (*const fn[])(const struct work *w, const struct task *k, uint32_t *room) = {
		[DT_GROUPED_Y] = forward, [DT_GROUPED_DX] = inputs, [DT_GROUPED_DW] = weights};
	const struct dt_scratch_on on = dt_cpu_scratch_on(c->dev);
	struct work w = {
		.c = c, .g = g, .t = dt_tile_with_amx(DT_BF16), .accumulate = accumulate, .fn = fn[of]};
	struct dt_grouped_tiling t;

	if (!dt_grouped_by_tiles(&on, of, c->x.dtype, c->n, c->n2, c->k))
		return -ENOTSUP;
	t = dt_grouped_tiling(of, c->n, c->n2, c->k);
	w.rows = t.rows;
	w.blocks = t.blocks;
	w.room = t.words;
	return run(&w, dt_grouped_bytes(c, g, of));
}
/* SPDX-License-Identifier: Apache-2.0 */
