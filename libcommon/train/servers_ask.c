/* Client side of parameter servers that are reached by messages (train/servers_mail.h). */
#include "train/servers_mail_priv.h"

int mail_tell(struct trainer *t, int server, const struct mail_letter *l, struct dt_err *err)
{
	return mail_failed(t,
			   dt_send(mail_comm(t), l, sizeof(*l), DT_U8,
				   dt_layout_server_rank(&t->run.layout, server), MAIL_TAG_LETTER,
				   "request to a parameter server", err),
			   err);
}

static int ask(struct trainer *t, int server, const struct mail_letter *l, struct mail_letter *ret,
	       struct dt_err *err)
{
	int rc = mail_tell(t, server, l, err);

	if (rc == 0)
		rc = dt_recv(mail_comm(t), ret, sizeof(*ret), DT_U8,
			     dt_layout_server_rank(&t->run.layout, server), MAIL_TAG_ANSWER,
			     "reply of a parameter server", err);
	return mail_failed(t, rc, err);
}

int mail_give(struct trainer *t, const struct served_gift *g, int64_t *ret_version, int64_t *ret_age,
	      struct dt_err *err)
{
	const int peer = dt_layout_server_rank(&t->run.layout, g->k);
	const struct mail_letter l = {.kind = MAIL_GIVE,
				      .own = g->own,
				      .before = g->before,
				      .number = g->seen,
				      .lr = g->lr,
				      .scale = g->scale};
	struct mail *m = mail_of(t);
	struct mail_letter said;
	int rc = mail_tell(t, g->k, &l, err);

	m->nasking = 0;
	if (rc == 0)
		rc = mail_move(t, g->k, peer, true, true, NULL, m->asking, &m->nasking, err);
	if (rc == 0 && t->run.sync.compensation > 0)
		rc = mail_move(t, g->k, peer, true, false, NULL, m->asking, &m->nasking, err);
	if (rc == 0)
		rc = dt_wait_all(m->asking, m->nasking, NULL, err);
	m->nasking = 0;
	if (rc == 0)
		rc = dt_recv(mail_comm(t), &said, sizeof(said), DT_U8, peer, MAIL_TAG_ANSWER,
			     "reply of a parameter server", err);
	if (rc == 0 && t->run.sync.kind != DT_SYNC_SSP)
		rc = mail_move(t, g->k, peer, false, false, NULL, m->asking, &m->nasking, err);
	if (rc == 0)
		rc = dt_wait_all(m->asking, m->nasking, NULL, err);
	if (rc == 0) {
		*ret_version = said.number;
		*ret_age = said.age;
	}
	return mail_failed(t, rc, err);
}

int mail_fetch(struct trainer *t, int k, int64_t seen, int64_t *ret_version, struct dt_err *err)
{
	const struct mail_letter l = {.kind = MAIL_FETCH, .number = seen};
	struct mail *m = mail_of(t);
	struct mail_letter said;
	int rc = ask(t, k, &l, &said, err);

	m->nasking = 0;
	if (rc == 0 && said.number != seen)
		rc = mail_move(t, k, dt_layout_server_rank(&t->run.layout, k), false, false, NULL, m->asking,
			       &m->nasking, err);
	if (rc == 0)
		rc = dt_wait_all(m->asking, m->nasking, NULL, err);
	if (rc == 0)
		*ret_version = said.number;
	return mail_failed(t, rc, err);
}

int mail_take(struct trainer *t, int64_t *ret, struct dt_err *err)
{
	struct mail_letter said = {0};
	int rc;

	if (!mail_of(t) || mail_keeps_clocks(t)) {
		*ret = clocks_take(t->servers.clocks);
		return 0;
	}
	rc = ask(t, 0, &(struct mail_letter){.kind = MAIL_TAKE}, &said, err);
	*ret = said.number;
	return rc;
}

int mail_turn(struct trainer *t, int64_t own, struct clocks_turn *ret, struct dt_err *err)
{
	struct mail_letter said = {0};
	int rc;

	if (!mail_of(t) || mail_keeps_clocks(t)) {
		*ret = clocks_turn(t->servers.clocks, mail_ranks(t), own, t->run.sync.ahead);
		dt_comm_poll(t->world, NULL);
		return mail_of(t) ? mail_failed(t, 0, err) : 0;
	}
	rc = ask(t, 0, &(struct mail_letter){.kind = MAIL_TURN, .own = own}, &said, err);
	*ret = said.turn;
	return rc;
}

int mail_say(struct trainer *t, int64_t line, const struct clocks_line *l, int64_t own, int64_t *ret,
	     struct dt_err *err)
{
	*ret = 0;
	if (!mail_of(t) || mail_keeps_clocks(t)) {
		*ret = clocks_say(t->servers.clocks, line, l);
		/* from here on other ranks may count it */
		atomic_store_explicit(&t->servers.clocks->rank[t->mesh.at.dp].done, own,
				      memory_order_release);
		return 0;
	}
	return mail_tell(
		t, 0, &(struct mail_letter){.kind = MAIL_SAY, .number = line, .line = *l, .own = own}, err);
}

int mail_stop(struct trainer *t, int64_t unit, struct dt_err *err)
{
	if (!mail_of(t) || mail_keeps_clocks(t)) {
		clocks_end(t->servers.clocks, unit);
		return 0;
	}
	return mail_tell(t, 0, &(struct mail_letter){.kind = MAIL_STOP, .number = unit}, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
