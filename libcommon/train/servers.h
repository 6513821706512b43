/*
 * --sync ssp, async and hogwild: parameter servers (Li et al., OSDI 2014). The parameters are cut as ZeRO-1
 * cuts them, over K of the data-parallel ranks (--servers, all of them by default), and these are the
 * servers of their shares: they have the masters and the optimizer's states. A rank gives its gradient to
 * every server as soon as it has it, and reads the weights. On one machine other ranks map a server's
 * memory, and the giver computes the update, there and with the server's lock: nobody's answer is waited
 * for. Between machines they send messages (train/servers_mail.h). Servers are ranks, not processes of their
 * own: so what they serve needs no memory twice, checkpoints are ZeRO-1's, and with K = dp the links carry
 * no more than a ring would.
 *   async    an update by the gradient of one part of the batch, at once. Ranks take the parts of the data in
 *            their order as they come free: a rank of a third of the speed takes a third of the parts.
 *   hogwild  the same without locks: updates of the same weights may be lost in part (Niu et al. 2011)
 *   ssp:S    the update of a step by the sum of all ranks' gradients, when the last has come. A rank begins a
 *            step if it has at most S more than the slowest (Ho et al. 2013): the weights that it reads have
 *            all updates up to S + 1 steps before. With S = 0 it is the synchronous run.
 * age      updates of a share between reading its weights and giving a gradient of them; ssp: steps whose
 *          gradients they lack. With --staleness-rate the rate of a gradient is divided by its age (Zhang et
 *          al. 2015); --delay-compensation X adds X g g (w_now - w_then) (Zheng et al. 2017, equation 10).
 * Ranks meet where a checkpoint or an evaluation is due, at a signal and at the end: then all gradients are
 * in, and all ranks have the same weights. What lies between is called a stretch.
 * With cards, what servers have lies in the host's memory, which other ranks map, and updates are the
 * processor's (train/servers_memory.c): gradients are copied there once the card has computed them, and new
 * weights to the card.
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
	int64_t share;	       /* elements of a server */
	int64_t part;	       /* of the step's samples, that this rank computes now */
	char **at[SERVED_N];   /* [dp]: of each rank, as this process sees it; NULL: there is none such */
	struct clocks *clocks; /* of all ranks; in the first one's memory. With mail each has its own, and */
	struct mail *mail;     /* asks for the first one's (train/servers_mail.h); NULL: memory is shared */
	struct dt_dev *dev; /* of a card: the processor, which computes the updates; NULL: the run's device */
	float *grads;	    /* of a card: its gradients on the host, and */
	struct flat weights; /* weights on their way to it; both of what is trained */
	int64_t *seen;	     /* by server: updates of its share that are in this rank's weights */
	int64_t lines;	     /* steps that the metrics line is of */
	double age, oldest;  /* of the gradients since the last line: mean and maximum */
};

/* Before memory is planned: how the servers of this world are reached, where the run leaves that open. */
void servers_choose(struct trainer *t);
/* Before weights and states are bound: of a card the host's memory that they lie in. */
int servers_bind(struct trainer *t, struct dt_err *err);
/* Once memory is bound; collective. -ENOTSUP: ranks are to share memory, and are not on one machine. */
int servers_open(struct trainer *t, struct dt_err *err);
void servers_release(struct trainer *t);
void servers_announce(const struct trainer *t);

struct servers_hooks {
	struct asked (*asked)(void);
	void (*alive)(struct trainer *t); /* after every part */
	/* Metrics of steps that have passed, on the first rank. */
	int (*line)(struct trainer *t, const struct step_result *r, struct dt_err *err);
};
/*
 * A stretch: at least a step. The loop is then at its end, ret of its last lines. Metrics of the steps before
 * the last are written as they pass.
 */
int servers_run(struct trainer *t, const struct servers_hooks *h, struct step_result *ret,
		struct dt_err *err);
void servers_metrics(const struct trainer *t, json_t *line);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
