#include "kernels/cpu/vec.h"

/* One row of the teacher, restricted to columns [vocab_first, vocab_first + n). */
struct row {
	const int32_t *column;
	const float *prob;
	int64_t from, to; /* range of its k columns in this shard */
	float rest;
};

static struct row find(const struct dt_distill *p, int64_t i, int64_t n)
{
	struct row r = {p->columns + i * p->k, p->probs + i * (p->k + 1), 0, 0,
			p->probs[i * (p->k + 1) + p->k]};

	while (r.from < p->k && r.column[r.from] < p->vocab_first)
		r.from++;
	for (r.to = r.from; r.to < p->k && r.column[r.to] < p->vocab_first + n;)
		r.to++;
	return r;
}

static DT_SIMD void distill_stats_row(float *ret, struct dt_tensor l, int64_t row, float rowmax,
				      const struct dt_distill *p)
{
	const int64_t n = dt_cols(l);
	const struct row r = find(p, row, n);
	const float by = 1 / p->temperature;
	float wide[DT_CHUNK], e[DT_CHUNK], kept = 0, rest = 0, dot = 0;
	int64_t at = r.from;

	for (int64_t c = 0; c < n; c += DT_CHUNK) {
		const int64_t w = dt_min64(DT_CHUNK, n - c);
		const float *x = dt_load(wide, dt_at(l, row * n + c), l.dtype, w);
		float part = 0;

#pragma omp simd
		for (int64_t j = 0; j < w; j++)
			e[j] = dt_expf((x[j] - rowmax) * by);
		for (; at < r.to && r.column[at] - p->vocab_first < c + w; at++) {
			const int64_t j = r.column[at] - p->vocab_first - c;

			kept += e[j];
			dot += r.prob[at] * (x[j] - rowmax) * by;
			e[j] = 0;
		}
#pragma omp simd reduction(+ : part)
		for (int64_t j = 0; j < w; j++)
			part += e[j];
		rest += part;
	}
	ret[0] = kept;
	ret[1] = rest;
	ret[2] = dot;
}

int dt_cpu_distill_stats(struct dt_dev *dev, float *kept, float *rest, float *dot, struct dt_tensor logits,
			 const float *rowmax, const int32_t *targets, const struct dt_distill *p)
{
	const int64_t rows = dt_rows(logits), n = dt_cols(logits);

#pragma omp parallel for num_threads(dev->nthreads) if (rows * n > DT_SERIAL)
	for (int64_t i = 0; i < rows; i++) {
		float s[3] = {0, 0, 0};

		if (targets[i] >= 0)
			distill_stats_row(s, logits, i, rowmax[i], p);
		kept[i] = s[0];
		rest[i] = s[1];
		dot[i] = s[2];
	}
	return 0;
}

/* Coefficients of a row's gradient. */
struct factor {
	float rowmax, by;
	float hard, target;   /* of exp(l - rowmax), and subtracted at the target's column */
	float soft;	      /* of e, for the teacher's columns */
	float others, column; /* of e, for other columns; of the teacher's probabilities */
};

/* Gradient of one of the teacher's columns. */
static float named(const struct factor *f, float x, float prob)
{
	return f->hard * dt_expf(x - f->rowmax) + f->soft * dt_expf((x - f->rowmax) * f->by) -
	       f->column * prob;
}

static DT_SIMD void distill_grad_row(struct dt_tensor d, struct dt_tensor l, int64_t row, int64_t target,
				     const struct factor *f, const struct dt_distill *p)
{
	const int64_t n = dt_cols(l);
	const struct row r = find(p, row, n);
	float wide[DT_CHUNK], g[DT_CHUNK];
	int64_t at = r.from;

	for (int64_t c = 0; c < n; c += DT_CHUNK) {
		const int64_t w = dt_min64(DT_CHUNK, n - c);
		const float *x = dt_load(wide, dt_at(l, row * n + c), l.dtype, w);

		if (f->by == 1)
#pragma omp simd
			for (int64_t j = 0; j < w; j++)
				g[j] = (f->hard + f->others) * dt_expf(x[j] - f->rowmax);
		else
#pragma omp simd
			for (int64_t j = 0; j < w; j++)
				g[j] = f->hard * dt_expf(x[j] - f->rowmax) +
				       f->others * dt_expf((x[j] - f->rowmax) * f->by);
		for (; at < r.to && r.column[at] - p->vocab_first < c + w; at++) {
			const int64_t j = r.column[at] - p->vocab_first - c;

			g[j] = named(f, x[j], r.prob[at]);
		}
		if (target >= c && target < c + w)
			g[target - c] -= f->target;
		if (d.dtype == DT_F32)
			memcpy(dt_at(d, row * n + c), g, (size_t)w * sizeof(*g));
		else
			dt_store(dt_at(d, row * n + c), d.dtype, g, w);
	}
}

int dt_cpu_distill_grad(struct dt_dev *dev, struct dt_tensor dlogits, struct dt_tensor logits,
			const float *rowmax, const float *sumexp, const float *kept, const float *rest,
			const int32_t *targets, float scale, const struct dt_distill *p)
{
	const int64_t rows = dt_rows(logits), n = dt_cols(logits);

#pragma omp parallel for num_threads(dev->nthreads) if (rows * n > DT_SERIAL)
	for (int64_t i = 0; i < rows; i++) {
		const float hard = scale * (1 - p->weight), soft = scale * p->weight * p->temperature;
		const float bucket = p->probs[i * (p->k + 1) + p->k], all = kept[i] + rest[i];
		const struct factor f = {.rowmax = rowmax[i],
					 .by = 1 / p->temperature,
					 .hard = hard / sumexp[i],
					 .target = hard,
					 .soft = soft / all,
					 .others = soft / all - (rest[i] > 0 ? soft * bucket / rest[i] : 0),
					 .column = soft};

		if (targets[i] < 0)
			memset(dt_at(dlogits, i * n), 0, (size_t)(n * dt_dtype_size(dlogits.dtype)));
		else
			distill_grad_row(dlogits, logits, i, targets[i] - p->vocab_first, &f, p);
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
