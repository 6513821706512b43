/*
 * Batch norms. When they span ranks, these exchange 2 C + 1 values per norm, in forward and backward: values
 * are weighted by each rank's count, and a rank without images sends a count of 0 (kernels/batchnorm.h).
 * Statistics of a training pass are added to x->bn.sum; the buffers' owner updates the running ones once a
 * step.
 */
#include "nn/call.h"

#include "base/progress.h"
#include "nn/batchnorm.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void dt_bn_merge(float *mean, float *sqdev, double *count, const float *parts, int ranks, int64_t c)
{
	double n = 0;

	for (int r = 0; r < ranks; r++)
		n += (double)parts[r * (2 * c + 1) + 2 * c];
	for (int64_t j = 0; j < c; j++) {
		double m = 0, q = 0;

		for (int r = 0; r < ranks && n > 0; r++) {
			const float *p = parts + r * (2 * c + 1);

			m += (double)p[2 * c] * (double)p[j] / n;
		}
		for (int r = 0; r < ranks && n > 0; r++) {
			const float *p = parts + r * (2 * c + 1);
			const double d = (double)p[j] - m;

			q += (double)p[c + j] + (double)p[2 * c] * d * d;
		}
		mean[j] = (float)m;
		sqdev[j] = (float)q;
	}
	*count = n;
}

/* Merges the statistics and count of a group of rows over all ranks. */
static int span(struct dt_exec *x, float *mean, float *sqdev, double *count, int64_t c, struct dt_err *err)
{
	const int ranks = dt_comm_size(x->bn.comm);
	float *parts = malloc((size_t)((2 * c + 1) * (ranks + 1)) * sizeof(*parts)), *mine;
	double t0 = dt_now();
	int rc;

	if (!parts)
		return dt_err_sys(err, -ENOMEM, "cannot merge the statistics of a batch norm");
	mine = parts + (2 * c + 1) * ranks;
	memcpy(mine, mean, (size_t)c * sizeof(*mine));
	memcpy(mine + c, sqdev, (size_t)c * sizeof(*mine));
	mine[2 * c] = (float)*count;
	rc = dt_all_gather(x->bn.comm, parts, mine, (size_t)(2 * c + 1), DT_F32, "batch norm", err);
	if (rc == 0)
		dt_bn_merge(mean, sqdev, count, parts, ranks, c);
	free(parts);
	x->comm_s += dt_now() - t0;
	return rc;
}

/* sqdev becomes 1 / sqrt(var + eps); adds the mean and the unbiased variance to the running sums. */
static void finish(struct dt_exec *x, const struct dt_node *n, const float *mean, float *sqdev, double count,
		   int64_t c)
{
	float *to = x->bn.sum ? x->bn.sum + n->attr.buffer : NULL;

	for (int64_t j = 0; j < c; j++) {
		const double q = (double)sqdev[j];

		if (to) {
			to[j] += mean[j];
			to[c + j] += (float)(q / (count - 1));
		}
		sqdev[j] = (float)(1 / sqrt(q / count + (double)n->attr.eps));
	}
}

/* Merges and finishes the statistics of all groups, in host memory. */
static int merge_groups(struct dt_exec *x, const struct dt_node *n, float *m, float *q, int64_t groups,
			int64_t c, int64_t rows, struct dt_err *err)
{
	int rc = 0;

	for (int64_t g = 0; g < groups && rc == 0; g++) {
		double count = (double)rows / (double)groups;

		if (x->bn.comm && dt_comm_size(x->bn.comm) > 1)
			rc = span(x, m + g * c, q + g * c, &count, c, err);
		if (rc == 0 && count < 2)
			rc = dt_err_set(err, -EINVAL,
					"batch norm '%s' has %g values per channel: it needs at least two",
					n->name, count);
		if (rc == 0)
			finish(x, n, m + g * c, q + g * c, count, c);
	}
	return rc;
}

static int batch_statistics(struct dt_exec *x, const struct dt_node *n, struct dt_tensor in,
			    struct dt_tensor mean, struct dt_tensor rstd, struct dt_err *err)
{
	const int64_t groups = mean.dim[0], c = mean.dim[1];
	float *m = dt_call_seen(x, mean), *q = dt_call_seen(x, rstd);
	int rc = m && q ? dt_kernel_check(x->dev->ops->bn_stats(x->dev, mean, rstd, in), "->bn_stats(", err)
			: dt_err_sys(err, -ENOMEM, "cannot merge the statistics of a batch norm");

