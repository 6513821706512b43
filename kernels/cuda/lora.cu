/*
 * lora.h in two launches: first h for tiles of rows, four rows of a per warp; then y, where a thread has some
 * columns of all rows of a tile. Each element is one chain of sums, whatever the tile: 4 rows of a part, or
 * one row if every part has one, as in decoding.
 */
#include "kernels/cuda/kernel.h"
#include "kernels/lora.h"

#define RANKS 4	 /* rows of a per warp */
#define WARPS 8	 /* warps per block of the first launch */
#define COLS  64 /* threads per block of the second launch, V columns each */

struct lora {
	void *y;
	const void *x;
	float *h;
	int ty, tx, tw; /* tw: of a and b */
	int64_t k, n, room, parts, chunks;
	const struct dt_lora_part *part;
};

/* The part and rows of tile t; tiles of part i begin at first / T + i, as in sorted.h. NULL: no tile. */
template <int T>
DT_DEVICE const struct dt_lora_part *tile_of(const struct lora &p, int64_t t, int64_t *row, int64_t *rows)
{
	int64_t i = T == 1 ? t : 0, last = p.parts, at = 0;

	while (T != 1 && last - i > 1) {
		const int64_t mid = (i + last) / 2;

		if (p.part[mid].first / T + mid <= t)
			i = mid;
		else
			last = mid;
	}
	if (T != 1)
		at = (t - p.part[i].first / T - i) * T;
	*row = p.part[i].first + at;
	*rows = dt_min64(T, p.part[i].n - at);
	return at >= 0 && *rows > 0 ? &p.part[i] : NULL;
}

/* Offset in a row of room of a lane's h. */
DT_DEVICE int64_t room_at(const struct dt_lora_part *part, int lane)
{
	int64_t at = 0;

	for (int i = 0; i < lane; i++)
		at += part->lane[i].a ? part->lane[i].rank : 0;
	return at;
}

template <int V, int T> __global__ void __launch_bounds__(32 * WARPS, 1) down_kernel(struct lora p)
{
	const int own = (int)threadIdx.x % 32, which = (int)(blockIdx.y / p.chunks);
	const int64_t from = (blockIdx.y % p.chunks * WARPS + threadIdx.x / 32) * RANKS;
	int64_t row, rows;
	const struct dt_lora_part *part = tile_of<T>(p, blockIdx.x, &row, &rows);
	float sum[T][RANKS] = {};

	if (!part || !part->lane[which].a || from >= part->lane[which].rank)
		return;
	const struct dt_lora_lane &l = part->lane[which];

	DT_UNROLL_BY(1)
	for (int64_t j = own * V; j < p.k; j += 32 * V) {
		float w[RANKS][V], x[V];

		DT_UNROLL
		for (int i = 0; i < RANKS; i++)
			dt_ld<V>(w[i], l.a, p.tw, dt_min64(from + i, l.rank - 1) * p.k + j);
		DT_UNROLL
		for (int r = 0; r < T; r++) {
			dt_ld<V>(x, p.x, p.tx, (row + dt_min64(r, rows - 1)) * p.k + j);
			DT_UNROLL
			for (int i = 0; i < RANKS; i++)
				DT_UNROLL
			for (int v = 0; v < V; v++)
				sum[r][i] += x[v] * w[i][v];
		}
	}
	float *h = p.h + row * p.room + room_at(part, which) + from;

	DT_UNROLL
	for (int r = 0; r < T; r++)
		DT_UNROLL
	for (int i = 0; i < RANKS; i++) {
		const float s = dt_warp_sum(sum[r][i]) * l.scale;

		if (own == 0 && r < rows && from + i < l.rank)
			dt_st1(h, DT_F32, r * p.room + i, s);
	}
}

