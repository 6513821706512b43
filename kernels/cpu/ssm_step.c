/* Mamba-2's convolution and scan in serving (ssm.h): rows of several sequences, and what each leaves. */
#include "kernels/cpu/ssd.h"

#include <math.h>

static float *slot_of(const struct dt_ssm *p, const struct dt_ssm_slots *s, int seq)
{
	return s->base + s->slot[seq] * dt_ssm_slot(p);
}

/* ---- the convolution ---- */

/* The sequence that has the row. */
static int seq_of(const struct dt_ssm_slots *s, int64_t row)
{
	int lo = 0, hi = s->nseq;

	while (hi - lo > 1) {
		const int mid = (lo + hi) / 2;

		*(s->q_start[mid] <= row ? &lo : &hi) = mid;
	}
	return lo;
}

/* Row k of u in front of row `first` of its sequence, k < 0, as f32; from the window. */
static const float *earlier(const struct dt_ssm *p, const struct dt_ssm_slots *s, int seq, int64_t k)
{
	return slot_of(p, s, seq) + (p->kernel - 1 + k) * dt_ssm_conv(p);
}

/* The last rows of a sequence take the places of those in its window. */
static void keep_window(const struct dt_ssm *p, const struct dt_ssm_slots *s, int seq, struct dt_tensor u)
{
	const int64_t n = dt_ssm_conv(p), first = s->q_start[seq], rows = s->q_start[seq + 1] - first;

	for (int64_t k = 0; k < p->kernel - 1; k++) {
		const int64_t from = rows - p->kernel + 1 + k; /* ascending: older rows are still there */
		float *to = slot_of(p, s, seq) + k * n;

		if (from >= 0)
			dt_ssd_get(to, u, n, first + from, 1, 0, n);
		else if (s->pos[first] + from < 0)
			memset(to, 0, (size_t)n * sizeof(*to));
		else
			memmove(to, earlier(p, s, seq, from), (size_t)n * sizeof(*to));
	}
}

int dt_cpu_ssm_conv_step(struct dt_dev *dev, struct dt_tensor xbc, struct dt_tensor u, struct dt_tensor w,
			 struct dt_tensor bias, const struct dt_ssm *p, const struct dt_ssm_slots *s)
{
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	const int64_t n = dt_ssm_conv(p), kernel = p->kernel;
	float *taps = dt_cpu_scratch(dev, dt_ssm_conv_step_scratch(&on, p)), *own;

	if (!taps)
		return -ENOMEM;
	own = taps + (kernel + 1) * n;
	dt_ssm_taps(p, taps, w, bias);
#pragma omp parallel for num_threads(dev->nthreads) if (dt_numel(xbc) > DT_SERIAL)
	for (int64_t row = 0; row < p->seq; row++) {
		const int seq = seq_of(s, row);
		const int64_t at = row - s->q_start[seq];
		float *out = own + omp_get_thread_num() * 2 * n, *buf = out + n;

		memcpy(out, taps + kernel * n, (size_t)n * sizeof(*out));
		for (int64_t k = 0; k < kernel; k++) {
			const int64_t from = at - kernel + 1 + k;
			const float *x = buf;

			if (s->pos[row] - kernel + 1 + k < 0)
				continue;
			if (from < 0)
				x = earlier(p, s, seq, from);
			else
				dt_ssd_get(buf, u, n, row - kernel + 1 + k, 1, 0, n);
			dt_ssm_add_times(out, taps + k * n, x, n);
		}
		dt_ssm_silu(out, n);
		dt_ssd_put(xbc, n, row, 1, 0, n, out);
	}
#pragma omp parallel for num_threads(dev->nthreads) if (s->nseq * n > DT_SERIAL)
	for (int seq = 0; seq < s->nseq; seq++)
		keep_window(p, s, seq, u);
	return 0;
}

/* ---- the scan ---- */

/* Up to DT_SSM_ROWS rows of a head. */
struct block {
	float *x, *y, *b, *c; /* [rows, head_dim], [rows, state]; x is dt x, y begins as D x */
	float *keep, *dt;     /* [rows] exp(dt A), dt */
	int64_t rows;
};

typedef float lanes __attribute__((vector_size(64), aligned(4), may_alias));

enum { HEIGHT = 8 }; /* rows of a state in registers at a time */

/* HEIGHT or fewer rows (R, a constant) and 16 columns of a state, over all rows of a block. */
DT_INLINE void state_lanes(float *s, const struct block *k, int64_t state, int64_t d, int64_t at, int64_t col,
			   const int R)
{
	lanes v[HEIGHT];

	DT_FOR (8, int i = 0; i < R; i++)
		v[i] = *(const lanes *)(s + (at + i) * d + col);
	for (int64_t t = 0; t < k->rows; t++) {
		const lanes x = *(const lanes *)(k->x + t * d + col);
		lanes y = *(const lanes *)(k->y + t * d + col);
		const float *b = k->b + t * state + at, *c = k->c + t * state + at;

		DT_FOR (8, int i = 0; i < R; i++) {
			v[i] = k->keep[t] * v[i] + b[i] * x;
			y += c[i] * v[i];
		}
		*(lanes *)(k->y + t * d + col) = y;
	}
	DT_FOR (8, int i = 0; i < R; i++)
		*(lanes *)(s + (at + i) * d + col) = v[i];
}

