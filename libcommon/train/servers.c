#include "train/servers.h"

#include "base/progress.h"
#include "train/clocks.h"
#include "train/servers_give.h"
#include "train/servers_mail.h"
#include "train/trainer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int ranks(const struct trainer *t)
{
	return t->run.layout.dp;
}

static struct dt_comm *all(const struct trainer *t)
{
	return dt_mesh_comm(&t->mesh, DT_ON_DATA);
}

void servers_choose(struct trainer *t)
{
	struct dt_run_sync *s = &t->run.sync;

	if (dt_run_served(&t->run) && s->over == DT_SERVER_AUTO)
		s->over = strcmp(dt_comm_transport(dt_mesh_comm(&t->everyone, DT_ON_ALL)), "mpi")
				  ? DT_SERVER_MEMORY
				  : DT_SERVER_MESSAGES;
}

/* Maps every rank's buffer of kind k. A rank that is no server passes a buffer that nobody reads. */
static int reach(struct trainer *t, int k, void *p, struct dt_err *err)
{
	struct servers *s = &t->servers;
	const int self = t->mesh.at.dp;

	s->at[k] = calloc((size_t)ranks(t), sizeof(*s->at[k]));
	if (!s->at[k])
		return dt_err_sys(err, -ENOMEM, "servers");
	s->at[k][self] = p;
	return s->mail ? 0 : dt_buffer_reach(all(t), p ? p : s->at[SERVED_CLOCKS][self], 1, s->at[k], err);
}

/* Whether servers have a buffer of kind k. */
static bool is_kept(const struct trainer *t, int k)
{
	return k == SERVED_STATE || k == SERVED_STATE2 ? k - SERVED_STATE < dt_optim_states(t->run.optim.kind)
						       : k != SERVED_SUMS || t->run.sync.kind == DT_SYNC_SSP;
}

int servers_open(struct trainer *t, struct dt_err *err)
{
	static const enum dt_buf_id id[SERVED_N] = {DT_B_CLOCKS, DT_B_MASTER, DT_B_OPTIM1, DT_B_OPTIM2,
						    DT_B_SUMS};
	struct servers *s = &t->servers;
	int rc;

	if (!dt_run_served(&t->run))
		return 0;
	rc = mail_open(t, &s->mail, err);
	if (rc < 0)
		return rc;
	s->seen = calloc((size_t)ranks(t), sizeof(*s->seen));
	if (!s->seen)
		return dt_err_sys(err, -ENOMEM, "servers");
	for (int u = 0; u < t->local.nunit; u++)
		s->share += t->local.unit[u].frozen ? 0 : t->local.unit[u].share;
	for (int k = 0; k < SERVED_N && rc == 0; k++)
		if (is_kept(t, k))
			rc = reach(t, k, buffer_at(t, id[k]), err);
	if (rc == -ENOTSUP)
		return dt_err_set(err, rc,
				  "--server-comm memory needs all ranks on one machine, with shared memory "
				  "(--transport auto)");
	if (rc == 0)
		s->clocks = (struct clocks *)(void *)s->at[SERVED_CLOCKS][s->mail ? t->mesh.at.dp : 0];
	s->on = rc == 0;
	return rc;
}

void servers_release(struct trainer *t)
{
	for (int k = 0; k < SERVED_N; k++)
		free(t->servers.at[k]);
	free(t->servers.seen);
	mail_close(t->servers.mail);
	if (t->servers.dev)
		dt_dev_close(t->servers.dev);
}

static void announce_who(const struct trainer *t)
{
	const struct dt_layout *l = &t->run.layout;
	const int n = dt_layout_servers(l);
	char who[200] = "";
	size_t at = 0;

	for (int k = 0; k < n && at < sizeof(who) - 16; k++)
		at += (size_t)snprintf(who + at, sizeof(who) - at, "%s%d", k ? " " : "",
				       dt_layout_server_rank(l, k));
	dt_log_msg(&t->root_log, "%d of %d data-parallel ranks serve%s a share of the weights by %s: %s%s", n,
		   l->dp, n == 1 ? "s" : "", t->servers.mail ? "messages" : "shared memory", who,
		   at >= sizeof(who) - 16 ? " ..." : "");
}

