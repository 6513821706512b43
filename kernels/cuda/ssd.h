/*
 * The chunked scan of ssm.h on a card: what forward and backward share. A chunk is up to DT_SSM_CHUNK rows of
 * a sequence. For a head, with cs_i the sum of dt A over the chunk's rows up to i, and i's document:
 *   L_ij = exp(cs_i - cs_j)      for j <= i in the same document, else 0
 *   e_i  = exp(cs_i)             if the document began in front of the chunk, else 0
 *   w_j  = exp(cs_last - cs_j)   for j in the document of the chunk's last row, else 0
 *   G    = C B^T                 of the head's group
 *   y    = (L o G) (dt o x) + (e o C) S + D x;     S' = e_last S + B^T (w o dt o x),  S [state, head_dim]
 * The products are those of product.h: a block has a tile of 64 x 64, and an operand is a function that
 * returns elements, so that factors of rows are applied on the way to shared memory. 16-bit types are
 * multiplied by tensor cores, f32 by multiply-adds; every sum is f32 and in a fixed order.
 *
 * With Q rows of a chunk, N of state and P of head_dim, and tiles above the diagonal left out, flops per row
 * are 4 N P + 1.5 Q P of each head and 1.5 Q N of each group; backward, which computes states and G again,
 * 12 N P + 4.5 Q P and 4.5 Q N. Memory: states are written, summed over chunks in place and read, 16 N P
 * bytes per head and chunk; x and y of 16 bits, once each, are 4 Q P. Backward moves those bytes of
 * states and of their gradients, each read twice more. Scratch: 4 N P bytes per head and chunk, 4 Q^2 per
 * group and chunk, 16 per head and row; backward twice each, and the sums of its last kernels.
 */
#ifndef DT_KERNELS_CUDA_SSD_H
#define DT_KERNELS_CUDA_SSD_H

#include "kernels/cuda/product.h"
#include "kernels/ssm.h"

struct dt_ssd {
	struct dt_ssm p;
	const void *xbc, *t, *bias, *a_log, *d;
	int type, tbias, ta, td; /* of xbc and t; of the three vectors */
	int64_t chunks, all;	 /* of a sequence, and of all */
	float *dt, *cs, *e, *w;	 /* [batch, heads, seq] */
	float *states;		 /* [all, heads, state, head_dim]: S in front of each chunk */
	float *g; /* [all, groups, Q, Q]; entries above the diagonal of tiles are not written */
	/* backward */
	const void *dy;
	void *dxbc, *dsteps;
	float *dstates; /* gradients of the states behind each chunk */
	float *dg;	/* as g, with zeros above the diagonal */
	float *rows;	/* [4, batch, heads, seq]: enum dt_ssd_row */
	float *last;	/* [all, heads]: of cs at the chunk's last row, from the state behind it */
	float *parts;	/* [all, 3, heads]: shares of the gradients of dt_bias, a_log and d */
};

/* Sums over a row's columns of a head: dy (y - D x); (dt x) Z and x Z with dx = dt Z + D dy; x dy. */
enum dt_ssd_row { DT_SSD_OUT, DT_SSD_IN, DT_SSD_STEP, DT_SSD_SKIP };

/*
 * Fills in a's scratch, and computes dt, cs, e, w, the states and G. b: its shapes and operands; `back` also
 * gives room to what backward has. -ENOMEM.
 */
int dt_ssd_open(struct dt_dev *dev, const struct dt_cuda *c, struct dt_ssd &a, bool back);
/* Gradients of the states, from the last chunk on. */
int dt_ssd_states_backward(const struct dt_cuda *c, const struct dt_ssd &a);

/* Kernels of steps: a block's heads, one a lane; rows of each of its 8 warps. */
enum { DT_SSD_HEADS = 32, DT_SSD_RUN = DT_SSM_CHUNK / 8 };

/* log(1 + exp(v)) */
DT_DEVICE float dt_ssd_softplus(float v)
{
	return v > 20 ? v : log1pf(expf(v));
}

static inline int64_t dt_ssd_tiles(int64_t n)
{
	return dt_ceil_div(n, DT_PRODUCT_TILE);
}

/* ---- tiles of products ---- */

struct dt_f32 {
	enum { type = DT_F32 };
};

