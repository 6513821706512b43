/* A rank's traffic with servers (train/servers.h): sends them its gradient, and reads their weights. */
#ifndef DT_TRAIN_SERVERS_GIVE_H
#define DT_TRAIN_SERVERS_GIVE_H

#include "base/err.h"

#include <stdint.h>

struct trainer;

/* The results of one part of the batch. */
struct served_part {
	double loss, targets, norm, lr, age;
	int64_t oldest;
	float scale; /* of the gradient: clipping */
};

/* A gradient as a server receives it. */
struct served_gift {
	int k;		   /* the server */
	float *grads;	   /* of its shard, laid out as its masters; NULL: this rank's own gradients */
	const float *then; /* likewise the weights that they were computed at, for --delay-compensation */
	int64_t seen;	   /* number of updates in these weights */
	double lr;
	float scale;	/* of the gradient: clipping */
	int64_t before; /* updates of the shard when the stretch began */
	int64_t own;	/* ssp: the step within the stretch, from 0 */
};
/* Applies a gradient to a server's shard. *ret_version: updates of the shard by now; *ret_age: its age. */
int servers_take(struct trainer *t, const struct served_gift *g, int64_t *ret_version, int64_t *ret_age,
		 struct dt_err *err);
/* Converts server k's masters to compute weights: into this rank's weights (to NULL), or to `to`, a shard. */
int servers_weights(struct trainer *t, int k, void *to, struct dt_err *err);
/* This rank's gradients of unit u from element first on, and its weights, where servers find them. */
float *servers_grads_at(const struct trainer *t, int u, int64_t first);
void *servers_weights_at(const struct trainer *t, int u, int64_t first);
/* The device that computes in the memory of servers. */
struct dt_dev *servers_dev(const struct trainer *t);
/* With a CUDA device: copies the gradients that it has computed to where servers_grads_at says. */
int servers_bring(struct trainer *t, struct dt_err *err);
/* With a CUDA device and --delay-compensation: copies its weights to where servers_weights_at says. */
int servers_remember(struct trainer *t, struct dt_err *err);
/* With a CUDA device: copies server k's share of the weights from there to the device. */
int servers_show(struct trainer *t, int k, struct dt_err *err);

/* The elements of unit u in the share of server k: *ret_first in the unit, *ret_at in what the server has. */
int64_t servers_share(const struct trainer *t, int k, int u, int64_t *ret_first, int64_t *ret_at);

/*
 * Sends the gradient to all servers and sets its age in p. before: steps done when the stretch began; own:
 * with ssp the step within the stretch, from 0. With async and hogwild also reads the new weights.
 */
int servers_give(struct trainer *t, struct served_part *p, int64_t before, int64_t own, struct dt_err *err);
/* Reads the weights of all servers that have made updates since they were last read. */
int servers_refresh(struct trainer *t, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
