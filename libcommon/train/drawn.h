/*
 * The values of all parameters, for the inference engine that samples answers during training (--task). Where
 * a rank has every parameter whole, the engine reads the trainer's weights in place. With tp or ZeRO-3 they
 * are gathered into a buffer of the memory plan (DT_B_DRAWN) that is in use between two steps, when there are
 * no activations. With a CUDA device they are then copied to the host.
 */
#ifndef DT_TRAIN_DRAWN_H
#define DT_TRAIN_DRAWN_H

#include "base/log.h"

struct trainer;

struct drawn {
	const void **at; /* [table.n] host addresses, by parameter; NULL: the run samples no answers */
	char **there;	 /* device addresses that are copied from; on a host device `at` itself */
	char *copy;	 /* with a CUDA device: the host's copy */
	/*
	 * Brings the values up to date; valid until the step computes. Every rank calls it. arg: the trainer.
	 */
	int (*gather)(void *arg, struct dt_err *err);
};

int drawn_open(struct trainer *t, struct dt_err *err);
void drawn_close(struct trainer *t);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
