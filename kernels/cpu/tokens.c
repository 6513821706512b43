#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/vec.h"

struct image_tokens {
	struct dt_tensor y, x, class_token, pos;
	int64_t tokens, n;
};

static DT_SIMD void tokens_row(const struct image_tokens *a, int64_t row)
{
	const int64_t image = row / a->tokens, at = row % a->tokens, n = a->n;
	float ba[DT_CHUNK], bb[DT_CHUNK];

	for (int64_t c = 0; c < n; c += DT_CHUNK) {
		const int64_t w = dt_min64(DT_CHUNK, n - c);
		const void *from = at ? dt_at(a->x, (image * (a->tokens - 1) + at - 1) * n + c)
				      : dt_at(a->class_token, c);
		const float *x = dt_load(ba, from, a->y.dtype, w);
		const float *p = dt_load(bb, dt_at(a->pos, at * n + c), a->pos.dtype, w);
		float *y = dt_stage(ba, dt_at(a->y, row * n + c), a->y.dtype);

#pragma omp simd
		for (int64_t j = 0; j < w; j++)
			y[j] = x[j] + p[j];
		dt_store(dt_at(a->y, row * n + c), a->y.dtype, y, w);
	}
}

static void tokens_some(void *arg, int t, int64_t first, int64_t last)
{
	const struct image_tokens *a = arg;

	for (int64_t i = first; i < last; i++)
		tokens_row(a, i);
}

int dt_cpu_image_tokens(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			struct dt_tensor class_token, struct dt_tensor pos)
{
	const int64_t n = dt_numel(class_token), rows = dt_numel(y) / n;
	struct image_tokens a = {y, x, class_token, pos, dt_rows(pos), n};

	dt_cpu_rows(dev, rows, n, tokens_some, &a);
	return 0;
}

struct tokens_back {
	struct dt_tensor dx, dclass, dpos, dy;
	int64_t images, tokens, n;
};

/* Elements [c, c + w) of token `at` of all images. */
static DT_SIMD void back_columns(const struct tokens_back *a, int64_t at, int64_t c, int64_t w)
{
	float sum[DT_CHUNK], buf[DT_CHUNK];
	float *pos = a->dpos.data ? dt_at(a->dpos, at * a->n + c) : NULL,
	      *first = a->dclass.data && !at ? dt_at(a->dclass, c) : NULL;

	memset(sum, 0, (size_t)w * sizeof(*sum));
	for (int64_t i = 0; i < a->images; i++) {
		const void *dy = dt_at(a->dy, (i * a->tokens + at) * a->n + c);
		const float *g = dt_load(buf, dy, a->dy.dtype, w);

#pragma omp simd
		for (int64_t j = 0; j < w; j++)
			sum[j] += g[j];
		if (at)
			memcpy(dt_at(a->dx, (i * (a->tokens - 1) + at - 1) * a->n + c), dy,
			       (size_t)(w * dt_dtype_size(a->dy.dtype)));
	}
	for (int64_t j = 0; pos && j < w; j++)
		pos[j] += sum[j];
	for (int64_t j = 0; first && j < w; j++)
		first[j] += sum[j];
}

static void tokens_back_some(void *arg, int t, int64_t first, int64_t last)
{
	const struct tokens_back *a = arg;

	for (int64_t i = first; i < last; i++)
		for (int64_t c = 0; c < a->n; c += DT_CHUNK)
			back_columns(a, i, c, dt_min64(DT_CHUNK, a->n - c));
}

int dt_cpu_image_tokens_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dclass,
				 struct dt_tensor dpos, struct dt_tensor dy, int64_t tokens)
{
	const int64_t n = dt_cols(dy), images = dt_numel(dy) / (tokens * n);
	struct tokens_back a = {dx, dclass, dpos, dy, images, tokens, n};

	dt_cpu_rows(dev, tokens, images * n, tokens_back_some, &a);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
