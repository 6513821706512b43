/*
 * Forward moves 2 times the bytes of y (3 with positions). Backward reads each row of dy once, and reads and
 * writes once each row of the table that occurs: rows of dy are sorted by key, stably, and added one piece of
 * the list at a time. The place of a key's rows in the list depends on the order of atomics; the sums do not.
 */
#include "kernels/cuda/raw.h"

struct forward {
	void *y;
	const void *wte, *wpe;
	int t;
	const int32_t *ids, *pos;
	int64_t rows, n, first, vocab, positions;
	int32_t *bad;
};

template <int V> __global__ void __launch_bounds__(256) forward_kernel(struct forward a)
{
	const int64_t each = a.n / V, step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.rows * each; i += step) {
		const int64_t row = i / each, j = i % each * V, id = a.ids[row] - a.first;
		float y[V], p[V];

		for (int k = 0; k < V; k++)
			y[k] = 0;
		if (a.wpe && (a.pos[row] < 0 || a.pos[row] >= a.positions)) {
			*a.bad = 1;
			continue;
		}
		if (id >= 0 && id < a.vocab)
			dt_ld<V>(y, a.wte, a.t, id * a.n + j);
		if (a.wpe) {
			dt_ld<V>(p, a.wpe, a.t, a.pos[row] * a.n + j);
			for (int k = 0; k < V; k++)
				y[k] += p[k];
		}
		dt_st<V>(a.y, a.t, row * a.n + j, y);
	}
}

int dt_cuda_embedding_forward(struct dt_dev *dev, struct dt_tensor y, const int32_t *ids, const int32_t *pos,
			      struct dt_tensor wte, struct dt_tensor wpe, int64_t vocab_first)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(y), n = dt_cols(y);
	const struct forward a = {y.data,      wte.data,     wpe.data,	   y.dtype,
				  ids,	       pos,	     rows,	   n,
				  vocab_first, dt_rows(wte), dt_rows(wpe), c ? c->bad : NULL};

	if (!c)
		return -ENODEV;
	if (dt_by_8(n, y.data, wte.data, wpe.data))
		return DT_LAUNCH(c, forward_kernel<8>, dt_blocks(c, rows * n / 8, 256), 256, 0, a);
	return DT_LAUNCH(c, forward_kernel<1>, dt_blocks(c, rows * n, 256), 256, 0, a);
}

#define PIECE 64 /* rows of a key that one thread adds in sequence */
#define AHEAD 8	 /* rows loaded before the first is added */

/* Rows of one key from list[at] on: n of them, at most PIECE. */
struct piece {
	int32_t at, n, to; /* to: the row of dw, or -1 - the row of part */
};

/* A key with more rows than one piece: the sums of its pieces are rows [at, at + n) of part. */
struct many {
	int32_t at, n, to;
};

struct backward {
	float *dw, *part;
	const void *dy;
	int t;
	const int32_t *key;
	int64_t rows, n, first, limit; /* rows of dw */
	bool strict;		       /* a key outside the table is an error, not another shard's */
	int32_t *bad;
	int32_t *count, *begin, *room; /* [limit]: rows per key, offset in the list, offset in part */
	int32_t *place, *mixed, *list; /* [rows]: rank of a row in its key; rows by key, unordered; in
				        * order */
	int32_t *used;		       /* [4]: used entries of list, part, pieces and many */
	struct piece *pieces;	       /* [rows] */
	struct many *many;	       /* [rows / PIECE] */
};

/* The row of dw to which row r of dy is added; -1: none. */
DT_DEVICE int64_t target(const struct backward &a, int64_t r)
{
	const int64_t to = dt_at(a.key, r) - a.first;

	return to >= 0 && to < a.limit ? to : -1;
}

enum { CLEAR, COUNT, BEGIN, MIX, SORT };

