#include "train/buffers.h"
#include "train/check.h"
#include "train/elastic.h"
#include "train/init.h"
#include "train/trainer.h"

#include "base/beat.h"
#include "base/progress.h"
#include "base/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

enum { JOIN_WAITS = 8 }; /* steps that a joining process waits for a save to end */

static volatile sig_atomic_t stop_signal, save_signal;
static struct dt_err lost; /* why a metrics line could not be written; code 0: no error */

static void on_signal(int sig)
{
	if (sig == SIGUSR2)
		save_signal = 1;
	else
		stop_signal = 1;
}

void dt_train_catch_signals(void)
{
	static const int which[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};

	dt_signals_catch(which, sizeof(which) / sizeof(which[0]), on_signal);
}

static struct asked asked(void)
{
	return (struct asked){stop_signal || lost.code, save_signal != 0};
}

/* Reports phase, step and the time of its sections to the supervisor. */
static void tell(struct trainer *t, enum dt_beat_phase phase, double step_s)
{
	struct dt_world_epoch w = dt_world_epoch(t->world);
	struct dt_beat b = dt_beat_get();

	if (phase == DT_BEAT_TRAIN && b.phase < DT_BEAT_TRAIN)
		b.from = t->loop.step;
	if (step_s > 0) {
		b.step_s += step_s - t->t.data;
		b.data_s += t->t.data;
		b.compute_s += t->t.compute;
	}
	b.phase = phase;
	b.stage = t->mesh.at.pp;
	b.epoch = (uint32_t)w.epoch;
	b.ranks = t->info.size;
	b.place = t->info.rank;
	b.board = w.board;
	b.step = t->loop.step;
	dt_beat_set(&b, true);
}

/* Handles rc of a metrics line. A run with --save stops as for a signal, after a checkpoint. */
static int said(const struct trainer *t, int rc, struct dt_err *err)
{
	if (rc == 0 || !t->run.save.dir || t->loop.step == trainer_end(t))
		return rc;
	lost = *err;
	*err = (struct dt_err){0};
	return 0;
}

static int evaluate(struct trainer *t, struct dt_err *err)
{
	struct eval_result r = {0};
	double t0 = dt_now();
	int rc;

	trainer_before_update(t); /* the swap overwrites weights that a save may still read */
	rc = ema_swap(t, err);
	if (rc == 0)
		rc = trainer_eval(t, &r, err);
	if (rc == 0)
		rc = ema_swap(t, err);
	t->report.progress.eval_loss = r.loss;
	t->report.progress.top1 = trainer_classifies(t) ? r.top1 : NAN;
	dt_trace_span(t->report.trace, "evaluation", "evaluation", t0, NULL);
	return rc < 0 ? rc : said(t, metrics_eval(t, &r, dt_now() - t0, err), err);
}

static int timed_save(struct trainer *t, bool final, struct dt_err *err)
{
	double t0 = dt_now();
	int rc = trainer_save(t, final, err);

	t->t.checkpoint = dt_now() - t0;
	if (rc == 0)
		t->report.progress.saved = t->loop.step;
	return rc;
}

/* Starts a checkpoint if one is due, advances the one under way, and reports the time to the supervisor. */
static int save_step(struct trainer *t, bool due, bool final, struct dt_err *err)
{
	double t0 = dt_now();
	struct dt_beat b;
	int rc;

	if (due)
		tell(t, DT_BEAT_SAVE, 0);
	rc = trainer_drain(t, false, err);
	if (rc == 0 && due)
		rc = timed_save(t, final, err);
	if (due || t->save.job)
		dt_trace_span(t->report.trace, "save", due ? "checkpoint" : "checkpoint under way", t0, NULL);
	b = dt_beat_get();
	b.save_s += dt_now() - t0;
	b.saved = t->save.newest;
	b.phase = DT_BEAT_TRAIN;
	dt_beat_set(&b, due);
	t->loop.owed &= rc < 0;
	return rc;
}

/* Rolls back because of a loss spike; without a checkpoint to go back to, skips the update. */
static int go_back(struct trainer *t, struct step_result *r, struct dt_err *err)
{
	int64_t from = t->loop.step + 1;
	int rc = rollback(t, t->run.watch.back, err);

	if (rc < 0)
		return rc;
	t->loop.line = t->loop.step;
	if (rc == 0) {
		dt_log_msg(&t->root_log,
			   "step %lld: rolled back to step %lld; the samples in between are skipped",
			   (long long)from, (long long)t->loop.step);
		tell(t, DT_BEAT_TRAIN, 0);
		return peer_fill(t, err);
	}
	r->back = false;
	dt_log_msg(&t->root_log,
		   "step %lld: no checkpoint at least %lld steps old to roll back to; only the update is "
		   "skipped",
		   (long long)from, (long long)t->run.watch.back);
	return trainer_leave_out(t, r, "spike", err);
}

