/* An actor's process: answers requests with the newest weights until its socket is closed. */
#include "rl/actors_priv.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>

struct actor {
	int number, fd;
	struct actors_region *shared;
	struct dt_params table;
	const void **weights; /* [table.n] */
	struct dt_answerer *answerer;
};

bool dt_actor_is(void)
{
	return getenv(DT_ACTOR_ENV) != NULL;
}

static int open_actor(struct actor *a, int memory, struct dt_err *err)
{
	struct dt_answerer_opts o;
	struct stat st;
	int rc;

	if (fstat(memory, &st) < 0)
		return dt_err_sys(err, -errno, "cannot see the weights");
	a->shared =
		mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory, 0);
	if (a->shared == MAP_FAILED)
		return dt_err_sys(err, -errno, "cannot see the weights");
	o = a->shared->o;
	o.threads = 1;
	o.reward = a->shared->rewarded ? (const char *)a->shared + a->shared->reward : NULL;
	o.tokenizer = (const char *)a->shared + a->shared->tokenizer;
	rc = dt_model_params(&o.config, &a->table, err);
	a->weights = calloc((size_t)a->table.n + 1, sizeof(*a->weights));
	if (rc == 0 && !a->weights)
		rc = dt_err_sys(err, -ENOMEM, "cannot see the weights");
	return rc == 0 ? dt_answerer_open(&o, &a->answerer, err) : rc;
}

/*
 * Takes the newest weights: 1, or 0 if it has them. Marks them as being read and checks again that they are
 * the newest, so that they are not overwritten meanwhile.
 */
static int take_newest(struct actor *a, struct dt_err *err)
{
	struct actors_region *r = a->shared;
	int which = atomic_load(&r->newest), rc;
	int64_t step;

	do {
		which = atomic_load(&r->newest);
		atomic_store(&r->reads[a->number], 1 + which);
	} while (which != atomic_load(&r->newest));
	step = which < 0 ? -1 : atomic_load(&r->step[which]);
	if (which < 0 || step == dt_answerer_step(a->answerer)) {
		atomic_store(&r->reads[a->number], 0);
		return which < 0 ? dt_err_set(err, -EPROTO, "the actor has received no weights") : 0;
	}
	for (int i = 0; i < a->table.n; i++)
		a->weights[i] = (const char *)r + actors_place(r, &a->table, which, i);
	rc = dt_answerer_take(a->answerer, a->weights, step, err);
	atomic_store(&r->reads[a->number], 0);
	return rc < 0 ? rc : 1;
}

static int renew(void *arg, struct dt_err *err)
{
	return take_newest(arg, err);
}

static int answer(struct actor *a, const int64_t *index, int64_t n, struct dt_err *err)
{
	struct dt_group *g = calloc((size_t)n + 1, sizeof(*g));
	struct dt_wire w = {.kind = ACTORS_ANSWERS};
	struct dt_part part = {0};
	char *text = NULL;
	size_t len = 0;
	int rc = g ? take_newest(a, err) : dt_err_sys(err, -ENOMEM, "cannot draw answers");

	rc = rc > 0 ? 0 : rc;
	for (int64_t i = 0; i < n && g; i++)
		g[i].index = index[i];
	if (rc == 0)
		rc = dt_answerer_draw(a->answerer, g, n, &w.number[0], &w.number[1], err);
	if (rc == 0 && dt_groups_text(g, n, &text, &len) < 0)
		rc = dt_err_sys(err, -ENOMEM, "cannot hand on answers");
	part = (struct dt_part){text, len};
	if (rc == 0)
		rc = dt_wire_send(a->fd, &w, &part, 1, err);
	for (int64_t i = 0; i < n && g; i++)
		dt_group_release(&g[i]);
	free(g);
	free(text);
	return rc;
}

static int serve(struct actor *a, struct dt_err *err)
{
	int rc = 0;

	while (rc == 0) {
		struct dt_wire w;
		int64_t *index = NULL;

		rc = dt_wire_head(a->fd, &w, err);
		if (rc == 0 && (w.kind != ACTORS_ASK || w.bytes > 1u << 24))
			rc = dt_err_set(err, -EPROTO, "the actor received an unknown request");
		if (rc == 0 && !(index = malloc((size_t)w.bytes + 1)))
			rc = dt_err_sys(err, -ENOMEM, "cannot draw answers");
		if (rc == 0)
			rc = dt_wire_body(a->fd, index, (size_t)w.bytes, err);
		if (rc == 0)
			rc = answer(a, index, (int64_t)(w.bytes / sizeof(*index)), err);
		free(index);
	}
	return rc;
}

int dt_actor_main(void)
{
	struct actor a = {0};
	struct dt_err err = {0};
	int memory, rc;

	if (sscanf(getenv(DT_ACTOR_ENV), "%d:%d:%d", &a.fd, &memory, &a.number) != 3 || a.number < 0 ||
	    a.number >= DT_ACTORS_MOST) {
		fprintf(stderr, "dt-train: " DT_ACTOR_ENV " is set only by dt-train --actors\n");
		return 2;
	}
	unsetenv(DT_ACTOR_ENV);
	prctl(PR_SET_NAME, "dt-actor");
	signal(SIGPIPE, SIG_IGN);
	rc = open_actor(&a, memory, &err);
	if (rc == 0)
		dt_answerer_renews(a.answerer, &(struct dt_rl_renew){renew, &a});
	if (rc == 0)
		rc = serve(&a, &err);
	if (rc != -EPIPE) {
		struct dt_wire w = {0};
		const struct dt_part part = {err.msg, strlen(err.msg)};
		struct dt_err own = {0};

		dt_wire_send(a.fd, &w, &part, 1, &own);
	}
	dt_answerer_close(a.answerer);
	dt_params_release(&a.table);
	free(a.weights);
	return rc == -EPIPE ? 0 : 1;
}
/* SPDX-License-Identifier: Apache-2.0 */
