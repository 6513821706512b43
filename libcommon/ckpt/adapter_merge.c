/* A base model and its adapter as one source. */
#include "ckpt/adapter.h"
#include "ckpt/export.h"
#include "ckpt/source_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int dt_adapter_open_for(const char *path, struct dt_source *base, bool any_base, struct dt_adapter **ret,
			struct dt_err *err)
{
	struct dt_adapter *a;
	int rc = dt_adapter_open(path, dt_source_config(base), dt_source_params(base), &a, err);

	if (rc < 0)
		return rc;
	if (!any_base && (rc = dt_adapter_check_base(a, base, err)) < 0) {
		dt_adapter_close(a);
		return rc;
	}
	*ret = a;
	return 0;
}

int dt_source_adapted(struct dt_source *base, struct dt_adapter *a, struct dt_source **ret,
		      struct dt_err *err)
{
	struct dt_source *s;
	int rc = dt_adapter_measure(a, base, err);

	if (rc < 0)
		dt_source_close(base);
	else
		rc = dt_source_average(&base, 1, &s, err); /* the average of one source */
	if (rc < 0) {
		dt_adapter_close(a);
		return rc;
	}
	s->adapter = a;
	*ret = s;
	return 0;
}

int dt_source_adapt(struct dt_source **src, const char *path, bool any_base, struct dt_err *err)
{
	struct dt_source *base = *src;
	struct dt_adapter *a;
	int rc = dt_adapter_open_for(path, base, any_base, &a, err);

	*src = NULL;
	if (rc == 0)
		return dt_source_adapted(base, a, src, err);
	dt_source_close(base);
	return rc;
}

/* Over a tensor's first rows adds to sum the squares of the update, and of the error of rounding to f. */
static int measure(struct dt_source *s, const struct dt_adapter_part *p, enum dt_format f, double sum[2],
		   struct dt_err *err)
{
	int64_t rows = p->out < 64 ? p->out : 64, n = rows * p->in, off[2] = {0, 0}, shape[2] = {rows, p->in};
	float *x = malloc((size_t)(3 * n) * sizeof(*x)), *y = x + n, *z = y + n;
	void *blocks = malloc((size_t)dt_format_bytes(f, n) + 64);
	int rc = x && blocks ? 0 : dt_err_sys(err, -ENOMEM, "cannot measure what merging loses");

	if (rc == 0)
		rc = dt_source_read(s->mean[0], p->param, off, shape, DT_F32, x, err);
	if (rc == 0)
		rc = dt_source_read(s, p->param, off, shape, DT_F32, y, err);
	if (rc == 0) {
		dt_quantize(f, y, n, blocks);
		dt_dequantize(f, blocks, n, z);
		for (int64_t i = 0; i < n; i++) {
			double update = (double)y[i] - (double)x[i], left = (double)z[i] - (double)y[i];

			sum[0] += update * update;
			sum[1] += left * left;
		}
	}
	free(x);
	free(blocks);
	return rc;
}

int dt_adapted_loss(struct dt_source *s, enum dt_format f, double *ret, struct dt_err *err)
{
	double sum[2] = {0, 0};
	int rc = 0, step = s->adapter->n / 16 + 1;

	for (int i = 0; i < s->adapter->n && rc == 0; i += step)
		if (s->adapter->part[i].in % dt_format_info(f)->block == 0)
			rc = measure(s, &s->adapter->part[i], f, sum, err);
	*ret = sum[0] > 0 ? sqrt(sum[1] / sum[0]) : 0;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
