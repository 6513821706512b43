#include "train/trainer.h"

#include "base/room.h"
#include "plan/objective.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct dt_objective_rule *rule(const struct trainer *t)
{
	return dt_objective_rule(t->run.objective.kind);
}

/* ---- the answers of a microbatch ---- */

void objective_clear(struct trainer *t)
{
	t->objective.n = 0;
}

static int add(struct objective *o, struct answer a, struct dt_err *err)
{
	if (!DT_ROOM(o->answer, o->n, o->cap, 64))
		return dt_err_sys(err, -ENOMEM, "cannot hold the answers of a microbatch");
	o->answer[o->n++] = a;
	return 0;
}

int objective_add(struct trainer *t, const struct dt_dataset *d, int64_t at, int64_t row,
		  const int32_t *first, struct dt_err *err)
{
	int64_t seq = t->run.seq;
	int rc = 0;

	for (int64_t p = 0, end; p < seq && rc == 0; p = end) {
		enum dt_document_kind kind = dt_dataset_kind(d, at + p);

		for (end = p + 1; end < seq && first[end] == first[p];)
			end++;
		if (kind != DT_DOCUMENT_PLAIN)
			rc = add(&t->objective,
				 (struct answer){.first = row + p,
						 .end = row + end,
						 .kind = kind,
						 .document = dt_dataset_document(d, at + p)},
				 err);
	}
	return rc;
}

/* ---- the loss ---- */

static void sum_up(struct objective *o, const struct dt_flight *f, const float *logprob)
{
	for (int64_t i = 0; i < o->n; i++) {
		struct answer *a = &o->answer[i];
		double sum = 0;

		a->targets = 0;
		for (int64_t r = a->first; r < a->end; r++) {
			sum += (double)logprob[r];
			a->targets += f->host_targets[r] >= 0;
		}
		if (o->keeping)
			o->kept[a->document] = sum;
		if (o->asking)
			a->reference = sum;
		else
			a->logprob = sum;
	}
}

static void weigh(const struct answer *a, const struct dt_flight *f, double by, float *weight)
{
	for (int64_t r = a->first; r < a->end; r++)
		weight[r] = f->host_targets[r] >= 0 ? (float)-by : 0;
}

/* The log-ratio of an answer: its log-probability minus the reference's. */
static double gain(const struct answer *a)
{
	return a->logprob - a->reference;
}

static void note(struct objective *o, const struct answer *a, double beta)
{
	const int bad = a->kind == DT_DOCUMENT_REJECTED;

	o->sum[SUM_N + bad]++;
	o->sum[SUM_REWARD + bad] += beta * gain(a);
	o->sum[SUM_LOGP + bad] += a->logprob;
}

/* KTO: loss of one sample's answers against the mean log-ratio of its mismatched answers. */
static void judge_alone(struct trainer *t, const struct dt_flight *f, const struct answer *a, int64_t n,
			float *weight, double *loss)
{
	struct objective *o = &t->objective;
	double beta = t->run.objective.beta, z = 0;
	int64_t mismatched = 0;

	for (int64_t i = 0; i < n; i++)
		if (a[i].kind == DT_DOCUMENT_MISMATCHED) {
			z += gain(&a[i]);
			mismatched++;
		}
	z = mismatched && z > 0 ? z / (double)mismatched : 0;
	o->sum[SUM_KL] += z;
	o->sum[SUM_SAMPLES]++;
	for (int64_t i = 0; i < n; i++) {
		const bool good = a[i].kind == DT_DOCUMENT_CHOSEN;
		struct dt_answer_loss l;

		if (a[i].kind == DT_DOCUMENT_MISMATCHED)
			continue;
		l = rule(t)->alone(gain(&a[i]), good, beta, z, t->run.objective.weight[good]);
		*loss += l.loss;
		weigh(&a[i], f, l.slope, weight);
		note(o, &a[i], beta);
	}
}

