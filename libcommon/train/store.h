/*
 * The store: where this rank's parameters are, whole or (ZeRO) its share of them, and how a unit's weights
 * come together for as long as it computes.
 *
 * Without ZeRO every buffer holds whole units. Rajbhandari et al. 2020, Zhao et al. 2023 for z3:
 *   z1   masters and optimizer states are of one dp-th of every unit; weights and gradients are whole
 *   z2   gradients too: a layer's are computed in one of two slots, scattered, and added to the share
 *   z3   weights too: a layer's are gathered into one of two slots before it computes, the next layer's
 *        while it does
 * The embedding and the final unit have slots of their own; they are gathered once a step and scattered at
 * its end.
 * Offloaded weights (train/offload.h) come from a file into these slots, the next layer's while one computes.
 * With ZeRO of any stage a rank has its share in the file: it is read two layers ahead, and gathered one
 * ahead.
 */
#ifndef DT_TRAIN_STORE_H
#define DT_TRAIN_STORE_H

#include "comm/comm.h"
#include "plan/memory.h"

struct trainer;

/*
 * A flat buffer of one value a parameter element. shared: it holds only this rank's share of every unit, one
 * dp-th each; else whole units.
 */
struct flat {
	char *p; /* NULL: the run has none */
	enum dt_dtype dtype;
	bool shared;
	bool trained; /* of trained units alone */
	int away;     /* > 0: p is no memory, and the values are elsewhere (train/offload.h) */
};

struct store {
	struct flat weights, master; /* master is weights where there are no others (dt_run_masters) */
	void **unit_w;		     /* where each unit's weights are while it computes */
	int held[DT_UNIT_SLOTS];     /* z3: which unit's weights a slot has, -1: none */
	int ready[DT_UNIT_SLOTS];    /* z3: whose weights in a slot are as products read them, -2: nobody's */
	struct dt_comm_req *gather[DT_UNIT_SLOTS]; /* z3: under way, for held */
};

int store_bind(struct trainer *t, struct dt_err *err);
void store_release(struct trainer *t);

/* A planned flat buffer; shared from ZeRO stage shared_from on. */
struct flat flat_bind(struct trainer *t, enum dt_buf_id id, enum dt_dtype dtype, int shared_from);
/* This rank's share of unit u: elements [first, first + n) of the unit; without ZeRO the whole. */
int64_t share_first(const struct trainer *t, int u);
int64_t share_n(const struct trainer *t, int u);
/* Place of element i of unit u in a flat buffer, which must be in the share of a shared one. */
int64_t flat_index(const struct trainer *t, const struct flat *f, int u, int64_t i);
/* Its address. Of a buffer whose values are elsewhere it must be held. */
void *flat_at(const struct trainer *t, const struct flat *f, int u, int64_t i);
/* Elements [first, first + n) of unit u in a flat buffer; DT_NONE where the run has no such buffer. */
struct dt_tensor flat_part(const struct trainer *t, const struct flat *f, int u, int64_t first, int64_t n);

/* The ranks that hold the same elements of unit u. */
struct dt_comm *unit_comm(const struct trainer *t, int u);
/* Unit u is about to compute: its weights are here when this returns, its successor's on their way. */
int store_fetch(struct trainer *t, int u, bool backward, struct dt_err *err);
/* Nothing is on its way to slots when this returns, and they hold no unit. */
int store_drop(struct trainer *t, struct dt_err *err);
/*
 * Of elements [first, first + n) of the masters of unit u those at the front that are in memory now, as one
 * tensor: at least one, all where nothing is offloaded. Their number or a negative errno.
 */
int64_t store_masters(struct trainer *t, int u, int64_t first, int64_t n, struct dt_tensor *ret,
		      struct dt_err *err);
/*
 * Weights from this rank's share of the masters, and from the other ranks'. rounded: the update has made this
 * rank's already.
 */
int store_publish(struct trainer *t, bool rounded, struct dt_err *err);
/* Whether an update also writes the weights that products read, rounded to their type. */
bool store_rounds(const struct trainer *t);
/* Initial values, the same on every layout. */
int store_init_weights(struct trainer *t, struct dt_err *err);
/* Those of elements [first, first + n) of a parameter to a flat buffer in memory, rounded to its type. */
int store_put_initial(struct trainer *t, const struct flat *to, const struct dt_local_param *lp,
		      int64_t first, int64_t n, struct dt_err *err);
/* Those of frozen parameters alone, which no checkpoint of the run has. */
int store_init_frozen(struct trainer *t, struct dt_err *err);

/* packed.c: frozen parameters in blocks. Those of a unit to its slot; one, from what init_values says. */
int packed_fetch(struct trainer *t, int u, struct dt_err *err);
int packed_init(struct trainer *t, const struct dt_local_param *lp, struct dt_err *err);

/* round.c: bf16 weights without masters. Elements [first, first + n) of parameter lp. */
int round_init(struct trainer *t, const struct dt_local_param *lp, int64_t first, int64_t n,
	       struct dt_err *err);
int round_update(struct trainer *t, const struct dt_local_param *lp, const struct dt_optim *o, int64_t first,
		 int64_t n, struct dt_err *err);

/* qat.c: matrices of unit u, whole where they compute, become what the format of --qat makes of them. */
int qat_round(struct trainer *t, int u, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
