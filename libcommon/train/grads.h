/*
 * Gradients: where they are computed, how they are reduced over the data-parallel ranks (reduce.c), in fixed
 * point where the run is reproducible (fixed.c), and over the tensor-parallel ranks that hold replicas of a
 * parameter (replicas.c).
 */
#ifndef DT_TRAIN_GRADS_H
#define DT_TRAIN_GRADS_H

#include "train/store.h"

struct bucket {			   /* z0: consecutive units whose gradients are reduced together */
	int first_unit, last_unit; /* inclusive */
	int units;		   /* number of trained units */
	int64_t numel;
	int pending; /* units whose backward has not finished */
	struct dt_comm_req *req;
	char what[32];
};

struct unit_state {
	int bucket;
	int64_t left;		 /* microbatches until the gradients are complete */
	bool summed;		 /* z2: the share already holds the gradients of a microbatch */
	struct dt_comm_req *req; /* z1 and up: reduce-scatter */
};

struct grads {
	struct flat flat;
	struct flat wire; /* --grad-comm: gradients in the type that is sent; p NULL: sent as they are */
	int64_t *fixed;	  /* --reproducible: sums in units of 2^-50, all units; else NULL */
	float **unit_g;	  /* where each unit's gradients are while it computes */
	void **unit_wire; /* likewise in wire */
	double scale;	  /* what the gradients are multiplied by: the loss scale, 1 after grads_unscale */
	double own; /* sum of squares of this rank's gradients before the reduction, with the loss scale */
	double *squares; /* [params] sums of squares of reduced gradients, with the loss scale */
	struct bucket *bucket;
	int nbucket;
	struct unit_state *unit;      /* by local unit */
	int held[DT_UNIT_SLOT_EMBED]; /* z2: the layer unit whose gradients are in a slot, -1: none */
	const char *bad; /* first parameter whose gradient is not finite on this rank, this step */
	/* ranks that hold the same key/value heads, the same groups of Mamba-2; NULL: each has its own */
	struct dt_comm *shared[2];
};

int grads_bind(struct trainer *t, struct dt_err *err);
void grads_release(struct trainer *t);
/* This rank's share of the reduced gradients of unit u, and elements [first, first + n) of it. */
float *grad_share(const struct trainer *t, int u);
struct dt_tensor grad_part(const struct trainer *t, int u, int64_t first, int64_t n);
/*
 * Calls fn for the part of each trained parameter that this rank counts: elements [first, first + n) of its
 * unit. Each element of the model is counted by exactly one rank of grads_holders, so a sum over these ranks
 * is a sum over the model.
 */
typedef int grads_part(struct trainer *t, const struct dt_local_param *lp, int64_t first, int64_t n,
		       void *arg, struct dt_err *err);
int grads_each(struct trainer *t, grads_part *fn, void *arg, struct dt_err *err);
struct dt_comm *grads_holders(const struct trainer *t);
/* Divides this rank's share of the reduced gradients by the loss scale, if it has not been done. */
int grads_unscale(struct trainer *t, struct dt_err *err);
/* Whether this rank counts its elements of a parameter, in that sense. */
bool grads_counted(const struct trainer *t, const struct dt_local_param *lp);
/* The 2-norm over all parameters of all ranks, each counted once, still multiplied by the loss scale. */
int grad_norm(struct trainer *t, double *ret, struct dt_err *err);

/* reduce.c: a reduction starts as soon as backward has completed the gradients */
int reduce_init(struct trainer *t, struct dt_err *err);
int reduce_begin(struct trainer *t, struct dt_err *err);
/* Before backward of a unit: with z2 assigns a slot to its gradients. */
int reduce_before(struct trainer *t, int unit, struct dt_err *err);
/* After backward of a unit: checks for NaN and Inf, and starts reductions that are complete. */
int reduce_after(struct trainer *t, int unit, struct dt_err *err);
int reduce_finish(struct trainer *t, struct dt_err *err);
/* The gradient of the embedding, or of its copy on a last stage that is not the first. */
struct dt_tensor *embed_grad(const struct trainer *t);
/* Whether the unit holds one of the two copies of an embedding tied across stages. */
bool tied_apart(const struct trainer *t, int u);
bool tied_any(const struct trainer *t);
/* The offset of a parameter's first element among all trained elements of this rank. */
int64_t grad_flat(const struct trainer *t, const struct dt_local_param *lp);

/* fixed.c: gradients of each sample in fixed point, so that their sum does not depend on any order */
int fixed_begin(struct trainer *t, struct dt_err *err);
/* Adds the f32 gradients of a unit; last: the unit is complete, and its reduction over dp starts. */
int fixed_add(struct trainer *t, int unit, bool last, struct dt_err *err);
/* After the head's backward, if the head is tied to an embedding in another unit. */
int fixed_add_head(struct trainer *t, struct dt_err *err);
/* Before unit u's backward of a microbatch: zeroes the gradients that are added to. */
int fixed_before(struct trainer *t, int u, struct dt_err *err);
int fixed_finish(struct trainer *t, struct dt_err *err);
/* value, rounded so that sums of such values are exact in any order when the run is reproducible. */
double loss_part(const struct trainer *t, double value);

/* replicas.c: parameters that several tensor-parallel ranks hold */
int replicas_init(struct trainer *t, struct dt_err *err);
void replicas_release(struct trainer *t);
/* Sums over tp the gradients of a unit's replicated parameters, which each rank has for its rows or heads. */
int replicas_sum(struct trainer *t, int unit, struct dt_err *err);
/* Whether this rank counts for lp among the tensor-parallel ranks of its stage (replicas do not). */
bool counts_along_tp(const struct trainer *t, const struct dt_local_param *lp);
/* Whether this rank is the one that writes parameter lp and includes it in norms (replicas do not). */
bool counts(const struct trainer *t, const struct dt_local_param *lp);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
