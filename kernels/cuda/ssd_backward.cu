/*
 * The chunked scan, backward, in the notation of ssd.h. With dS, dS' the gradients of the states in front of
 * the chunk and behind it, of each head:
 *   dS = e_last dS' + C^T (e o dy)            dG = sum over the group's heads of (dy x^T) o L o dt
 *   Z  = (L o G)^T dy + w o (B dS')           dx = dt Z + D dy
 *   dC = dG B + sum over heads of e o (dy S^T)
 *   dB = dG^T C + sum over heads of w o dt o (x dS'^T)
 * In these sums over heads, heads and head_dim are one dimension of a product. Of cs: each factor exp(cs_i -
 * cs_j) adds its gradient times itself to cs_i and takes it from cs_j. Row i is the first in all terms of
 * dy_i (y_i - D x_i), the second in all of dt_i x_i Z_i; the last row is in those of <dS', S'>, too.
 */
#include "kernels/cuda/groups.h"
#include "kernels/cuda/ssd.h"

/* ---- dG ---- */

/* A tile of dG of a group's chunk, on or below the diagonal. */
template <class T, int V>
static __global__ void __launch_bounds__(dt_ssd_tile<T>::threads)
	pairs_back_kernel(struct dt_ssd a, int64_t tiles)
{
	const int tile = (int)(blockIdx.x % tiles), i0 = (tile > 0) * 64, j0 = (tile > 1) * 64;
	const int64_t group = blockIdx.x / tiles % a.p.groups, each = a.p.heads / a.p.groups;
	const struct dt_ssd_chunk c = dt_ssd_chunk_of(a, blockIdx.x / tiles / a.p.groups);
	float *dg = a.dg + (c.which * a.p.groups + group) * DT_SSM_CHUNK * DT_SSM_CHUNK;
	struct dt_ssd_rows *rows = dt_ssd_rows_room<T>();
	typename dt_ssd_tile<T>::sums d;
	float sum[sizeof d / sizeof(float)];

	if (i0 >= c.n)
		return;
	DT_UNROLL
	for (int k = 0; k < (int)(sizeof d / sizeof(float)); k++)
		sum[k] = 0;
	for (int64_t head = group * each; head < (group + 1) * each; head++) {
		int at = 0;

		dt_ssd_read(rows, a, c, head);
		dt_ssd_zero(d);
		dt_ssd_add<T, V>(
			d, true, true, a.p.head_dim,
			[&](auto &r, int i, int64_t k) {
				dt_ssd_ld(r, i0 + i < c.n, a.dy, T::type, dt_ssd_dy(a, c, i0 + i, head) + k);
			},
			[&](auto &r, int j, int64_t k) {
				dt_ssd_ld(r, j0 + j < c.n, a.xbc, T::type, dt_ssd_x(a, c, j0 + j, head) + k);
			});
		dt_product_each(d, [&](int i, int j, float v) {
			if (i0 + i < c.n && j0 + j <= i0 + i)
				sum[at] += v * dt_ssd_decay(rows, i0 + i, j0 + j) * rows->dt[j0 + j];
			at++;
		});
	}
	int at = 0;

	dt_product_each(d, [&](int i, int j, float v) {
		dt_st1(dg, DT_F32, (i0 + i) * DT_SSM_CHUNK + j0 + j, sum[at++]);
	});
}

/* ---- dx ---- */

/*
 * of(s, row, column, value) adds to s [N], for each element of the tile's first rows and columns. Adds their
 * sums over a row to sums [N, 64]: a warp a row.
 */
template <int N, class S, class F>
DT_DEVICE void row_sums(const S &d, float *sums, int64_t rows, int64_t cols, F of)
{
	const float *tile = dt_ssd_shared(d);
	const int lane = (int)threadIdx.x % 32;

	for (int i = (int)threadIdx.x / 32; i < rows; i += (int)blockDim.x / 32) {
		float s[N] = {0};

		for (int j = lane; j < DT_PRODUCT_TILE && j < cols; j += 32)
			of(s, i, j, tile[i * (DT_PRODUCT_TILE + 1) + j]);
		for (int k = 0; k < N; k++) {
			const float all = dt_warp_sum(s[k]);

			if (lane == 0)
				sums[k * DT_PRODUCT_TILE + i] += all;
		}
	}
	__syncthreads();
}

