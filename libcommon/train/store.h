/*
 * The store: where this rank's parameters are, whole or (ZeRO) its shard of them, and how a unit's weights
 * are gathered while it computes.
 *
 * Without ZeRO every buffer holds whole units. With ZeRO (Rajbhandari et al. 2020; z3: Zhao et al. 2023):
 *   z1   a rank has masters and optimizer states for 1/dp of every unit; weights and gradients are whole
 *   z2   also gradients: a layer's are computed in one of two slots, reduce-scattered and added to the shard
 *   z3   also weights: a layer's are all-gathered into one of two slots before it computes, the next layer's
 *        meanwhile
 * The embedding and the final unit have slots of their own; they are gathered once a step, and their
 * gradients are scattered at its end.
 * Offloaded weights (train/offload.h) are read from a file into these slots, the next layer's while one
 * computes. With ZeRO of any stage a rank has its shard in the file: it is read two layers ahead, and
 * gathered one ahead.
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
	bool trained; /* holds trained units alone */
	int away;     /* > 0: the values are offloaded, and p must not be dereferenced (train/offload.h) */
};

struct store {
	struct flat weights, master; /* master equals weights if the run has no masters (dt_run_masters) */
	void **unit_w;		     /* where each unit's weights are while it computes */
	int held[DT_UNIT_SLOTS];     /* z3: the unit whose weights a slot has, -1: none */
	int ready[DT_UNIT_SLOTS]; /* z3: the unit in a slot that is gathered and rounded (--qat), -2: none */
	struct dt_comm_req *gather[DT_UNIT_SLOTS]; /* z3: the gather under way, of unit held */
};

int store_bind(struct trainer *t, struct dt_err *err);
void store_release(struct trainer *t);

/* A planned flat buffer; shared from ZeRO stage shared_from on. */
struct flat flat_bind(struct trainer *t, enum dt_buf_id id, enum dt_dtype dtype, int shared_from);
/* This rank's share of unit u: elements [first, first + n) of the unit; without ZeRO the whole. */
int64_t share_first(const struct trainer *t, int u);
int64_t share_n(const struct trainer *t, int u);
/* The index of element i of unit u in a flat buffer. In a shared buffer it must be in this rank's share. */
int64_t flat_index(const struct trainer *t, const struct flat *f, int u, int64_t i);
/* Its address. In an offloaded buffer it must be held (offload_hold). */
void *flat_at(const struct trainer *t, const struct flat *f, int u, int64_t i);
/* Elements [first, first + n) of unit u in a flat buffer; DT_NONE where the run has no such buffer. */
struct dt_tensor flat_part(const struct trainer *t, const struct flat *f, int u, int64_t first, int64_t n);

/* The ranks that hold the same elements of unit u. */
struct dt_comm *unit_comm(const struct trainer *t, int u);
/* Before unit u computes: waits until its weights are here, and starts fetching those of the next unit. */
int store_fetch(struct trainer *t, int u, bool backward, struct dt_err *err);
/* Waits for gathers under way, and marks all slots as empty. */
int store_drop(struct trainer *t, struct dt_err *err);
/*
 * The leading part of elements [first, first + n) of unit u's masters that is in memory, as one tensor: at
 * least one element, all n if nothing is offloaded. Returns its length or a negative errno.
 */
int64_t store_masters(struct trainer *t, int u, int64_t first, int64_t n, struct dt_tensor *ret,
		      struct dt_err *err);
/*
 * Makes the compute weights from the masters: converts this rank's shard, and all-gathers those of the other
 * ranks. rounded: the update has already converted this rank's shard.
 */
int store_publish(struct trainer *t, bool rounded, struct dt_err *err);
/* Whether an update also writes the compute weights, rounded to their type. */
bool store_rounds(const struct trainer *t);
/* Sets all initial values, which are the same for every layout. */
int store_init_weights(struct trainer *t, struct dt_err *err);
/* Writes the initial values of elements [first, first + n) of a parameter to a flat buffer, in its type. */
int store_put_initial(struct trainer *t, const struct flat *to, const struct dt_local_param *lp,
		      int64_t first, int64_t n, struct dt_err *err);
/* Sets those of frozen parameters alone, which are not in the run's checkpoints. */
int store_init_frozen(struct trainer *t, struct dt_err *err);

/*
 * packed.c: frozen parameters in blocks. Unpacks those of a unit to its slot; packs one from its initial
 * values.
 */
int packed_fetch(struct trainer *t, int u, struct dt_err *err);
/* After a step's gradients: the buffers of the update overlap the slots of unpacked weights. */
void packed_forget(struct trainer *t);
int packed_init(struct trainer *t, const struct dt_local_param *lp, struct dt_err *err);

/* round.c: bf16 weights without masters. Elements [first, first + n) of parameter lp. */
int round_init(struct trainer *t, const struct dt_local_param *lp, int64_t first, int64_t n,
	       struct dt_err *err);
int round_update(struct trainer *t, const struct dt_local_param *lp, const struct dt_optim *o, int64_t first,
		 int64_t n, struct dt_err *err);

/* qat.c: rounds the gathered matrices of unit u to the format of --qat, in place. */
int qat_round(struct trainer *t, int u, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
