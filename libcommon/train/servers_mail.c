#include "train/servers_mail.h"

#include "train/trainer.h"

#include <errno.h>
#include <stdlib.h>

/* To a server, and from one: two ranks may be both to each other. */
enum { TAG_LETTER = 1, TAG_GIFT, TAG_ANSWER, TAG_WEIGHTS };
enum letter_kind { GIVE, FETCH, TAKE, TURN, SAY, STOP, BYE };

struct letter {
	int64_t kind, own, before, number, age; /* number: of updates seen; of a part; of a line; a unit */
	double lr;
	float scale;
	struct clocks_line line;
	struct clocks_turn turn;
};

/* Another rank, as a server sees it. */
struct asker {
	struct letter in, out;
	struct dt_comm_req *q_in, *q_out;
	bool asks; /* `in` is to be answered */
	bool gone; /* it has said BYE */
};

struct mail {
	int self;	  /* the server that this rank is; how many there are: none */
	struct asker *of; /* [dp] */
	int busy;	  /* with this rank; -1: with none */
	bool gives;	  /* it gives a gradient, which comes; else weights are on their way to it */
	float *given;	  /* the plan's buffers of a server */
	char *asked;	  /* likewise */
	struct dt_comm_req **serving,
		**asking; /* messages of values: of a server, and of this rank's asking */
	int nserving, nasking;
	int rc; /* of what was done meanwhile */
	struct dt_err err;
};

static struct mail *mail(const struct trainer *t)
{
	return t->servers.mail;
}

static struct dt_comm *all(const struct trainer *t)
{
	return dt_mesh_comm(&t->mesh, DT_ON_DATA);
}

static int ranks(const struct trainer *t)
{
	return t->run.layout.dp;
}

static bool keeps_clocks(const struct trainer *t)
{
	return t->mesh.at.dp == 0;
}

