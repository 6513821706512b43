#include "plan/why.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

struct tree {
	const struct dt_fit_query *q;
	uint64_t room;
	struct dt_why *w;
	int rc;
	struct dt_err *err;
};

static struct dt_layout layout(int dp, int tp, int pp, int zero)
{
	return (struct dt_layout){.dp = dp, .tp = tp, .pp = pp, .cp = 1, .ep = 1, .zero = zero, .chunks = 1};
}

/* Asks whether the changed query q fits. True ends the search. */
static bool __attribute__((format(printf, 3, 4)))
ask(struct tree *t, struct dt_fit_query q, const char *fmt, ...)
{
	struct dt_why_step *s = &t->w->step[t->w->n];
	struct dt_fit f;
	va_list ap;
	int rc;

	if (t->rc < 0 || t->w->n == DT_WHY_MAX)
		return false;
	memset(s, 0, sizeof(*s));
	va_start(ap, fmt);
	vsnprintf(s->question, sizeof(s->question), fmt, ap);
	va_end(ap);
	dt_layout_format(&q.run.layout, s->layout, sizeof(s->layout));
	q.any_account |= q.account == DT_ACCOUNT_DT;
	rc = dt_layout_check(&q.run.layout, q.run.config, NULL);
	if (rc == 0) {
		rc = dt_fit_estimate(&q, &f, t->err);
		/* impossible: the run, its account or --recompute auto does not allow it */
		if (rc < 0 && rc != -EINVAL && rc != -ENOTSUP && rc != -ENOSPC) {
			t->rc = rc == -ERANGE ? 0 : rc;
			return false;
		}
	}
	if (rc == 0) {
		s->peak_bytes = dt_fit_worst(&f)->peak_bytes;
		s->fits = s->peak_bytes <= t->room;
		dt_fit_release(&f);
	}
	t->w->n++;
	if (s->fits && t->w->taken < 0)
		t->w->taken = t->w->n - 1;
	return s->fits;
}

static void serve_tree(struct tree *t, int node)
{
	struct dt_fit_query q = *t->q;
	static const struct {
		enum dt_weight_format f;
		const char *name;
	} fewer[] = {{DT_WF_Q8_0, "8.5"}, {DT_WF_Q4_K_M, "4.8"}};
	bool cut = false;

	q.run.layout = layout(1, 1, 1, 0);
	if (ask(t, q, "one device?")) {
		t->w->advice = "one device is enough; add replicas (dp) for throughput";
		return;
	}
	for (int tp = 2; tp <= node && !cut; tp *= 2) {
		q.run.layout = layout(1, tp, 1, 0);
		cut = ask(t, q, "tensor parallelism over %d devices of a machine?", tp);
	}
	t->w->advice =
		cut ? "use tensor parallelism inside a machine, where links are fast; add replicas (dp) for "
		      "throughput"
		    : "a whole machine is too small; use fewer bits, or shorter or fewer sequences";
	q.run.layout = layout(1, 1, 1, 0);
	for (int i = 0; i < 2 && q.precision < fewer[i].f; i++) {
		q.precision = fewer[i].f;
		ask(t, q, "or weights of %s bits on one device?", fewer[i].name);
	}
}

/* With frozen weights activations dominate, so full recomputation is tried too. */
static void adapters_on(struct tree *t, struct dt_fit_query q, const char *what)
{
	if (ask(t, q, "%s?", what) || q.run.recompute.mode == DT_RECOMPUTE_FULL)
		return;
	q.run.recompute = (struct dt_keep){.mode = DT_RECOMPUTE_FULL};
	ask(t, q, "%s, full recomputation?", what);
}

static void adapters(struct tree *t, const struct dt_fit_query *from)
{
	struct dt_fit_query q = *from;

	q.run.layout = layout(1, 1, 1, 0);
	q.extras.lora_rank = 16;
	q.extras.targets = DT_LORA_ALL;
	q.extras.base = q.precision;
	adapters_on(t, q, "or adapters alone (LoRA, rank 16)");
	q.extras.base = DT_WF_NF4;
	adapters_on(t, q, "or on a 4-bit base (QLoRA)");
}

/* Tries the options within one node; true if one fits. */
static bool node_tree(struct tree *t, struct dt_fit_query *q, int node)
{
	bool moe = q->run.config->experts > 0;

	for (int z = 1; z <= 3; z++) {
		q->run.layout = layout(node, 1, 1, z);
		if (ask(t, *q, "data parallel over a machine, ZeRO stage %d?", z)) {
			t->w->advice = z < 3 ? "ZeRO 1 and 2 shard states that are used once a step, which "
					       "takes little communication"
					     : "ZeRO 3 gathers the weights of every layer when they are "
					       "used, which takes more "
					       "communication";
			return true;
		}
	}
	for (int tp = 2; tp <= node && !moe; tp *= 2) {
		q->run.layout = layout(node / tp, tp, 1, node > tp ? 1 : 0);
		if (ask(t, *q, "tensor parallelism over %d devices of a machine?", tp)) {
			t->w->advice = "tensor parallelism, inside a machine where links are fast, splits "
				       "activations too";
			return true;
		}
	}
	return false;
}

static void train_tree(struct tree *t, int node)
{
	struct dt_fit_query q = *t->q;
	bool done = false;

	q.run.layout = layout(1, 1, 1, 0);
	if (ask(t, q, "one device?")) {
		t->w->advice = "one device is enough; add data parallelism (dp) for throughput";
		return;
	}
	for (int r = DT_RECOMPUTE_SELECTIVE; r <= DT_RECOMPUTE_FULL && !done; r++) {
		if (q.run.recompute.mode >= (enum dt_recompute)r)
			continue;
		q.run.recompute = (struct dt_keep){.mode = r};
		done = ask(t, q, "with %s recomputation?", r == DT_RECOMPUTE_FULL ? "full" : "selective");
	}
	if (done) {
		t->w->advice = "recomputation takes up to a third more time, but no more devices";
		return;
	}
	q.run.recompute = t->q->run.recompute;
	done = node_tree(t, &q, node);
	for (int pp = 2; pp <= 64 && !done; pp *= 2) {
		q.run.layout = layout(1, node, pp, 0);
		done = ask(t, q, "and a pipeline of %d machines?", pp);
		if (done)
			t->w->advice = "a pipeline across machines sends only activations; add replicas (dp) "
				       "for throughput";
	}
	if (!done)
		t->w->advice = "nothing that was tried fits; use a smaller microbatch or sequence, "
			       "recomputation, or "
			       "more machines";
	adapters(t, t->q);
}

int dt_why(const struct dt_fit_query *q, uint64_t room, int gpus_a_node, struct dt_why *ret,
	   struct dt_err *err)
{
	struct tree t = {.q = q, .room = room, .w = ret, .err = err};

	memset(ret, 0, sizeof(*ret));
	ret->taken = -1;
	if (q->serve)
		serve_tree(&t, gpus_a_node);
	else
		train_tree(&t, gpus_a_node);
	return t.rc;
}

json_t *dt_why_json(const struct dt_why *w)
{
	json_t *list = json_array();

	for (int i = 0; i < w->n; i++)
		json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:b, s:b}", "question",
						      w->step[i].question, "layout", w->step[i].layout,
						      "peak_bytes", (json_int_t)w->step[i].peak_bytes, "fits",
						      w->step[i].fits, "taken", i == w->taken));
	return json_pack("{s:o, s:s}", "steps", list, "advice", w->advice);
}
/* SPDX-License-Identifier: Apache-2.0 */
