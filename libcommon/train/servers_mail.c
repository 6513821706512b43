#include "train/servers_mail_priv.h"

#include <errno.h>
#include <stdlib.h>

int mail_open(struct trainer *t, struct mail **ret, struct dt_err *err)
{
	const size_t units = (size_t)t->local.nunit;
	struct mail *m;

	if (!dt_run_served_by_messages(&t->run))
		return 0;
	*ret = m = calloc(1, sizeof(*m));
	if (m) {
		m->of = calloc((size_t)mail_ranks(t), sizeof(*m->of));
		m->serving = calloc(2 * units, sizeof(*m->serving));
		m->asking = calloc(2 * units, sizeof(*m->asking));
	}
	if (!m || !m->of || !m->serving || !m->asking)
		return dt_err_sys(err, -ENOMEM, "servers");
	m->self = dt_layout_server(&t->run.layout, t->mesh.at.dp);
	m->busy = -1;
	m->given = buffer_at(t, DT_B_GIVEN);
	m->asked = buffer_at(t, DT_B_ASKED);
	return 0;
}

void mail_close(struct mail *m)
{
	if (!m)
		return;
	free(m->of);
	free(m->serving);
	free(m->asking);
	free(m);
}

int mail_move(struct trainer *t, int k, int peer, bool send, bool grads, char *flat, struct dt_comm_req **q,
	      int *n, struct dt_err *err)
{
	const int tag = send == !flat ? MAIL_TAG_GIFT : MAIL_TAG_WEIGHTS;
	const enum dt_dtype type = grads ? DT_F32 : t->run.compute;
	const char *what = grads ? "gradients for a parameter server" : "weights from a parameter server";
	int rc = 0;

	for (int u = 0; u < t->local.nunit && rc == 0; u++) {
		int64_t first, at, m = servers_share(t, k, u, &first, &at);
		void *p = flat	  ? flat + at * dt_dtype_size(type)
			  : !m	  ? NULL
			  : grads ? (void *)servers_grads_at(t, u, first)
				  : servers_weights_at(t, u, first);

		if (!m)
			continue;
		rc = send ? dt_isend(mail_comm(t), p, (size_t)m, type, peer, tag, what, &q[*n], err)
			  : dt_irecv(mail_comm(t), p, (size_t)m, type, peer, tag, what, &q[*n], err);
		*n += rc == 0;
	}
	return rc;
}

static int listen_to(struct trainer *t, int r, struct dt_err *err)
{
	struct mail_asker *a = &mail_of(t)->of[r];

	a->asks = false;
	return dt_irecv(mail_comm(t), &a->in, sizeof(a->in), DT_U8, r, MAIL_TAG_LETTER,
			"request to a parameter server", &a->q_in, err);
}

static int answer(struct trainer *t, int r, struct dt_err *err)
{
	struct mail_asker *a = &mail_of(t)->of[r];
	int rc = dt_wait(&a->q_out, NULL, err); /* send of the previous answer, which has arrived */

	return rc < 0 ? rc
		      : dt_isend(mail_comm(t), &a->out, sizeof(a->out), DT_U8, r, MAIL_TAG_ANSWER,
				 "reply of a parameter server", &a->q_out, err);
}

static int send_weights(struct trainer *t, int r, struct dt_err *err)
{
	struct mail *m = mail_of(t);
	int rc = servers_weights(t, m->self, m->asked, err);

	m->gives = false;
	return rc < 0 ? rc : mail_move(t, m->self, r, true, false, m->asked, m->serving, &m->nserving, err);
}

/* Applies the gradient that rank r has sent. */
static int gift_came(struct trainer *t, int r, struct dt_err *err)
{
	struct mail *m = mail_of(t);
	const struct mail_letter *in = &m->of[r].in;
	const struct served_gift g = {.k = m->self,
				      .grads = m->given,
				      .then = (const float *)(void *)m->asked,
				      .seen = in->number,
				      .lr = in->lr,
				      .scale = in->scale,
				      .before = in->before,
				      .own = in->own};
	struct mail_letter *out = &m->of[r].out;
	int rc = servers_take(t, &g, &out->number, &out->age, err);

	m->gives = false;
	if (rc == 0)
		rc = answer(t, r, err);
	return rc < 0 || t->run.sync.kind == DT_SYNC_SSP ? rc : send_weights(t, r, err);
}

/* Answers a request about the clocks. */
static void look_at_clocks(struct trainer *t, int r)
{
	struct clocks *c = t->servers.clocks;
	struct mail_asker *a = &mail_of(t)->of[r];
	const struct mail_letter *in = &a->in;

	if (in->kind == MAIL_TAKE) {
		a->out.number = clocks_take(c);
	} else if (in->kind == MAIL_TURN) {
		a->out.turn = clocks_turn(c, mail_ranks(t), in->own, t->run.sync.ahead);
	} else if (in->kind == MAIL_SAY) {
		clocks_say(c, in->number, &in->line);
		atomic_store_explicit(&c->rank[r].done, in->own, memory_order_release);
	} else {
		clocks_end(c, in->number);
	}
}

