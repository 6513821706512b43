/* A fingerprint of a source's weights, computed from a few of them. */
#include "ckpt/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t fnv(uint64_t h, const void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		h = (h ^ ((const unsigned char *)p)[i]) * 1099511628211u;
	return h;
}

int dt_source_fingerprint(struct dt_source *s, char ret[DT_FINGERPRINT], struct dt_err *err)
{
	const struct dt_params *t = dt_source_params(s);
	uint64_t h = 14695981039346656037u;
	int64_t widest = 0;
	float *row;
	int rc = 0;

	for (int i = 0; i < t->n; i++)
		widest = t->p[i].shape[1] > widest ? t->p[i].shape[1] : widest;
	row = malloc((size_t)widest * sizeof(*row));
	if (!row)
		return dt_err_sys(err, -ENOMEM, "cannot read '%s'", dt_source_path(s));
	for (int i = 0; i < t->n && rc == 0; i++) {
		const struct dt_param *p = &t->p[i];

		h = fnv(h, p->name, strlen(p->name));
		for (int k = 0; k < 3 && rc == 0; k++) {
			int64_t off[2] = {k * (p->shape[0] - 1) / 2, 0}, shape[2] = {1, p->shape[1]};

			rc = dt_source_read(s, i, off, shape, DT_F32, row, err);
			h = fnv(h, row, (size_t)p->shape[1] * sizeof(*row));
		}
	}
	free(row);
	if (rc == 0)
		snprintf(ret, DT_FINGERPRINT, "%016llx", (unsigned long long)h);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
