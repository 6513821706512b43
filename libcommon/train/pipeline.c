/*
 * Runs the schedule table of this stage. An output is sent from its microbatch's own buffer, and the buffer
 * for the gradient that will come back is posted at the same time, so no send ever waits for a receive that
 * has not been posted and the order of the table is the only order there is.
 */
#include "train/trainer.h"

#include "base/progress.h"

#include <errno.h>
#include <stdlib.h>

enum { FORWARD_MSG, BACKWARD_MSG };

static int before(void *arg, int unit, bool backward, struct dt_err *err)
{
	int rc = store_fetch(arg, unit, backward, err);

	return rc == 0 && backward ? reduce_before(arg, unit, err) : rc;
}

static int after(void *arg, int unit, bool backward, struct dt_err *err)
{
	struct trainer *t = arg;
	int rc = backward ? reduce_after(t, unit, err) : 0;

	if (rc == 0 && backward && t->grads.fixed && unit == dt_exec_unit(&t->exec, (int)t->config.layers))
		rc = fixed_add_head(t, err);
	/* transfers done now delay computing just as waiting for them later would */
	dt_comm_poll(t->world, &t->t.comm[backward && dt_layout_data(&t->run.layout) > 1 ? TR_GRADS
					  : t->store.weights.shared			 ? TR_WEIGHTS
											 : TR_PIPELINE]);
	if (rc == 0 && dt_world_broken(t->world)) /* further computing would be in vain */
		rc = dt_err_set(err, -ETIMEDOUT, "%s", dt_world_broken(t->world));
	return rc == 0 ? pace_unit(t, err) : rc;
}

static struct dt_hooks hooks_of(struct trainer *t)
{
	return (struct dt_hooks){.arg = t, .before = before, .after = after, .segment = stash_segment};
}

/* Without backward; fetches a unit that begins in the list of the loss, such as a classifier's last layer. */
static int before_loss(void *arg, int unit, bool backward, struct dt_err *err)
{
	return store_fetch(arg, unit, false, err);
}

int pipeline_init(struct trainer *t, struct dt_err *err)
{
	int rc = dt_run_schedule(&t->run, &t->flow.sched, err);

	t->flow.microbatches = t->run.accumulation;
	for (int k = 0; k < t->plan.stage.nchunk && rc == 0; k++) {
		t->flow.flight[k] = calloc((size_t)t->plan.slots[k], sizeof(*t->flow.flight[k]));
		if (!t->flow.flight[k])
			return dt_err_sys(err, -ENOMEM, "cannot set up the pipeline");
		for (int i = 0; i < t->plan.slots[k] && rc == 0; i++) {
			t->flow.flight[k][i].mb = -1;
			rc = dt_flight_open(&t->flow.flight[k][i].f, &t->exec, k, i, err);
		}
	}
	return rc;
}

void pipeline_release(struct trainer *t)
{
	for (int k = 0; k < DT_MAX_CHUNKS; k++) {
		for (int i = 0; t->flow.flight[k] && i < t->plan.slots[k]; i++)
			dt_flight_close(&t->flow.flight[k][i].f, t->dev);
		free(t->flow.flight[k]);
	}
	dt_schedule_release(&t->flow.sched);
}

/* The tag of microbatch mb's message to virtual stage v. */
static int tag(const struct trainer *t, int v, int mb, int way)
{
	return 1 + (mb * t->run.layout.pp * t->plan.stage.nchunk + v) * 2 + way;
}

static const struct dt_prog *program(const struct trainer *t, int chunk)
{
	return &t->plan.stage.chunk[chunk];
}

static int peer(const struct trainer *t, int v)
{
	return v % t->run.layout.pp;
}

static size_t message(const struct trainer *t, int chunk)
{
	return (size_t)(program(t, chunk)->rows[DT_ROWS_STREAM] * t->config.hidden);
}

static int settle(struct trainer *t, struct flight *f, struct dt_err *err)
{
	int rc = dt_wait(&f->send_out, &t->t.comm[TR_PIPELINE], err);

	return rc < 0 ? rc : dt_wait(&f->send_grad, &t->t.comm[TR_PIPELINE], err);
}

static struct flight *find(struct trainer *t, int chunk, int mb)
{
	for (int i = 0; i < t->plan.slots[chunk]; i++)
		if (t->flow.flight[chunk][i].mb == mb)
			return &t->flow.flight[chunk][i];
	return NULL;
}

/* Sets the program's rows to the number of images; a rank may have a partly filled microbatch, or none. */
static void set_rows(struct trainer *t, int chunk, int64_t rows)
{
	struct dt_prog *p = &t->plan.stage.chunk[chunk];

	p->rows[DT_ROWS_ALL] = p->rows[DT_ROWS_STREAM] = rows;
}

