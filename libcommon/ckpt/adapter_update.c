/* An adapter in memory, and the update that it adds to its base. */
#include "ckpt/adapter.h"
#include "ckpt/source_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void dt_adapter_close(struct dt_adapter *a)
{
	for (int i = 0; a && i < a->n; i++) {
		free(a->part[i].a);
		free(a->part[i].b);
		free(a->part[i].m);
		free(a->part[i].ratio);
	}
	for (int i = 0; a && i < a->nwhole; i++)
		free(a->whole[i].x);
	if (a) {
		free(a->part);
		free(a->whole);
		free(a->path);
	}
	free(a);
}

/* The part for a parameter; NULL. */
static const struct dt_adapter_part *part_of(const struct dt_adapter *a, int param)
{
	for (int i = 0; i < a->n; i++)
		if (a->part[i].param == param)
			return &a->part[i];
	return NULL;
}

const struct dt_adapter_whole *dt_adapter_find_whole(const struct dt_adapter *a, int param)
{
	for (int i = 0; i < a->nwhole; i++)
		if (a->whole[i].param == param)
			return &a->whole[i];
	return NULL;
}

/* Overwrites a box of the base's values with those of a parameter trained in full. */
static void replace(const struct dt_param *p, const struct dt_adapter_whole *w, const int64_t *off,
		    const int64_t *shape, float *x)
{
	const bool matrix = p->ndim == 2;
	const int64_t cols = matrix ? shape[1] : 1, all = matrix ? p->shape[1] : 1,
		      first = matrix ? off[1] : 0;

	for (int64_t r = 0; r < shape[0]; r++)
		memcpy(x + r * cols, w->x + (off[0] + r) * all + first, (size_t)cols * sizeof(*x));
}

void src_add_update(const struct dt_source *s, int i, const int64_t *off, const int64_t *shape, float *x)
{
	const struct dt_adapter_part *p = part_of(s->adapter, i);
	const struct dt_adapter_whole *whole = dt_adapter_find_whole(s->adapter, i);

	if (whole)
		replace(&s->params.p[i], whole, off, shape, x);
	for (int64_t r = 0; p && r < shape[0]; r++) {
		const float *b = p->b + (off[0] + r) * p->rank;
		float *y = x + r * shape[1];

		for (int64_t k = 0; k < p->rank; k++) {
			const float w = (float)p->scale * b[k], *a = p->a + k * p->in + off[1];

			for (int64_t c = 0; c < shape[1]; c++)
				y[c] += w * a[c];
		}
		for (int64_t c = 0; c < shape[1] && p->ratio; c++)
			y[c] *= p->ratio[off[0] + r];
	}
}

bool dt_adapter_has_magnitudes(const struct dt_adapter *a)
{
	for (int i = 0; i < a->n; i++)
		if (a->part[i].m)
			return true;
	return false;
}

/* DoRA: sets the magnitude and the ratio of row r, whose base weights are x [in]. Called once per row. */
static void measure_row(struct dt_adapter_part *p, int64_t r, const float *x)
{
	enum { CHUNK = 256 };
	double plain = 0, whole = 0, v[CHUNK];

	for (int64_t at = 0; at < p->in; at += CHUNK) {
		const int64_t n = p->in - at < CHUNK ? p->in - at : CHUNK;

		for (int64_t c = 0; c < n; c++) {
			v[c] = (double)x[at + c];
			plain += v[c] * v[c];
		}
		for (int64_t k = 0; k < p->rank; k++) {
			const double w = p->scale * (double)p->b[r * p->rank + k];
			const float *a = p->a + k * p->in + at;

			for (int64_t c = 0; c < n; c++)
				v[c] += w * (double)a[c];
		}
		for (int64_t c = 0; c < n; c++)
			whole += v[c] * v[c];
	}
	if (p->above)
		p->m[r] = (float)(sqrt(plain) + (double)p->m[r]);
	p->ratio[r] = whole > 0 ? (float)((double)p->m[r] / sqrt(whole)) : 1;
}

int dt_adapter_measure(struct dt_adapter *a, struct dt_source *base, struct dt_err *err)
{
	enum { ROWS = 64 };
	int rc = 0;

	for (int i = 0; i < a->n && rc == 0; i++) {
		struct dt_adapter_part *p = &a->part[i];
		float *x;

		if (!p->m || p->ratio)
			continue;
		p->ratio = malloc((size_t)p->out * sizeof(*p->ratio));
		x = malloc((size_t)(ROWS * p->in) * sizeof(*x));
		if (!p->ratio || !x)
			rc = dt_err_sys(err, -ENOMEM, "cannot measure the rows that '%s' is for", a->path);
		for (int64_t r = 0; r < p->out && rc == 0; r += ROWS) {
			const int64_t n = p->out - r < ROWS ? p->out - r : ROWS;

			rc = dt_source_read(base, p->param, (int64_t[]){r, 0}, (int64_t[]){n, p->in}, DT_F32,
					    x, err);
			for (int64_t k = 0; k < n && rc == 0; k++)
				measure_row(p, r + k, x + k * p->in);
		}
		p->above = false;
		free(x);
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
