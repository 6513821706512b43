/* What actors and the process that learns share. */
#ifndef DT_RL_ACTORS_PRIV_H
#define DT_RL_ACTORS_PRIV_H

#include "rl/actors.h"
#include "rl/crew.h"

#include <stdatomic.h>

#define DT_ACTOR_ENV "DT_ACTOR" /* SOCKET:MEMORY:NUMBER, two descriptors and which actor */

/* The front of the shared memory; behind it are the texts and the weights, at multiples of 4096 bytes. */
struct actors_region {
	struct dt_answerer_opts o;	  /* its pointers are not valid here */
	bool rewarded;			  /* there is a reward command */
	uint64_t reward, tokenizer;	  /* offsets of these texts */
	uint64_t weights[2], bytes;	  /* offsets of the two weight buffers; size of the whole region */
	atomic_int newest;		  /* which buffer is the newest; -1: none */
	_Atomic int64_t step[2];	  /* step of the weights in each buffer */
	atomic_int reads[DT_ACTORS_MOST]; /* by actor: 1 + the buffer that it is copying; 0: none */
};

/* Creates the region. *fd: its descriptor, -1: none; *ret: its address, mapped whole, NULL: none. */
int actors_share(const struct dt_params *table, const struct dt_answerer_opts *o, int *fd,
		 struct actors_region **ret, struct dt_err *err);

enum actors_message { ACTORS_ASK = 1, ACTORS_ANSWERS };

/* The offset of parameter i in weight buffer `which`; for i = table->n the end of the buffer. */
uint64_t actors_place(const struct actors_region *r, const struct dt_params *table, int which, int i);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
