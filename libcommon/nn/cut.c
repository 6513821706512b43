#include "nn/cut.h"

#include "base/progress.h"

#include <math.h>
#include <string.h>

int dt_cut_enter(struct dt_model *m, const struct dt_pass *p, const void *x, const void **ret,
		 const char *what, struct dt_err *err)
{
	double t0;
	int rc;

	*ret = x;
	if (!m->seq_parallel)
		return 0;
	t0 = dt_now();
	*ret = p->gather;
	rc = dt_all_gather(m->tp, p->gather, x, (size_t)(dt_stream_rows(m, p) * m->c->hidden), m->dtype, what,
			   err);
	m->comm_s += dt_now() - t0;
	return rc;
}

void *dt_cut_room(const struct dt_model *m, const struct dt_pass *p, void *dst)
{
	return m->seq_parallel ? p->gather : dst;
}

int dt_cut_leave(struct dt_model *m, const struct dt_pass *p, void *dst, void *partial, const char *what,
		 struct dt_err *err)
{
	size_t n = (size_t)(dt_stream_rows(m, p) * m->c->hidden);
	double t0;
	int rc;

	if (!m->tp)
		return 0;
	t0 = dt_now();
	if (m->seq_parallel)
		rc = dt_reduce_scatter(m->tp, dst, partial == dst ? NULL : partial, n, m->dtype, DT_SUM, what,
				       err);
	else
		rc = dt_all_reduce(m->tp, dst, NULL, n, m->dtype, DT_SUM, what, err);
	m->comm_s += dt_now() - t0;
	return rc;
}

int dt_cut_stats(struct dt_model *m, float *rowmax, float *sumexp, float *target, int64_t rows,
		 struct dt_err *err)
{
	float *own = target + rows;
	size_t n = (size_t)rows;
	double t0;
	int rc;

	if (!m->tp)
		return 0;
	t0 = dt_now();
	memcpy(own, rowmax, n * sizeof(*own));
	rc = dt_all_reduce(m->tp, rowmax, NULL, n, DT_F32, DT_MAX, "loss maximum", err);
	for (int64_t i = 0; i < rows && rc == 0; i++)
		sumexp[i] *= expf(own[i] - rowmax[i]);
	if (rc == 0)
		rc = dt_all_reduce(m->tp, sumexp, NULL, n, DT_F32, DT_SUM, "loss sum", err);
	if (rc == 0)
		rc = dt_all_reduce(m->tp, target, NULL, n, DT_F32, DT_SUM, "loss target", err);
	m->comm_s += dt_now() - t0;
	return rc;
}
