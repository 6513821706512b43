/* The chunked scan of ssm.h, forward, and what backward shares with it. */
#include "kernels/cuda/ssd.h"

/* ---- steps ---- */

/* dt, cs, e and w of DT_SSD_HEADS heads of a chunk. */
static __global__ void __launch_bounds__(256) steps_kernel(struct dt_ssd a, int64_t sets)
{
	const struct dt_ssd_chunk c = dt_ssd_chunk_of(a, blockIdx.x / sets);
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, first = warp * DT_SSD_RUN;
	const int64_t head = blockIdx.x % sets * DT_SSD_HEADS + lane;
	const bool has = head < a.p.heads;
	double *sums = (double *)dt_shared(), part[DT_SSD_RUN], sum = 0; /* sums [8 warps, DT_SSD_HEADS] */
	float step[DT_SSD_RUN];

	if (has) {
		const float bias = dt_ld1(a.bias, a.tbias, head);
		const double decay = -(double)expf(dt_ld1(a.a_log, a.ta, head));

		DT_UNROLL
		for (int i = 0; i < DT_SSD_RUN; i++) {
			step[i] = 0;
			if (first + i < c.n) {
				const int64_t row = c.row + first + i;

				step[i] = dt_ssd_softplus(dt_ld1(a.t, a.type, row * a.p.heads + head) + bias);
			}
			sum += (double)step[i] * decay;
			part[i] = sum;
		}
	}
	sums[warp * DT_SSD_HEADS + lane] = sum;
	__syncthreads();
	if (!has)
		return;
	double before = 0, all = 0;

	for (int k = 0; k < 8; k++) {
		before = k == warp ? all : before;
		all += sums[k * DT_SSD_HEADS + lane];
	}
	const int64_t to = dt_ssd_steps(a, c, head);
	const int low = dt_ssd_low(a, c, c.n - 1);

	DT_UNROLL
	for (int i = 0; i < DT_SSD_RUN; i++) {
		const int row = first + i;

		if (row >= c.n)
			continue;
		const float cs = (float)(before + part[i]);

		dt_st1(a.dt, DT_F32, to + row, step[i]);
		dt_st1(a.cs, DT_F32, to + row, cs);
		dt_st1(a.e, DT_F32, to + row, dt_ssd_low(a, c, row) < 0 ? expf(cs) : 0);
		dt_st1(a.w, DT_F32, to + row, row >= low ? expf((float)all - cs) : 0);
	}
}

/* ---- G and states ---- */

/* A tile of G = C B^T of a group's chunk, on or below the diagonal. */
template <class T, int V>
static __global__ void __launch_bounds__(dt_ssd_tile<T>::threads) pairs_kernel(struct dt_ssd a, int64_t tiles)
{
	const int tile = (int)(blockIdx.x % tiles), i0 = (tile > 0) * 64, j0 = (tile > 1) * 64;
	const int64_t group = blockIdx.x / tiles % a.p.groups;
	const struct dt_ssd_chunk c = dt_ssd_chunk_of(a, blockIdx.x / tiles / a.p.groups);
	float *g = a.g + (c.which * a.p.groups + group) * DT_SSM_CHUNK * DT_SSM_CHUNK;
	typename dt_ssd_tile<T>::sums d;

	if (i0 >= c.n)
		return;
	dt_ssd_zero(d);
	dt_ssd_add<T, V>(
		d, true, true, a.p.state,
		[&](auto &r, int i, int64_t k) {
			dt_ssd_ld(r, i0 + i < c.n, a.xbc, T::type, dt_ssd_bc(a, c, i0 + i, group, true) + k);
		},
		[&](auto &r, int j, int64_t k) {
			dt_ssd_ld(r, j0 + j < c.n, a.xbc, T::type, dt_ssd_bc(a, c, j0 + j, group, false) + k);
		});
	dt_ssd_each(d, 64, 64,
		    [&](int i, int j, float v) { dt_st1(g, DT_F32, (i0 + i) * DT_SSM_CHUNK + j0 + j, v); });
}

/*
 * A tile of what a head's chunk adds to the state behind it, B^T (w o dt o x); or (back) to the gradient of
 * that in front of it, C^T (e o dy).
 */
