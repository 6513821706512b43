/* What a rank does with servers (train/servers.h): gives them its gradient, and reads their weights. */
#ifndef DT_TRAIN_SERVERS_GIVE_H
#define DT_TRAIN_SERVERS_GIVE_H

#include "base/err.h"

#include <stdint.h>

struct trainer;

/* What a part of the batch gave. */
struct served_part {
	double loss, targets, norm, lr, age;
	int64_t oldest;
	float scale; /* of the gradient: clipping */
};

/* A gradient as a server gets it. */
struct served_gift {
	int k;		   /* the server */
	float *grads;	   /* of its share, as its masters lie; NULL: this rank's, which is the giver */
	const float *then; /* likewise the weights that they are of, for --delay-compensation */
	int64_t seen;	   /* updates in these */
	double lr;
	float scale;	/* of the gradient: clipping */
	int64_t before; /* updates of the share when the stretch began */
	int64_t own;	/* of ssp the step of the stretch, from 0 */
};
/* The server's part. Updates of the share by now, and the gradient's age. */
int servers_take(struct trainer *t, const struct served_gift *g, int64_t *ret_version, int64_t *ret_age,
		 struct dt_err *err);
/* The weights of server k as products read them: into this rank's, or to `to`, as masters lie. */
int servers_weights(struct trainer *t, int k, void *to, struct dt_err *err);
/* This rank's gradients of unit u from element first on, and its weights, where servers find them. */
float *servers_grads_at(const struct trainer *t, int u, int64_t first);
void *servers_weights_at(const struct trainer *t, int u, int64_t first);
/* What computes with the memory of servers. */
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
 * The gradient to all servers, and its age to p. before: steps made when the stretch began; own: of ssp the
 * step of the stretch, from 0. Of async and hogwild the weights are new then.
 */
int servers_give(struct trainer *t, struct served_part *p, int64_t before, int64_t own, struct dt_err *err);
/* Weights with the updates that are there, where some are new. */
int servers_refresh(struct trainer *t, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