/* Z of 64 rows from j0 on and of 64 columns into d. */
template <class T, int V, class S>
DT_DEVICE void back_in(S &d, const struct dt_ssd &a, const struct dt_ssd_chunk &c,
		       const struct dt_ssd_rows *rows, int64_t head, int j0, int p0)
{
	const int64_t group = dt_ssd_group(a, head), state = dt_ssd_state(a, c.which, head);
	const float *g = a.g + (c.which * a.p.groups + group) * DT_SSM_CHUNK * DT_SSM_CHUNK;

	dt_ssd_add<T, V>(
		d, false, false, c.n - j0,
		[&](auto &r, int j, int64_t k) { dt_ssd_mask(r, rows, g, c.n, j0 + (int)k, j0 + j); },
		[&](auto &r, int col, int64_t k) {
			dt_ssd_ld(r, p0 + col < a.p.head_dim, a.dy, T::type,
				  dt_ssd_dy(a, c, j0 + k, head) + p0 + col);
		});
	dt_ssd_add<T, V>(
		d, true, false, a.p.state,
		[&](auto &r, int j, int64_t k) {
			const bool in = j0 + j < c.n;

			dt_ssd_ld(r, in, a.xbc, T::type, dt_ssd_bc(a, c, j0 + j, group, false) + k,
				  in ? rows->w[j0 + j] : 0);
		},
		[&](auto &r, int col, int64_t k) {
			dt_ssd_ld(r, p0 + col < a.p.head_dim, a.dstates, DT_F32,
				  state + k * a.p.head_dim + p0 + col);
		});
}

/* dx of 64 rows of a head's chunk, and their sums. */
template <class T, int V>
static __global__ void __launch_bounds__(dt_ssd_tile<T>::threads) in_back_kernel(struct dt_ssd a)
{
	const int i0 = (int)(blockIdx.x % 2) * 64;
	const int64_t head = blockIdx.x / 2 % a.p.heads;
	const struct dt_ssd_chunk c = dt_ssd_chunk_of(a, blockIdx.x / 2 / a.p.heads);
	const int64_t to = dt_ssd_steps(a, c, head) + i0, all = a.p.batch * a.p.heads * a.p.seq;
	struct dt_ssd_rows *rows = dt_ssd_rows_room<T>();
	float *sums = (float *)(rows + 1); /* [4, 64] */
	typename dt_ssd_tile<T>::sums d;

	if (i0 >= c.n)
		return;
	const int n = c.n - i0 < 64 ? c.n - i0 : 64;
	const float skip = dt_ld1(a.d, a.td, head);

	for (int i = (int)threadIdx.x; i < 4 * 64; i += (int)blockDim.x)
		sums[i] = 0;
	dt_ssd_read(rows, a, c, head);
	for (int p0 = 0; p0 < a.p.head_dim; p0 += 64) {
		dt_ssd_zero(d);
		dt_ssd_out<T, V>(d, a, c, rows, head, i0, p0);
		row_sums<1>(d, sums, n, a.p.head_dim - p0, [&](float *s, int i, int col, float v) {
			s[DT_SSD_OUT] += v * dt_ld1(a.dy, T::type, dt_ssd_dy(a, c, i0 + i, head) + p0 + col);
		});
		dt_ssd_zero(d);
		back_in<T, V>(d, a, c, rows, head, i0, p0);
		row_sums<3>(d, sums + 64, n, a.p.head_dim - p0, [&](float *s, int i, int col, float v) {
			const int64_t at = dt_ssd_x(a, c, i0 + i, head) + p0 + col;
			const float x = dt_ld1(a.xbc, T::type, at), step = rows->dt[i0 + i],
				    dy = dt_ld1(a.dy, T::type, dt_ssd_dy(a, c, i0 + i, head) + p0 + col);

			/* dt x as the product of dt_ssd_out has it: the two sums cancel in part */
			s[DT_SSD_IN - 1] += dt_rounded(step * x, T::type) * v;
			s[DT_SSD_STEP - 1] += x * v;
			s[DT_SSD_SKIP - 1] += x * dy;
			dt_st1(a.dxbc, T::type, at, step * v + skip * dy);
		});
	}
	for (int i = (int)threadIdx.x; i < 4 * 64; i += (int)blockDim.x)
		if (i % 64 < n)
			dt_st1(a.rows, DT_F32, i / 64 * all + to + i % 64, sums[i]);
}

/* ---- dB and dC ---- */