	if (rc == 0 && m != mean.data)
		rc = dt_call_move(x, m, mean.data, (size_t)(groups * c) * sizeof(*m), err);
	if (rc == 0 && q != rstd.data)
		rc = dt_call_move(x, q, rstd.data, (size_t)(groups * c) * sizeof(*q), err);
	if (rc == 0)
		rc = merge_groups(x, n, m, q, groups, c, in.dim[0], err);
	rc = dt_call_unseen(x, mean, m, rc, err);
	return dt_call_unseen(x, rstd, q, rc, err);
}

static int running_statistics(struct dt_exec *x, const struct dt_node *n, struct dt_tensor mean,
			      struct dt_tensor rstd, struct dt_err *err)
{
	const int64_t c = mean.dim[1];
	const float *from = x->bn.running + n->attr.buffer;
	float *m = dt_call_seen(x, mean), *q = dt_call_seen(x, rstd);
	int rc = m && q ? 0 : dt_err_sys(err, -ENOMEM, "cannot place the statistics of a batch norm");

	for (int64_t i = 0; i < dt_numel(mean) && rc == 0; i++) {
		m[i] = from[i % c];
		q[i] = (float)(1 / sqrt((double)from[c + i % c] + (double)n->attr.eps));
	}
	rc = dt_call_unseen(x, mean, m, rc, err);
	return dt_call_unseen(x, rstd, q, rc, err);
}

int dt_call_batch_norm(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_tensor in = dt_call_mat(x, n->in[0]), mean = dt_call_mat(x, n->out[1]),
			 rstd = dt_call_mat(x, n->out[2]);
	struct dt_bn p;
	int rc;

	if (!x->training) /* one group: all rows have the same statistics, and need not be whole groups */
		mean.dim[0] = rstd.dim[0] = 1;
	p = (struct dt_bn){in, dt_call_mat(x, n->out[0]), mean, rstd, x->w[n->param[0]], n->attr.relu};
	rc = x->training ? batch_statistics(x, n, in, mean, rstd, err)
			 : running_statistics(x, n, mean, rstd, err);

	if (rc < 0)
		return rc;
	TRY(x->dev->ops->bn_forward(x->dev, &p, dt_call_mat(x, n->in[1]), x->w[n->param[1]]));
	return 0;
}

/* Sums one group's sums and count over all ranks. */
static int span_sums(struct dt_exec *x, float *sums, int64_t c, double *count, struct dt_err *err)
{
	const struct dt_tensor t = dt_t1(sums, DT_F32, 2 * c + 1); /* the count follows the sums */
	float *h = dt_call_seen(x, t);
	const double t0 = dt_now();
	int rc = h ? 0 : dt_err_sys(err, -ENOMEM, "cannot sum the gradients of a batch norm");

	if (rc == 0 && h != sums)
		rc = dt_call_move(x, h, sums, (size_t)(2 * c) * sizeof(*h), err);
	if (rc == 0) {
		h[2 * c] = (float)*count;
		rc = dt_all_reduce(x->bn.comm, h, NULL, (size_t)(2 * c + 1), DT_F32, DT_SUM,
				   "batch norm gradient", err);
	}
	if (rc == 0)
		*count = (double)h[2 * c];
	x->comm_s += dt_now() - t0;
	return dt_call_unseen(x, t, h, rc, err);
}

int dt_call_batch_norm_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_tensor dy = dt_call_mat(x, n->in[0]), in = dt_call_mat(x, n->in[2]),
			 mean = dt_call_mat(x, n->in[3]);
	const struct dt_bn p = {
		in,	     dt_call_mat(x, n->in[1]), mean, dt_call_mat(x, n->in[4]), x->w[n->param[0]],
		n->attr.relu};
	const int64_t groups = mean.dim[0], c = mean.dim[1];
	float *sums = dt_call_at(x, n->out[2]);
	struct dt_tensor sum = dt_t2(sums, DT_F32, groups, c),
			 dot = dt_t2(sums + groups * c, DT_F32, groups, c);
	double count = (double)in.dim[0] / (double)groups;
	int rc = 0;

	TRY(x->dev->ops->bn_sums(x->dev, sum, dot, dy, &p));
	if (x->g[n->param[0]].data)
		TRY(x->dev->ops->colsum(x->dev, x->g[n->param[0]], dot));
	if (x->g[n->param[1]].data)
		TRY(x->dev->ops->colsum(x->dev, x->g[n->param[1]], sum));
	if (x->bn.comm && dt_comm_size(x->bn.comm) > 1)
		rc = span_sums(x, sums, c, &count, err);
	if (rc < 0)
		return rc;
	TRY(x->dev->ops->bn_backward(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->out[1]), dy, sum,
				     dot, count, &p));
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