void servers_announce(const struct trainer *t)
{
	const struct dt_run_sync *s = &t->run.sync;

	if (!t->servers.on)
		return;
	announce_who(t);
	if (s->kind == DT_SYNC_SSP)
		dt_log_msg(&t->root_log,
			   "--sync ssp:%lld: a rank may be %lld step%s ahead of the slowest, with weights "
			   "that lack as many updates. %s",
			   (long long)s->ahead, (long long)s->ahead, s->ahead == 1 ? "" : "s",
			   s->ahead ? "Results depend on the speed of ranks: no two runs are the same"
				    : "Gradients are summed in the order of their arrival");
	else
		dt_log_msg(&t->root_log,
			   "--sync %s:%s the gradient of each part of the batch is an update at the full "
			   "learning rate, %d of them are a step. Results depend on the speed of ranks: no "
			   "two runs are the same",
			   s->text, s->kind == DT_SYNC_HOGWILD ? " without locks" : "", ranks(t));
}

static int compute(struct trainer *t, struct served_part *p, struct dt_err *err)
{
	const int64_t end = t->loop.cursor + t->run.global_batch;
	const bool sums = t->run.sync.kind == DT_SYNC_SSP;
	double factor, of;
	int rc;

	*p = (struct served_part){.targets = source_part_targets(t, t->servers.part),
				  .lr = dt_lr_at(&t->run.lr, t->loop.step),
				  .scale = 1};
	inject_before(t);
	factor = inject_factor(t);
	of = sums ? (double)source_targets(t, false, t->loop.cursor, end) : p->targets;
	rc = trainer_gradients(t, factor / (of > 0 ? of : 1), &p->loss, err);
	p->loss *= factor;
	p->norm = sqrt(t->grads.own) * (sums ? ranks(t) : 1);
	if (rc == 0 && (!isfinite(p->loss) || t->grads.bad))
		return dt_err_set(err, -EDOM, "step %lld: %s%s%s is not finite on this rank",
				  (long long)t->loop.step + 1,
				  t->grads.bad ? "the gradient of '" : "the loss",
				  t->grads.bad ? t->grads.bad : "", t->grads.bad ? "'" : "");
	if (t->run.clip > 0 && p->norm > t->run.clip)
		p->scale = (float)(t->run.clip / p->norm);
	return rc;
}

/* A stretch of steps between two meetings of the ranks: the loop's state at its start, and lines written. */
struct stretch {
	int64_t step, cursor, tokens; /* of the loop */
	int64_t steps;		      /* steps whose line has been written */
	int64_t own;		      /* ssp: steps of this rank */
	double norm[CLOCKS_LINES];    /* ssp: gradient norms of this rank's steps that have no line yet */
	int (*line)(struct trainer *t, const struct step_result *r, struct dt_err *err);
};

static void go_to(struct trainer *t, const struct stretch *s, int64_t steps)
{
	t->loop.step = s->step + steps;
	t->loop.cursor = s->cursor + steps * t->run.global_batch;
	t->loop.tokens = s->tokens + steps * t->run.global_batch * t->run.seq;
}

/*
 * Fills ret for the next metrics line, that of the first `steps` steps of the stretch: with ssp it covers one
 * step, else all gradients since the last line. The newest part p of this rank may be of a later step.
 * False: all `before` gradients of the stretch have arrived, and the loop writes the last line.
 */
static bool sum_up(struct trainer *t, struct stretch *s, const struct served_part *p, int64_t steps,
		   int64_t before, struct step_result *ret)
{
	const bool sums = t->run.sync.kind == DT_SYNC_SSP;
	struct clocks_line l = {0};

	if (t->mesh.at.dp == 0 && !clocks_read(t->servers.clocks, sums ? steps - 1 : 0, before, &l))
		return false;
	go_to(t, s, steps);
	t->servers.lines = steps - s->steps;
	t->servers.age = l.gradients ? l.ages / (double)l.gradients : 0;
	t->servers.oldest = (double)l.oldest;
	s->steps = steps;
	ret->loss = l.targets > 0 ? l.loss / l.targets : NAN;
	ret->grad_norm = sums ? s->norm[(steps - 1) % CLOCKS_LINES] : p->norm;
	ret->lr = dt_lr_at(&t->run.lr, s->step + steps - 1);
	ret->loss_scale = 1;
	return true;
}

