/* The report on an operation that does not complete: which ranks have not arrived, what they are doing. */
#include "comm/watchdog.h"

#include "base/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMED 24 /* ranks listed individually in a line */

static void append(char *s, size_t room, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void append(char *s, size_t room, const char *fmt, ...)
{
	size_t n = strlen(s);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(s + n, room - n, fmt, ap);
	va_end(ap);
}

static bool gone(const struct dt_comm_rank_state *s)
{
	return s->known && s->pid && !s->run && s->phase != DT_COMM_PHASE_FINISHED;
}

/* Whether this rank prevents the operation from completing. */
static bool absent(const struct dt_comm_where *at, const struct dt_comm_rank_state *s, int rank)
{
	if (!s->known || gone(s) || dt_comm_process_stopped(s->run))
		return true;
	if (at->kind == DT_COMM_SEND || at->kind == DT_COMM_RECV)
		return rank == at->peer;
	if (at->group < 0)
		return s->at.kind != at->kind || strcmp(s->at.what, at->what);
	return s->arrived < at->seq;
}

/* "all-reduce 'grads' of group dp", "receive 'x' from rank 2 in group pp", "start-up (MPI_Init)" */
static void describe(char *s, size_t room, const struct dt_comm_where *at, const char *group)
{
	const char *name = dt_comm_op_name((enum dt_comm_op_kind)at->kind);

	if (at->group < 0)
		append(s, room, "%s (%s)", name, at->what);
	else if (at->peer >= 0)
		append(s, room, "%s '%s' %s rank %d in group %s", name, at->what,
		       at->kind == DT_COMM_SEND ? "to" : "from", at->peer, group);
	else
		append(s, room, "%s '%s' of group %s", name, at->what, group);
}

static void log_state(const struct dt_world *w, int rank, const struct dt_comm_rank_state *s,
		      const struct dt_comm_where *at)
{
	char doing[128] = "";

	if (!s->known) {
		dt_log_msg(w->log, "  rank %d: its machine did not answer", rank);
		return;
	}
	if (gone(s)) {
		dt_log_msg(w->log, "  rank %d: died (process %d is gone)", rank, s->pid);
		return;
	}
	if (s->at.kind == DT_COMM_NONE)
		append(doing, sizeof(doing),
		       s->phase == DT_COMM_PHASE_FINISHED ? "finished" : "outside any operation");
	else
		append(doing, sizeof(doing), "in %s '%s'", dt_comm_op_name((enum dt_comm_op_kind)s->at.kind),
		       s->at.what);
	if (at->group >= 0 && at->peer < 0)
		append(doing, sizeof(doing), ", has entered %llu of %llu collectives of this group",
		       (unsigned long long)s->arrived, (unsigned long long)at->seq);
	dt_log_msg(w->log, "  rank %d: process %d is %s, %s", rank, s->pid,
		   dt_comm_process_stopped(s->run) ? "stopped (a signal or a debugger)" : "running", doing);
}

int dt_comm_watch_members(struct dt_world *w, const struct dt_comm_where *at, int **ret, char name[16])
{
	int n = 0;

	pthread_mutex_lock(&w->lock);
	if (at->group >= 0 && w->comm[at->group]) {
		const struct dt_comm *c = w->comm[at->group];

		*ret = calloc((size_t)c->size, sizeof(int));
		memcpy(name, c->name, 16);
		for (n = 0; *ret && n < c->size; n++)
			(*ret)[n] = c->ranks[n];
	} else {
		*ret = calloc((size_t)w->info.size, sizeof(int));
		snprintf(name, 16, "world");
		for (n = 0; *ret && n < w->info.size; n++)
			(*ret)[n] = n;
	}
	pthread_mutex_unlock(&w->lock);
	return n;
}

void dt_comm_watch_report(struct dt_world *w, const struct dt_comm_where *at)
{
	struct dt_comm_watch *k = w->watch;
	char line[900] = "", name[16], late[512] = "", dead[256] = "";
	int *ranks, n = dt_comm_watch_members(w, at, &ranks, name), nlate = 0, ndead = 0, shown = 0;

	dt_comm_watch_collect(w, at->group);
	for (int i = 0; i < n; i++) {
		const struct dt_comm_rank_state *s = &k->state[ranks[i]];

		if (gone(s) && ++ndead <= NAMED)
			append(dead, sizeof(dead), " %d", ranks[i]);
		else if (!gone(s) && absent(at, s, ranks[i]) && ++nlate <= NAMED)
			append(late, sizeof(late), " %d", ranks[i]);
	}
	if (ndead > NAMED)
		append(dead, sizeof(dead), " and %d more", ndead - NAMED);
	if (nlate > NAMED)
		append(late, sizeof(late), " and %d more", nlate - NAMED);
	describe(line, sizeof(line), at, name);
	if (ndead)
		append(line, sizeof(line), ": rank%s%s died", ndead > 1 ? "s" : "", dead);
	else if (at->peer >= 0)
		append(line, sizeof(line), ": not completed after %.3g s", dt_now() - at->since);
	else if (nlate)
		append(line, sizeof(line), ": rank%s%s %s not arrived after %.3g s", nlate > 1 ? "s" : "",
		       late, nlate > 1 ? "have" : "has", dt_now() - at->since);
	else
		append(line, sizeof(line), ": every rank has arrived, but it has not completed after %.3g s",
		       dt_now() - at->since);
	dt_log_msg(w->log, "%s", line);
	snprintf(w->why, sizeof(w->why), "%.*s", (int)sizeof(w->why) - 1, line);
	for (int i = 0; i < n && shown < 8; i++)
		if (absent(at, &k->state[ranks[i]], ranks[i])) {
			log_state(w, ranks[i], &k->state[ranks[i]], at);
			shown++;
		}
	free(ranks);
}
/* SPDX-License-Identifier: Apache-2.0 */