/* The columns that fill no vector. */
DT_INLINE void state_rest(float *s, const struct block *k, int64_t state, int64_t d, int64_t col)
{
	for (int64_t i = 0; i < state; i++)
		for (int64_t t = 0; t < k->rows; t++)
			for (int64_t j = col; j < d; j++) {
				float *v = s + i * d + j;

				*v = k->keep[t] * *v + k->b[t * state + i] * k->x[t * d + j];
				k->y[t * d + j] += k->c[t * state + i] * *v;
			}
}

static DT_SIMD void ssm_state(float *s, const struct block *k, int64_t state, int64_t d)
{
	const int64_t even = d / 16 * 16;

	for (int64_t col = 0; col < even; col += 16) {
		int64_t i = 0;

		for (; i + HEIGHT <= state; i += HEIGHT)
			state_lanes(s, k, state, d, i, col, HEIGHT);
		for (; i < state; i++)
			state_lanes(s, k, state, d, i, col, 1);
	}
	state_rest(s, k, state, d, even);
}

struct step {
	const struct dt_ssm *p;
	const struct dt_ssm_slots *s;
	struct dt_tensor y, xbc, t;
	float *a, *bias, *d; /* [heads] */
};

/* Reads rows [row, row + k->rows) of a head. */
static void read_block(const struct step *v, struct block *k, int64_t row, int64_t head)
{
	const struct dt_ssm *p = v->p;
	const int64_t n = p->state, d = p->head_dim, wide = dt_ssm_conv(p), inner = dt_ssm_inner(p),
		      group = head / (p->heads / p->groups);

	dt_ssd_get(k->x, v->xbc, wide, row, k->rows, head * d, d);
	dt_ssd_get(k->b, v->xbc, wide, row, k->rows, inner + group * n, n);
	dt_ssd_get(k->c, v->xbc, wide, row, k->rows, inner + (p->groups + group) * n, n);
	dt_ssd_get(k->dt, v->t, p->heads, row, k->rows, head, 1);
	for (int64_t i = 0; i < k->rows; i++) {
		k->dt[i] = dt_ssm_softplus(k->dt[i] + v->bias[head]);
		k->keep[i] = expf(k->dt[i] * v->a[head]);
		for (int64_t j = 0; j < d; j++) {
			k->y[i * d + j] = v->d[head] * k->x[i * d + j];
			k->x[i * d + j] *= k->dt[i];
		}
	}
}

/* A sequence's rows of a head. */
static void scan_rows(const struct step *v, int seq, int64_t head, float *own)
{
	const struct dt_ssm *p = v->p;
	const int64_t n = p->state, d = p->head_dim, last = v->s->q_start[seq + 1];
	float *state = slot_of(p, v->s, seq) + dt_ssm_window(p) + head * n * d;
	struct block k = {.x = own};

	k.y = k.x + DT_SSM_ROWS * d, k.b = k.y + DT_SSM_ROWS * d, k.c = k.b + DT_SSM_ROWS * n;
	k.keep = k.c + DT_SSM_ROWS * n, k.dt = k.keep + DT_SSM_ROWS;
	if (last > v->s->q_start[seq] && v->s->pos[v->s->q_start[seq]] == 0)
		memset(state, 0, (size_t)(n * d) * sizeof(*state));
	for (int64_t row = v->s->q_start[seq]; row < last; row += k.rows) {
		k.rows = dt_min64(DT_SSM_ROWS, last - row);
		read_block(v, &k, row, head);
		ssm_state(state, &k, n, d);
		dt_ssd_put(v->y, dt_ssm_inner(p), row, k.rows, head * d, d, k.y);
	}
}

int dt_cpu_ssm_scan_step(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor xbc, struct dt_tensor t,
			 struct dt_tensor dt_bias, struct dt_tensor a_log, struct dt_tensor d,
			 const struct dt_ssm *p, const struct dt_ssm_slots *s)
{
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	const int64_t each = DT_SSM_ROWS * (2 * p->head_dim + 2 * p->state + 2);
	struct step v = {.p = p, .s = s, .y = y, .xbc = xbc, .t = t};
	float *own;

	v.a = dt_cpu_scratch(dev, dt_ssm_scan_step_scratch(&on, p));
	if (!v.a)
		return -ENOMEM;
	v.bias = v.a + p->heads, v.d = v.bias + p->heads, own = v.d + p->heads;
	dt_ssm_vectors(v.a, p->heads, a_log, dt_bias, d);
#pragma omp parallel for num_threads(dev->nthreads)                                                          \
	schedule(dynamic) if (p->seq * p->heads * p->head_dim * p->state > 64 * DT_SERIAL)
	for (int64_t i = 0; i < s->nseq * p->heads; i++)
		scan_rows(&v, (int)(i / p->heads), i % p->heads, own + omp_get_thread_num() * each);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