/* On the first rank: writes the lines of all steps complete by now, except the stretch's last one. */
static int tell_lines(struct trainer *t, struct stretch *s, const struct served_part *p, int64_t steps,
		      struct step_result *ret, struct dt_err *err)
{
	const bool sums = t->run.sync.kind == DT_SYNC_SSP;
	const int64_t limit = t->servers.clocks->limit / (sums ? 1 : ranks(t)),
		      last = steps < limit ? steps : limit - 1, each = sums ? 1 : last - s->steps;
	const double now = dt_now(), took = now - t->t.start;
	int64_t n = sums ? last - s->steps : 1;

	if (t->mesh.at.dp || last <= s->steps)
		return 0;
	for (int64_t i = 0; i < n; i++) {
		int rc;

		if (!sum_up(t, s, p, s->steps + each, sums ? INT64_MAX : limit * ranks(t), ret))
			return 0;
		t->t.start = now - took / (double)n;
		rc = s->line(t, ret, err);
		if (rc < 0)
			return rc;
	}
	memset(&t->t, 0, sizeof(t->t));
	t->t.start = now;
	return 0;
}

/* The number of steps to the next save, evaluation or end. */
static int64_t length(const struct trainer *t)
{
	const int64_t every[2] = {t->run.save.dir ? t->run.save.every : 0,
				  source_evaluates(t) ? t->run.data.eval_every : 0};
	int64_t end = trainer_end(t);

	for (int i = 0; i < 2; i++)
		if (every[i] && (t->loop.step / every[i] + 1) * every[i] < end)
			end = (t->loop.step / every[i] + 1) * every[i];
	return end - t->loop.step;
}

/* The error of a rank that waited too long for the slowest, which may itself wait for a stopped process. */
static int behind(struct trainer *t, const struct stretch *s, const struct clocks_turn *w, struct dt_err *err)
{
	int pid, stopped = dt_world_stopped(t->world, &pid);

	dt_err_set(err, -ETIMEDOUT,
		   "data-parallel rank %lld is at step %lld, %lld behind, and made no progress for %g s",
		   (long long)w->rank, (long long)(s->step + w->done), (long long)(s->own - w->done),
		   dt_world_timeout(t->world));
	return stopped < 0 ? -ETIMEDOUT
			   : dt_err_prefix(err, "rank %d: process %d is stopped (a signal or a debugger)",
					   stopped, pid);
}

/* ssp: returns 1 when step s->own may begin, 0 at the end of the stretch. */
static int wait_turn(struct trainer *t, const struct stretch *s, struct dt_err *err)
{
	const double begun = dt_now(), most = dt_world_timeout(t->world);
	struct clocks_turn w;

	for (int n = 0;; n++) {
		int rc = mail_turn(t, s->own, &w, err);

		if (rc < 0 || w.may >= 0)
			return rc < 0 ? rc : (int)w.may;
		if (most > 0 && dt_now() - begun > most)
			return behind(t, s, &w, err);
		clocks_wait(n);
	}
}

/* Takes this rank's next part of the stretch. Returns 1; 0: none is left. */
static int take(struct trainer *t, struct stretch *s, struct dt_err *err)
{
	struct servers *v = &t->servers;
	int64_t n;
	int rc;

	if (t->run.sync.kind != DT_SYNC_SSP) {
		rc = mail_take(t, &n, err);
		if (rc < 0 || n < 0)
			return rc;
		go_to(t, s, n / ranks(t));
		v->part = n % ranks(t);
		return 1;
	}
	rc = wait_turn(t, s, err);
	if (rc <= 0)
		return rc;
	go_to(t, s, s->own++);
	v->part = t->mesh.at.dp;
	rc = servers_refresh(t, err);
	return rc < 0 ? rc : 1;
}

static int one(struct trainer *t, struct stretch *s, struct served_part *p, struct step_result *ret,
	       struct dt_err *err)
{
	const bool sums = t->run.sync.kind == DT_SYNC_SSP;
	int64_t done, lacks = INT64_MAX;
	int rc = compute(t, p, err);

