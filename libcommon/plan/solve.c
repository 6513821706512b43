#include "plan/solve.h"

#include "base/opt.h"

enum { MAX_BATCH = 1 << 20, MAX_TOKENS = 1 << 24, MAX_RANKS = 4096 };

static const struct {
	const char *found, *none;
} words[] = {
	[DT_SOLVE_BATCH] = {"largest microbatch", "batch, however small,"},
	[DT_SOLVE_SEQ] = {"longest sequence", "sequence, however short,"},
	[DT_SOLVE_CONTEXT] = {"longest sequence", "sequence, however short,"},
	[DT_SOLVE_GPUS] = {"fewest ranks", "layout that was tried"},
	[DT_SOLVE_ZERO] = {"lowest ZeRO stage", "ZeRO stage"},
	[DT_SOLVE_LAYOUT] = {"simplest layout", "layout that was tried"},
};

bool dt_solve_is_length(enum dt_solve_what what)
{
	return what == DT_SOLVE_SEQ || what == DT_SOLVE_CONTEXT;
}

/* The field that the solver varies, if it is a number. */
static int64_t *unknown(const struct dt_solve *s)
{
	struct dt_fit_query *q = s->q;

	if (s->what == DT_SOLVE_BATCH)
		return q->serve ? &q->max_seqs : &q->run.microbatch;
	return q->serve ? &q->max_len : &q->run.seq;
}

/* Whether dt-train runs the query, which takes no sequence beyond the model's positions. */
static bool trained_by_dt(const struct dt_fit_query *q)
{
	bool yes = !q->serve && q->account == DT_ACCOUNT_DT;
	struct dt_fit f;

	if (q->serve || !q->any_account || dt_fit_estimate(q, &f, NULL) < 0)
		return yes || (!q->serve && q->any_account);
	yes = f.account == DT_ACCOUNT_DT;
	dt_fit_release(&f);
	return yes;
}

/* The most that the unknown may be. */
static int64_t bound(const struct dt_solve *s)
{
	const struct dt_run *r = &s->q->run;

	if (s->what == DT_SOLVE_BATCH)
		return s->q->serve || !r->global_batch || r->global_batch > MAX_BATCH ? MAX_BATCH
										      : r->global_batch;
	if (r->config->pos == DT_POS_LEARNED || trained_by_dt(s->q))
		return dt_config_positions(r->config);
	return MAX_TOKENS;
}

int dt_solve(struct dt_solve *s, struct dt_err *err)
{
	int world = dt_layout_world(&s->q->run.layout), rc;

	if (s->what == DT_SOLVE_GPUS)
		rc = dt_fit_fewest_ranks(s->q, 1, MAX_RANKS, s->room, err);
	else if (s->what == DT_SOLVE_LAYOUT)
		rc = dt_fit_fewest_ranks(s->q, world, world, s->room, err);
	else if (s->what == DT_SOLVE_ZERO)
		rc = dt_fit_lowest_zero(s->q, s->room, err);
	else
		rc = dt_fit_largest(s->q, unknown(s), bound(s), s->room, err);
	s->solved = rc > 0;
	return rc < 0 ? rc : 0;
}

static int64_t value(const struct dt_solve *s)
{
	if (s->what == DT_SOLVE_GPUS || s->what == DT_SOLVE_LAYOUT)
		return dt_layout_world(&s->q->run.layout);
	return s->what == DT_SOLVE_ZERO ? s->q->run.layout.zero : *unknown(s);
}

/* Whether the longest sequence that fits exceeds the model's context length. */
static bool beyond_model(const struct dt_solve *s)
{
	int64_t made_for = s->q->run.config->max_seq;

	return dt_solve_is_length(s->what) && made_for > 0 && *unknown(s) > made_for;
}

void dt_solve_print(const struct dt_solve *s, bool why, FILE *f)
{
	bool sequences = s->q->serve && s->what == DT_SOLVE_BATCH;
	const char *found = sequences ? "most sequences" : words[s->what].found;
	char layout[80];

	if (!s->solved)
		fprintf(f, "no %s fits%s\n", words[s->what].none, why ? "" : "; --why says what would");
	else if (s->what >= DT_SOLVE_GPUS)
		fprintf(f, "%s: %lld%s, as %s\n", found, (long long)value(s),
			s->what == DT_SOLVE_LAYOUT ? " ranks" : "",
			dt_layout_format(&s->q->run.layout, layout, sizeof(layout)));
	else
		fprintf(f, "%s: %lld%s\n", found, (long long)value(s),
			dt_solve_is_length(s->what) ? " tokens" : "");
	if (beyond_model(s))
		fprintf(f,
			"the model was made for %lld tokens; longer sequences need --rope-scaling and "
			"training\n",
			(long long)s->q->run.config->max_seq);
}

json_t *dt_solve_json(const struct dt_solve *s)
{
	char what[16];

	dt_opt_choice_name(DT_SOLVE_CHOICES, s->what, what, sizeof(what));
	return json_pack("{s:s, s:b, s:I, s:b}", "what", what, "solved", s->solved, "value",
			 (json_int_t)value(s), "beyond_model", beyond_model(s));
}
/* SPDX-License-Identifier: Apache-2.0 */
