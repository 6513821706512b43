/*
 * What one rank needs, as one list of entries whatever they come from:
 *   dt        our trainer's memory plan, or our server's pools: the allocation itself
 *   generic   textbook states (weights and gradients in the compute type, gradients only from backward to
 *             step; f32 master and moments), our activation table, ZeRO, 1F1B, any layout
 *   megatron  what Megatron-LM keeps: f32 gradients throughout, the activations of Korthikanti et al. 2022
 *   deepspeed what DeepSpeed's own estimators say of states (4 bytes a parameter and 16 divided by ZeRO 1 and
 *             2, 18 divided by ZeRO 3), its reduce bucket; activations as generic
 */
#ifndef DT_PLAN_ESTIMATE_H
#define DT_PLAN_ESTIMATE_H

#include "plan/formulas.h"
#include "plan/memory.h"
#include "plan/weights_disk.h"

enum dt_account {
	DT_ACCOUNT_DT,
	DT_ACCOUNT_GENERIC,
	DT_ACCOUNT_MEGATRON,
	DT_ACCOUNT_DEEPSPEED,
	DT_ACCOUNT_BOOK, /* of handbooks: weights, gradients and both moments in 16 bits, no master weights */
};
#define DT_ACCOUNT_CHOICES "dt|generic|megatron|deepspeed|book"

/* Categories: those of the memory plan, and what others have besides. */
enum {
	DT_EST_CACHE = DT_MEM_CAT_N,
	DT_EST_ADAPTERS,
	DT_EST_ROUNDING, /* what an allocator adds to tensors: accounts of other programs */
	DT_EST_FRAMEWORK,
	DT_EST_CAT_N,
};
const char *dt_est_cat_name(int cat);
int dt_est_cat_find(const char *name); /* -1: none is called so */

enum dt_exactness {
	DT_MODELLED,   /* a published formula's estimate */
	DT_EXACT,      /* what will be allocated */
	DT_CALIBRATED, /* measured, or given */
};
#define DT_EXACTNESS_CHOICES "modelled|exact|calibrated"

struct dt_extras {	   /* what the formulas can count and our trainer does not do */
	int64_t lora_rank; /* 0: all parameters are trained */
	enum dt_lora_targets targets;
	enum dt_weight_format base; /* of the frozen weights; embeddings stay in 16 bits */
	bool scores;		    /* attention that keeps its seq x seq scores */
	uint64_t framework_bytes;   /* context, libraries, allocator: added to every phase */
	bool sums;		    /* only the sums are wanted: account dt lists no entries of its plan */
};

struct dt_entry {
	char name[48];
	char kind[48]; /* the name without layer and slot: entries that differ only there share it */
	int cat;
	uint64_t bytes;
	enum dt_phase first, last;
	const char *formula;
	enum dt_exactness exactness;
	bool at_peak;	     /* alive at the peak */
	enum dt_place place; /* sums by phase and category are of the device alone */
};

struct dt_estimate {
	struct dt_entry *e;
	int n, cap;
	uint64_t peak_bytes;
	enum dt_phase peak;
	uint64_t phase_bytes[DT_PH_N];
	uint64_t cat_bytes[DT_EST_CAT_N]; /* live in the peak phase */
	uint64_t place_bytes[DT_PLACE_N]; /* the device's peak, all of the others */
	bool summed;			  /* the sums are a memory plan's: more exact than phases are */
	int64_t params;			  /* this rank's, a tied head's second copy included */
	enum dt_account account;	  /* by which dt_fit_estimate asked */
	struct dt_weights_disk disk;	  /* of a server with weights on disk; else without pieces */
};
void dt_estimate_release(struct dt_estimate *e);

/*
 * Training. The account dt answers what dt_run_check does for a run that the trainer refuses. extras may be
 * NULL. If scratch is counted, this is the rank at `at` or the last of its tensor-parallel group, whichever
 * has more.
 */
int dt_estimate_train(const struct dt_run *s, struct dt_coords at, enum dt_account account,
		      const struct dt_extras *extras, struct dt_estimate *ret, struct dt_err *err);

/*
 * Serving on one rank of a stage: weights, a paged cache for max_seqs sequences of max_len
 * tokens, and the working set of a forward pass over max_tokens. Account dt is what dt-serve allocates
 * (plan/inferplan.h): every layer keeps the whole sequence; with the others a layer with a window keeps that.
 */
struct dt_serve_shape {
	const struct dt_config *config;
	struct dt_layout layout; /* tp, pp and replicas (dp) */
	int tp_rank, stage;
	enum dt_weight_format weights;
	enum dt_account account;
	enum dt_dtype compute; /* activations */
	double cache_bits;     /* an element of the cache; 0: as compute */
	uint64_t weight_bytes; /* of the whole model, known from a file; 0: by format */
	/* enum dt_format of every parameter in that file, served as it is stored: account dt. NULL: by
	 * weights */
	const int8_t *stored;
	uint64_t framework_bytes;
	int64_t max_seqs, max_len, block, max_tokens;
	int64_t loras, lora_rank; /* adapters in memory at a time, and their rank; 0: none are served */
	bool loras_dora;	  /* they have magnitudes */
	const char *loras_whole;  /* modules that they have whole, as dt_lora.modules_to_save; NULL: none */
	/* Bytes for a rank's weights, the others are on disk, or in the memory of a card's host
	 * (plan/weights_disk.h): account dt. 0: all are in memory */
	uint64_t weights_memory;
	bool weights_host;
	struct dt_scratch_on
		scratch; /* the device whose scratch counts: accounts dt, generic; threads 0: none */
};
int dt_estimate_serve(const struct dt_serve_shape *s, struct dt_estimate *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
