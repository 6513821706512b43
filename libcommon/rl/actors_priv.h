/* What actors and the process that learns share. */
#ifndef DT_RL_ACTORS_PRIV_H
#define DT_RL_ACTORS_PRIV_H

#include "rl/actors.h"
#include "rl/crew.h"

#include <stdatomic.h>

#define DT_ACTOR_ENV "DT_ACTOR" /* SOCKET:MEMORY:NUMBER, two descriptors and which actor */

/* The front of the shared memory; behind it are the texts and the weights, at multiples of 4096 bytes. */
struct actors_region {
	struct dt_answerer_opts o;	  /* its pointers mean nothing here */
	bool rewarded;			  /* there is a command, */
	uint64_t reward, tokenizer;	  /* where texts begin */
	uint64_t weights[2], bytes;	  /* where weights begin; of all */
	atomic_int newest;		  /* which of weights; -1: none */
	_Atomic int64_t step[2];	  /* theirs */
	atomic_int reads[DT_ACTORS_MOST]; /* 1 + which of weights an actor copies; 0: none */
};

/* *fd: a descriptor of it, which is mapped whole at *ret; -1, NULL: there is none. */
int actors_share(const struct dt_params *table, const struct dt_answerer_opts *o, int *fd,
		 struct actors_region **ret, struct dt_err *err);

enum actors_message { ACTORS_ASK = 1, ACTORS_ANSWERS };

/* Where values of parameter i of the table are in weights `which`; the last place is behind them all. */
uint64_t actors_place(const struct actors_region *r, const struct dt_params *table, int which, int i);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
