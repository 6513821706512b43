#include "rl/feed_priv.h"

#include "base/opt.h"
#include "plan/objective.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int open_feed(void *arg, const struct dt_given_site *site, struct dt_err *err)
{
	struct feed *f = arg;

	f->site = *site;
	return f->o.rollouts ? feed_file_open(f, err) : feed_draw_open(f, err);
}

/* Warns about answers sampled with older weights if no importance ratio corrects for it. */
static void warn_stale(struct feed *f, int64_t step)
{
	const bool corrected = f->policy.ratio != DT_RATIO_CAP || f->policy.cap > 0;

	if (corrected || f->warned || f->staleness == 0)
		return;
	f->warned = true;
	dt_log_msg(f->site.log,
		   "step %lld learns from answers of other weights without importance ratios, so training "
		   "collapses: --ratio-cap 2 turns the ratios on",
		   (long long)step + 1);
}

/* Computes the lessons of the step's answers, with the divergence taken from rewards if configured. */
static int teach(struct feed *f, struct dt_err *err)
{
	double *penalty = calloc((size_t)f->answers + 1, sizeof(*penalty));
	const struct dt_policy *p = &f->policy;

	if (!penalty)
		return dt_err_sys(err, -ENOMEM, "cannot learn from rollouts");
	for (int64_t i = 0; i < f->pack.n && f->reference && p->in_reward; i++) {
		const struct dt_placed *d = &f->pack.placed[i];
		const struct dt_answer *a = &f->now[d->group].answer[d->answer];

		penalty[d->number] =
			dt_policy_penalty(p, a->n, a->logprob, f->reference + d->row * f->pack.seq + d->at);
	}
	dt_policy_lessons(p, f->now, f->nnow, f->most, penalty, f->lesson);
	free(penalty);
	if (dt_policy_has_values(p))
		feed_values_teach(f);
	return 0;
}

static int look(void *arg, const struct dt_flight *flight, const float *logprob, float *weight, double *loss,
		struct dt_err *err)
{
	feed_values_look(arg, flight, logprob);
	return 0;
}

static int keep(void *arg, const struct dt_flight *flight, const float *logprob, float *weight, double *loss,
		struct dt_err *err)
{
	struct feed *f = arg;
	const int64_t seq = f->pack.seq, first = flight->sample, left = f->pack.rows - first,
		      n = left < f->site.run->microbatch ? left : f->site.run->microbatch;

	if (n > 0 && f->site.counts)
		memcpy(f->reference + first * seq, logprob, (size_t)(n * seq) * sizeof(*logprob));
	return 0;
}

/* All-reduces the reference's log-probabilities of all rows, then computes the lessons. */
static int ready(void *arg, struct dt_err *err)
{
	struct feed *f = arg;
	int rc = !f->reference ? 0
			       : dt_all_reduce(f->site.all, f->reference, NULL,
					       (size_t)(f->pack.rows * f->pack.seq), DT_F32, DT_SUM,
					       "log-probabilities of the reference", err);

	if (rc == 0 && dt_policy_has_values(&f->policy))
		rc = feed_values_ready(f, err);
	return rc == 0 ? teach(f, err) : rc;
}