/* Whether to save a checkpoint of the step just made. */
static bool save_due(const struct trainer *t, const struct step_result *r)
{
	const struct dt_run_save *o = &t->run.save;

	return o->dir && (t->loop.step == trainer_end(t) || r->stop || r->save ||
			  (o->every && t->loop.step % o->every == 0));
}

/* Elastic: writes the metrics line of a step whose update was made before a rank was lost. */
static int line_at_least(struct trainer *t, const struct step_result *r, int64_t step, int rc)
{
	if (t->info.rank == 0 && rc < 0 && elastic_can(t, rc) && t->loop.step > step &&
	    t->loop.held == t->loop.step) {
		metrics_step(t, r, NULL);
		t->loop.line = t->loop.step;
	}
	return rc;
}

/*
 * Between two steps: stops the loop for a process that waits to join. A save under way would be dropped, so
 * it gets up to JOIN_WAITS steps to end.
 */
static int let_join(struct trainer *t, const struct step_result *r, int *waited, struct dt_err *err)
{
	if (!r->join || r->stop || t->loop.step == trainer_end(t) || (t->save.job && ++*waited < JOIN_WAITS))
		return 0;
	*waited = 0;
	return trainer_drain(t, true, err) < 0 ? err->code : ELASTIC_JOIN;
}

static void alive(struct trainer *t)
{
	tell(t, DT_BEAT_TRAIN, 0);
}

static int line(struct trainer *t, const struct step_result *r, struct dt_err *err)
{
	int rc = said(t, metrics_step(t, r, err), err);

	if (t->info.rank == 0)
		t->loop.line = t->loop.step;
	progress_step(t, r);
	return rc;
}

/* Work between a step and its metrics line. save: a checkpoint is due. */
static int after_step(struct trainer *t, const struct step_result *r, bool save, bool last,
		      struct dt_err *err)
{
	int rc = outer_step(t, save, last, err);

	if (rc == 0 && t->run.watch.replicas && (save || t->loop.step % t->run.watch.replicas == 0))
		rc = check_replicas(t, err);
	if (rc == 0)
		rc = save_step(t, save, last, err);
	return rc == 0 ? details_step(t, r, err) : rc;
}

/* The training loop. 1: asked to stop, state saved. ELASTIC_JOIN: stopped between two steps. */
static int loop(struct trainer *t, struct dt_err *err)
{
	const struct dt_run_save *o = &t->run.save;
	const struct servers_hooks served = {asked, alive, line};
	struct step_result r = {0};
	int rc = outer_begin(t, err), waited = 0;

	if (rc == 0)
		rc = ema_begin(t, err);
	if (rc == 0 && t->loop.owed) /* the save was due when a rank was lost */
		rc = save_step(t, true, t->loop.step == trainer_end(t), err);
	while (t->loop.step < trainer_end(t) && rc == 0 && !r.stop) {
		bool last = t->loop.step + 1 == trainer_end(t), save;
		int64_t before = t->loop.step;

		t->watch.most = details_extremes(t);
		rc = t->servers.on ? servers_run(t, &served, &r, err) : trainer_step(t, asked(), &r, err);
		t->loop.last = r;
		last = t->loop.step == trainer_end(t);
		dt_trace_span(t->report.trace, "step", "step", t->t.start,
			      t->report.trace ? json_pack("{s:I}", "step", (json_int_t)t->loop.step) : NULL);
		if (rc == 0 && r.back)
			rc = go_back(t, &r, err);
		if (rc < 0) {
			t->loop.owed = t->loop.step > before && save_due(t, &r);
			return line_at_least(t, &r, before, rc);
		}
		if (r.back)
			continue;
		if (r.save)
			save_signal = 0;
		tell(t, DT_BEAT_TRAIN, dt_now() - t->t.start);
		save = save_due(t, &r);
		t->loop.owed = save;
		rc = after_step(t, &r, save, last || r.stop, err);
		if (rc < 0)
			return line_at_least(t, &r, before, rc);
		rc = trainer_agree(t, line(t, &r, err), err);
		if (rc == 0)
			t->loop.line = t->loop.step;
		if (rc == 0 && source_evaluates(t) && !r.stop &&
		    (last || (t->run.data.eval_every && t->loop.step % t->run.data.eval_every == 0)))
			rc = evaluate(t, err);
		if (rc == 0)
			rc = let_join(t, &r, &waited, err);
	}
	if (rc == 0) {
		trainer_say_noise(t);
		backup_sum_up(t);
		*err = lost;
		rc = trainer_agree(t, lost.code, err);
	}
	if (rc == 0 && r.stop && t->loop.step < trainer_end(t)) {
		dt_log_msg(&t->root_log, "stopped by a signal after step %lld%s", (long long)t->loop.step,
			   o->dir ? ", checkpoint saved" : "; nothing saved: no --save");
		return 1;
	}
	return rc;
}

