#include "kernels/cpu/cpu.h"
#include "kernels/cpu/quant.h"
#include "kernels/cpu/team.h"

static DT_SIMD void embed_row(struct dt_tensor y, struct dt_tensor wte, struct dt_tensor wpe, int64_t row,
			      int64_t id, int64_t pos)
{
	const int64_t n = dt_cols(y);
	float ba[DT_CHUNK], bb[DT_CHUNK];
	bool token = id >= 0 && id < dt_rows(wte);

	for (int64_t c = 0; c < n; c += DT_CHUNK) {
		const int64_t w = dt_min64(DT_CHUNK, n - c);
		void *out = dt_at(y, row * n + c);
		const void *one = token ? dt_at(wte, id * n + c) : dt_at(wpe, pos * n + c);

		if (token && wpe.data) {
			const float *a = dt_load(ba, dt_at(wte, id * n + c), wte.dtype, w);
			const float *b = dt_load(bb, dt_at(wpe, pos * n + c), wpe.dtype, w);
			float *f = dt_stage(ba, out, y.dtype);

#pragma omp simd
			for (int64_t j = 0; j < w; j++)
				f[j] = a[j] + b[j];
			dt_store(out, y.dtype, f, w);
		} else if (one) {
			memcpy(out, one, (size_t)(w * dt_dtype_size(y.dtype)));
		} else {
			memset(out, 0, (size_t)(w * dt_dtype_size(y.dtype)));
		}
	}
}

static bool positions_fit(const int32_t *pos, int64_t rows, struct dt_tensor wpe)
{
	for (int64_t i = 0; wpe.data && i < rows; i++)
		if (pos[i] < 0 || pos[i] >= dt_rows(wpe))
			return false;
	return true;
}

struct embed {
	struct dt_tensor y, wte, wpe;
	const int32_t *ids, *pos;
	int64_t vocab_first;
};

static void embed_some(void *arg, int t, int64_t first, int64_t last)
{
	const struct embed *a = arg;

	for (int64_t i = first; i < last; i++)
		embed_row(a->y, a->wte, a->wpe, i, a->ids[i] - a->vocab_first, a->wpe.data ? a->pos[i] : 0);
}

int dt_cpu_embedding_forward(struct dt_dev *dev, struct dt_tensor y, const int32_t *ids, const int32_t *pos,
			     struct dt_tensor wte, struct dt_tensor wpe, int64_t vocab_first)
{
	const int64_t rows = dt_rows(y);
	struct embed a = {y, wte, wpe, ids, pos, vocab_first};

	if (!positions_fit(pos, rows, wpe))
		return -EINVAL;
	dt_cpu_rows(dev, rows, dt_cols(y), embed_some, &a);
	return 0;
}

struct packed_embed {
	struct dt_tensor y;
	const struct dt_packed *w;
	const int32_t *ids;
	int64_t first;
	float scale;
	float *rows; /* a row for each thread */
};

static void packed_embed_some(void *arg, int t, int64_t from, int64_t last)
{
	const struct packed_embed *a = arg;
	const struct dt_packed *w = a->w;
	float *row = a->rows + t * w->blocks * DT_QK;

	for (int64_t i = from; i < last; i++) {
		if (dt_packed_row(w, a->ids[i] - a->first, row) < 0)
			memset(row, 0, (size_t)w->k * 4);
		for (int64_t j = 0; a->scale != 1 && j < w->k; j++)
			row[j] *= a->scale;
		if (a->y.dtype == DT_F32)
			memcpy(dt_at(a->y, i * w->k), row, (size_t)w->k * 4);
		else
			dt_store(dt_at(a->y, i * w->k), a->y.dtype, row, w->k);
	}
}

int dt_cpu_packed_embed(struct dt_dev *dev, struct dt_tensor y, const struct dt_packed *w, const int32_t *ids,
			int64_t first, int64_t of, float scale)
{
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	const int64_t n = dt_rows(y);
	float *rows;

	for (int64_t i = 0; i < n; i++)
		if (ids[i] < 0 || ids[i] >= of)
			return -EINVAL;
	rows = dt_cpu_scratch(dev, dt_packed_embed_scratch(&on, w->k));
	if (!rows)
		return -ENOMEM;
	dt_cpu_rows(dev, n, w->k, packed_embed_some, &(struct packed_embed){y, w, ids, first, scale, rows});
	return 0;
}

/* Adds columns c .. c + w of every row, in ascending order of rows. */
static DT_SIMD void scatter_columns(struct dt_tensor dw, struct dt_tensor dy, const int32_t *index,
				    int64_t first, int64_t c, int64_t w)
{
	const int64_t rows = dt_rows(dy), n = dt_cols(dy), limit = dt_rows(dw);
	float b[DT_CHUNK];

	for (int64_t i = 0; i < rows; i++) {
		const int64_t at = index[i] - first;

		if (at < 0 || at >= limit)
			continue;
		const float *p = dt_load(b, dt_at(dy, i * n + c), dy.dtype, w);
		float *out = dt_at(dw, at * n + c);

#pragma omp simd
		for (int64_t j = 0; j < w; j++)
			out[j] += p[j];
	}
}

int dt_cpu_embedding_backward(struct dt_dev *dev, struct dt_tensor dwte, struct dt_tensor dwpe,
			      struct dt_tensor dy, const int32_t *ids, const int32_t *pos,
			      int64_t vocab_first)
{
	const int64_t rows = dt_rows(dy), n = dt_cols(dy);
	const int64_t share = dt_ceil_div(dt_ceil_div(n, dev->nthreads), 16) * 16;
	const int64_t w = dt_min64(share, DT_CHUNK);

	if (!positions_fit(pos, rows, dwpe))
		return -EINVAL;
#pragma omp parallel for num_threads(dev->nthreads) if (rows * n > DT_SERIAL)
	for (int64_t c = 0; c < n; c += w) {
		if (dwte.data)
			scatter_columns(dwte, dy, ids, vocab_first, c, dt_min64(w, n - c));
		if (dwpe.data)
			scatter_columns(dwpe, dy, pos, 0, c, dt_min64(w, n - c));
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