static int rows(void *arg, int64_t step, struct dt_given_rows *ret, struct dt_err *err)
{
	struct feed *f = arg;
	int rc = f->o.rollouts ? feed_file_step(f, step, err) : feed_draw_step(f, step, err);

	if (rc < 0)
		return rc;
	warn_stale(f, step);
	f->answers = 0;
	for (int64_t i = 0; i < f->nnow; i++)
		f->answers += f->now[i].n;
	free(f->lesson);
	f->lesson = calloc((size_t)f->answers + 1, sizeof(*f->lesson));
	if (!f->lesson)
		return dt_err_sys(err, -ENOMEM, "cannot learn from rollouts");
	if (f->o.rollouts) {
		f->stats = (struct dt_rl_stats){0};
		dt_rl_count(&f->stats, f->now, f->nnow);
	}
	f->ratios = DT_RATIO_STATS;
	dt_pack_release(&f->pack);
	rc = dt_pack_make(&f->pack, f->now, f->nnow, f->site.run->seq, err);
	free(f->reference);
	f->reference = NULL;
	if (rc == 0 && f->policy.beta > 0) {
		f->reference = calloc((size_t)(f->pack.rows * f->pack.seq) + 1, sizeof(*f->reference));
		rc = f->reference ? 0 : dt_err_sys(err, -ENOMEM, "cannot learn from rollouts");
	}
	if (rc == 0)
		rc = feed_values_begin(f, err);
	*ret = (struct dt_given_rows){f->pack.rows, f->pack.ids, f->pack.targets, f->pack.first,
				      f->pack.tokens};
	return rc;
}

/* The value loss of an answer. at: the flight's index of its first target. */
static double learn_values(struct feed *f, const struct dt_placed *d, int64_t at)
{
	const struct dt_lesson *l = &f->lesson[d->number];
	const int64_t from = l->token - f->values.advantage;

	return dt_policy_value_loss(l, f->o.value_coef, f->now[d->group].answer[d->answer].n,
				    f->site.value + at, f->values.ret + from, f->site.dvalue + at,
				    &f->ratios.value);
}

static int judge(void *arg, const struct dt_flight *flight, const float *logprob, float *weight, double *loss,
		 struct dt_err *err)
{
	struct feed *f = arg;
	const int64_t seq = f->pack.seq, first = flight->sample, rows_here = f->site.run->microbatch,
		      end = first + rows_here < f->pack.rows ? first + rows_here : f->pack.rows;

	memset(weight, 0, (size_t)(rows_here * seq) * sizeof(*weight));
	if (f->site.dvalue)
		memset(f->site.dvalue, 0, (size_t)(rows_here * seq) * sizeof(*f->site.dvalue));
	for (int64_t i = first < end ? f->pack.row[first] : 0; first < end && i < f->pack.row[end]; i++) {
		const struct dt_placed *d = &f->pack.placed[i];
		const struct dt_answer *a = &f->now[d->group].answer[d->answer];
		const int64_t at = (d->row - first) * seq + d->at;

		const float *ref = f->reference ? f->reference + d->row * seq + d->at : NULL;

		*loss += dt_policy_loss(&f->policy, &f->lesson[d->number], a->n, logprob + at, a->logprob,
					ref, weight + at, &f->ratios);
		if (dt_policy_has_values(&f->policy))
			*loss += learn_values(f, d, at);
	}
	return 0;
}

/* Sums the ratio statistics over all ranks. */
static int end(void *arg, struct dt_err *err)
{
	struct feed *f = arg;
	struct dt_ratio_stats *s = &f->ratios;
	double sum[7] = {s->tokens, s->ratio, s->clipped, s->nll, s->kl, s->reference, s->value},
	       far[2] = {s->high, -s->low};
	int rc;

	if (!f->site.counts)
		memset(sum, 0, sizeof(sum));
	rc = dt_all_reduce(f->site.all, sum, NULL, 7, DT_F64, DT_SUM, "ratios", err);
	if (rc == 0)
		rc = dt_all_reduce(f->site.all, far, NULL, 2, DT_F64, DT_MAX, "largest ratios", err);
	*s = (struct dt_ratio_stats){sum[0], sum[1], sum[2], sum[3], sum[4], sum[5], sum[6], -far[1], far[0]};
	return rc;
}

/* Adds an answer of the step to the line, of another group each step. A file's may have no text. */
static void put_answer(const struct feed *f, json_t *line)
{
	const json_t *step = json_object_get(line, "step");
	const struct dt_group *g = f->nnow ? &f->now[json_integer_value(step) % f->nnow] : NULL;
	const struct dt_answer *a = g && g->n ? &g->answer[0] : NULL;

	if (a && g->prompt && a->text)
		json_object_set_new(line, "answer",
				    json_pack("{s:s, s:s, s:o}", "prompt", g->prompt, "text", a->text,
					      "reward",
					      isfinite(a->reward) ? json_real(a->reward) : json_null()));
}