template <class T> struct dt_ssd_tile {
	typedef float sums[2][4][4];
	enum { threads = 128, room = DT_PRODUCT_ROOM };
};
template <> struct dt_ssd_tile<struct dt_f32> {
	typedef float sums[4][4];
	enum { threads = 256, room = DT_PRODUCT_TILE * (DT_PRODUCT_TILE + 1) * 4 };
};

/* A piece of an operand, rounded to T, in the layout of dt_product_add. */
template <class T, int V, class F>
DT_DEVICE void dt_ssd_fill(uint16_t *tile, bool along, int64_t depth, int64_t k0, F at)
{
	const int cols = along ? DT_PRODUCT_DEEP : DT_PRODUCT_TILE;

	for (int i = (int)threadIdx.x * V; i < DT_PRODUCT_TILE * DT_PRODUCT_DEEP; i += 128 * V) {
		const int r = i / cols, c = i % cols, row = along ? r : c;
		const int64_t k = k0 + (along ? c : r);
		uint16_t *to = tile + r * (cols + 8) + c;
		float v[V];

		for (int j = 0; j < V; j++)
			v[j] = 0;
		if (k < depth)
			at(v, row, k);
		if constexpr (V == 1) {
			*to = dt_narrow(v[0], T::type);
		} else {
			const uint4 u = {dt_pack<T>(v[0], v[1]), dt_pack<T>(v[2], v[3]),
					 dt_pack<T>(v[4], v[5]), dt_pack<T>(v[6], v[7])};

			*(uint4 *)to = u;
		}
	}
}

/*
 * d += a tile of a b over depth. a_at(r, i, k) fills r, V elements of row i of a from column k on if a_along
 * (then those behind depth are 0, or V divides depth), else of rows i to i + V - 1 of column k; b_at(r, j, k)
 * likewise of b transposed. Elements outside the operands are 0.
 */
template <class T, int V, class A, class B>
DT_DEVICE void dt_ssd_add(float (&d)[2][4][4], bool a_along, bool b_along, int64_t depth, A a_at, B b_at)
{
	dt_product_add<T>(d, !a_along, b_along, depth, [&](uint16_t *a, uint16_t *b, int64_t k) {
		dt_ssd_fill<T, V>(a, a_along, depth, k, a_at);
		dt_ssd_fill<T, V>(b, b_along, depth, k, b_at);
	});
}

template <class T, int V, class A, class B>
DT_DEVICE void dt_ssd_add(float (&d)[4][4], bool a_along, bool b_along, int64_t depth, A a_at, B b_at)
{
	dt_product_add(
		d, a_along, b_along, depth,
		[&](int i, int64_t k) {
			float r[1];

			a_at(r, i, k);
			return r[0];
		},
		[&](int j, int64_t k) {
			float r[1];

			b_at(r, j, k);
			return r[0];
		});
}

DT_DEVICE void dt_ssd_zero(float (&d)[2][4][4])
{
	dt_zero(d[0]);
	dt_zero(d[1]);
}

DT_DEVICE void dt_ssd_zero(float (&d)[4][4])
{
	dt_zero(d);
}

/* The tile in shared memory, rows of DT_PRODUCT_TILE + 1. */
template <class S> DT_DEVICE float *dt_ssd_shared(const S &d)
{
	float *tile = (float *)dt_shared();

	dt_product_each(d, [&](int i, int j, float v) { tile[i * (DT_PRODUCT_TILE + 1) + j] = v; });
	__syncthreads();
	return tile;
}

/* Calls put(row, column, value) for the tile's first `rows` rows and `cols` columns, neighbours by lanes. */
template <class S, class F> DT_DEVICE void dt_ssd_each(const S &d, int64_t rows, int64_t cols, F put)
{
	const float *tile = dt_ssd_shared(d);

	for (int u = (int)threadIdx.x; u < DT_PRODUCT_TILE * DT_PRODUCT_TILE; u += (int)blockDim.x) {
		const int i = u / DT_PRODUCT_TILE, j = u % DT_PRODUCT_TILE;

		if (i < rows && j < cols)
			put(i, j, tile[i * (DT_PRODUCT_TILE + 1) + j]);
	}
}

/* V elements times f, or zeros. */
template <int V>
DT_DEVICE void dt_ssd_ld(float (&r)[V], bool in, const void *p, int t, int64_t at, float f = 1)
{
	if (in)
		dt_ld<V>(r, p, t, at);
	DT_UNROLL
	for (int v = 0; v < V; v++)
		r[v] = in ? r[v] * f : 0;
}