/* Chosen and rejected answers alternate (data/dataset.h). */
static int judge_pairs(struct trainer *t, const struct dt_flight *f, float *weight, double *loss,
		       struct dt_err *err)
{
	struct objective *o = &t->objective;
	double beta = t->run.objective.beta, gamma = t->run.objective.gamma;

	for (int64_t i = 0; i + 1 < o->n; i += 2) {
		struct answer *c = &o->answer[i], *r = c + 1;
		struct dt_pair_loss l;

		if (c->kind != DT_DOCUMENT_CHOSEN || r->kind != DT_DOCUMENT_REJECTED)
			return dt_err_set(err, -EBADMSG, "'%s': answers are not in pairs", t->run.data.train);
		l = rule(t)->pair(&(struct dt_pair){gain(c), gain(r), c->targets, r->targets}, beta, gamma);
		*loss += l.loss;
		weigh(c, f, l.dchosen, weight);
		weigh(r, f, l.drejected, weight);
		note(o, c, beta);
		note(o, r, beta);
		o->sum[SUM_RIGHT] += beta * gain(c) > beta * gain(r);
	}
	return 0;
}

static int judge(void *arg, const struct dt_flight *f, const float *logprob, float *weight, double *loss,
		 struct dt_err *err)
{
	struct trainer *t = arg;
	struct objective *o = &t->objective;

	sum_up(o, f, logprob);
	if (o->asking)
		return 0;
	memset(weight, 0, (size_t)(t->run.microbatch * t->run.seq) * sizeof(*weight));
	for (int64_t i = 0; i < o->n && o->kept; i++)
		o->answer[i].reference = o->kept[o->answer[i].document];
	if (rule(t)->pair)
		return judge_pairs(t, f, weight, loss, err);
	for (int64_t i = 0, end; i < o->n; i = end) {
		for (end = i + 1;
		     end < o->n && o->answer[end].first / t->run.seq == o->answer[i].first / t->run.seq;)
			end++;
		judge_alone(t, f, &o->answer[i], end - i, weight, loss);
	}
	return 0;
}

static bool runs_reference(const struct trainer *t)
{
	return rule(t)->reference && !t->objective.kept;
}

int objective_ask(struct trainer *t, const struct dt_flight *f, const struct dt_hooks *hooks,
		  struct dt_err *err)
{
	bool training = t->exec.training, counts = t->exec.mixture.counts;
	struct dt_watch *watch = t->exec.watch;
	double loss = t->exec.loss_sum;
	int rc;

	if (!runs_reference(t))
		return 0;
	t->exec.watch = NULL; /* without adapters their products are not written */
	t->objective.asking = t->exec.adapters_off = true;
	t->exec.training = t->exec.mixture.counts = t->exec.loss_backward = false;
	rc = dt_exec_run(&t->exec, f, DT_LIST_FORWARD, hooks, err);
	if (rc == 0)
		rc = dt_exec_run(&t->exec, f, DT_LIST_LOSS, hooks, err);
	t->objective.asking = t->exec.adapters_off = false;
	t->exec.training = training;
	t->exec.mixture.counts = counts;
	t->exec.loss_sum = loss;
	t->exec.watch = watch;
	return rc;
}

/* ---- setup ---- */

