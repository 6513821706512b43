/* The update: clipping, the optimizer's rule and its states, and the loss scale that gradients carry. */
#ifndef DT_TRAIN_OPTIM_H
#define DT_TRAIN_OPTIM_H

#include "base/json.h"
#include "plan/states.h"
#include "train/optim_list.h"
#include "train/store.h"

struct optim {
	struct flat state[DT_OPTIM_STATES]; /* p NULL: the rule has none such, or it does not lie flat */
	char *apart[DT_OPTIM_STATES];	    /* a state that does not (plan/states.h) */
	int64_t *place[DT_OPTIM_STATES];    /* by local parameter: where in apart, in bytes */
	struct dt_states of;		    /* whose these are: this rank's */
	double loss_scale;		    /* gradients are this much too large until the update */
	int64_t good_steps;		    /* since a dynamic scale last changed */
	double rate;			    /* of the last update; 0: there was none */
	int64_t updated; /* the step of the last update that is whole in this rank's share */
};

int optim_bind(struct trainer *t, struct dt_err *err);
void optim_release(struct trainer *t);
/* State k of local parameter i: of the elements in this rank's share, or its rows, columns or blocks. */
struct dt_tensor optim_state(const struct trainer *t, int k, int i);
/* Whether gradients that are not finite may come from the loss scale, which is then halved. */
bool optim_overflowed(struct trainer *t);
/* The norm of the gradient, unscaled. */
int optim_norm(struct trainer *t, double *ret, struct dt_err *err);
/* Clips by that norm and updates this rank's shard, and with --peer-copy its copy of the previous rank's. */
int optim_step(struct trainer *t, double lr, double norm, struct dt_err *err);
/* Adds elements [first, first + n) of local parameter i's unit to l, or updates them. */
typedef int optim_update_fn(struct trainer *t, int i, struct optim_list *l, int64_t first, int64_t n,
			    void *arg, struct dt_err *err);
/*
 * Every element by itself, of those that the rank of `of` updates, with its weight decay and rate, by the
 * rule of l on its device.
 */
int optim_each(struct trainer *t, struct optim_list *l, double lr, const struct dt_states *of,
	       optim_update_fn *part, void *arg, struct dt_err *err);
/* The rule of the step under way: its constants, with what gradients are divided by. */
struct dt_optim optim_rule(const struct trainer *t, double lr, double norm);
/* Adds elements [first, first + n) of local parameter i's unit to l, with its decay and rate. */
int optim_part(struct trainer *t, struct optim_list *l, double lr, int i, int64_t first, int64_t n,
	       struct dt_err *err);
/* Brings the new weights to the other ranks. */
int optim_publish(struct trainer *t, struct dt_err *err);

/*
 * The dynamic loss scale in a manifest; NULL: the run has none. Reading leaves it where meta has none, and
 * takes the rate of the last update too.
 */
json_t *optim_to_json(const struct trainer *t);
int optim_from_json(struct trainer *t, const json_t *meta, struct dt_err *err);

/* whole.c: a step of rules that look at whole tensors */
int whole_update(struct trainer *t, const struct dt_optim *o, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
