/* Inside servers_mail.c, the server's part, and servers_ask.c, the asking rank's. */
#ifndef DT_TRAIN_SERVERS_MAIL_PRIV_H
#define DT_TRAIN_SERVERS_MAIL_PRIV_H

#include "train/servers_mail.h"
#include "train/trainer.h"

/* To a server, and from one: two ranks may be both to each other. */
enum { MAIL_TAG_LETTER = 1, MAIL_TAG_GIFT, MAIL_TAG_ANSWER, MAIL_TAG_WEIGHTS };
enum mail_letter_kind { MAIL_GIVE, MAIL_FETCH, MAIL_TAKE, MAIL_TURN, MAIL_SAY, MAIL_STOP, MAIL_BYE };

struct mail_letter {
	int64_t kind, own, before, number, age; /* number: of updates seen; of a part; of a line; a unit */
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
	int self;	       /* the server that this rank is; how many there are: none */
	struct mail_asker *of; /* [dp] */
	int busy;	       /* with this rank; -1: with none */
	bool gives;	       /* it gives a gradient, which comes; else weights are on their way to it */
	float *given;	       /* the plan's buffers of a server */
	char *asked;	       /* likewise */
	struct dt_comm_req **serving,
		**asking; /* messages of values: of a server, and of this rank's asking */
	int nserving, nasking;
	int rc; /* of what was done meanwhile */
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
/* rc, or where it is 0 the failure of what was served meanwhile. */
int mail_failed(const struct trainer *t, int rc, struct dt_err *err);
int mail_tell(struct trainer *t, int server, const struct mail_letter *l, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