/* ---- a chunk ---- */

struct dt_ssd_chunk {
	int64_t which, batch, at, row; /* of all; its sequence; position of the first row there, and of all */
	int n;			       /* rows */
};

DT_DEVICE struct dt_ssd_chunk dt_ssd_chunk_of(const struct dt_ssd &a, int64_t which)
{
	const int64_t at = which % a.chunks * DT_SSM_CHUNK, batch = which / a.chunks, left = a.p.seq - at;

	return {which, batch, at, batch * a.p.seq + at, (int)(left < DT_SSM_CHUNK ? left : DT_SSM_CHUNK)};
}

/* The chunk's first row in i's document; negative if that began in front of the chunk. */
DT_DEVICE int dt_ssd_low(const struct dt_ssd &a, const struct dt_ssd_chunk &c, int i)
{
	return a.p.first ? (int)(dt_at(a.p.first, c.row + i) - c.at) : (int)-c.at;
}

DT_DEVICE int64_t dt_ssd_group(const struct dt_ssd &a, int64_t head)
{
	return head / (a.p.heads / a.p.groups);
}
/* Where dt, cs, e, w of a head's chunk begin. */
DT_DEVICE int64_t dt_ssd_steps(const struct dt_ssd &a, const struct dt_ssd_chunk &c, int64_t head)
{
	return (c.batch * a.p.heads + head) * a.p.seq + c.at;
}
DT_DEVICE int64_t dt_ssd_state(const struct dt_ssd &a, int64_t which, int64_t head)
{
	return (which * a.p.heads + head) * a.p.state * a.p.head_dim;
}
/* Where row i of a chunk begins: of a head's x and dx, of its y and dy, of a group's B or (is_c) C. */
DT_DEVICE int64_t dt_ssd_x(const struct dt_ssd &a, const struct dt_ssd_chunk &c, int64_t i, int64_t head)
{
	return (c.row + i) * dt_ssm_conv(&a.p) + head * a.p.head_dim;
}
DT_DEVICE int64_t dt_ssd_dy(const struct dt_ssd &a, const struct dt_ssd_chunk &c, int64_t i, int64_t head)
{
	return (c.row + i) * dt_ssm_inner(&a.p) + head * a.p.head_dim;
}
DT_DEVICE int64_t dt_ssd_bc(const struct dt_ssd &a, const struct dt_ssd_chunk &c, int64_t i, int64_t group,
			    bool is_c)
{
	return (c.row + i) * dt_ssm_conv(&a.p) + dt_ssm_inner(&a.p) +
	       (is_c ? a.p.groups + group : group) * a.p.state;
}

/* dt, cs, e and w of a head's chunk in shared memory. */
struct dt_ssd_rows {
	float dt[DT_SSM_CHUNK], cs[DT_SSM_CHUNK], e[DT_SSM_CHUNK], w[DT_SSM_CHUNK];
	int low[DT_SSM_CHUNK];
};

DT_DEVICE void dt_ssd_read(struct dt_ssd_rows *r, const struct dt_ssd &a, const struct dt_ssd_chunk &c,
			   int64_t head)
{
	const int64_t at = dt_ssd_steps(a, c, head);

	__syncthreads(); /* those of the head before have been read */
	for (int i = (int)threadIdx.x; i < c.n; i += (int)blockDim.x) {
		r->dt[i] = dt_ld1(a.dt, DT_F32, at + i);
		r->cs[i] = dt_ld1(a.cs, DT_F32, at + i);
		r->e[i] = dt_ld1(a.e, DT_F32, at + i);
		r->w[i] = dt_ld1(a.w, DT_F32, at + i);
		r->low[i] = dt_ssd_low(a, c, i);
	}
	__syncthreads();
}

/* L_ij; of rows and columns of the chunk. */
DT_DEVICE float dt_ssd_decay(const struct dt_ssd_rows *r, int i, int j)
{
	return j <= i && j >= r->low[i] ? expf(r->cs[i] - r->cs[j]) : 0;
}

