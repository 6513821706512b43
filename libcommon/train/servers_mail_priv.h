/* Private to servers_mail.c (the server's side) and servers_ask.c (the asking rank's side). */
#ifndef DT_TRAIN_SERVERS_MAIL_PRIV_H
#define DT_TRAIN_SERVERS_MAIL_PRIV_H

#include "train/servers_mail.h"
#include "train/trainer.h"

/* Tags differ by direction, because two ranks may be servers to each other. */
enum { MAIL_TAG_LETTER = 1, MAIL_TAG_GIFT, MAIL_TAG_ANSWER, MAIL_TAG_WEIGHTS };
enum mail_letter_kind { MAIL_GIVE, MAIL_FETCH, MAIL_TAKE, MAIL_TURN, MAIL_SAY, MAIL_STOP, MAIL_BYE };

struct mail_letter {
	int64_t kind, own, before, number, age; /* number, by kind: updates seen, a part, a line, a unit */
	double lr;
	float scale;
	struct clocks_line line;
	struct clocks_turn turn;
};

/* Another rank, as a server sees it. */
struct mail_asker {
	struct mail_letter in, out;
	struct dt_comm_req *q_in, *q_out;
	bool asks; /* `in` is to be answered */
	bool gone; /* it has said MAIL_BYE */
};

struct mail {
	int self;	       /* this rank's number as a server; the number of servers if it is none */
	struct mail_asker *of; /* [dp] */
	int busy;	       /* the rank that is being served; -1: none */
	bool gives;	       /* that rank's gradient is being received; else weights are being sent to it */
	float *given;	       /* the server's buffer for a gradient */
	char *asked;	       /* the server's buffer for weights */
	struct dt_comm_req **serving,
		**asking; /* requests of gradients and weights: as a server, and as an asking rank */
	int nserving, nasking;
	int rc; /* failure while serving, reported at the next call */
	struct dt_err err;
};

static inline struct mail *mail_of(const struct trainer *t)
{
	return t->servers.mail;
}

static inline struct dt_comm *mail_comm(const struct trainer *t)
{
	return dt_mesh_comm(&t->mesh, DT_ON_DATA);
}

static inline int mail_ranks(const struct trainer *t)
{
	return t->run.layout.dp;
}

static inline bool mail_keeps_clocks(const struct trainer *t)
{
	return t->mesh.at.dp == 0;
}

/*
 * The share of server k, unit by unit, to or from another rank; requests are added to q, *n of them. flat:
 * the values, laid out as the server's; NULL: this rank's own units, gradients or weights.
 */
int mail_move(struct trainer *t, int k, int peer, bool send, bool grads, char *flat, struct dt_comm_req **q,
	      int *n, struct dt_err *err);
/* rc, or if it is 0 a failure of what was served meanwhile. */
int mail_failed(const struct trainer *t, int rc, struct dt_err *err);
int mail_tell(struct trainer *t, int server, const struct mail_letter *l, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