	for (int k = 0; k < dt_layout_servers(&t->run.layout) && sums; k++)
		lacks = t->servers.seen[k] < lacks ? t->servers.seen[k] : lacks;
	if (rc == 0)
		rc = servers_bring(t, err);
	if (rc == 0)
		rc = servers_give(t, p, s->step, s->own - 1, err);
	if (rc < 0)
		return rc;
	if (sums) {
		p->age = (double)(p->oldest = s->own - 1 - lacks);
		s->norm[(s->own - 1) % CLOCKS_LINES] = p->norm;
	}
	rc = mail_say(t, sums ? s->own - 1 : 0,
		      &(struct clocks_line){p->loss, p->targets, p->age, 1, p->oldest}, s->own, &done, err);
	if (rc < 0)
		return rc;
	return tell_lines(t, s, p, sums ? clocks_slowest(t->servers.clocks, ranks(t)) : done / ranks(t), ret,
			  err);
}

/* At the end of a stretch: ranks agree on signals and the end, and all get the same weights. */
static int meet(struct trainer *t, struct asked a, struct step_result *ret, struct dt_err *err)
{
	double t0 = dt_now(), sum[2] = {a.stop, a.save};
	struct servers *v = &t->servers;
	int rc = v->mail ? mail_end(t, err) : 0;

	if (rc == 0)
		rc = dt_all_reduce(all(t), sum, NULL, 2, DT_F64, DT_SUM, "signals", err);
	t->t.comm[TR_OTHER] += dt_now() - t0;
	if (rc == 0 && v->mail)
		rc = dt_broadcast(all(t), &v->clocks->limit, 1, DT_I64, 0,
				  "end of steps with parameter servers", err);
	if (rc == 0)
		rc = v->mail ? store_publish(t, false, err) : servers_refresh(t, err);
	ret->stop = sum[0] != 0;
	ret->save = sum[1] != 0;
	return rc;
}

int servers_run(struct trainer *t, const struct servers_hooks *h, struct step_result *ret, struct dt_err *err)
{
	struct stretch s = {
		.step = t->loop.step, .cursor = t->loop.cursor, .tokens = t->loop.tokens, .line = h->line};
	const int64_t unit = t->run.sync.kind == DT_SYNC_SSP ? 1 : ranks(t), steps = length(t);
	struct servers *v = &t->servers;
	struct asked asked = {0};
	struct served_part p = {.norm = NAN};
	int rc;

	memset(&t->t, 0, sizeof(t->t));
	trainer_before_update(t);
	*ret = (struct step_result){.loss = NAN, .grad_norm = NAN};
	/* Nobody still reads the last stretch's clocks. */
	rc = dt_barrier(all(t), "start of steps with parameter servers", err);
	if (rc == 0 && (v->mail || t->mesh.at.dp == 0))
		clocks_begin(v->clocks, ranks(t), steps * unit);
	memset(v->seen, 0, (size_t)ranks(t) * sizeof(*v->seen));
	if (rc == 0)
		rc = dt_barrier(all(t), "start of steps with parameter servers", err);
	if (rc == 0 && v->mail)
		rc = mail_begin(t, err);
	if (rc == 0)
		rc = servers_remember(t, err);
	t->t.start = dt_now();
	t->loop.held = -1;
	while (rc == 0 && (rc = take(t, &s, err)) > 0) {
		rc = one(t, &s, &p, ret, err);
		h->alive(t);
		asked = h->asked();
		if (rc == 0 && (asked.stop || asked.save))
			rc = mail_stop(t, unit, err);
	}
	if (rc == 0)
		rc = meet(t, asked, ret, err);
	if (rc == 0)
		rc = tell_lines(t, &s, &p, v->clocks->limit / unit, ret, err);
	if (rc == 0) {
		sum_up(t, &s, &p, v->clocks->limit / unit, INT64_MAX, ret);
		t->loop.held = t->loop.step;
		t->optim.rate = ret->lr;
	}
	return rc;
}

void servers_metrics(const struct trainer *t, json_t *line)
{
	json_object_set_new(line, "staleness_mean", json_real(t->servers.age));
	json_object_set_new(line, "staleness_max", json_real(t->servers.oldest));
}
/* SPDX-License-Identifier: Apache-2.0 */
