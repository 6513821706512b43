/* The ranks of a new world exchange what state each has; all draw the same conclusions from it. */
#include "train/elastic_meet.h"

#include <errno.h>
#include <stdlib.h>

static struct arrival arrival_of(const struct trainer *t, const struct trainer *made)
{
	const struct peer_place later = made ? made->peer.place : (struct peer_place){0};

	if (!t) /* a joining process */
		return (struct arrival){.step = -1, .saved = -1, .place = {{0}, later}, .ready = -1};
	return (struct arrival){.step = t->loop.held,
				.saved = t->save.newest,
				.owed = t->loop.owed,
				.place = {t->peer.place, later},
				.ready = t->peer.ready,
				.updated = t->optim.updated,
				.norm = t->peer.norm,
				.global_batch = t->run.global_batch,
				.matmul_rate = t->report.matmul_rate / t->info.size,
				.was = t->info.size};
}

int elastic_meet(struct dt_world *w, const struct trainer *old, const struct trainer *made, struct meeting *m,
		 struct dt_err *err)
{
	struct dt_world_info info;
	struct dt_comm *c = NULL;
	int rc = dt_comm_create(&c, w, "meeting", 0, 0, err);

	if (rc < 0)
		return rc;
	dt_world_info(w, &info);
	m->v = calloc((size_t)info.size, sizeof(*m->v));
	if (!m->v)
		rc = dt_err_sys(err, -ENOMEM, "table of ranks");
	if (rc == 0) {
		m->n = info.size;
		m->v[info.rank] = arrival_of(old, made);
		rc = dt_all_gather(c, m->v, &m->v[info.rank], sizeof(*m->v), DT_U8, "states at hand", err);
	}
	dt_comm_free(c);
	m->all = (struct arrival){.step = -1, .saved = -1};
	for (int r = info.size - 1; r >= 0 && rc == 0; r--) {
		const struct arrival *a = &m->v[r];

		m->root = a->step >= m->all.step && a->step >= 0 ? r : m->root;
		m->all.step = a->step > m->all.step ? a->step : m->all.step;
		m->all.saved = a->saved > m->all.saved ? a->saved : m->all.saved;
	}
	m->alike = true;
	for (int r = 0; r < info.size && rc == 0; r++) {
		m->alike &= m->v[r].step == m->all.step;
		if (m->v[r].step == m->all.step)
			m->all.owed |= m->v[r].owed;
	}
	m->all.global_batch = m->v ? m->v[m->root].global_batch : 0;
	m->all.matmul_rate = m->v ? m->v[m->root].matmul_rate : 0;
	m->all.was = m->v ? m->v[m->root].was : 0;
	if (rc == 0 && m->all.step < 0)
		rc = dt_err_set(err, -EIO, "no remaining rank has the run's state");
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