/* Handles a letter of rank r. One with values stays queued while another rank is served. */
static int read_letter(struct trainer *t, int r, struct dt_err *err)
{
	struct mail *m = mail_of(t);
	struct mail_asker *a = &m->of[r];
	const bool values = a->in.kind == MAIL_GIVE || a->in.kind == MAIL_FETCH;
	int rc = 0;

	if (values && m->busy >= 0)
		return 0;
	if (values) {
		m->busy = r;
		m->gives = a->in.kind == MAIL_GIVE;
	}
	if (a->in.kind == MAIL_BYE) {
		a->gone = true;
		a->asks = false;
		return 0;
	}
	if (a->in.kind == MAIL_GIVE) {
		rc = mail_move(t, m->self, r, false, true, (char *)m->given, m->serving, &m->nserving, err);
		if (rc == 0 && t->run.sync.compensation > 0)
			rc = mail_move(t, m->self, r, false, false, m->asked, m->serving, &m->nserving, err);
		a->asks = false; /* the letter is needed until its gradient has arrived */
		return rc;
	}
	if (a->in.kind == MAIL_FETCH) {
		a->out.number = atomic_load(&t->servers.clocks->rank[m->self].version);
		rc = answer(t, r, err);
		if (rc == 0 && a->out.number != a->in.number)
			rc = send_weights(t, r, err);
		a->asks = false;
		return rc;
	}
	look_at_clocks(t, r);
	if (a->in.kind == MAIL_TAKE || a->in.kind == MAIL_TURN)
		rc = answer(t, r, err);
	return rc < 0 ? rc : listen_to(t, r, err);
}

/* Advances the transfer with the rank being served. */
static int serve_busy(struct trainer *t, struct dt_err *err)
{
	struct mail *m = mail_of(t);
	const int r = m->busy;
	int rc = 0;

	for (int i = 0; i < m->nserving; i++)
		if (!dt_comm_done(m->serving[i]))
			return 0;
	rc = dt_wait_all(m->serving, m->nserving, NULL, err);
	m->nserving = 0;
	if (rc == 0 && m->gives)
		rc = gift_came(t, r, err);
	if (rc < 0 || m->nserving)
		return rc;
	m->busy = -1;
	return listen_to(t, r, err);
}

static int serve(struct trainer *t, struct dt_err *err)
{
	struct mail *m = mail_of(t);
	int rc = m->busy >= 0 ? serve_busy(t, err) : 0;

	for (int i = 1; i < mail_ranks(t) && rc == 0;
	     i++) { /* starts after itself, so that not all servers serve the same rank first */
		int r = (t->mesh.at.dp + i) % mail_ranks(t);
		struct mail_asker *a = &m->of[r];

		if (a->q_in && dt_comm_done(a->q_in)) {
			rc = dt_wait(&a->q_in, NULL, err);
			a->asks = rc == 0;
		}
		if (a->asks && rc == 0)
			rc = read_letter(t, r, err);
	}
	return rc;
}

static void meanwhile(void *arg)
{
	struct trainer *t = arg;
	struct mail *m = mail_of(t);

	if (m->rc == 0)
		m->rc = serve(t, &m->err);
}

int mail_failed(const struct trainer *t, int rc, struct dt_err *err)
{
	const struct mail *m = mail_of(t);

	if (rc == 0 && m->rc < 0) {
		*err = m->err;
		rc = m->rc;
	}
	return rc;
}

int mail_begin(struct trainer *t, struct dt_err *err)
{
	struct mail *m = mail_of(t);
	const bool serves = m->self < dt_layout_servers(&t->run.layout);
	int rc = 0;

	for (int r = 0; r < mail_ranks(t) && rc == 0; r++) {
		m->of[r].gone = !serves || r == t->mesh.at.dp;
		if (!m->of[r].gone)
			rc = listen_to(t, r, err);
	}
	if (serves)
		dt_world_meanwhile(t->world, meanwhile, t);
	return rc;
}

int mail_end(struct trainer *t, struct dt_err *err)
{
	const struct mail_letter bye = {.kind = MAIL_BYE};
	struct mail *m = mail_of(t);
	int rc = 0;

	for (int k = 0; k < dt_layout_servers(&t->run.layout) && rc == 0; k++)
		if (k != m->self)
			rc = mail_tell(t, k, &bye, err);
	if (rc == 0) { /* not one blocking MPI call, during which nobody would be served */
		struct dt_comm_req *q = NULL;

		rc = dt_ibarrier(mail_comm(t), "end of steps with parameter servers", &q, err);
		rc = rc < 0 ? rc : dt_wait(&q, NULL, err);
	}
	for (int r = 0; r < mail_ranks(t) && rc == 0; r++) {
		while (!m->of[r].gone && (rc = mail_failed(t, 0, err)) == 0)
			dt_comm_poll(t->world, NULL); /* waits for its MAIL_BYE */
		if (rc == 0)
			rc = dt_wait(&m->of[r].q_out, NULL, err);
	}
	dt_world_meanwhile(t->world, NULL, NULL);
	return mail_failed(t, rc, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