static int start(struct trainer *t, struct dt_err *err)
{
	bool fresh;
	int rc = 0, bad = 0;

	trainer_announce(t);
	if (t->run.save.resume) {
		double t0 = dt_now();
		struct dt_beat b;

		tell(t, DT_BEAT_RESTORE, 0);
		rc = trainer_resume(t, err);
		b = dt_beat_get();
		b.restore_s = dt_now() - t0;
		dt_beat_set(&b, false);
	}
	if (rc == 0 && t->init)
		dt_log_msg(&t->root_log,
			   "starts from the weights of '%s' (--init random starts from random ones)",
			   t->run.model);
	if (rc >= 0)
		init_compare_tokens(t);
	fresh = rc == 0;
	if (rc == 1 && t->config.lora.rank) /* LoRA: the base is in no checkpoint of the run */
		rc = store_init_frozen(t, err) < 0 ? err->code : 1;
	if (rc == 0)
		rc = store_init_weights(t, err);
	if (rc == 0)
		rc = trainer_agree(t, buffers_init(t, err), err);
	if (rc >= 0 && (bad = trainer_agree(t, beside_fill(t, err), err)) < 0)
		rc = bad;
	init_close(t);
	if (rc >= 0)
		bad = objective_start(t, fresh, err);
	if (bad < 0)
		rc = bad;
	t->loop.held = t->loop.line = t->loop.step;
	if (rc >= 0)
		rc = peer_fill(t, err);
	return rc < 0 ? rc : trainer_begin(t, err);
}

int trainer_begin(struct trainer *t, struct dt_err *err)
{
	int rc = folder_open(t, err);

	/* Last: another job that saves there may write the same file. */
	if (rc >= 0)
		rc = trainer_agree(t, metrics_open(t, err), err);
	if (rc >= 0)
		rc = trainer_agree(t, export_open(t, err), err);
	return rc < 0 ? rc : trace_open(t, err);
}

/* Runs the loop, and re-forms the ranks whenever they change. */
static int run_loop(struct trainer **t, const struct dt_run *r, struct dt_err *err)
{
	struct dt_world *w = (*t)->world;
	const struct dt_log *log = (*t)->log;
	int rc;

	for (;;) {
		tell(*t, DT_BEAT_TRAIN, 0);
		progress_open(*t);
		rc = loop(*t, err);
		progress_close(*t, rc == 0);
		if (!elastic_can(*t, rc))
			return rc;
		rc = elastic_again(t, r, w, log, err);
		if (rc < 0)
			return rc;
	}
}

int dt_train_run(const struct dt_run *r, const struct dt_given *given, struct dt_world *w,
		 const struct dt_log *log)
{
	struct dt_err err = {0};
	struct trainer *t = NULL;
	int rc, status = DT_EXIT_OK;

	lost = (struct dt_err){0};
	if (dt_world_joined(w)) {
		rc = elastic_again(&t, r, w, log, &err);
	} else if (!(t = calloc(1, sizeof(*t)))) {
		rc = dt_err_sys(&err, -ENOMEM, "trainer");
	} else {
		rc = trainer_init(t, r, given, w, log, &err);
		if (rc == 0)
			rc = start(t, &err);
	}
	if (rc == 0)
		rc = run_loop(&t, r, &err);
	if (!t) {
		dt_log_err(log, &err);
		return DT_EXIT_FAILED;
	}
	if (rc >= 0)
		offload_sum_up(t);
	if (rc >= 0 && trace_close(t, true, &err) < 0)
		rc = err.code;
	if (rc >= 0 && (metrics_close(t, &err) < 0 || export_close(t, &err) < 0))
		rc = err.code;
	if (rc == 1) {
		status = r->save.dir ? DT_EXIT_PREEMPTED : DT_EXIT_FAILED;
	} else if (rc < 0) {
		/* Logged once, by the lowest failing rank, if every rank would repeat it. */
		if (err.msg[0])
			dt_log_err(t->info.size > 1 ? log : &t->root_log, &err);
		dt_train_write_error(r, &err);
		status = t->status;
		if (!t->agreed && t->info.size > 1)
			dt_world_abort(w, status);
	}
	export_close(t, &(struct dt_err){0});	    /* after a failure */
	trace_close(t, false, &(struct dt_err){0}); /* likewise */
	trainer_release(t);
	free(t);
	return status;
}
/* SPDX-License-Identifier: Apache-2.0 */
