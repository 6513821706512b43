/*
 * What one rank needs, as one list of entries whatever they come from:
 *   dt        our trainer's memory plan, or our server's pools: the allocation itself
 *   generic   textbook states (weights and gradients in the compute type, gradients only from backward to
 *             step; f32 master and moments), our activation table, ZeRO, 1F1B, any layout
 *   megatron  what Megatron-LM keeps: f32 gradients throughout, the activations of Korthikanti et al. 2022
 */
#ifndef DT_PLAN_ESTIMATE_H
#define DT_PLAN_ESTIMATE_H

#include "plan/formulas.h"
#include "plan/memory.h"

enum dt_account { DT_ACCOUNT_DT, DT_ACCOUNT_GENERIC, DT_ACCOUNT_MEGATRON };
#define DT_ACCOUNT_CHOICES "dt|generic|megatron"

enum { /* categories: those of the memory plan, and the server's cache */
       DT_EST_CACHE = DT_MEM_CAT_N,
       DT_EST_CAT_N,
};
const char *dt_est_cat_name(int cat);

struct dt_entry {
	char name[48];
	char kind[48]; /* the name without layer and slot: entries that differ only there share it */
	int cat;
	uint64_t bytes;
	enum dt_phase first, last;
	const char *formula;
	bool exact; /* what will be allocated; else a formula's estimate */
};

struct dt_estimate {
	struct dt_entry *e;
	int n, cap;
	uint64_t peak_bytes;
	enum dt_phase peak;
	uint64_t phase_bytes[DT_PH_N];
	uint64_t cat_bytes[DT_EST_CAT_N]; /* live in the peak phase */
	int64_t params;			  /* this rank's, a tied head's second copy included */
};
void dt_estimate_release(struct dt_estimate *e);

/*
 * Training. The account dt answers -ENOTSUP for a layout that the memory plan does not take account of yet;
 * f16 is for the others.
 */
int dt_estimate_train(const struct dt_train_shape *s, enum dt_account account, struct dt_estimate *ret,
		      struct dt_err *err);

/*
 * Serving on one rank of a tensor-parallel group: weights, a paged cache for max_seqs sequences of max_len
 * tokens, and the working set of a forward pass over max_tokens (dt_infer_open allocates the same).
 */
struct dt_serve_shape {
	const struct dt_config *config;
	struct dt_layout layout; /* tp and replicas (dp) */
	int tp_rank;
	enum dt_weight_format weights;
	enum dt_dtype compute; /* activations and cache */
	int64_t max_seqs, max_len, block, max_tokens;
};
int dt_estimate_serve(const struct dt_serve_shape *s, struct dt_estimate *ret, struct dt_err *err);

#endif
