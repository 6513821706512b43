/* Who has what of the state, before a new trainer is made; for elastic.c. */
#ifndef DT_TRAIN_ELASTIC_MEET_H
#define DT_TRAIN_ELASTIC_MEET_H

#include "train/elastic.h"
#include "train/trainer.h"

/* What every rank says before the new trainer is made. */
struct arrival {
	int64_t step;  /* whose state it has; -1: none that is whole */
	int64_t saved; /* step of the newest checkpoint */
	int64_t owed;  /* a checkpoint of that step was due */
	/* With --peer-copy: */
	struct peer_place
		place[2];	/* of the trainer it has, and of one that was made since (epoch 0: none) */
	int64_t ready, updated; /* steps: whose gradients are whole; whose update is made */
	double norm;		/* of that update */
	/* What one that joins cannot know, 0 where it does not either: */
	int64_t global_batch;
	double matmul_rate; /* of a rank */
	int32_t was;	    /* ranks before */
};

struct meeting {
	struct arrival *v; /* [ranks], while the new trainer is made */
	int n;
	struct arrival all; /* the newest step, and what is known with it */
	int root;	    /* the first rank that has its state */
	bool alike;	    /* every rank has it */
	int64_t newest;	    /* of the epochs whose trainers are in use */
};

/*
 * Every rank of the new world calls it. old: the trainer it had, NULL: it joins. made: one that was made
 * since and has failed, or NULL. m->v is malloc'd.
 */
int elastic_meet(struct dt_world *w, const struct trainer *old, const struct trainer *made, struct meeting *m,
		 struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