int objective_open(struct trainer *t, struct dt_err *err)
{
	struct dt_objective *j = &t->exec.objective;
	size_t rows = (size_t)(t->run.microbatch * t->run.seq);
	struct dt_dataset_info eval = {0};

	if (t->source.eval)
		dt_dataset_info(t->source.eval, &eval);
	if (!dt_objective_compares(rule(t))) {
		if (!dt_config_is_image(&t->config) && t->source.info.preferences) {
			dt_err_set(err, -EINVAL, "'%s' holds pairs of answers (preferences)",
				   t->run.data.train);
			dt_err_hint(err, "they need an --objective, dpo for example");
			return -EINVAL;
		}
		return 0;
	}
	if (!t->source.info.preferences || (t->source.eval && !eval.preferences)) {
		dt_err_set(err, -EINVAL, "--objective %s: '%s' holds no pairs of answers", rule(t)->name,
			   t->source.info.preferences ? t->run.data.eval : t->run.data.train);
		dt_err_hint(err, "make one with 'dt-dataset chat --preferences'");
		return -EINVAL;
	}
	if (t->source.info.labelled != !rule(t)->pair || (t->source.eval && eval.labelled != !rule(t)->pair))
		return dt_err_set(err, -EINVAL, "--objective %s needs %s, which '%s' does not hold",
				  rule(t)->name, rule(t)->pair ? "pairs" : "answers with a label",
				  t->source.info.labelled != !rule(t)->pair ? t->run.data.train
									    : t->run.data.eval);
	if (t->run.objective.reference && dt_mixture_parts(t->source.data) > 1)
		return dt_err_set(err, -ENOTSUP, "--reference is for one data set, but --data names several");
	*j = (struct dt_objective){.judge = judge,
				   .arg = t,
				   .logprob = calloc(rows, sizeof(float)),
				   .weight = calloc(rows, sizeof(float))};
	return j->logprob && j->weight ? 0 : dt_err_sys(err, -ENOMEM, "cannot hold the log-probabilities");
}

void objective_release(struct trainer *t)
{
	free(t->exec.objective.logprob);
	free(t->exec.objective.weight);
	free(t->exec.objective.value);
	free(t->exec.objective.dvalue);
	free(t->objective.answer);
	free(t->objective.kept);
}

int64_t objective_pairs(struct trainer *t, bool eval, int64_t first, int64_t end)
{
	int64_t n = 0;

	for (int64_t i = first; i < end; i++) {
		int64_t own;
		const struct dt_sampler *s = source_sampler(t, eval, i, &own);

		n += dt_dataset_count(s->data, dt_sampler_at(s, own), t->run.seq, DT_DOCUMENT_CHOSEN);
		if (rule(t)->alone)
			n += dt_dataset_count(s->data, dt_sampler_at(s, own), t->run.seq,
					      DT_DOCUMENT_REJECTED);
	}
	return n;
}

int objective_agree(struct trainer *t, struct dt_err *err)
{
	double *sum = t->objective.sum;

	if (!dt_objective_compares(rule(t)))
		return 0;
	if (t->mesh.at.tp != 0)
		memset(sum, 0, sizeof(t->objective.sum));
	return dt_all_reduce(dt_mesh_comm(&t->mesh, DT_ON_ALL), sum, NULL, OBJECTIVE_SUMS, DT_F64, DT_SUM,
			     "rewards of answers", err);
}

static void put_mean(json_t *line, const char *name, double sum, double n)
{
	if (n > 0)
		json_object_set_new(line, name, json_real(sum / n));
}

void objective_metrics(const struct trainer *t, json_t *line)
{
	static const char *const names[][2] = {{"rewards_chosen", "logps_chosen"},
					       {"rewards_rejected", "logps_rejected"}};
	const double *sum = t->objective.sum;

	if (!dt_objective_compares(rule(t)) || sum[SUM_N] + sum[SUM_N + 1] == 0)
		return;
	if (rule(t)->pair)
		json_object_set_new(line, "pairs", json_integer((json_int_t)sum[SUM_N]));
	else
		json_object_set_new(line, "answers", json_integer((json_int_t)(sum[SUM_N] + sum[SUM_N + 1])));
	for (int i = 0; i < 2; i++) {
		put_mean(line, names[i][0], sum[SUM_REWARD + i], sum[SUM_N + i]);
		put_mean(line, names[i][1], sum[SUM_LOGP + i], sum[SUM_N + i]);
	}
	if (rule(t)->alone) {
		put_mean(line, "kl", sum[SUM_KL], sum[SUM_SAMPLES]);
		return;
	}
	put_mean(line, "rewards_accuracy", sum[SUM_RIGHT], sum[SUM_N]);
	put_mean(line, "rewards_margin", sum[SUM_REWARD] - sum[SUM_REWARD + 1], sum[SUM_N]);
}
/* SPDX-License-Identifier: Apache-2.0 */