static void metrics(void *arg, json_t *line)
{
	struct feed *f = arg;
	const struct dt_ratio_stats *s = &f->ratios;
	const double n = s->tokens > 0 ? s->tokens : 1;
	json_t *o;

	dt_rl_put(&f->stats, line);
	put_answer(f, line);
	o = json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "ratio_mean", s->ratio / n,
		      "ratio_min", isfinite(s->low) ? s->low : 1.0, "ratio_max",
		      isfinite(s->high) ? s->high : 1.0, "clipped", s->clipped / n, "kl_k3_sampler",
		      s->kl / n, "nll", s->nll / n, "draw_s", f->draw_s, "score_s", f->score_s, "sync_s",
		      f->sync_s);
	json_object_set_new(line, "staleness",
			    isfinite(f->staleness) ? json_real(f->staleness) : json_null());
	if (f->o.stale)
		json_object_set_new(line, "staleness_max", json_real(f->most_stale));
	if (f->o.piece)
		json_object_set_new(line, "renewed", json_integer((json_int_t)f->renewed));
	json_object_update(line, o);
	json_decref(o);
	if (f->policy.beta > 0)
		json_object_set_new(line,
				    f->policy.kl == DT_KL_K1   ? "kl_k1_reference"
				    : f->policy.kl == DT_KL_K2 ? "kl_k2_reference"
							       : "kl_k3_reference",
				    json_real(s->reference / n));
	if (dt_policy_has_values(&f->policy))
		json_object_set_new(line, "value_error", json_real(s->value / n));
	if (f->o.refill) {
		json_object_set_new(line, "prompts_drawn", json_integer((json_int_t)f->stats.groups));
		json_object_set_new(line, "refilled", json_integer((json_int_t)f->refilled));
	}
}

int dt_rl_feed_open(const struct dt_run *r, const struct dt_given **ret, struct dt_err *err)
{
	struct feed *f = calloc(1, sizeof(*f));
	const struct dt_policy *p;
	char word[16];

	if (!f)
		return dt_err_sys(err, -ENOMEM, "cannot open the objective");
	f->o = r->rl;
	f->most = r->rl.answer;
	p = dt_policy_find(dt_opt_choice_name(DT_OBJECTIVES, r->objective.kind, word, sizeof(word)));
	if (!p) {
		free(f);
		return dt_err_set(err, -EINVAL, "objective '%s' does not learn from answers", word);
	}
	f->policy = *p;
	f->policy.low = r->rl.low >= 0 ? r->rl.low : p->low;
	f->policy.high = r->rl.high >= 0 ? r->rl.high : p->high;
	f->policy.cap = r->rl.ratio >= 0 ? r->rl.ratio : p->cap;
	f->policy.kl = (enum dt_kl)r->rl.kl;
	f->policy.in_reward = r->rl.kl_in == 1;
	f->policy.beta = r->objective.beta;
	f->given = (struct dt_given){.arg = f,
				     .open = open_feed,
				     .rows = rows,
				     .keep = keep,
				     .look = look,
				     .ready = ready,
				     .judge = judge,
				     .end = end,
				     .metrics = metrics};
	*ret = &f->given;
	return 0;
}

void dt_rl_feed_close(const struct dt_given *g)
{
	struct feed *f = g ? g->arg : NULL;

	if (!f)
		return;
	feed_file_close(f);
	feed_draw_close(f);
	dt_pack_release(&f->pack);
	feed_values_release(f);
	free(f->reference);
	free(f->lesson);
	free(f->now);
	free(f);
}
/* SPDX-License-Identifier: Apache-2.0 */
