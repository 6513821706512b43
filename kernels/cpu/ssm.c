/* The causal convolution of ssm.h, in blocks of rows, and the gate. */
#include "kernels/cpu/act.h"
#include "kernels/cpu/ssd.h"

struct conv {
	const struct dt_ssm *p;
	struct dt_tensor u;
	int64_t n;   /* channels */
	float *taps; /* [kernel + 1, n], the bias last */
};

void dt_ssm_taps(const struct dt_ssm *p, float *taps, struct dt_tensor w, struct dt_tensor bias)
{
	const int64_t kernel = p->kernel, n = dt_ssm_conv(p);
	float buf[DT_SSM_KERNEL];

	for (int64_t c = 0; c < n; c++) {
		dt_ssd_get(buf, w, kernel, c, 1, 0, kernel);
		for (int64_t k = 0; k < kernel; k++)
			taps[k * n + c] = buf[k];
	}
	memset(taps + kernel * n, 0, (size_t)n * sizeof(float));
	if (bias.data)
		dt_ssm_vector(taps + kernel * n, bias, n);
}

/* The first tap of position t of a sequence that is inside its document. */
DT_INLINE int64_t first_tap(const struct dt_ssm *p, int64_t row, int64_t t)
{
	const int64_t first = p->first ? p->first[row] : 0, k = p->kernel - 1 - (t - first);

	return k > 0 ? k : 0;
}

/* out [n] = bias + taps of a row, in front of the activation. */
static DT_SIMD void ssm_conv_row(const struct conv *a, int64_t row, int64_t t, float *out, float *buf)
{
	const int64_t kernel = a->p->kernel, n = a->n;

	memcpy(out, a->taps + kernel * n, (size_t)n * sizeof(*out));
	for (int64_t k = first_tap(a->p, row, t); k < kernel; k++) {
		const float *w = a->taps + k * n,
			    *x = dt_load(buf, dt_at(a->u, (row - kernel + 1 + k) * n), a->u.dtype, n);

#pragma omp simd
		for (int64_t c = 0; c < n; c++)
			out[c] += w[c] * x[c];
	}
}

static DT_SIMD void ssm_silu(float *x, int64_t n)
{
#pragma omp simd
	for (int64_t c = 0; c < n; c++) {
		float slope;

		x[c] = act(x[c], DT_ACT_SILU, &slope);
	}
}

void dt_ssm_silu(float *x, int64_t n)
{
	ssm_silu(x, n);
}

int dt_cpu_ssm_conv(struct dt_dev *dev, struct dt_tensor xbc, struct dt_tensor u, struct dt_tensor w,
		    struct dt_tensor bias, const struct dt_ssm *p)
{
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	struct conv a = {.p = p, .u = u, .n = dt_ssm_conv(p)};
	float *own;

	a.taps = dt_cpu_scratch(dev, dt_ssm_conv_scratch(&on, p));
	if (!a.taps)
		return -ENOMEM;
	own = a.taps + (p->kernel + 1) * a.n;
	dt_ssm_taps(p, a.taps, w, bias);
#pragma omp parallel for num_threads(dev->nthreads) if (dt_numel(xbc) > DT_SERIAL)
	for (int64_t row = 0; row < p->batch * p->seq; row++) {
		float *out = own + omp_get_thread_num() * 2 * a.n;

		ssm_conv_row(&a, row, row % p->seq, out, out + a.n);
		ssm_silu(out, a.n);
		dt_ssd_put(xbc, a.n, row, 1, 0, a.n, out);
	}
	return 0;
}

/* x [n] in front of the activation becomes its gradient, from dy of the result. */
static DT_SIMD void ssm_silu_back(float *x, const float *dy, int64_t n)
{
#pragma omp simd
	for (int64_t c = 0; c < n; c++) {
		float slope;

		act(x[c], DT_ACT_SILU, &slope);
		x[c] = dy[c] * slope;
	}
}

static DT_SIMD void ssm_add_times(float *sum, const float *a, const float *b, int64_t n)
{
#pragma omp simd
	for (int64_t c = 0; c < n; c++)
		sum[c] += a[c] * b[c];
}

void dt_ssm_add_times(float *sum, const float *a, const float *b, int64_t n)
{
	ssm_add_times(sum, a, b, n);
}

/*
 * A block of rows: du, and its share of the gradients of taps and bias. own: gradients of the block's rows
 * and of the kernel - 1 rows behind it, which its rows are taps of.
 */
