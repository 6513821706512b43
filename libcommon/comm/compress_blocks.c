/* Methods that send blocks of codes: 1 bit (signs), and 8 bits. */
#include "comm/compress_priv.h"

#include "base/progress.h"

#include <math.h>
#include <string.h>

/* Iterates over the blocks of all parts; a block belongs to one part. */
struct walk {
	int part;
	size_t block, at, n; /* the block's number, and its elements in the buffer */
};

static bool next(const struct dt_compress *z, size_t size, struct walk *w)
{
	size_t end = w->part < 0 ? 0 : z->part[w->part].at + z->part[w->part].n;

	w->at += w->n;
	w->block += w->n > 0;
	while (w->part < 0 || w->at == end || z->part[w->part].plain) {
		if (++w->part == z->nparts)
			return false;
		w->at = z->part[w->part].at;
		end = w->at + z->part[w->part].n;
	}
	w->n = end - w->at < size ? end - w->at : size;
	return true;
}

static const struct walk walk_start = {.part = -1};

int dt_compress_one_bit(struct dt_compress *z, float *x, const char *what, double *net_s, struct dt_err *err)
{
	const size_t size = DT_SIGNS_BLOCK;
	int rc;

	for (struct walk w = walk_start; next(z, size, &w);) {
		struct dt_signs *s = (struct dt_signs *)(z->work + z->w.mine) + w.block;
		float *v = z->kept + w.at;
		double sum = 0;

		memset(s, 0, sizeof(*s));
		for (size_t i = 0; i < w.n; i++) {
			sum += fabs((double)v[i]);
			s->bit[i / 8] |= (uint8_t)((v[i] < 0) << i % 8);
		}
		s->magnitude = (float)(sum / (double)w.n);
		for (size_t i = 0; i < w.n; i++)
			v[i] -= v[i] < 0 ? -s->magnitude : s->magnitude;
	}
	rc = dt_compress_gather(z, what, net_s, err);
	if (rc)
		return rc;
	for (struct walk w = walk_start; next(z, size, &w);) {
		memset(x + w.at, 0, w.n * sizeof(*x));
		for (int r = 0; r < z->ranks; r++) {
			const struct dt_signs *s =
				(const struct dt_signs *)(z->work + z->w.all + (size_t)r * z->w.mine_bytes) +
				w.block;

			for (size_t i = 0; i < w.n; i++)
				x[w.at + i] += s->bit[i / 8] >> i % 8 & 1 ? -s->magnitude : s->magnitude;
		}
	}
	return 0;
}

/* Encodes v; leaves the error of each code in v. */
static void encode(struct dt_int8 *b, float *v, size_t n)
{
	float most = 0, by;

	for (size_t i = 0; i < n; i++)
		most = fmaxf(most, fabsf(v[i]));
	b->scale = most / 127;
	by = b->scale > 0 ? 1 / b->scale : 0;
	if (!isfinite(by)) /* the values are almost zero */
		b->scale = by = 0;
	for (size_t i = 0; i < n; i++) {
		b->code[i] = (int8_t)lrintf(v[i] * by);
		v[i] -= b->scale * (float)b->code[i];
	}
	memset(b->code + n, 0, DT_INT8_BLOCK - n);
}

/* Sums this rank's blocks over all ranks and encodes the sums; their error is kept. */
static void add_up(struct dt_compress *z)
{
	const size_t each = z->w.each, first = (size_t)z->rank * each;
	const struct dt_int8 *got = (const struct dt_int8 *)(z->work + z->w.all);
	struct dt_int8 *out = (struct dt_int8 *)(z->work + z->w.mine);

	for (struct walk w = walk_start; next(z, DT_INT8_BLOCK, &w);) {
		const size_t k = w.block - first;
		float *sum = dt_compress_floats(z, z->w.sum) + k * DT_INT8_BLOCK;

		if (w.block < first || w.block >= first + each)
			continue;
		memset(sum, 0, w.n * sizeof(*sum));
		for (int r = 0; r < z->ranks; r++) {
			const struct dt_int8 *b = &got[(size_t)r * each + k];

			for (size_t i = 0; i < w.n; i++)
				sum[i] += b->scale * (float)b->code[i];
		}
		encode(&out[k], sum, w.n);
		for (size_t i = 0; i < w.n; i++)
			z->kept[w.at + i] += sum[i];
	}
}

int dt_compress_int8(struct dt_compress *z, float *x, const char *what, double *net_s, struct dt_err *err)
{
	const size_t each = z->w.each * sizeof(struct dt_int8);
	struct dt_int8 *mine = (struct dt_int8 *)(z->work + z->w.mine);
	double t0;
	int rc;

	for (struct walk w = walk_start; next(z, DT_INT8_BLOCK, &w);)
		encode(&mine[w.block], z->kept + w.at, w.n);
	t0 = dt_now();
	rc = dt_all_to_all(z->c, z->work + z->w.all, mine, each, DT_U8, what, err);
	*net_s += dt_now() - t0;
	if (rc < 0)
		return rc;
	add_up(z);
	t0 = dt_now();
	rc = dt_all_gather(z->c, z->work + z->w.all, mine, each, DT_U8, what, err);
	*net_s += dt_now() - t0;
	for (struct walk w = walk_start; rc == 0 && next(z, DT_INT8_BLOCK, &w);) {
		const struct dt_int8 *b = (const struct dt_int8 *)(z->work + z->w.all) + w.block;

		for (size_t i = 0; i < w.n; i++)
			x[w.at + i] = b->scale * (float)b->code[i];
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