/* One row per thread; each pass needs the results of all threads in the previous one. */
template <int PASS> __global__ void __launch_bounds__(256) list_kernel(struct backward a)
{
	const int64_t r = (int64_t)blockIdx.x * 256 + threadIdx.x, to = r < a.rows ? target(a, r) : -1;

	if (PASS == CLEAR && r < 4)
		a.used[r] = 0;
	if (to < 0) {
		if (PASS == CLEAR && a.strict && r < a.rows)
			*a.bad = 1;
		return;
	}
	dt_touch(a.count + to, 4);
	if (PASS == CLEAR) {
		a.count[to] = 0;
	} else if (PASS == COUNT) {
		dt_touch(a.place + r, 4);
		a.place[r] = atomicAdd(a.count + to, 1);
	} else if (PASS == BEGIN && dt_at(a.place, r) == 0) {
		const int32_t n = a.count[to], pieces = (n + PIECE - 1) / PIECE;

		dt_touch(a.begin + to, 4);
		a.begin[to] = atomicAdd(a.used, n);
		if (pieces > 1) {
			const int32_t at = atomicAdd(a.used + 1, pieces), i = atomicAdd(a.used + 3, 1);

			dt_touch(a.room + to, 4);
			a.room[to] = at;
			dt_touch(&a.many[i].at, 4);
			a.many[i] = {at, pieces, (int32_t)to};
		}
	} else if (PASS == MIX) {
		int32_t *p = a.mixed + dt_at(a.begin, to) + dt_at(a.place, r);

		dt_touch(p, 4);
		*p = (int32_t)r;
	} else if (PASS == SORT) {
		const int32_t n = a.count[to], begin = dt_at(a.begin, to);
		int32_t rank = 0;

		DT_UNROLL_BY(8)
		for (int32_t i = 0; i < n; i++)
			rank += dt_at(a.mixed, begin + i) < r;
		dt_touch(a.list + begin + rank, 4);
		a.list[begin + rank] = (int32_t)r;
		if (rank % PIECE)
			return;
		const int32_t i = atomicAdd(a.used + 2, 1), left = n - rank;

		dt_touch(&a.pieces[i].at, 4);
		a.pieces[i] = {begin + rank, left < PIECE ? left : PIECE,
			       n > PIECE ? -1 - (dt_at(a.room, to) + rank / PIECE) : (int32_t)to};
	}
}

/* sum += row list[first + i] of p, of type T, from column j on, i < n in order; list NULL: row first + i. */
template <int V, int T>
DT_DEVICE void add_rows(float (&sum)[V], const void *p, int64_t cols, int64_t j, const int32_t *list,
			int64_t first, int n)
{
	for (int i = 0; i < n; i += AHEAD) {
		int64_t row[AHEAD];

		DT_UNROLL
		for (int k = 0; k < AHEAD; k++)
			row[k] = i + k >= n ? 0 : list ? dt_at(list, first + i + k) : first + i + k;
		if constexpr (V == 1) {
			for (int k = 0; k < AHEAD && i + k < n; k++)
				sum[0] += dt_ld1(p, T, row[k] * cols + j);
		} else {
			dt_raw<T> g[AHEAD];

			DT_UNROLL
			for (int k = 0; k < AHEAD; k++)
				if (i + k < n)
					dt_ask<T>(g[k], p, row[k] * cols + j);
			DT_UNROLL
			for (int k = 0; k < AHEAD * V; k++)
				if (i + k / V < n)
					sum[k % V] += dt_look<T>(g[k / V], k % V);
		}
	}
}

/* A thread has V columns, of every gridDim-th piece. */
template <int V, int T> __global__ void __launch_bounds__(128) pieces_kernel(struct backward a)
{
	const int64_t j = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V;
	const int32_t n = dt_at(a.used, 2);

	for (int64_t i = blockIdx.x; i < n && j < a.n; i += gridDim.x) {
		dt_touch(&a.pieces[i].at, 4);
		const struct piece p = a.pieces[i];
		float sum[V] = {};

		if (p.to >= 0)
			dt_ld<V>(sum, a.dw, DT_F32, p.to * a.n + j);
		add_rows<V, T>(sum, a.dy, a.n, j, a.list, p.at, p.n);
		if (p.to >= 0)
			dt_st<V>(a.dw, DT_F32, p.to * a.n + j, sum);
		else
			dt_st<V>(a.part, DT_F32, (-1 - (int64_t)p.to) * a.n + j, sum);
	}
}

template <int V> __global__ void __launch_bounds__(128) many_kernel(struct backward a)
{
	const int64_t j = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V;
	const int32_t n = dt_at(a.used, 3);

	for (int64_t i = blockIdx.x; i < n && j < a.n; i += gridDim.x) {
		dt_touch(&a.many[i].at, 4);
		const struct many m = a.many[i];
		float sum[V];

		dt_ld<V>(sum, a.dw, DT_F32, m.to * a.n + j);
		add_rows<V, DT_F32>(sum, a.part, a.n, j, NULL, m.at, m.n);
		dt_st<V>(a.dw, DT_F32, m.to * a.n + j, sum);
	}
}

