/* Which rank has which state, exchanged before a new trainer is made; for elastic.c. */
#ifndef DT_TRAIN_ELASTIC_MEET_H
#define DT_TRAIN_ELASTIC_MEET_H

#include "train/elastic.h"
#include "train/trainer.h"

/* What every rank reports before the new trainer is made. */
struct arrival {
	int64_t step;  /* the step whose state it has; -1: no complete state */
	int64_t saved; /* step of the newest checkpoint */
	int64_t owed;  /* 1: a checkpoint of `step` is due and has not begun */
	/* With --peer-copy: */
	struct peer_place
		place[2];	/* of the trainer it has, and of one made since that failed (epoch 0: none) */
	int64_t ready, updated; /* steps: the last with complete gradients; the last whose update is made */
	double norm;		/* gradient norm of that update */
	/* What a process that joins cannot know; there 0: */
	int64_t global_batch;
	double matmul_rate; /* of one rank */
	int32_t was;	    /* number of ranks before */
};

struct meeting {
	struct arrival *v; /* [ranks], while the new trainer is made */
	int n;
	struct arrival all; /* the newest step of any rank, and what the ranks at that step know */
	int root;	    /* the first rank that has the newest state */
	bool alike;	    /* every rank has the newest state */
	int64_t newest;	    /* the newest epoch whose trainers are in use */
};

/*
 * All-gathers the reports. Every rank of the new world calls it. old: the trainer that the rank had, NULL: it
 * joins. made: a trainer that was made since and has failed, or NULL. m->v is malloc'd.
 */
int elastic_meet(struct dt_world *w, const struct trainer *old, const struct trainer *made, struct meeting *m,
		 struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
