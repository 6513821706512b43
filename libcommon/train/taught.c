#include "train/trainer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int taught_open(struct trainer *t, struct dt_err *err)
{
	struct dt_run_teacher *r = &t->run.teacher;
	const struct dt_teacher_info *i;
	int64_t own;
	int rc;

	if (!r->file)
		return r->top_k ? dt_err_set(err, -EINVAL, "--teacher-top-k requires --teacher") : 0;
	if (dt_mixture_parts(t->source.data) > 1)
		return dt_err_set(err, -ENOTSUP, "--teacher is for one data set, but --data names several");
	rc = dt_teacher_open(r->file, &t->taught.file, err);
	if (rc == 0)
		rc = dt_teacher_check(t->taught.file, dt_mixture_at(t->source.data, 0, &own)->data,
				      t->run.data.train, t->run.seq, dt_run_apart(&t->run), err);
	if (rc < 0)
		return rc;
	i = dt_teacher_info(t->taught.file);
	if (r->top_k > i->k)
		return dt_err_set(err, -EINVAL,
				  "--teacher-top-k %lld: '%s' has only the top %lld of each token",
				  (long long)r->top_k, r->file, (long long)i->k);
	r->top_k = r->top_k ? r->top_k : i->k;
	dt_log_msg(&t->root_log,
		   "teacher '%s': log-probabilities of the top %lld tokens at each position, temperature %g",
		   i->teacher, (long long)r->top_k, i->temperature);
	return 0;
}

int taught_start(struct trainer *t, struct dt_err *err)
{
	const size_t seq = (size_t)t->run.seq, k = (size_t)t->run.teacher.top_k;
	struct taught *g = &t->taught;

	if (!g->file)
		return 0;
	t->exec.teaching = (struct dt_teaching){.k = (int64_t)k,
						.temperature = (float)dt_teacher_info(g->file)->temperature,
						.weight = (float)t->run.teacher.weight};
	if (t->exec.seq == t->run.seq)
		return 0;
	g->columns = malloc(seq * k * sizeof(*g->columns));
	g->probs = malloc(seq * (k + 1) * sizeof(*g->probs));
	return g->columns && g->probs
		       ? 0
		       : dt_err_sys(err, -ENOMEM, "cannot hold the teacher's log-probabilities");
}

void taught_close(struct trainer *t)
{
	dt_teacher_close(t->taught.file);
	free(t->taught.columns);
	free(t->taught.probs);
}

int taught_rows(struct trainer *t, const struct dt_flight *f, int64_t b, int64_t at, struct dt_err *err)
{
	const int64_t n = t->exec.seq, k = t->exec.teaching.k;
	struct taught *g = &t->taught;
	int rc;

	if (!g->columns)
		return dt_teacher_read(g->file, at, n, k, f->host_columns + b * n * k,
				       f->host_probs + b * n * (k + 1), err);
	rc = dt_teacher_read(g->file, at, t->run.seq, k, g->columns, g->probs, err);
	for (int64_t i = b * n; i < (b + 1) * n && rc == 0; i++) {
		const int64_t p = t->exec.host_pos[i];

		memcpy(f->host_columns + i * k, g->columns + p * k, (size_t)k * sizeof(*g->columns));
		memcpy(f->host_probs + i * (k + 1), g->probs + p * (k + 1),
		       (size_t)(k + 1) * sizeof(*g->probs));
	}
	return rc;
}

int taught_agree(struct trainer *t, double targets, struct dt_err *err)
{
	double sum[2] = {t->exec.teaching.ce_sum, t->exec.teaching.kl_sum};
	int rc;

	if (!t->taught.file)
		return 0;
	if (t->mesh.at.tp != 0)
		memset(sum, 0, sizeof(sum));
	rc = dt_all_reduce(dt_mesh_comm(&t->mesh, DT_ON_ALL), sum, NULL, 2, DT_F64, DT_SUM, "divergence",
			   err);
	t->taught.ce = sum[0] / targets;
	t->taught.kl = sum[1] / targets;
	return rc;
}

void taught_metrics(const struct trainer *t, json_t *line)
{
	if (!t->taught.file)
		return;
	json_object_set_new(line, "ce", json_real(t->taught.ce));
	json_object_set_new(line, "teacher_kl", json_real(t->taught.kl));
}
/* SPDX-License-Identifier: Apache-2.0 */