/* 64 rows and 64 columns of dC, or (not is_c) of dB, of a group's chunk. */
template <class T, int V>
static __global__ void __launch_bounds__(dt_ssd_tile<T>::threads)
	bc_back_kernel(struct dt_ssd a, int64_t across)
{
	const int i0 = (int)(blockIdx.x % 2) * 64;
	const bool is_c = blockIdx.x / 2 % 2;
	const int n0 = (int)(blockIdx.x / 4 % across) * 64, d_n = (int)a.p.head_dim;
	const int64_t group = blockIdx.x / 4 / across % a.p.groups, each = a.p.heads / a.p.groups;
	const struct dt_ssd_chunk c = dt_ssd_chunk_of(a, blockIdx.x / 4 / across / a.p.groups);
	const float *dg = a.dg + (c.which * a.p.groups + group) * DT_SSM_CHUNK * DT_SSM_CHUNK,
		    *states = is_c ? a.states : a.dstates;
	const int64_t k0 = is_c ? 0 : i0, end = is_c && c.n > i0 + 64 ? i0 + 64 : c.n;
	typename dt_ssd_tile<T>::sums d;

	if (i0 >= c.n)
		return;
	dt_ssd_zero(d);
	dt_ssd_add<T, V>(
		d, is_c, false, end - k0,
		[&](auto &r, int i, int64_t k) {
			dt_ssd_ld(r, true, dg, DT_F32,
				  is_c ? (i0 + i) * DT_SSM_CHUNK + k : (k0 + k) * DT_SSM_CHUNK + i0 + i);
		},
		[&](auto &r, int n, int64_t k) {
			dt_ssd_ld(r, n0 + n < a.p.state, a.xbc, T::type,
				  dt_ssd_bc(a, c, k0 + k, group, !is_c) + n0 + n);
		});
	dt_ssd_add<T, V>(
		d, true, true, each * d_n,
		[&](auto &r, int i, int64_t k) {
			const int64_t head = group * each + (int)k / d_n, col = (int)k % d_n,
				      at = dt_ssd_steps(a, c, head) + i0 + i;

			if (i0 + i >= c.n)
				dt_ssd_ld(r, false, a.dy, T::type, 0);
			else if (is_c)
				dt_ssd_ld(r, true, a.dy, T::type, dt_ssd_dy(a, c, i0 + i, head) + col,
					  dt_ld1(a.e, DT_F32, at));
			else
				dt_ssd_ld(r, true, a.xbc, T::type, dt_ssd_x(a, c, i0 + i, head) + col,
					  dt_ld1(a.w, DT_F32, at) * dt_ld1(a.dt, DT_F32, at));
		},
		[&](auto &r, int n, int64_t k) {
			const int64_t head = group * each + (int)k / d_n;

			dt_ssd_ld(r, n0 + n < a.p.state, states, DT_F32,
				  dt_ssd_state(a, c.which, head) + (n0 + n) * d_n + (int)k % d_n);
		});
	dt_ssd_each(d, c.n - i0, a.p.state - n0, [&](int i, int n, float v) {
		dt_st1(a.dxbc, T::type, dt_ssd_bc(a, c, i0 + i, group, is_c) + n0 + n, v);
	});
}

/* ---- t, dt_bias, a_log and D ---- */

/* <dS', S'> of a head's chunk; 0 behind the last chunk. */
static __global__ void __launch_bounds__(256) last_kernel(struct dt_ssd a)
{
	const int64_t size = a.p.state * a.p.head_dim, which = blockIdx.x / a.p.heads,
		      head = blockIdx.x % a.p.heads;
	float s = 0;

	if ((which + 1) % a.chunks)
		for (int64_t i = threadIdx.x; i < size; i += blockDim.x)
			s += dt_ld1(a.dstates, DT_F32, dt_ssd_state(a, which, head) + i) *
			     dt_ld1(a.states, DT_F32, dt_ssd_state(a, which + 1, head) + i);
	s = dt_block_sum(s, (float *)dt_shared());
	if (threadIdx.x == 0)
		dt_st1(a.last, DT_F32, blockIdx.x, s);
}

/* v of the warps behind this one, in order; sums: [8 warps, DT_SSD_HEADS]. */
DT_DEVICE double behind(double v, double *sums, double *ret_all)
{
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	double r = 0;

	__syncthreads();
	sums[warp * DT_SSD_HEADS + lane] = v;
	__syncthreads();
	*ret_all = 0;
	for (int k = 7; k >= 0; k--) {
		r = k == warp ? *ret_all : r;
		*ret_all += sums[k * DT_SSD_HEADS + lane];
	}
	return r;
}

