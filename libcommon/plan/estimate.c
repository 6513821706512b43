#include "plan/entries.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *dt_est_cat_name(int cat)
{
	static const char *const more[] = {"kv-cache", "adapters", "rounding", "framework"};

	return cat >= DT_EST_CACHE ? more[cat - DT_EST_CACHE] : dt_mem_cat_name(cat);
}

void dt_estimate_release(struct dt_estimate *e)
{
	free(e->e);
	memset(e, 0, sizeof(*e));
}

struct dt_entry *dt_entry_put(struct dt_estimate *t, int cat, double bytes, enum dt_phase first,
			      enum dt_phase last, const char *name, const char *formula)
{
	struct dt_entry *e;

	if (t->cap < 0 || bytes < 1)
		return NULL;
	if (t->n == t->cap) {
		int cap = t->cap ? 2 * t->cap : 64;

		e = realloc(t->e, (size_t)cap * sizeof(*e));
		if (!e) {
			t->cap = -1;
			return NULL;
		}
		t->e = e;
		t->cap = cap;
	}
	e = &t->e[t->n++];
	*e = (struct dt_entry){.cat = cat, .bytes = (uint64_t)ceil(bytes), .first = first, .last = last};
	e->formula = formula;
	snprintf(e->name, sizeof(e->name), "%s", name);
	snprintf(e->kind, sizeof(e->kind), "%s", name);
	return e;
}

int dt_entries_finish(struct dt_estimate *t, struct dt_err *err)
{
	if (t->cap < 0) {
		dt_estimate_release(t);
		return dt_err_sys(err, -ENOMEM, "cannot estimate");
	}
	for (int i = 0; i < t->n; i++) {
		t->place_bytes[t->e[i].place] += t->e[i].place ? t->e[i].bytes : 0;
		for (int ph = t->e[i].first; ph <= (int)t->e[i].last && !t->e[i].place && !t->summed; ph++)
			t->phase_bytes[ph] += t->e[i].bytes;
	}
	for (int ph = 0; ph < DT_PH_N; ph++)
		if (t->phase_bytes[ph] > t->phase_bytes[t->peak])
			t->peak = ph;
	t->peak_bytes = t->place_bytes[DT_PLACE_DEVICE] = t->phase_bytes[t->peak];
	for (int i = 0; i < t->n && !t->summed; i++)
		if (!t->e[i].place && t->e[i].first <= t->peak && t->e[i].last >= t->peak) {
			t->cat_bytes[t->e[i].cat] += t->e[i].bytes;
			t->e[i].at_peak = true;
		}
	return 0;
}

/* ---- our trainer ---- */

/* Bytes of one plan: all of it, or of one category. */
static int plan_bytes(const struct dt_run *s, struct dt_coords at, int cat, uint64_t *ret, struct dt_err *err)
{
	struct dt_memory_plan p;
	int rc = dt_memory_plan(s, at, &p, err);

	if (rc < 0)
		return rc;
	*ret = 0;
	for (int i = 0; i < p.n; i++)
		if (cat < 0 || (int)p.buf[i].cat == cat)
			*ret += p.buf[i].bytes;
	dt_memory_plan_release(&p);
	return 0;
}

/*
 * Whether the memory plan answers to an axis: it must give other bytes with it than without. An estimate that
 * ignores part of the layout it was asked about would be a wrong number with great confidence.
 */
static int check_axis(const struct dt_run *s, struct dt_coords at, const struct dt_layout *without, int cat,
		      const char *axis, struct dt_err *err)
{
	struct dt_run other = *s;
	uint64_t with_bytes, without_bytes;
	int rc = plan_bytes(s, at, cat, &with_bytes, err);

	if (rc < 0)
		return rc;
	other.layout = *without;
	rc = plan_bytes(&other, (struct dt_coords){.pp = at.pp}, cat, &without_bytes, err);
	if (rc < 0 || with_bytes != without_bytes)
		return rc < 0 ? rc : 0;
	dt_err_set(err, -ENOTSUP, "the trainer's memory plan does not take account of %s", axis);
	dt_err_hint(err, "--account generic estimates any layout");
	return -ENOTSUP;
}

static int check_covered(const struct dt_run *asked, struct dt_coords at, struct dt_err *err)
{
	/* One layer a stage tells as much as all of them, sooner. */
	struct dt_config small = *asked->config;
	struct dt_run few = *asked, *s = &few;
	static const int zero_cat[] = {0, DT_MEM_OPTIM, DT_MEM_GRADS, DT_MEM_WEIGHTS};
	struct dt_run other;
	struct dt_layout l;
	char axis[40];
	int rc = 0;

	small.layers = asked->layout.pp * dt_layout_chunks(&asked->layout);
	few.config = &small;
	other = few;

	for (int z = 1; rc == 0 && z <= s->layout.zero && s->layout.dp > 1; z++) {
		int cat = zero_cat[z];

		if (z == 1 && dt_optim_states(s->optim.kind) == 0)
			cat = DT_MEM_MASTER;
		if (cat == DT_MEM_MASTER && s->compute == DT_F32)
			continue; /* nothing that stage 1 could divide */
		other.layout.zero = z;
		l = other.layout;
		l.zero = z - 1;
		snprintf(axis, sizeof(axis), "ZeRO stage %d", z);
		rc = check_axis(&other, at, &l, cat, axis, err);
	}
	l = s->layout;
	l.cp = 1;
	if (rc == 0 && s->layout.cp > 1)
		rc = check_axis(s, at, &l, DT_MEM_ACTIVATIONS, "context parallelism (cp)", err);
	l = s->layout;
	l.seq_parallel = false;
	if (rc == 0 && s->layout.seq_parallel && s->layout.tp > 1)
		rc = check_axis(s, at, &l, DT_MEM_ACTIVATIONS, "sequence parallelism (s1)", err);
	return rc;
}

