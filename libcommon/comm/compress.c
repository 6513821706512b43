#include "comm/compress_priv.h"

#include "base/progress.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Fills the initial factors of the power iterations, the same on all ranks. */
static void draw_factors(struct dt_compress *z)
{
	for (int i = 0; i < z->nparts; i++) {
		struct dt_compress_shape s;
		float *q = z->part[i].plain ? NULL : dt_compress_factor(z, i, &s);

		for (size_t k = 0; q && k < s.rank; k++)
			dt_compress_draw(&s, z->part[i].n, q, k);
	}
}

int dt_compress_open_parts(struct dt_compress **ret, struct dt_comm *c, const struct dt_compress_opts *o,
			   const struct dt_compress_part *part, int n, float *kept, void *work,
			   struct dt_err *err)
{
	struct dt_compress *z = calloc(1, sizeof(*z));
	size_t all = n ? part[n - 1].at + part[n - 1].n : 0;

	if (!z)
		return dt_err_sys(err, -ENOMEM, "compression of %zu elements", all);
	*z = (struct dt_compress){
		.c = c, .o = *o, .nparts = n, .rank = dt_comm_rank(c), .ranks = dt_comm_size(c)};
	if (all >> 31 || o->rank < 0 || !(o->keep >= 0 && o->keep <= 1)) {
		free(z);
		return dt_err_set(err, -EINVAL, "cannot compress %zu elements with rank %d, keeping %g", all,
				  o->rank, o->keep);
	}
	z->part = malloc(((size_t)n + 1) * sizeof(*part));
	for (int i = 0; i < n && z->part; i++) {
		z->part[i] = part[i];
		z->part[i].plain |= !part[i].n;
	}
	if (z->part)
		dt_compress_work(o, z->part, n, z->ranks, &z->w);
	if (!kept && z->part)
		z->own = calloc(1, (all * sizeof(float) + 63) / 64 * 64 + z->w.bytes + 1);
	z->kept = kept ? kept : (float *)z->own;
	z->work = kept ? work : z->own + (all * sizeof(float) + 63) / 64 * 64;
	if (!z->part || !z->kept) {
		dt_compress_close(z);
		return dt_err_sys(err, -ENOMEM, "compression of %zu elements", all);
	}
	if (o->kind == DT_COMPRESS_POWERSGD)
		draw_factors(z);
	*ret = z;
	return 0;
}

int dt_compress_open(struct dt_compress **ret, struct dt_comm *c, const struct dt_compress_opts *o, size_t n,
		     struct dt_err *err)
{
	const struct dt_compress_part one = {.n = n, .rows = o->rows};

	return dt_compress_open_parts(ret, c, o, &one, 1, NULL, NULL, err);
}

void dt_compress_close(struct dt_compress *z)
{
	if (!z)
		return;
	free(z->part);
	free(z->own);
	free(z);
}

const float *dt_compress_kept(const struct dt_compress *z)
{
	return z->o.kind == DT_COMPRESS_BF16 ? NULL : z->kept;
}

float *dt_compress_factor(struct dt_compress *z, int i, struct dt_compress_shape *ret)
{
	size_t before = 0;

	for (int k = 0; k < i; k++) {
		struct dt_compress_shape s = dt_compress_shape(&z->o, &z->part[k]);

		before += z->part[k].plain ? 0 : s.cols * s.rank;
	}
	*ret = dt_compress_shape(&z->o, &z->part[i]);
	return dt_compress_floats(z, z->w.q) + before;
}

double dt_compress_wire_bytes(const struct dt_compress *z)
{
	return dt_compress_wire(&z->o, z->part, z->nparts, z->ranks);
}

double dt_compress_break_even(double plain_bytes, double wire_bytes, double codec_s)
{
	return plain_bytes > wire_bytes && codec_s > 0 ? (plain_bytes - wire_bytes) / codec_s : 0;
}

static int by_bf16(struct dt_compress *z, float *x, const char *what, double *net_s, struct dt_err *err)
{
	uint16_t *h = (uint16_t *)(z->work + z->w.mine), *at = h;
	double t0;
	int rc;

	for (int p = 0; p < z->nparts; p++)
		for (size_t i = 0; i < z->part[p].n && !z->part[p].plain; i++)
			*at++ = dt_f32_to_bf16(x[z->part[p].at + i]);
	t0 = dt_now();
	rc = dt_all_reduce(z->c, h, NULL, z->w.mine_bytes / 2, DT_BF16, DT_SUM, what, err);
	*net_s += dt_now() - t0;
	at = h;
	for (int p = 0; p < z->nparts && rc == 0; p++)
		for (size_t i = 0; i < z->part[p].n && !z->part[p].plain; i++)
			x[z->part[p].at + i] = dt_bf16_to_f32(*at++);
	return rc;
}

/* Copies the uncompressed parts to the message or, with back, from it. */
static void copy_plain(struct dt_compress *z, float *x, bool back)
{
	float *at = dt_compress_floats(z, z->w.small);

	for (int p = 0; p < z->nparts; p++) {
		size_t n = z->part[p].plain ? z->part[p].n : 0;

		if (back)
			memcpy(x + z->part[p].at, at, n * sizeof(float));
		else
			memcpy(at, x + z->part[p].at, n * sizeof(float));
		at += n;
	}
}

static int by_plain(struct dt_compress *z, float *x, const char *what, double *net_s, struct dt_err *err)
{
	double t0 = dt_now();
	int rc;

	if (!z->w.plain)
		return 0;
	copy_plain(z, x, false);
	t0 = dt_now();
	rc = dt_all_reduce(z->c, z->work + z->w.small, NULL, z->w.plain, DT_F32, DT_SUM, what, err);
	*net_s += dt_now() - t0;
	if (rc == 0)
		copy_plain(z, x, true);
	return rc;
}

/* Adds the input to the kept error: together they are what this rank sends. */
static void take_kept(struct dt_compress *z, const float *x)
{
	for (int p = 0; p < z->nparts; p++) {
		float *kept = z->kept + z->part[p].at;

		for (size_t i = 0; i < z->part[p].n && !z->part[p].plain; i++)
			kept[i] += x[z->part[p].at + i];
	}
}

int dt_compress_all_reduce(struct dt_compress *z, float *x, enum dt_redop op, const char *what,
			   double *codec_s, struct dt_err *err)
{
	static dt_compress_method *const method[] = {by_bf16, dt_compress_powersgd, dt_compress_top_k,
						     dt_compress_one_bit, dt_compress_int8};
	double t0 = dt_now(), net_s = 0;
	int rc;

	if (op != DT_SUM && op != DT_AVG)
		return dt_err_set(err, -EINVAL, "compressed all-reduce '%s': only sum and avg are supported",
				  what);
	rc = by_plain(z, x, what, &net_s, err);
	if (rc == 0 && z->o.kind != DT_COMPRESS_BF16)
		take_kept(z, x);
	if (rc == 0)
		rc = method[z->o.kind](z, x, what, &net_s, err);
	for (int p = 0; p < z->nparts && rc == 0 && op == DT_AVG; p++)
		for (size_t i = 0; i < z->part[p].n; i++)
			x[z->part[p].at + i] /= (float)z->ranks;
	if (codec_s)
		*codec_s += dt_now() - t0 - net_s;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