/* Gradients of t of DT_SSD_HEADS heads of a chunk, and the chunk's shares of those of the vectors. */
static __global__ void __launch_bounds__(256) steps_back_kernel(struct dt_ssd a, int64_t sets)
{
	const struct dt_ssd_chunk c = dt_ssd_chunk_of(a, blockIdx.x / sets);
	const int lane = (int)threadIdx.x % 32, first = (int)threadIdx.x / 32 * DT_SSD_RUN;
	const int64_t head = blockIdx.x % sets * DT_SSD_HEADS + lane, all = a.p.batch * a.p.heads * a.p.seq;
	const bool has = head < a.p.heads;
	const int64_t at = dt_ssd_steps(a, c, has ? head : 0) + first;
	const float decay = has ? -expf(dt_ld1(a.a_log, a.ta, head)) : 0;
	double *sums = (double *)dt_shared(), part[DT_SSD_RUN], later = 0, sum[3] = {0, 0, 0};

	/* part[i]: the gradients of cs from row i to the end of the warp's rows */
	DT_UNROLL
	for (int i = DT_SSD_RUN - 1; i >= 0; i--) {
		if (has && first + i < c.n)
			later += (double)dt_ld1(a.rows, DT_F32, DT_SSD_OUT * all + at + i) -
				 (double)dt_ld1(a.rows, DT_F32, DT_SSD_IN * all + at + i);
		if (has && first + i == c.n - 1)
			later += (double)dt_ld1(a.last, DT_F32, c.which * a.p.heads + head);
		part[i] = later;
	}
	later = behind(later, sums, &sum[0]);
	sum[0] = 0;
	DT_UNROLL
	for (int i = 0; i < DT_SSD_RUN; i++) {
		if (!has || first + i >= c.n)
			continue;
		const double of = part[i] + later; /* of dt_i A, which all later sums contain */
		const float step = dt_ld1(a.dt, DT_F32, at + i);
		/* the derivative of softplus: 1 - exp(-dt) */
		const double raw =
			((double)dt_ld1(a.rows, DT_F32, DT_SSD_STEP * all + at + i) + of * (double)decay) *
			-(double)expm1f(-step);

		dt_st1(a.dsteps, a.type, (c.row + first + i) * a.p.heads + head, (float)raw);
		sum[0] += raw;
		sum[1] += of * (double)(step * decay);
		sum[2] += (double)dt_ld1(a.rows, DT_F32, DT_SSD_SKIP * all + at + i);
	}
	for (int k = 0; k < 3; k++) {
		double whole;

		behind(sum[k], sums, &whole);
		if (has && first == 0)
			dt_st1(a.parts, DT_F32, (c.which * 3 + k) * a.p.heads + head, (float)whole);
	}
}

static int finish(const struct dt_cuda *c, const struct dt_ssd &a, const struct dt_tensor (&out)[3])
{
	const int64_t sets = dt_ceil_div(a.p.heads, DT_SSD_HEADS), heads = a.p.heads;
	int rc = DT_LAUNCH(c, last_kernel, (unsigned)(a.all * heads), 256, 32, a);

	if (rc == 0)
		rc = DT_LAUNCH(c, steps_back_kernel, (unsigned)(a.all * sets), 256,
			       8 * DT_SSD_HEADS * sizeof(double), a, sets);
	for (int k = 0; k < 3 && rc == 0; k++)
		if (out[k].data)
			rc = dt_groups_add(c, (float *)out[k].data, a.parts + k * heads, 3 * heads, a.all,
					   heads);
	return rc;
}

int dt_cuda_ssm_scan_backward(struct dt_dev *dev, struct dt_tensor dxbc, struct dt_tensor dt,
			      struct dt_tensor ddt_bias, struct dt_tensor da_log, struct dt_tensor dd,
			      struct dt_tensor dy, struct dt_tensor xbc, struct dt_tensor t,
			      struct dt_tensor dt_bias, struct dt_tensor a_log, struct dt_tensor d,
			      const struct dt_ssm *p)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t across = dt_ssd_tiles(p->state), tiles = p->seq > 64 ? 3 : 1;
	struct dt_ssd a = {};
	int rc;

	if (!c)
		return -ENODEV;
	a.p = *p;
	a.xbc = xbc.data, a.t = t.data, a.bias = dt_bias.data, a.a_log = a_log.data, a.d = d.data;
	a.type = xbc.dtype, a.tbias = dt_bias.dtype, a.ta = a_log.dtype, a.td = d.dtype;
	a.dy = dy.data, a.dxbc = dxbc.data, a.dsteps = dt.data;
	rc = dt_ssd_open(dev, c, a, true);
	if (rc == 0)
		rc = dt_ssd_states_backward(c, a);
	if (rc == 0)
		rc = DT_SSD_LAUNCH(c, a, pairs_back_kernel, a.all * p->groups * tiles, a, tiles);
	if (rc == 0)
		rc = DT_SSD_LAUNCH(c, a, in_back_kernel, a.all * p->heads * 2, a);
	if (rc == 0)
		rc = DT_SSD_LAUNCH(c, a, bc_back_kernel, a.all * p->groups * across * 4, a, across);
	return rc < 0 ? rc : finish(c, a, {ddt_bias, da_log, dd});
}
/* SPDX-License-Identifier: Apache-2.0 */