template <class T, int V>
static __global__ void __launch_bounds__(dt_ssd_tile<T>::threads)
	state_kernel(struct dt_ssd a, bool back, int64_t across, int64_t tiles)
{
	const int64_t k = blockIdx.x / tiles / a.p.heads, chunks = a.chunks - 1,
		      which = k / chunks * a.chunks + k % chunks + (back ? 1 : 0),
		      head = blockIdx.x / tiles % a.p.heads, group = dt_ssd_group(a, head);
	const int n0 = (int)(blockIdx.x % tiles / across) * 64, p0 = (int)(blockIdx.x % tiles % across) * 64;
	const struct dt_ssd_chunk c = dt_ssd_chunk_of(a, which);
	struct dt_ssd_rows *rows = dt_ssd_rows_room<T>();
	float *to = back ? a.dstates + dt_ssd_state(a, which - 1, head)
			 : a.states + dt_ssd_state(a, which + 1, head);
	typename dt_ssd_tile<T>::sums d;

	dt_ssd_read(rows, a, c, head);
	dt_ssd_zero(d);
	dt_ssd_add<T, V>(
		d, false, false, c.n,
		[&](auto &r, int n, int64_t i) {
			dt_ssd_ld(r, n0 + n < a.p.state, a.xbc, T::type,
				  dt_ssd_bc(a, c, i, group, back) + n0 + n);
		},
		[&](auto &r, int col, int64_t i) {
			const bool in = p0 + col < a.p.head_dim;

			if (back)
				dt_ssd_ld(r, in, a.dy, T::type, dt_ssd_dy(a, c, i, head) + p0 + col,
					  rows->e[i]);
			else
				dt_ssd_ld(r, in, a.xbc, T::type, dt_ssd_x(a, c, i, head) + p0 + col,
					  rows->w[i] * rows->dt[i]);
		});
	dt_ssd_each(d, a.p.state - n0, a.p.head_dim - p0, [&](int n, int col, float v) {
		dt_st1(to, DT_F32, (n0 + n) * a.p.head_dim + p0 + col, v);
	});
}

/* The states, or (back) their gradients, from what each chunk adds: an element of a head's state a thread. */
static __global__ void __launch_bounds__(256) pass_kernel(struct dt_ssd a, bool back)
{
	const int64_t size = a.p.state * a.p.head_dim, each = a.p.heads * size,
		      step = (int64_t)gridDim.x * blockDim.x;
	float *states = back ? a.dstates : a.states;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.p.batch * each; i += step) {
		const int64_t batch = i / each, head = i % each / size;
		const float *e = a.e + (batch * a.p.heads + head) * a.p.seq;
		float s = 0;

		for (int64_t k = 0; k < a.chunks; k++) {
			const int64_t chunk = back ? a.chunks - 1 - k : k,
				      from = back ? chunk + 1 : chunk - 1, /* the chunk between */
				at = (batch * a.chunks + chunk) * each + i % each,
				      end = from * DT_SSM_CHUNK + DT_SSM_CHUNK;

			if (k)
				s = dt_ld1(e, DT_F32, (end < a.p.seq ? end : a.p.seq) - 1) * s +
				    dt_ld1(states, DT_F32, at);
			dt_st1(states, DT_F32, at, s);
		}
	}
}

static int states(const struct dt_cuda *c, const struct dt_ssd &a, bool back)
{
	const int64_t across = dt_ssd_tiles(a.p.head_dim), tiles = across * dt_ssd_tiles(a.p.state),
		      all = a.p.batch * (a.chunks - 1) * a.p.heads * tiles;
	const int rc = all ? DT_SSD_LAUNCH(c, a, state_kernel, all, a, back, across, tiles) : 0;

	return rc < 0 ? rc
		      : DT_LAUNCH(c, pass_kernel,
				  dt_blocks(c, a.p.batch * a.p.heads * a.p.state * a.p.head_dim, 256), 256, 0,
				  a, back);
}

int dt_ssd_states_backward(const struct dt_cuda *c, const struct dt_ssd &a)
{
	return states(c, a, true);
}

/* ---- the scan ---- */

/* Takes n floats of scratch from *at on, in pieces of 256 bytes. base NULL: only counts. */
static float *take(float *base, int64_t *at, int64_t n)
{
	float *p = base ? base + *at : NULL;

	*at += (n + 63) / 64 * 64;
	return p;
}