/* Gets a chunk's input: samples, or the previous stage's output. The last stage also gets targets. */
static int take_input(struct trainer *t, struct flight *f, int chunk, int v, int mb, bool eval, int64_t first,
		      int64_t end, struct dt_err *err)
{
	const struct dt_prog *p = program(t, chunk);
	double t0 = dt_now();
	int rc = 0;

	f->f.sample = first - (eval ? 0 : t->loop.cursor);
	f->f.number = first;
	if (trainer_images(t))
		set_rows(t, chunk, images_rows(t, first, end));
	if (p->input < 0 || p->output < 0 || f->f.first)
		rc = source_next(t, eval, &f->f, first, end, err);
	t->t.data += dt_now() - t0;
	dt_trace_span(t->report.trace, "data", "samples", t0, NULL);
	if (rc < 0 || p->input < 0)
		return rc;
	t0 = dt_now();
	rc = dt_recv(dt_mesh_comm(&t->mesh, DT_ON_PP), dt_exec_value(&t->exec, &f->f, p->input),
		     message(t, chunk), t->run.compute, peer(t, v - 1), tag(t, v, mb, FORWARD_MSG),
		     "activations", err);
	t->t.comm[TR_PIPELINE] += dt_now() - t0;
	dt_trace_span(t->report.trace, "bubble", "waits for activations", t0, NULL);
	return rc;
}

static int forward(struct trainer *t, const struct dt_action *a, int v, struct dt_err *err)
{
	const struct dt_prog *p = program(t, a->chunk);
	struct dt_hooks h = hooks_of(t);
	struct flight *f = find(t, a->chunk, -1);
	int64_t first = trainer_sample(t, a->mb), end = t->loop.cursor + t->run.global_batch;
	int rc = settle(t, f, err);

	f->mb = a->mb;
	t->exec.mixture.counts = true;
	if (trainer_images(t))
		shares_images(t, a->mb, &first, &end);
	if (rc == 0)
		rc = take_input(t, f, a->chunk, v, a->mb, false, first, end, err);
	t->exec.training = true;
	if (rc == 0)
		rc = objective_ask(t, &f->f, &h, err);
	if (rc == 0)
		rc = dt_exec_run(&t->exec, &f->f, DT_LIST_FORWARD, &h, err);
	if (rc < 0 || p->output < 0)
		return rc;
	rc = dt_irecv(dt_mesh_comm(&t->mesh, DT_ON_PP), dt_exec_value(&t->exec, &f->f, p->grad_in),
		      message(t, a->chunk), t->run.compute, peer(t, v + 1), tag(t, v, a->mb, BACKWARD_MSG),
		      "activation gradients", &f->recv_grad, err);
	if (rc == 0)
		rc = dt_isend(dt_mesh_comm(&t->mesh, DT_ON_PP), dt_exec_value(&t->exec, &f->f, p->output),
			      message(t, a->chunk), t->run.compute, peer(t, v + 1),
			      tag(t, v + 1, a->mb, FORWARD_MSG), "activations", &f->send_out, err);
	return rc;
}

static int loss(struct trainer *t, struct flight *f, float scale, struct dt_err *err)
{
	struct dt_hooks h = hooks_of(t);
	int rc;

	t->exec.accumulate_head = !t->grads.fixed && t->flow.head_done++ > 0;
	t->exec.loss_backward = true;
	t->exec.loss_scale = scale;
	t->exec.loss_sum = t->exec.ahead_sum = 0;
	rc = dt_exec_run(&t->exec, &f->f, DT_LIST_LOSS, &h, err);
	t->flow.loss_sum += loss_part(t, t->exec.loss_sum);
	t->flow.ahead_sum += loss_part(t, t->exec.ahead_sum);
	return rc;
}

static int backward(struct trainer *t, const struct dt_action *a, int v, float scale, struct dt_err *err)
{
	const struct dt_prog *p = program(t, a->chunk);
	struct dt_hooks h = hooks_of(t);
	struct flight *f = find(t, a->chunk, a->mb);
	double t0 = dt_now();
	int rc;

	t->exec.accumulate = !t->grads.fixed && t->flow.done[a->chunk] > 0; /* z2, z3: reduce_before */
	if (p->output < 0) {
		rc = loss(t, f, scale, err);
	} else {
		rc = dt_wait(&f->recv_grad, &t->t.comm[TR_PIPELINE], err);
		dt_trace_span(t->report.trace, "bubble", "waits for gradients", t0, NULL);
	}
	if (rc == 0)
		rc = dt_exec_run(&t->exec, &f->f, DT_LIST_BACKWARD, &h, err);
	if (rc == 0 && p->input >= 0)
		rc = dt_isend(dt_mesh_comm(&t->mesh, DT_ON_PP), dt_exec_value(&t->exec, &f->f, p->grad_out),
			      message(t, a->chunk), t->run.compute, peer(t, v - 1),
			      tag(t, v - 1, a->mb, BACKWARD_MSG), "activation gradients", &f->send_grad, err);
	if (!t->plan.stage.split) {
		t->flow.done[a->chunk]++;
		f->mb = -1;
	}
	return rc;
}

static int weights(struct trainer *t, const struct dt_action *a, struct dt_err *err)
{
	struct dt_hooks h = hooks_of(t);
	struct flight *f = find(t, a->chunk, a->mb);
	int rc;

	t->exec.accumulate = t->flow.done[a->chunk]++ > 0;
	rc = dt_exec_run(&t->exec, &f->f, DT_LIST_WEIGHTS, &h, err);
	f->mb = -1;
	return rc;
}