/* "layers.N.qkv" of "layers.12.qkv #3" */
static void set_kind(struct dt_entry *e, const struct dt_buf *b)
{
	const char *rest = b->name;
	int n;

	if (!strncmp(rest, "layers.", 7)) {
		rest = strchr(strchr(rest, '.') + 1, '.');
		snprintf(e->kind, sizeof(e->kind), "layers.N%s", rest);
	}
	n = (int)strcspn(e->kind, "#");
	while (n > 0 && e->kind[n - 1] == ' ')
		n--;
	e->kind[n] = '\0';
}

static int train_plan(const struct dt_run *s, struct dt_coords at, struct dt_estimate *t, struct dt_err *err)
{
	struct dt_memory_plan p;
	int rc = dt_config_computable(s->config, err);

	if (rc < 0)
		return rc;
	if (s->compute != DT_F32 && s->compute != DT_BF16)
		return dt_err_set(err, -ENOTSUP, "the trainer computes in f32 or bf16, not in %s",
				  dt_dtype_name(s->compute));
	rc = check_covered(s, at, err);
	if (rc < 0)
		return rc;
	rc = dt_memory_plan(s, at, &p, err);
	if (rc < 0)
		return rc;
	for (int i = 0; i < p.n; i++) {
		const struct dt_buf *b = &p.buf[i];
		struct dt_entry *e =
			dt_entry_put(t, b->cat, (double)b->bytes, b->first, b->last, b->name, b->formula);

		if (e) {
			set_kind(e, b);
			e->exactness = DT_EXACT;
			e->at_peak = b->at_peak;
		}
	}
	if (p.gap_bytes) {
		struct dt_entry *e = dt_entry_put(t, DT_MEM_WORKSPACE, (double)p.gap_bytes, p.peak, p.peak,
						  "gaps between buffers", "what placement could not close");

		if (e) {
			e->exactness = DT_EXACT;
			e->at_peak = true;
		}
	}
	t->summed = true;
	t->peak = p.peak;
	memcpy(t->phase_bytes, p.phase_bytes, sizeof(p.phase_bytes));
	memcpy(t->cat_bytes, p.cat_bytes, sizeof(p.cat_bytes));
	dt_memory_plan_release(&p);
	return dt_rank_params(s, at, t, err);
}

static int check_extras(const struct dt_extras *x, struct dt_err *err)
{
	const char *what = !x ? NULL : x->lora_rank ? "adapters (LoRA)" : x->offload ? "offloading" : NULL;

	if (!what)
		return 0;
	dt_err_set(err, -ENOTSUP, "the trainer's memory plan does not take account of %s", what);
	dt_err_hint(err, "--account generic estimates it");
	return -ENOTSUP;
}

int dt_estimate_train(const struct dt_run *s, struct dt_coords at, enum dt_account account,
		      const struct dt_extras *x, struct dt_estimate *ret, struct dt_err *err)
{
	struct dt_estimate t = {0};
	int rc;

	if (s->microbatch < 1 || s->seq < 1)
		return dt_err_set(err, -EINVAL, "microbatches and sequences hold at least one token");
	if (s->config->pos == DT_POS_LEARNED && s->seq > s->config->max_seq)
		return dt_err_set(err, -EINVAL, "sequence length %lld exceeds the %lld positions of '%s'",
				  (long long)s->seq, (long long)s->config->max_seq, s->config->name);
	if (s->fp8 && account != DT_ACCOUNT_DT)
		return dt_err_set(err, -ENOTSUP, "linears in 8 bits are in the account of dt alone");
	if (account == DT_ACCOUNT_DT && (rc = check_extras(x, err)) < 0)
		return rc;
	rc = account == DT_ACCOUNT_DT ? train_plan(s, at, &t, err)
				      : dt_account_train(s, at, account, x, &t, err);
	if (rc == 0 && x && x->framework_bytes) {
		struct dt_entry *e = dt_entry_put(&t, DT_EST_FRAMEWORK, (double)x->framework_bytes,
						  DT_PH_FORWARD, DT_PH_STEP, "framework", "as given");

		if (e)
			e->exactness = DT_CALIBRATED, e->at_peak = true;
		for (int ph = 0; ph < DT_PH_N && t.summed; ph++)
			t.phase_bytes[ph] += x->framework_bytes;
		t.cat_bytes[DT_EST_FRAMEWORK] = t.summed ? x->framework_bytes : 0;
	}
	if (rc == 0)
		rc = dt_entries_finish(&t, err);
	if (rc == 0)
		*ret = t;
	else
		dt_estimate_release(&t);
	return rc;
}