static int64_t place(struct dt_ssd &a, float *base, bool back)
{
	const int64_t rows = a.p.batch * a.p.heads * a.p.seq, q = DT_SSM_CHUNK,
		      size = a.all * a.p.heads * a.p.state * a.p.head_dim, pairs = a.all * a.p.groups * q * q;
	int64_t at = 0;

	a.dt = take(base, &at, rows);
	a.cs = take(base, &at, rows);
	a.e = take(base, &at, rows);
	a.w = take(base, &at, rows);
	a.states = take(base, &at, size);
	a.g = take(base, &at, pairs);
	if (back) {
		a.dstates = take(base, &at, size);
		a.dg = take(base, &at, pairs);
		a.rows = take(base, &at, 4 * rows);
		a.last = take(base, &at, a.all * a.p.heads);
		a.parts = take(base, &at, a.all * 3 * a.p.heads);
	}
	return at;
}

int dt_ssd_open(struct dt_dev *dev, const struct dt_cuda *c, struct dt_ssd &a, bool back)
{
	const int64_t sets = dt_ceil_div(a.p.heads, DT_SSD_HEADS), tiles = a.p.seq > 64 ? 3 : 1;
	float *base;
	int rc;

	a.chunks = dt_ceil_div(a.p.seq, DT_SSM_CHUNK);
	a.all = a.p.batch * a.chunks;
	base = (float *)dt_cuda_scratch(dev, (size_t)place(a, NULL, back) * sizeof *base);
	if (!base)
		return -ENOMEM;
	place(a, base, back);
	rc = DT_LAUNCH(c, steps_kernel, (unsigned)(a.all * sets), 256, 8 * DT_SSD_HEADS * sizeof(double), a,
		       sets);
	if (rc == 0)
		rc = DT_SSD_LAUNCH(c, a, pairs_kernel, a.all * a.p.groups * tiles, a, tiles);
	return rc < 0 ? rc : states(c, a, false);
}

/* y of 64 rows and 64 columns of a head's chunk. */
template <class T, int V>
static __global__ void __launch_bounds__(dt_ssd_tile<T>::threads)
	scan_kernel(struct dt_ssd a, void *y, int64_t across)
{
	const int i0 = (int)(blockIdx.x % 2) * 64, p0 = (int)(blockIdx.x / 2 % across) * 64;
	const int64_t head = blockIdx.x / 2 / across % a.p.heads;
	const struct dt_ssd_chunk c = dt_ssd_chunk_of(a, blockIdx.x / 2 / across / a.p.heads);
	struct dt_ssd_rows *rows = dt_ssd_rows_room<T>();
	typename dt_ssd_tile<T>::sums d;

	if (i0 >= c.n)
		return;
	const float skip = dt_ld1(a.d, a.td, head);

	dt_ssd_read(rows, a, c, head);
	dt_ssd_zero(d);
	dt_ssd_out<T, V>(d, a, c, rows, head, i0, p0);
	dt_ssd_each(d, c.n - i0, a.p.head_dim - p0, [&](int i, int col, float v) {
		const float x = dt_ld1(a.xbc, T::type, dt_ssd_x(a, c, i0 + i, head) + p0 + col);

		dt_st1(y, T::type, dt_ssd_dy(a, c, i0 + i, head) + p0 + col, v + skip * x);
	});
}

int dt_cuda_ssm_scan(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor xbc, struct dt_tensor t,
		     struct dt_tensor dt_bias, struct dt_tensor a_log, struct dt_tensor d,
		     const struct dt_ssm *p)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t across = dt_ssd_tiles(p->head_dim);
	struct dt_ssd a = {};
	int rc;

	if (!c)
		return -ENODEV;
	a.p = *p;
	a.xbc = xbc.data, a.t = t.data, a.bias = dt_bias.data, a.a_log = a_log.data, a.d = d.data;
	a.type = xbc.dtype, a.tbias = dt_bias.dtype, a.ta = a_log.dtype, a.td = d.dtype;
	rc = dt_ssd_open(dev, c, a, false);
	return rc < 0 ? rc
		      : DT_SSD_LAUNCH(c, a, scan_kernel, a.all * p->heads * across * 2, a, y.data, across);
}
/* SPDX-License-Identifier: Apache-2.0 */