/* V elements of L o G from row i and column j on. */
template <int V>
DT_DEVICE void dt_ssd_mask(float (&m)[V], const struct dt_ssd_rows *r, const float *g, int n, int i, int j)
{
	dt_ssd_ld(m, i < n && j <= i, g, DT_F32, i * DT_SSM_CHUNK + j);
	DT_UNROLL
	for (int v = 0; v < V; v++)
		m[v] = i < n && j + v <= i ? m[v] * dt_ssd_decay(r, i, j + v) : 0;
}

/* What a block has in shared memory behind its tile: those, and sums of 64 rows. */
#define DT_SSD_ROOM (sizeof(struct dt_ssd_rows) + 4 * DT_PRODUCT_TILE * sizeof(float))

template <class T> DT_DEVICE struct dt_ssd_rows *dt_ssd_rows_room(void)
{
	return (struct dt_ssd_rows *)(dt_shared() + dt_ssd_tile<T>::room);
}

/*
 * y (y - D x of the contract) of rows i0 to i0 + 63 and columns p0 to p0 + 63 of a head's chunk into d.
 */
template <class T, int V, class S>
DT_DEVICE void dt_ssd_out(S &d, const struct dt_ssd &a, const struct dt_ssd_chunk &c,
			  const struct dt_ssd_rows *rows, int64_t head, int i0, int p0)
{
	const int64_t group = dt_ssd_group(a, head), state = dt_ssd_state(a, c.which, head);
	const float *g = a.g + (c.which * a.p.groups + group) * DT_SSM_CHUNK * DT_SSM_CHUNK;
	const int end = i0 + DT_PRODUCT_TILE < c.n ? i0 + DT_PRODUCT_TILE : c.n;

	dt_ssd_add<T, V>(
		d, true, false, end,
		[&](auto &r, int i, int64_t j) { dt_ssd_mask(r, rows, g, c.n, i0 + i, (int)j); },
		[&](auto &r, int col, int64_t j) {
			dt_ssd_ld(r, p0 + col < a.p.head_dim, a.xbc, T::type,
				  dt_ssd_x(a, c, j, head) + p0 + col, rows->dt[j]);
		});
	dt_ssd_add<T, V>(
		d, true, false, a.p.state,
		[&](auto &r, int i, int64_t k) {
			const bool in = i0 + i < c.n;

			dt_ssd_ld(r, in, a.xbc, T::type, dt_ssd_bc(a, c, i0 + i, group, true) + k,
				  in ? rows->e[i0 + i] : 0);
		},
		[&](auto &r, int col, int64_t k) {
			dt_ssd_ld(r, p0 + col < a.p.head_dim, a.states, DT_F32,
				  state + k * a.p.head_dim + p0 + col);
		});
}

/* ---- host code ---- */

/* Whether rows of all operands can be read 8 elements at a time. */
static inline bool dt_ssd_by_8(const struct dt_ssd &a)
{
	return a.p.state % 8 == 0 && dt_by_8(a.p.head_dim, a.xbc, a.dy);
}

/* Launches the kernel<T, V> that a's type and sizes want, with `blocks` blocks and these arguments. */
#define DT_SSD_LAUNCH(c, a, kernel, blocks, ...)                                                             \
	((a).type == DT_F32                                                                                  \
		 ? DT_SSD_ONE(c, a, (kernel<struct dt_f32, 1>), struct dt_f32, blocks, __VA_ARGS__)          \
	 : (a).type == DT_BF16 ? (dt_ssd_by_8(a) ? DT_SSD_ONE(c, a, (kernel<struct dt_bf16, 8>),             \
							      struct dt_bf16, blocks, __VA_ARGS__)           \
						 : DT_SSD_ONE(c, a, (kernel<struct dt_bf16, 1>),             \
							      struct dt_bf16, blocks, __VA_ARGS__))          \
	 : dt_ssd_by_8(a)                                                                                    \
		 ? DT_SSD_ONE(c, a, (kernel<struct dt_f16, 8>), struct dt_f16, blocks, __VA_ARGS__)          \
		 : DT_SSD_ONE(c, a, (kernel<struct dt_f16, 1>), struct dt_f16, blocks, __VA_ARGS__))
#define DT_SSD_ONE(c, a, kernel, T, blocks, ...)                                                             \
	DT_LAUNCH(c, kernel, (unsigned)(blocks), (unsigned)dt_ssd_tile<T>::threads,                          \
		  (size_t)dt_ssd_tile<T>::room + DT_SSD_ROOM, __VA_ARGS__)

#endif
/* SPDX-License-Identifier: Apache-2.0 */
