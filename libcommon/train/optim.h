/* The optimizer step: clipping, the optimizer's rule and its states, and the loss scale. */
#ifndef DT_TRAIN_OPTIM_H
#define DT_TRAIN_OPTIM_H

#include "base/json.h"
#include "plan/states.h"
#include "train/optim_list.h"
#include "train/store.h"

struct optim {
	struct flat
		state[DT_OPTIM_STATES];	 /* one value an element; p NULL: no such state, or it is in apart */
	char *apart[DT_OPTIM_STATES];	 /* a state of another shape (plan/states.h) */
	int64_t *place[DT_OPTIM_STATES]; /* by local parameter: its offset in apart, in bytes */
	struct dt_states of;		 /* describes the states of this rank */
	struct flat direction;		 /* update directions; p NULL: they take the place of the gradients */
	double loss_scale;		 /* gradients are multiplied by this until the update */
	int64_t good_steps;		 /* updates since a dynamic loss scale last changed */
	double rate;			 /* learning rate of the last update; 0: there was none */
	int64_t updated; /* the step of the last update that is complete in this rank's shard */
};

int optim_bind(struct trainer *t, struct dt_err *err);
void optim_release(struct trainer *t);
/* State k of local parameter i, this rank's shard: one value per element, row or column, or in blocks. */
struct dt_tensor optim_state(const struct trainer *t, int k, int i);
/*
 * After gradients that are not finite: if a dynamic loss scale may be the cause, halves it and returns true.
 */
bool optim_overflowed(struct trainer *t);
/* The norm of the gradient, unscaled. */
int optim_norm(struct trainer *t, double *ret, struct dt_err *err);
/* Clips by that norm and updates this rank's shard, and with --peer-copy its copy of the previous rank's. */
int optim_step(struct trainer *t, double lr, double norm, struct dt_err *err);
/* Adds elements [first, first + n) of local parameter i's unit to l, or updates them. */
typedef int optim_update_fn(struct trainer *t, int i, struct optim_list *l, int64_t first, int64_t n,
			    void *arg, struct dt_err *err);
/*
 * Updates elementwise all elements that the rank described by `of` owns, each parameter with its own weight
 * decay and learning rate, by l's rule and on l's device. part is called for each range of elements.
 */
int optim_each(struct trainer *t, struct optim_list *l, double lr, const struct dt_states *of,
	       optim_update_fn *part, void *arg, struct dt_err *err);
/* The optimizer's constants for the step under way; grad_scale undoes the loss scale and clips. */
struct dt_optim optim_rule(const struct trainer *t, double lr, double norm);
/* Adds elements [first, first + n) of local parameter i's unit to l, with its decay and rate. */
int optim_part(struct trainer *t, struct optim_list *l, double lr, int i, int64_t first, int64_t n,
	       struct dt_err *err);
/* With ZeRO: all-gathers the updated weights. */
int optim_publish(struct trainer *t, struct dt_err *err);

/*
 * The dynamic loss scale in a manifest; NULL: the run has none. Reading leaves it unchanged if meta has none,
 * and reads the learning rate of the last update too.
 */
json_t *optim_to_json(const struct trainer *t);
int optim_from_json(struct trainer *t, const json_t *meta, struct dt_err *err);

/* whole.c: a step of rules that look at whole tensors */
int whole_update(struct trainer *t, const struct dt_optim *o, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
