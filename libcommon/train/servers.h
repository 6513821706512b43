/*
 * --sync ssp, async and hogwild: parameter servers (Li et al., OSDI 2014). The parameters are cut as ZeRO-1
 * cuts them, over K of the data-parallel ranks (--servers, all of them by default). These ranks are the
 * servers of their shards: they hold the masters and the optimizer states. A rank sends its gradient to every
 * server as soon as it has it, and reads the weights. On one machine other ranks map a server's memory, and
 * the sender computes the update there, under the server's lock, so that no rank waits for an answer. Between
 * machines they send messages (train/servers_mail.h). Servers are ranks, not processes of their own: so the
 * shards are in memory only once, checkpoints are ZeRO-1's, and with K = dp the links carry no more than a
 * ring would.
 * async    the gradient of one part of the batch makes an update at once. A rank that is free takes the next
 *          part of the data: a rank of a third of the speed takes a third as many parts.
 * hogwild  the same without locks: updates of the same weights may be lost in part (Niu et al. 2011)
 * ssp:S    one update per step, by the sum of all ranks' gradients, when the last has arrived. A rank may
 *          begin a step if it is at most S steps ahead of the slowest (Ho et al. 2013): the weights that it
 *          reads have all updates up to S + 1 steps before. S = 0 is the synchronous run.
 * age      updates of a shard between reading its weights and sending a gradient of them; ssp: steps whose
 *          gradients these weights lack. With --staleness-rate the learning rate of a gradient is divided by
 *          its age (Zhang et al. 2015); --delay-compensation X adds X g g (w_now - w_then) (Zheng et al.
 *          2017, equation 10).
 * Ranks synchronize where a checkpoint or an evaluation is due, at a signal and at the end: then all
 * gradients have been applied, and all ranks have the same weights. The steps between are called a stretch.
 * With CUDA devices the servers' state is in host memory, which other ranks map, and the CPU computes the
 * updates (train/servers_memory.c): gradients are copied there once the device has computed them, and new
 * weights to the device.
 */
#ifndef DT_TRAIN_SERVERS_H
#define DT_TRAIN_SERVERS_H

#include "base/json.h"
#include "train/loop.h"
#include "train/store.h"

#include <stdbool.h>
#include <stdint.h>

struct trainer;
struct clocks;
struct mail;

enum { SERVED_CLOCKS, SERVED_MASTER, SERVED_STATE, SERVED_STATE2, SERVED_SUMS, SERVED_N };

struct servers {
	bool on;
	int64_t share;	     /* elements of a server's shard */
	int64_t part;	     /* which part of the step's samples this rank computes now */
	char **at[SERVED_N]; /* [dp] addresses of each rank's buffer in this process; NULL: no such buffer */
	struct clocks *clocks; /* shared by all ranks, in the first rank's memory; with mail one per rank, */
	struct mail *mail;     /* and messages ask for the first rank's; NULL: memory is shared */
	struct dt_dev *dev;    /* with a CUDA device: the CPU, which computes the updates; else NULL */
	float *grads;	       /* with a CUDA device: the gradients on the host, and */
	struct flat weights;   /* the weights to be copied to it; both of the trained units */
	int64_t *seen;	       /* by server: updates of its shard that are in this rank's weights */
	int64_t lines;	       /* number of steps that the metrics line covers */
	double age, oldest;    /* mean and maximum age of the gradients since the last line */
};

/* Before memory is planned: picks shared memory or messages, if the run leaves that open. */
void servers_choose(struct trainer *t);
/* Before weights and states are bound: with a CUDA device allocates the host memory that they are in. */
int servers_bind(struct trainer *t, struct dt_err *err);
/*
 * Once memory is bound; collective. -ENOTSUP: shared memory is asked for, but ranks are on several machines.
 */
int servers_open(struct trainer *t, struct dt_err *err);
void servers_release(struct trainer *t);
void servers_announce(const struct trainer *t);

struct servers_hooks {
	struct asked (*asked)(void);
	void (*alive)(struct trainer *t); /* after every part */
	/* Writes the metrics of completed steps, on the first rank. */
	int (*line)(struct trainer *t, const struct step_result *r, struct dt_err *err);
};
/*
 * Trains one stretch, of at least one step, and advances the loop to its end. ret: the result for the last
 * line of metrics; the lines of earlier steps are written during the stretch.
 */
int servers_run(struct trainer *t, const struct servers_hooks *h, struct step_result *ret,
		struct dt_err *err);
void servers_metrics(const struct trainer *t, json_t *line);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
