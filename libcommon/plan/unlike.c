#include "plan/unlike.h"

#include "plan/run_check.h"
#include "plan/shares.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

static struct dt_cluster all_of(const struct dt_cluster *c, const struct dt_device *device)
{
	struct dt_cluster one = *c;

	one.device = *device;
	one.nkind = 0;
	return one;
}

/* Whether the ranks of this run may have unequal shares: each rank is one device. */
static bool may_share(const struct dt_run *s, const struct dt_stack *stack)
{
	struct dt_run r = *s;
	struct dt_err err;

	r.shares = "auto";
	return stack->shares && s->layout.dp > 1 && dt_run_check_shares(&r, &err) == 0;
}

/*
 * Divides microbatches over ranks, by their kinds' seconds a microbatch, to minimise the slowest rank's time.
 */
static int share_out(const struct dt_cluster *c, const struct dt_run *s, const double *busy, int64_t *ret_n,
		     struct dt_err *err)
{
	const int dp = s->layout.dp;
	double *each = malloc((size_t)dp * sizeof(*each));
	int r = 0;

	if (!each)
		return dt_err_sys(err, -ENOMEM, "cannot work out shares");
	for (int k = 0; k < c->nkind; k++)
		for (int i = 0; i < c->kind[k].gpus && r < dp; i++)
			each[r++] = busy[k];
	dt_shares_best(dp, NULL, each, 1, s->accumulation * dp, ret_n);
	free(each);
	return 0;
}

/* Step time if all ranks were of kind k, with n microbatches each. */
static int time_kind(const struct dt_cluster *c, int k, int64_t n, const struct dt_run *s,
		     const struct dt_stack *stack, const struct dt_work *work, bool table,
		     struct dt_step_time *ret, struct dt_err *err)
{
	const struct dt_cluster one = all_of(c, &c->kind[k].device);
	struct dt_run r = *s;

	r.accumulation = n;
	return dt_step_time_of(&one, &r, stack, work, table, ret, err);
}

static int shares_of(const struct dt_cluster *c, const struct dt_run *s, const struct dt_stack *stack,
		     const struct dt_work *work, int64_t *ret_n, struct dt_err *err)
{
	double busy[DT_KINDS];
	struct dt_step_time t;
	int rc = 0;

	for (int k = 0; k < c->nkind && rc == 0; k++) {
		rc = time_kind(c, k, 1, s, stack, work, false, &t, err);
		busy[k] = t.makespan;
	}
	return rc == 0 ? share_out(c, s, busy, ret_n, err) : rc;
}

/* The slowest rank's computation, plus the part that all ranks do together, at the slowest's rate. */
static int time_shares(const struct dt_cluster *c, const struct dt_run *s, const struct dt_stack *stack,
		       const struct dt_work *work, bool table, struct dt_step_time *io, struct dt_err *err)
{
	const double together = io->step - io->makespan;
	int64_t *n = malloc((size_t)s->layout.dp * sizeof(*n));
	struct dt_step_time longest = {0}, t;
	int rc =
		n ? shares_of(c, s, stack, work, n, err) : dt_err_sys(err, -ENOMEM, "cannot work out shares");

	for (int k = 0, first = 0; k < c->nkind && rc == 0; first += c->kind[k++].gpus) {
		int64_t most = 0; /* a kind's numbers differ by at most one */

		for (int i = 0; i < c->kind[k].gpus; i++)
			most = n[first + i] > most ? n[first + i] : most;
		rc = time_kind(c, k, most, s, stack, work, table, &t, err);
		if (rc == 0 && t.makespan > longest.makespan)
			longest = t;
	}
	free(n);
	if (rc < 0 || longest.makespan + together >= io->step)
		return rc;
	longest.step = longest.makespan + together;
	longest.dp = io->dp;
	longest.dp_exposed = io->dp_exposed;
	longest.optimizer = io->optimizer;
	longest.fixed = io->fixed;
	longest.tokens_per_s = io->tokens_per_s * io->step / longest.step;
	longest.mfu = io->mfu * io->step / longest.step;
	longest.hfu = io->hfu * io->step / longest.step;
	*io = longest;
	return 0;
}

int dt_unlike_step_time(const struct dt_cluster *c, const struct dt_run *s, const struct dt_stack *stack,
			const struct dt_work *work, bool table, struct dt_step_time *ret, struct dt_err *err)
{
	const struct dt_cluster slowest = all_of(c, &c->device);
	double peak = 0;
	int rc = dt_step_time_of(&slowest, s, stack, work, table, ret, err);

	if (rc == 0 && may_share(s, stack))
		rc = time_shares(c, s, stack, work, table, ret, err);
	for (int k = 0; k < c->nkind; k++)
		peak += c->kind[k].gpus *
			(s->fp8 ? c->kind[k].device.peak_fp8 : c->kind[k].device.peak_flops);
	if (rc == 0 && peak > 0) { /* relative to the peak of all devices */
		const double share = c->gpus * (s->fp8 ? c->device.peak_fp8 : c->device.peak_flops) / peak;

		ret->mfu *= share;
		ret->hfu *= share;
	}
	return rc;
}

int dt_unlike_shares(const struct dt_cluster *c, const struct dt_run *s, const struct dt_stack *stack,
		     int64_t *ret_n, struct dt_err *err)
{
	struct dt_work work;
	bool differ = false;
	int rc;

	if (!c->nkind || !may_share(s, stack))
		return 0;
	rc = dt_step_work(s, stack, &work, err);
	if (rc == 0)
		rc = shares_of(c, s, stack, &work, ret_n, err);
	dt_work_release(&work);
	for (int i = 1; i < s->layout.dp && rc == 0; i++)
		differ |= ret_n[i] != ret_n[0];
	return rc < 0 ? rc : differ;
}
/* SPDX-License-Identifier: Apache-2.0 */