int mail_open(struct trainer *t, struct mail **ret, struct dt_err *err)
{
	const size_t units = (size_t)t->local.nunit;
	struct mail *m;

	if (!dt_run_served_by_messages(&t->run))
		return 0;
	*ret = m = calloc(1, sizeof(*m));
	if (m) {
		m->of = calloc((size_t)ranks(t), sizeof(*m->of));
		m->serving = calloc(2 * units, sizeof(*m->serving));
		m->asking = calloc(2 * units, sizeof(*m->asking));
	}
	if (!m || !m->of || !m->serving || !m->asking)
		return dt_err_sys(err, -ENOMEM, "servers");
	m->self = dt_layout_server(&t->run.layout, t->mesh.at.dp);
	m->busy = -1;
	m->given = dt_plan_address(&t->plan, t->arena.base, DT_B_GIVEN, -1);
	m->asked = dt_plan_address(&t->plan, t->arena.base, DT_B_ASKED, -1);
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

/*
 * The share of server k, unit by unit, to or from another rank. flat: values as the server's lie; NULL: as
 * this rank's units do, gradients or weights.
 */
static int move(struct trainer *t, int k, int peer, bool send, bool grads, char *flat, struct dt_comm_req **q,
		int *n, struct dt_err *err)
{
	const int tag = send == !flat ? TAG_GIFT : TAG_WEIGHTS;
	const enum dt_dtype type = grads ? DT_F32 : t->run.compute;
	const char *what = grads ? "gradients for a server" : "weights from a server";
	int rc = 0;

	for (int u = 0; u < t->local.nunit && rc == 0; u++) {
		int64_t first, at, m = servers_share(t, k, u, &first, &at);
		void *p = flat	  ? flat + at * dt_dtype_size(type)
			  : !m	  ? NULL
			  : grads ? (void *)(t->grads.unit_g[u] + first)
				  : flat_at(t, &t->store.weights, u, first);

		if (!m)
			continue;
		rc = send ? dt_isend(all(t), p, (size_t)m, type, peer, tag, what, &q[*n], err)
			  : dt_irecv(all(t), p, (size_t)m, type, peer, tag, what, &q[*n], err);
		*n += rc == 0;
	}
	return rc;
}

static int listen_to(struct trainer *t, int r, struct dt_err *err)
{
	struct asker *a = &mail(t)->of[r];

	a->asks = false;
	return dt_irecv(all(t), &a->in, sizeof(a->in), DT_U8, r, TAG_LETTER, "a letter to a server", &a->q_in,
			err);
}

static int answer(struct trainer *t, int r, struct dt_err *err)
{
	struct asker *a = &mail(t)->of[r];
	int rc = dt_wait(&a->q_out, NULL, err); /* of the last answer, which has arrived */

	return rc < 0 ? rc
		      : dt_isend(all(t), &a->out, sizeof(a->out), DT_U8, r, TAG_ANSWER, "answer of a server",
				 &a->q_out, err);
}

static int send_weights(struct trainer *t, int r, struct dt_err *err)
{
	struct mail *m = mail(t);
	int rc = servers_weights(t, m->self, m->asked, err);

	m->gives = false;
	return rc < 0 ? rc : move(t, m->self, r, true, false, m->asked, m->serving, &m->nserving, err);
}

/* The gradient of rank r has come. */
static int gift_came(struct trainer *t, int r, struct dt_err *err)
{
	struct mail *m = mail(t);
	const struct letter *in = &m->of[r].in;
	const struct served_gift g = {.k = m->self,
				      .grads = m->given,
				      .then = (const float *)(void *)m->asked,
				      .seen = in->number,
				      .lr = in->lr,
				      .scale = in->scale,
				      .before = in->before,
				      .own = in->own};
	struct letter *out = &m->of[r].out;
	int rc = servers_take(t, &g, &out->number, &out->age, err);

	m->gives = false;
	if (rc == 0)
		rc = answer(t, r, err);
	return rc < 0 || t->run.sync.kind == DT_SYNC_SSP ? rc : send_weights(t, r, err);
}

/* What is asked of the clocks. */
static void look_at_clocks(struct trainer *t, int r)
{
	struct clocks *c = t->servers.clocks;
	struct asker *a = &mail(t)->of[r];
	const struct letter *in = &a->in;

	if (in->kind == TAKE) {
		a->out.number = clocks_take(c);
	} else if (in->kind == TURN) {
		a->out.turn = clocks_turn(c, ranks(t), in->own, t->run.sync.ahead);
	} else if (in->kind == SAY) {
		clocks_say(c, in->number, &in->line);
		atomic_store_explicit(&c->rank[r].done, in->own, memory_order_release);
	} else {
		clocks_end(c, in->number);
	}
}

/* A letter of rank r; one of values stays while another rank is served. */
static int read_letter(struct trainer *t, int r, struct dt_err *err)
{
	struct mail *m = mail(t);
	struct asker *a = &m->of[r];
	const bool values = a->in.kind == GIVE || a->in.kind == FETCH;
	int rc = 0;

	if (values && m->busy >= 0)
		return 0;
	if (values) {
		m->busy = r;
		m->gives = a->in.kind == GIVE;
	}
	if (a->in.kind == BYE) {
		a->gone = true;
		a->asks = false;
		return 0;
	}
	if (a->in.kind == GIVE) {
		rc = move(t, m->self, r, false, true, (char *)m->given, m->serving, &m->nserving, err);
		if (rc == 0 && t->run.sync.compensation > 0)
			rc = move(t, m->self, r, false, false, m->asked, m->serving, &m->nserving, err);
		a->asks = false; /* what it says is needed until its gradient is here */
		return rc;
	}
	if (a->in.kind == FETCH) {
		a->out.number = atomic_load(&t->servers.clocks->rank[m->self].version);
		rc = answer(t, r, err);
		if (rc == 0 && a->out.number != a->in.number)
			rc = send_weights(t, r, err);
		a->asks = false;
		return rc;
	}
	look_at_clocks(t, r);
	if (a->in.kind == TAKE || a->in.kind == TURN)
		rc = answer(t, r, err);
	return rc < 0 ? rc : listen_to(t, r, err);
}

/* What is under way with one rank, a step further. */
static int serve_busy(struct trainer *t, struct dt_err *err)
{
	struct mail *m = mail(t);
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
	struct mail *m = mail(t);
	int rc = m->busy >= 0 ? serve_busy(t, err) : 0;

	for (int i = 1; i < ranks(t) && rc == 0; i++) { /* beginning behind itself: not all with the same */
		int r = (t->mesh.at.dp + i) % ranks(t);
		struct asker *a = &m->of[r];

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
	struct mail *m = mail(t);

	if (m->rc == 0)
		m->rc = serve(t, &m->err);
}

static int failed(const struct trainer *t, int rc, struct dt_err *err)
{
	const struct mail *m = mail(t);

	if (rc == 0 && m->rc < 0) {
		*err = m->err;
		rc = m->rc;
	}
	return rc;
}

int mail_begin(struct trainer *t, struct dt_err *err)
{
	struct mail *m = mail(t);
	const bool serves = m->self < dt_layout_servers(&t->run.layout);
	int rc = 0;

	for (int r = 0; r < ranks(t) && rc == 0; r++) {
		m->of[r].gone = !serves || r == t->mesh.at.dp;
		if (!m->of[r].gone)
			rc = listen_to(t, r, err);
	}
	if (serves)
		dt_world_meanwhile(t->world, meanwhile, t);
	return rc;
}

static int tell(struct trainer *t, int server, const struct letter *l, struct dt_err *err)
{
	return failed(t,
		      dt_send(all(t), l, sizeof(*l), DT_U8, dt_layout_server_rank(&t->run.layout, server),
			      TAG_LETTER, "a letter to a server", err),
		      err);
}

static int ask(struct trainer *t, int server, const struct letter *l, struct letter *ret, struct dt_err *err)
{
	int rc = tell(t, server, l, err);

	if (rc == 0)
		rc = dt_recv(all(t), ret, sizeof(*ret), DT_U8, dt_layout_server_rank(&t->run.layout, server),
			     TAG_ANSWER, "answer of a server", err);
	return failed(t, rc, err);
}

int mail_end(struct trainer *t, struct dt_err *err)
{
	const struct letter bye = {.kind = BYE};
	struct mail *m = mail(t);
	int rc = 0;

	for (int k = 0; k < dt_layout_servers(&t->run.layout) && rc == 0; k++)
		if (k != m->self)
			rc = tell(t, k, &bye, err);
	if (rc == 0) { /* not as one call of MPI, in which nobody would be served */
		struct dt_comm_req *q = NULL;

		rc = dt_ibarrier(all(t), "the end of a stretch of steps", &q, err);
		rc = rc < 0 ? rc : dt_wait(&q, NULL, err);
	}
	for (int r = 0; r < ranks(t) && rc == 0; r++) {
		while (!m->of[r].gone && (rc = failed(t, 0, err)) == 0)
			dt_comm_poll(t->world, NULL); /* it has said so */
		if (rc == 0)
			rc = dt_wait(&m->of[r].q_out, NULL, err);
	}
	dt_world_meanwhile(t->world, NULL, NULL);
	return failed(t, rc, err);
}

int mail_give(struct trainer *t, const struct served_gift *g, int64_t *ret_version, int64_t *ret_age,
	      struct dt_err *err)
{
	const int peer = dt_layout_server_rank(&t->run.layout, g->k);
	const struct letter l = {.kind = GIVE,
				 .own = g->own,
				 .before = g->before,
				 .number = g->seen,
				 .lr = g->lr,
				 .scale = g->scale};
	struct mail *m = mail(t);
	struct letter said;
	int rc = tell(t, g->k, &l, err);

	m->nasking = 0;
	if (rc == 0)
		rc = move(t, g->k, peer, true, true, NULL, m->asking, &m->nasking, err);
	if (rc == 0 && t->run.sync.compensation > 0)
		rc = move(t, g->k, peer, true, false, NULL, m->asking, &m->nasking, err);
	if (rc == 0)
		rc = dt_wait_all(m->asking, m->nasking, NULL, err);
	m->nasking = 0;
	if (rc == 0)
		rc = dt_recv(all(t), &said, sizeof(said), DT_U8, peer, TAG_ANSWER, "answer of a server", err);
	if (rc == 0 && t->run.sync.kind != DT_SYNC_SSP)
		rc = move(t, g->k, peer, false, false, NULL, m->asking, &m->nasking, err);
	if (rc == 0)
		rc = dt_wait_all(m->asking, m->nasking, NULL, err);
	if (rc == 0) {
		*ret_version = said.number;
		*ret_age = said.age;
	}
	return failed(t, rc, err);
}

int mail_fetch(struct trainer *t, int k, int64_t seen, int64_t *ret_version, struct dt_err *err)
{
	const struct letter l = {.kind = FETCH, .number = seen};
	struct mail *m = mail(t);
	struct letter said;
	int rc = ask(t, k, &l, &said, err);

	m->nasking = 0;
	if (rc == 0 && said.number != seen)
		rc = move(t, k, dt_layout_server_rank(&t->run.layout, k), false, false, NULL, m->asking,
			  &m->nasking, err);
	if (rc == 0)
		rc = dt_wait_all(m->asking, m->nasking, NULL, err);
	if (rc == 0)
		*ret_version = said.number;
	return failed(t, rc, err);
}

int mail_take(struct trainer *t, int64_t *ret, struct dt_err *err)
{
	struct letter said = {0};
	int rc;

	if (!mail(t) || keeps_clocks(t)) {
		*ret = clocks_take(t->servers.clocks);
		return 0;
	}
	rc = ask(t, 0, &(struct letter){.kind = TAKE}, &said, err);
	*ret = said.number;
	return rc;
}

int mail_turn(struct trainer *t, int64_t own, struct clocks_turn *ret, struct dt_err *err)
{
	struct letter said = {0};
	int rc;

	if (!mail(t) || keeps_clocks(t)) {
		*ret = clocks_turn(t->servers.clocks, ranks(t), own, t->run.sync.ahead);
		dt_comm_poll(t->world, NULL);
		return mail(t) ? failed(t, 0, err) : 0;
	}
	rc = ask(t, 0, &(struct letter){.kind = TURN, .own = own}, &said, err);
	*ret = said.turn;
	return rc;
}

int mail_say(struct trainer *t, int64_t line, const struct clocks_line *l, int64_t own, int64_t *ret,
	     struct dt_err *err)
{
	*ret = 0;
	if (!mail(t) || keeps_clocks(t)) {
		*ret = clocks_say(t->servers.clocks, line, l);
		/* now the others may count it */
		atomic_store_explicit(&t->servers.clocks->rank[t->mesh.at.dp].done, own,
				      memory_order_release);
		return 0;
	}
	return tell(t, 0, &(struct letter){.kind = SAY, .number = line, .line = *l, .own = own}, err);
}

int mail_stop(struct trainer *t, int64_t unit, struct dt_err *err)
{
	if (!mail(t) || keeps_clocks(t)) {
		clocks_end(t->servers.clocks, unit);
		return 0;
	}
	return tell(t, 0, &(struct letter){.kind = STOP, .number = unit}, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