template <int V> static int add(const struct dt_cuda *c, const struct backward &a)
{
	const int64_t each = dt_ceil_div(a.n, V), threads = dt_min64(128, dt_ceil_div(each, 32) * 32);
	const unsigned across = (unsigned)dt_ceil_div(each, threads);
	const dim3 grid(dt_blocks(c, a.rows, 1), across);
	const unsigned block = (unsigned)threads;
	int rc;

	if (a.t == DT_F32)
		rc = DT_LAUNCH(c, (pieces_kernel<V, DT_F32>), grid, block, 0, a);
	else if (a.t == DT_BF16)
		rc = DT_LAUNCH(c, (pieces_kernel<V, DT_BF16>), grid, block, 0, a);
	else
		rc = DT_LAUNCH(c, (pieces_kernel<V, DT_F16>), grid, block, 0, a);
	return rc < 0 || a.rows <= PIECE
		       ? rc
		       : DT_LAUNCH(c, many_kernel<V>, dim3(dt_blocks(c, a.rows / PIECE, 1), across),
				   (unsigned)threads, 0, a);
}

/* Lays out scratch, 16-byte aligned; p NULL: returns the size only. */
static size_t lay_out(struct backward *a, char *p)
{
	const size_t keys = (size_t)a->limit * 4, rows = (size_t)a->rows * 4;
	/* n > PIECE rows are at most 2 n / PIECE pieces. */
	const size_t parts = a->rows > PIECE ? (size_t)(2 * a->rows / PIECE * a->n) * 4 : 0;
	const struct {
		void *at;
		size_t n;
	} of[] = {{&a->count, keys},
		  {&a->begin, keys},
		  {&a->room, keys},
		  {&a->place, rows},
		  {&a->mixed, rows},
		  {&a->list, rows},
		  {&a->used, 16},
		  {&a->pieces, rows / 4 * sizeof *a->pieces},
		  {&a->many, (rows / 4 / PIECE + 1) * sizeof *a->many},
		  {&a->part, parts}};
	size_t n = 0;

	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		char *at = p + n;

		if (p)
			memcpy(of[i].at, &at, sizeof at);
		n += (of[i].n + 15) / 16 * 16;
	}
	return n;
}

static int scatter(struct dt_dev *dev, const struct dt_cuda *c, struct dt_tensor dw, struct dt_tensor dy,
		   const int32_t *key, int64_t first, bool strict)
{
	struct backward a = {};
	unsigned blocks;
	char *room;
	int rc;

	a.dw = (float *)dw.data;
	a.dy = dy.data;
	a.t = dy.dtype;
	a.key = key;
	a.rows = dt_rows(dy);
	a.n = dt_cols(dy);
	a.first = first;
	a.limit = dt_rows(dw);
	a.strict = strict;
	a.bad = c->bad;
	room = (char *)dt_cuda_scratch(dev, lay_out(&a, NULL));
	if (!room)
		return -ENOMEM;
	(void)lay_out(&a, room);
	blocks = (unsigned)dt_ceil_div(a.rows, 256);
	if ((rc = DT_LAUNCH(c, list_kernel<CLEAR>, blocks, 256, 0, a)) < 0 ||
	    (rc = DT_LAUNCH(c, list_kernel<COUNT>, blocks, 256, 0, a)) < 0 ||
	    (rc = DT_LAUNCH(c, list_kernel<BEGIN>, blocks, 256, 0, a)) < 0 ||
	    (rc = DT_LAUNCH(c, list_kernel<MIX>, blocks, 256, 0, a)) < 0 ||
	    (rc = DT_LAUNCH(c, list_kernel<SORT>, blocks, 256, 0, a)) < 0)
		return rc;
	return dt_by_8(a.n, dw.data, dy.data) ? add<8>(c, a) : add<1>(c, a);
}

int dt_cuda_embedding_backward(struct dt_dev *dev, struct dt_tensor dwte, struct dt_tensor dwpe,
			       struct dt_tensor dy, const int32_t *ids, const int32_t *pos,
			       int64_t vocab_first)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	int rc = 0;

	if (!c)
		return -ENODEV;
	if (dwte.data)
		rc = scatter(dev, c, dwte, dy, ids, vocab_first, false);
	if (dwpe.data && rc == 0)
		rc = scatter(dev, c, dwpe, dy, pos, 0, true);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