static void conv_block(const struct conv *a, struct dt_tensor du, struct dt_tensor dxbc, int64_t batch,
		       int64_t t, float *own, float *part)
{
	const struct dt_ssm *p = a->p;
	const int64_t n = a->n, last = dt_min64(p->seq, t + DT_SSM_ROWS), row = batch * p->seq,
		      kernel = p->kernel, behind = dt_min64(p->seq, last + kernel - 1);
	float *buf = own + (DT_SSM_ROWS + kernel - 1) * n, *sum = buf + n;

	memset(part, 0, (size_t)((kernel + 1) * n) * sizeof(*part));
	for (int64_t i = t; i < behind; i++) {
		float *d = own + (i - t) * n;

		ssm_conv_row(a, row + i, i, d, buf);
		dt_ssd_get(buf, dxbc, n, row + i, 1, 0, n);
		ssm_silu_back(d, buf, n);
	}
	for (int64_t i = t; i < last; i++) {
		const float *d = own + (i - t) * n;

		for (int64_t k = first_tap(p, row + i, i); k < kernel; k++) {
			dt_ssd_get(buf, a->u, n, row + i - kernel + 1 + k, 1, 0, n);
			ssm_add_times(part + k * n, d, buf, n);
		}
		for (int64_t c = 0; c < n; c++)
			part[kernel * n + c] += d[c];
		memset(sum, 0, (size_t)n * sizeof(*sum));
		for (int64_t k = 0; k < kernel; k++) {
			const int64_t of = i + kernel - 1 - k; /* the row of which i is tap k */

			if (of < behind && k >= first_tap(p, row + of, of))
				ssm_add_times(sum, a->taps + k * n, own + (of - t) * n, n);
		}
		dt_ssd_put(du, n, row + i, 1, 0, n, sum);
	}
}

int dt_cpu_ssm_conv_backward(struct dt_dev *dev, struct dt_tensor du, struct dt_tensor dw,
			     struct dt_tensor dbias, struct dt_tensor dxbc, struct dt_tensor u,
			     struct dt_tensor w, struct dt_tensor bias, const struct dt_ssm *p)
{
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	struct conv a = {.p = p, .u = u, .n = dt_ssm_conv(p)};
	const int64_t each = dt_ceil_div(p->seq, DT_SSM_ROWS), blocks = p->batch * each,
		      share = (p->kernel + 1) * a.n, own_each = (DT_SSM_ROWS + p->kernel + 1) * a.n;
	float *own, *part;

	a.taps = dt_cpu_scratch(dev, dt_ssm_conv_backward_scratch(&on, p));
	if (!a.taps)
		return -ENOMEM;
	own = a.taps + share;
	part = own + dev->nthreads * own_each;
	dt_ssm_taps(p, a.taps, w, bias);
#pragma omp parallel for num_threads(dev->nthreads) if (dt_numel(dxbc) > DT_SERIAL)
	for (int64_t b = 0; b < blocks; b++)
		conv_block(&a, du, dxbc, b / each, b % each * DT_SSM_ROWS,
			   own + omp_get_thread_num() * own_each, part + b * share);
	for (int64_t b = 0; b < blocks; b++) {
		for (int64_t k = 0; dw.data && k < p->kernel; k++)
			for (int64_t c = 0; c < a.n; c++)
				((float *)dw.data)[c * p->kernel + k] += part[b * share + k * a.n + c];
		for (int64_t c = 0; dbias.data && c < a.n; c++)
			((float *)dbias.data)[c] += part[b * share + p->kernel * a.n + c];
	}
	return 0;
}

/* ---- the gate ---- */

struct gate {
	struct dt_tensor x, z, dy, dx, dz; /* dx absent: forward, whose result is dy */
};

static DT_SIMD void ssm_gate_row(float *y, const float *x, const float *z, int64_t n)
{
#pragma omp simd
	for (int64_t c = 0; c < n; c++) {
		float slope;

		y[c] = x[c] * act(z[c], DT_ACT_SILU, &slope);
	}
}

/* x and z become their gradients. */
static DT_SIMD void ssm_gate_back_row(float *x, float *z, const float *dy, int64_t n)
{
#pragma omp simd
	for (int64_t c = 0; c < n; c++) {
		float slope;
		const float f = act(z[c], DT_ACT_SILU, &slope), v = x[c];

		x[c] = dy[c] * f;
		z[c] = dy[c] * v * slope;
	}
}

static int gate(struct dt_dev *dev, const struct gate *g)
{
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	const int64_t n = dt_cols(g->x);
	float *own = dt_cpu_scratch(dev, dt_ssm_gate_scratch(&on, n));

	if (!own)
		return -ENOMEM;
#pragma omp parallel for num_threads(dev->nthreads) if (dt_numel(g->x) > DT_SERIAL)
	for (int64_t i = 0; i < dt_rows(g->x); i++) {
		float *x = own + omp_get_thread_num() * 3 * n, *z = x + n, *dy = z + n;

		dt_ssd_get(x, g->x, n, i, 1, 0, n);
		dt_ssd_get(z, g->z, n, i, 1, 0, n);
		if (g->dx.data) {
			dt_ssd_get(dy, g->dy, n, i, 1, 0, n);
			ssm_gate_back_row(x, z, dy, n);
			dt_ssd_put(g->dx, n, i, 1, 0, n, x);
			dt_ssd_put(g->dz, n, i, 1, 0, n, z);
		} else {
			ssm_gate_row(dy, x, z, n);
			dt_ssd_put(g->dy, n, i, 1, 0, n, dy);
		}
	}
	return 0;
}

int dt_cpu_ssm_gate(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, struct dt_tensor z)
{
	return gate(dev, &(struct gate){.x = x, .z = z, .dy = y});
}

int dt_cpu_ssm_gate_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dz,
			     struct dt_tensor dy, struct dt_tensor x, struct dt_tensor z)
{
	return gate(dev, &(struct gate){.x = x, .z = z, .dy = dy, .dx = dx, .dz = dz});
}
/* SPDX-License-Identifier: Apache-2.0 */
