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

/*
 * The gradient to all servers, and its age to p. before: steps made when the stretch began; own: of ssp the
 * step of the stretch, from 0. Of async and hogwild the weights are new then.
 */
int servers_give(struct trainer *t, struct served_part *p, int64_t before, int64_t own, struct dt_err *err);
/* Weights with the updates that are there, where some are new. */
int servers_refresh(struct trainer *t, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