static int act(struct trainer *t, const struct dt_action *a, int v, float scale, struct dt_err *err)
{
	struct dt_trace *trace = t->report.trace;
	double t0 = dt_trace_now(trace);
	int rc;

	if (a->op == 'F')
		rc = forward(t, a, v, err);
	else
		rc = a->op == 'B' ? backward(t, a, v, scale, err) : weights(t, a, err);
	dt_trace_span(trace, "pipeline",
		      a->op == 'F'   ? "forward"
		      : a->op == 'B' ? "backward"
				     : "weights",
		      t0,
		      trace ? json_pack("{s:I, s:i, s:i}", "microbatch", (json_int_t)a->mb, "chunk", a->chunk,
					"stage", t->mesh.at.pp)
			    : NULL);
	return rc;
}

/* Makes this step's schedule. -ENOSPC if more microbatches are in flight than the plan has room for. */
static int fit_table(struct trainer *t, struct dt_err *err)
{
	struct dt_schedule s;
	int rc = 0;

	if (t->run.layout.pp == 1 || t->flow.microbatches == t->run.accumulation)
		return 0;
	rc = dt_run_schedule(&t->run, &s, err);
	if (rc < 0)
		return rc;
	dt_schedule_release(&t->flow.sched);
	t->flow.sched = s;
	t->flow.microbatches = t->run.accumulation;
	for (int k = 0; k < t->plan.stage.nchunk && rc == 0; k++)
		if (dt_schedule_in_flight(&s, t->mesh.at.pp, k) > t->plan.slots[k])
			rc = dt_err_set(err, -ENOSPC,
					"with %lld microbatches the pipeline has more of them in flight than "
					"with the largest batch",
					(long long)t->run.accumulation);
	return rc;
}

/* Without a pipeline the schedule has one microbatch, F and B, and runs once per microbatch. */
int pipeline_step(struct trainer *t, float scale, double *ret_loss, struct dt_err *err)
{
	const struct dt_schedule *s = &t->flow.sched;
	int rounds = t->run.layout.pp == 1 ? (int)source_microbatches(t) : 1;
	int stage = t->mesh.at.pp, rc = fit_table(t, err);

	for (int k = 0; k < t->plan.stage.nchunk; k++)
		t->flow.done[k] = 0;
	t->flow.head_done = 0;
	t->flow.loss_sum = t->flow.ahead_sum = 0;
	for (int r = 0; r < rounds && rc == 0; r++)
		for (int i = s->start[stage]; i < s->start[stage + 1] && rc == 0; i++) {
			struct dt_action a = s->a[i];
			int v = a.chunk * t->run.layout.pp + stage;

			a.mb += r;
			rc = act(t, &a, v, scale, err);
		}
	if (rc == -ECANCELED && t->backup.dropped) { /* stopped early: the flights are abandoned */
		for (int i = 0; i < t->plan.slots[0]; i++)
			t->flow.flight[0][i].mb = -1;
		rc = 0;
	}
	for (int k = 0; k < t->plan.stage.nchunk; k++)
		for (int i = 0; i < t->plan.slots[k] && rc == 0; i++)
			rc = settle(t, &t->flow.flight[k][i], err);
	*ret_loss = t->flow.loss_sum;
	return rc;
}

int pipeline_forward(struct trainer *t, bool eval, int64_t first, int64_t end, double *loss_sum,
		     struct dt_err *err)
{
	const struct dt_hooks h = hooks_of(t), of_loss = {.arg = t, .before = before_loss};
	double sum = 0;
	int rc = 0;

	t->exec.training = false;
	t->exec.mixture.counts = false;
	for (int k = 0; k < t->plan.stage.nchunk && rc == 0; k++) {
		struct flight *f = &t->flow.flight[k][0];
		const struct dt_prog *p = program(t, k);
		int v = k * t->run.layout.pp + t->mesh.at.pp;

		rc = take_input(t, f, k, v, 0, eval, first, end, err);
		if (rc == 0 && !t->objective.keeping)
			rc = objective_ask(t, &f->f, &h, err);
		if (rc == 0)
			rc = dt_exec_run(&t->exec, &f->f, DT_LIST_FORWARD, &h, err);
		if (rc < 0)
			break;
		if (p->output >= 0) {
			rc = dt_send(dt_mesh_comm(&t->mesh, DT_ON_PP),
				     dt_exec_value(&t->exec, &f->f, p->output), message(t, k), t->run.compute,
				     peer(t, v + 1), tag(t, v + 1, 0, FORWARD_MSG), "activations", err);
			continue;
		}
		t->exec.loss_backward = false;
		t->exec.loss_sum = t->exec.ahead_sum = 0;
		rc = dt_exec_run(&t->exec, &f->f, DT_LIST_LOSS, &of_loss, err);
		sum += t->exec.loss_sum;
		t->flow.ahead_sum += loss_part(t, t->exec.ahead_sum);
	}
	*loss_sum += loss_part(t, sum);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