template <int V, int T> __global__ void __launch_bounds__(COLS) up_kernel(struct lora p)
{
	const int64_t j = ((int64_t)blockIdx.y * COLS + threadIdx.x) * V;
	int64_t row, rows, at = 0;
	const struct dt_lora_part *part = tile_of<T>(p, blockIdx.x, &row, &rows);

	for (int which = 0; part && which < DT_LORA_LANES; which++) {
		const struct dt_lora_lane &l = part->lane[which];
		const int64_t c = j - l.at;
		float y[T][V], b[V];

		if (!l.a)
			continue;
		const float *h = p.h + row * p.room + at;

		at += l.rank;
		if (c < 0 || c >= l.cols)
			continue;
		DT_UNROLL
		for (int r = 0; r < T; r++)
			dt_ld<V>(y[r], p.y, p.ty, (row + dt_min64(r, rows - 1)) * p.n + j);
		DT_UNROLL_BY((V / 8 + 1))
		for (int64_t i = 0; i < l.rank; i++) {
			dt_ld<V>(b, l.b, p.tw, i * l.cols + c);
			DT_UNROLL
			for (int r = 0; r < T; r++) {
				const float f = dt_ld1(h, DT_F32, dt_min64(r, rows - 1) * p.room + i);

				DT_UNROLL
				for (int v = 0; v < V; v++)
					y[r][v] += f * b[v];
			}
		}
		DT_UNROLL
		for (int r = 0; r < T; r++) {
			for (int v = 0; l.gain && v < V; v++)
				y[r][v] = dt_ld1(l.gain, DT_F32, c + v) * y[r][v] +
					  (l.shift ? dt_ld1(l.shift, DT_F32, c + v) : 0);
			if (r < rows)
				dt_st<V>(p.y, p.ty, (row + r) * p.n + j, y[r]);
		}
	}
}

/* T rows per tile; down and up: columns of x and of y moved at a time. */
template <int T>
static int launch(const struct dt_cuda *c, const struct lora &p, int64_t tiles, int down, int up)
{
	const dim3 first((unsigned)tiles, (unsigned)(DT_LORA_LANES * p.chunks));
	const dim3 second((unsigned)tiles, (unsigned)dt_ceil_div(p.n, COLS * up));
	const int rc = down == 8 ? DT_LAUNCH(c, (down_kernel<8, T>), first, 32 * WARPS, 0, p)
				 : DT_LAUNCH(c, (down_kernel<1, T>), first, 32 * WARPS, 0, p);

	return rc < 0	 ? rc
	       : up == 8 ? DT_LAUNCH(c, (up_kernel<8, T>), second, COLS, 0, p)
			 : DT_LAUNCH(c, (up_kernel<1, T>), second, COLS, 0, p);
}

/* Whether the lanes allow y to be moved 8 columns at a time. -EINVAL: a lane's memory is not aligned. */
static int look_at(const struct dt_lora_batch *b)
{
	int by_8 = 1;

	for (int64_t i = 0; i < b->n; i++)
		for (int k = 0; k < DT_LORA_LANES; k++) {
			const struct dt_lora_lane *l = &b->part[i].lane[k];

			if (l->a && (!dt_aligned(l->a) || !dt_aligned(l->b)))
				return -EINVAL;
			by_8 &= l->at % 8 == 0 && l->cols % 8 == 0;
		}
	return by_8;
}

int dt_cuda_lora_add(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, struct dt_tensor room,
		     const struct dt_lora_batch *b)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int by_8 = look_at(b);
	struct dt_table t = {b->part, (size_t)b->n * sizeof *b->part, NULL};
	struct lora p = {};
	bool one = true;
	int rc = !c ? -ENODEV : by_8 < 0 ? by_8 : dt_cuda_tables(dev, &t, 1);

	if (rc < 0 || !b->rank)
		return rc;
	for (int64_t i = 0; i < b->n; i++)
		one &= b->part[i].n == 1;
	p.y = y.data;
	p.x = x.data;
	p.h = (float *)room.data;
	p.ty = y.dtype;
	p.tx = x.dtype;
	p.tw = b->type;
	p.k = dt_cols(x);
	p.n = dt_cols(y);
	p.room = b->rank;
	p.parts = b->n;
	p.chunks = dt_ceil_div(b->rank, RANKS * WARPS);
	p.part = (const struct dt_lora_part *)t.ret;
	const int down = dt_by_8(p.k, x.data) ? 8 : 1, up = by_8 && dt_by_8(p.n, y.data) ? 8 : 1;

	return one ? launch<1>(c, p, b->n, down, up) : launch<4>(c, p, dt_rows(y) / 4 + b->n, down, up);
}

/* Not fused on a card. */
int dt_cuda_packed_lora(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const struct dt_packed *w,
			struct dt_tensor bias, int64_t gate, struct dt_tensor room,
			const struct dt_lora_batch *p)
{
	return -ENOTSUP;
}
/* SPDX-License-Identifier: Apache-2.0 */
