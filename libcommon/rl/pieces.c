/* Samples answers in pieces, between which weights may be updated. */
#include "rl/sampler.h"

#include "serve/api/openai.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The progress of sampling over all groups. */
struct pieces {
	const struct dt_rl_sampler *s;
	struct dt_group *g;
	struct piece {
		struct dt_group *g;
		int number; /* index of the answer in its group */
		bool done;
	} * p;			 /* [n] */
	struct dt_completion *c; /* [n] of the current piece; call NULL: none */
	int64_t n;
};

static int open_pieces(struct pieces *w, int64_t ngroups, struct dt_err *err)
{
	const int each = w->s->o.group;
	int rc = 0;

	w->p = calloc((size_t)(ngroups * each) + 1, sizeof(*w->p));
	w->c = calloc((size_t)(ngroups * each) + 1, sizeof(*w->c));
	if (!w->p || !w->c)
		return dt_err_sys(err, -ENOMEM, "cannot ask for answers");
	for (int64_t i = 0; i < ngroups && rc == 0; i++) {
		struct dt_group *g = &w->g[i];

		rc = dt_rl_prompt_ids(w->s, g, err);
		g->answer = calloc((size_t)each, sizeof(*g->answer));
		if (rc == 0 && !g->answer)
			rc = dt_err_sys(err, -ENOMEM, "cannot keep answers");
		g->n = g->answer ? each : 0;
		g->temperature = w->s->o.temperature;
		g->max_tokens = w->s->o.max_tokens;
		for (int k = 0; k < g->n; k++)
			w->p[w->n++] = (struct piece){g, k, false};
	}
	return rc;
}

/* The number of tokens that answer i may still get. */
static int left(const struct pieces *w, int64_t i)
{
	const struct dt_group *g = w->p[i].g;
	const int room = dt_engine_params(w->s->engine)->max_len - g->nprompt,
		  most = room < w->s->o.max_tokens ? room : w->s->o.max_tokens;

	return most - g->answer[w->p[i].number].n;
}

static int send_piece(struct pieces *w, int64_t i, struct dt_err *err)
{
	const struct dt_group *g = w->p[i].g;
	const struct dt_answer *a = &g->answer[w->p[i].number];
	struct dt_rl_ask k = {
		.index = g->index, .nids = g->nprompt + a->n, .first = w->p[i].number, .n = 1, .from = a->n};
	int32_t *ids = malloc((size_t)k.nids * sizeof(*ids));
	int rc;

	if (!ids)
		return dt_err_sys(err, -ENOMEM, "cannot ask for answers");
	memcpy(ids, g->prompt_ids, (size_t)g->nprompt * sizeof(*ids));
	if (a->n > 0)
		memcpy(ids + g->nprompt, a->ids, (size_t)a->n * sizeof(*ids));
	k.ids = ids;
	k.tokens = left(w, i) < w->s->o.piece ? left(w, i) : w->s->o.piece;
	rc = dt_rl_ask(w->s, &k, &w->c[i], err);
	free(ids);
	return rc;
}

static int take_piece(struct pieces *w, int64_t i, struct dt_err *err)
{
	struct dt_answer *a = &w->p[i].g->answer[w->p[i].number];
	int rc;

	dt_call_wait_done(w->c[i].call);
	rc = dt_rl_take(&w->c[i], 0, a, err);
	dt_completion_release(&w->c[i]);
	w->c[i] = (struct dt_completion){0};
	w->p[i].done = strcmp(a->finish, dt_finish_name(DT_FINISH_LENGTH)) != 0 || left(w, i) < 1;
	return rc;
}

/* Samples a piece of each unfinished answer; *more: some are still unfinished. */
static int draw_pieces(struct pieces *w, bool *more, struct dt_err *err)
{
	const struct dt_engine_params *p = dt_engine_params(w->s->engine);
	const int64_t most = p->max_seqs + p->queue;
	int64_t sent = 0, got = 0, open = 0;
	int rc = 0;

	*more = false;
	for (; got < w->n && rc == 0; got++) {
		for (; sent < w->n && open < most && rc == 0; sent++) {
			if (w->p[sent].done)
				continue;
			rc = send_piece(w, sent, err);
			open += rc == 0;
		}
		if (rc < 0 || !w->c[got].call)
			continue;
		rc = take_piece(w, got, err);
		open--;
		*more |= !w->p[got].done;
	}
	for (int64_t i = 0; i < w->n && rc < 0; i++) { /* after a failure */
		if (w->c[i].call)
			dt_engine_cancel(w->s->engine, w->c[i].call);
		dt_completion_release(&w->c[i]);
		w->c[i] = (struct dt_completion){0};
	}
	return rc;
}

/* Updates the weights if there are newer ones; counts it in the unfinished groups. */
static int renew_weights(struct pieces *w, const struct dt_rl_renew *renew, struct dt_err *err)
{
	const struct dt_group *last = NULL;
	int rc = renew->renew(renew->arg, err);

	for (int64_t i = 0; i < w->n && rc > 0; i++)
		if (!w->p[i].done && w->p[i].g != last) {
			w->p[i].g->renewed++;
			last = w->p[i].g;
		}
	return rc < 0 ? rc : 0;
}

int dt_rl_sample_pieces(const struct dt_rl_sampler *s, struct dt_group *g, int64_t n,
			const struct dt_rl_renew *renew, struct dt_err *err)
{
	struct pieces w = {.s = s, .g = g};
	int rc = open_pieces(&w, n, err);
	bool more = w.n > 0;

	while (rc == 0 && more) {
		rc = draw_pieces(&w, &more, err);
		if (rc == 0 && more)
			rc = renew_weights(&w, renew, err);
	}
	free(w.p);
	free(w.c);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
