/*
 * Mamba-2's convolution and scan in serving (ssm.h): rows of several sequences, and what each leaves. A call
 * of one token per sequence is bound by reading and writing its states, 8 bytes per element; further tokens
 * of a sequence find them in registers, unless a state has more than PIECE rows. 5 flops per element and
 * token.
 */
#include "kernels/cuda/act.h"
#include "kernels/cuda/ssd.h"

struct serving {
	struct dt_ssm p;
	const void *in, *t, *w, *bias, *a_log, *d; /* in: u, or xbc; bias: of the convolution, or of t */
	void *out;
	float *base;
	int type, tw, tb, ta, td;
	int nseq;
	const int32_t *q_start, *pos, *slot;
	int64_t slots;
};

/* The sequence's slot; NULL: it has none, and its rows are skipped. */
DT_DEVICE float *slot_of(const struct serving &a, int seq)
{
	const int64_t slot = dt_at(a.slot, seq);

	return slot < 0 || slot >= a.slots ? NULL : a.base + slot * dt_ssm_slot(&a.p);
}

/* ---- the convolution ---- */

/* The sequence that has the row. */
DT_DEVICE int seq_of(const struct serving &a, int64_t row)
{
	int lo = 0, hi = a.nseq;

	while (hi - lo > 1) {
		const int mid = (lo + hi) / 2;

		if (dt_at(a.q_start, mid) <= row)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

/* A channel of a row a thread. */
static __global__ void __launch_bounds__(128) conv_step_kernel(struct serving a)
{
	const int64_t n = dt_ssm_conv(&a.p), across = dt_ceil_div(n, 128), row = blockIdx.x / across,
		      c = blockIdx.x % across * 128 + threadIdx.x;
	const int kernel = (int)a.p.kernel, seq = seq_of(a, row), at = (int)(row - dt_at(a.q_start, seq)),
		  pos = dt_at(a.pos, row);
	const float *window = slot_of(a, seq);
	float sum = 0, slope;

	if (c >= n || !window)
		return;
	if (a.bias)
		sum = dt_ld1(a.bias, a.tb, c);
	for (int k = 0; k < kernel; k++) {
		const int back = kernel - 1 - k; /* rows in front of this one */

		if (pos < back)
			continue;
		sum += dt_ld1(a.w, a.tw, c * kernel + k) *
		       (at < back ? dt_ld1(window, DT_F32, (kernel - 1 + at - back) * n + c)
				  : dt_ld1(a.in, a.type, (row - back) * n + c));
	}
	dt_st1(a.out, a.type, row * n + c, dt_act(sum, DT_ACT_SILU, &slope));
}

/* A channel of a sequence a thread: its last rows of u take the places of those in its window. */
static __global__ void __launch_bounds__(128) window_kernel(struct serving a)
{
	const int64_t n = dt_ssm_conv(&a.p), across = dt_ceil_div(n, 128),
		      c = blockIdx.x % across * 128 + threadIdx.x;
	const int seq = (int)(blockIdx.x / across), keep = (int)a.p.kernel - 1, first = dt_at(a.q_start, seq),
		  rows = dt_at(a.q_start, seq + 1) - first;
	float *window = slot_of(a, seq);

	if (c >= n || !window || !rows)
		return;
	const int pos = dt_at(a.pos, first);

	for (int k = 0; k < keep; k++) {
		const int from = rows - keep + k; /* ascending: older rows are still there */

		dt_st1(window, DT_F32, k * n + c,
		       from >= 0	? dt_ld1(a.in, a.type, (first + from) * n + c)
		       : pos + from < 0 ? 0
					: dt_ld1(window, DT_F32, (keep + from) * n + c));
	}
}

/* ---- the scan ---- */

/*
 * A block has 32 columns of a head of a sequence: a column a lane, and each of its 8 warps DEEP rows of the
 * state, in registers, over ROWS tokens. Larger states are taken in pieces.
 */
enum { WARPS = 8, DEEP = 16, PIECE = WARPS * DEEP, ROWS = 16 };

struct tokens {						   /* in shared memory */
	float x[ROWS][32], b[ROWS][PIECE], c[ROWS][PIECE]; /* x: dt x */
	float y[WARPS][ROWS][32];			   /* each warp's share of C S */
	float dt[ROWS], keep[ROWS];			   /* keep: exp(dt A) */
};

/* n rows from `row` on: steps, and dt x of the block's columns. */
DT_DEVICE void read_rows(struct tokens *s, const struct serving &a, int64_t row, int n, int64_t head,
			 int64_t p0)
{
	const int64_t wide = dt_ssm_conv(&a.p), d = a.p.head_dim;
	const int thread = (int)threadIdx.x;

	__syncthreads(); /* the rows before have been read */
	if (thread < n) {
		s->dt[thread] = dt_ssd_softplus(dt_ld1(a.t, a.type, (row + thread) * a.p.heads + head) +
						dt_ld1(a.bias, a.tb, head));
		s->keep[thread] = expf(s->dt[thread] * -expf(dt_ld1(a.a_log, a.ta, head)));
	}
	__syncthreads();
	for (int u = thread; u < n * 32; u += WARPS * 32) {
		const int i = u / 32, col = u % 32;

		s->x[i][col] =
			p0 + col < d ? s->dt[i] * dt_ld1(a.in, a.type, (row + i) * wide + head * d + p0 + col)
				     : 0;
	}
}

/* Columns [n0, n0 + PIECE) of B and C of n rows. */
DT_DEVICE void read_piece(struct tokens *s, const struct serving &a, int64_t row, int n, int64_t head,
			  int64_t n0)
{
	const int64_t wide = dt_ssm_conv(&a.p), group = head / (a.p.heads / a.p.groups);

	__syncthreads();
	for (int u = (int)threadIdx.x; u < n * PIECE; u += WARPS * 32) {
		const int i = u / PIECE, col = u % PIECE;
		const bool in = n0 + col < a.p.state;
		const int64_t at = (row + i) * wide + dt_ssm_inner(&a.p) + group * a.p.state + n0 + col;

		s->b[i][col] = in ? dt_ld1(a.in, a.type, at) : 0;
		s->c[i][col] = in ? dt_ld1(a.in, a.type, at + a.p.groups * a.p.state) : 0;
	}
	__syncthreads();
}

static __global__ void __launch_bounds__(WARPS * 32) scan_step_kernel(struct serving a)
{
	struct tokens *s = (struct tokens *)dt_shared();
	const int64_t d = a.p.head_dim, size = a.p.state, across = dt_ceil_div(d, 32),
		      p0 = blockIdx.x % across * 32, head = blockIdx.x / across % a.p.heads;
	const int seq = (int)(blockIdx.x / across / a.p.heads), lane = (int)threadIdx.x % 32,
		  warp = (int)threadIdx.x / 32, first = dt_at(a.q_start, seq),
		  last = dt_at(a.q_start, seq + 1);
	float *slot = slot_of(a, seq), v[DEEP];

	if (!slot || first == last)
		return;
	const bool fresh = dt_at(a.pos, first) == 0;
	const float skip = dt_ld1(a.d, a.td, head);
	float *state = slot + dt_ssm_window(&a.p) + head * size * d + p0 + lane;

	for (int row = first; row < last; row += ROWS) {
		const int n = last - row < ROWS ? last - row : ROWS;

		read_rows(s, a, row, n, head, p0);
		for (int64_t n0 = 0; n0 < size; n0 += PIECE) {
			const int64_t at = n0 + warp * DEEP;

			read_piece(s, a, row, n, head, n0);
			if (row == first || size > PIECE) {
				const bool has = p0 + lane < d && !(fresh && row == first);

				DT_UNROLL
				for (int k = 0; k < DEEP; k++)
					v[k] = has && at + k < size ? dt_ld1(state, DT_F32, (at + k) * d) : 0;
			}
			for (int i = 0; i < n; i++) {
				float sum = n0 ? s->y[warp][i][lane] : 0;

				DT_UNROLL
				for (int k = 0; k < DEEP; k++) {
					v[k] = s->keep[i] * v[k] + s->b[i][warp * DEEP + k] * s->x[i][lane];
					sum += s->c[i][warp * DEEP + k] * v[k];
				}
				s->y[warp][i][lane] = sum;
			}
			if (row + n < last && size <= PIECE)
				continue;
			DT_UNROLL
			for (int k = 0; k < DEEP; k++)
				if (p0 + lane < d && at + k < size)
					dt_st1(state, DT_F32, (at + k) * d, v[k]);
		}
		__syncthreads();
		for (int i = warp; i < n; i += WARPS) {
			const int64_t x = (row + i) * dt_ssm_conv(&a.p) + head * d + p0 + lane;
			float sum = 0;

			if (p0 + lane >= d)
				continue;
			for (int w = 0; w < WARPS; w++)
				sum += s->y[w][i][lane];
			dt_st1(a.out, a.type, (row + i) * dt_ssm_inner(&a.p) + head * d + p0 + lane,
			       sum + skip * dt_ld1(a.in, a.type, x));
		}
	}
}

/* ---- host code ---- */

/* Copies the tables of a call. */
static int open_step(struct dt_dev *dev, struct serving &a, const struct dt_ssm *p,
		     const struct dt_ssm_slots *s)
{
	struct dt_table t[] = {{s->q_start, (size_t)(s->nseq + 1) * sizeof *s->q_start, NULL},
			       {s->pos, (size_t)p->seq * sizeof *s->pos, NULL},
			       {s->slot, (size_t)s->nseq * sizeof *s->slot, NULL}};
	const int rc = dt_cuda_tables(dev, t, 3);

	a.p = *p;
	a.base = s->base;
	a.nseq = s->nseq;
	a.q_start = (const int32_t *)t[0].ret;
	a.pos = (const int32_t *)t[1].ret;
	a.slot = (const int32_t *)t[2].ret;
	a.slots = s->slots;
	return rc;
}

int dt_cuda_ssm_conv_step(struct dt_dev *dev, struct dt_tensor xbc, struct dt_tensor u, struct dt_tensor w,
			  struct dt_tensor bias, const struct dt_ssm *p, const struct dt_ssm_slots *s)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t across = dt_ceil_div(dt_ssm_conv(p), 128);
	struct serving a = {};
	int rc = c ? open_step(dev, a, p, s) : -ENODEV;

	if (rc < 0)
		return rc;
	a.in = u.data, a.w = w.data, a.bias = bias.data, a.out = xbc.data;
	a.type = u.dtype, a.tw = w.dtype, a.tb = bias.dtype;
	rc = DT_LAUNCH(c, conv_step_kernel, (unsigned)(p->seq * across), 128, 0, a);
	return rc < 0 ? rc : DT_LAUNCH(c, window_kernel, (unsigned)(s->nseq * across), 128, 0, a);
}

int dt_cuda_ssm_scan_step(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor xbc, struct dt_tensor t,
			  struct dt_tensor dt_bias, struct dt_tensor a_log, struct dt_tensor d,
			  const struct dt_ssm *p, const struct dt_ssm_slots *s)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t blocks = s->nseq * p->heads * dt_ceil_div(p->head_dim, 32);
	struct serving a = {};
	const int rc = c ? open_step(dev, a, p, s) : -ENODEV;

	if (rc < 0)
		return rc;
	a.in = xbc.data, a.t = t.data, a.bias = dt_bias.data, a.a_log = a_log.data, a.d = d.data;
	a.out = y.data;
	a.type = xbc.dtype, a.tb = dt_bias.dtype, a.ta = a_log.dtype, a.td = d.dtype;
	return DT_LAUNCH(c, scan_step_kernel, (unsigned)blocks, WARPS * 32, sizeof(struct tokens), a);
}
/* SPDX-License-Identifier: Apache-2.0 */
