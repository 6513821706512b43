/*
 * Files of low-rank adapters (model/lora.h): PEFT's folder (adapter_config.json, adapter_model.safetensors),
 * a GGUF of type "adapter" as llama.cpp writes it, or a checkpoint of a run with --lora. They are read for a
 * given base model. Anything that cannot be applied is an error with its name, and is never ignored.
 */
#ifndef DT_CKPT_ADAPTER_H
#define DT_CKPT_ADAPTER_H

#include "ckpt/source.h"

/*
 * The update w + scale b a of one parameter of the base; with magnitudes (DoRA, kernels/dora.h) each row of
 * it is then rescaled to the length m[row].
 */
struct dt_adapter_part {
	int param; /* of the base's table */
	int64_t rank, in, out;
	double scale;
	float *a, *b; /* [rank, in], [out, rank]; rows of b in the base's rotary order */
	float *m;     /* [out] in that order too; NULL: none */
	bool above;   /* m holds lengths minus those of the base's rows */
	float *ratio; /* [out] factors of the rows of w + scale b a; NULL until measured */
};

/* A parameter of the base that was trained in full (PEFT's modules_to_save): all its elements. */
struct dt_adapter_whole {
	int param;
	float *x; /* in the base's rotary order, norms as the base has them */
};

struct dt_adapter {
	char *path;
	char base[40]; /* fingerprint of the base it was trained on; empty: unknown */
	struct dt_adapter_part *part;
	int n;
	struct dt_adapter_whole *whole;
	int nwhole;
};

/*
 * -EINVAL if the adapter does not fit this base: a shape, a rank, half of a pair, a tensor of no parameter.
 * -ENOTSUP, naming the key, for what this version does not apply (biases).
 */
int dt_adapter_open(const char *path, const struct dt_config *base, const struct dt_params *params,
		    struct dt_adapter **ret, struct dt_err *err);
void dt_adapter_close(struct dt_adapter *a);
/*
 * Computes magnitudes as lengths, and ratio, from the rows of base. Does nothing if the adapter has no
 * magnitudes, or if that is done; dt_source_adapted calls it.
 */
int dt_adapter_measure(struct dt_adapter *a, struct dt_source *base, struct dt_err *err);
bool dt_adapter_has_magnitudes(const struct dt_adapter *a);
const struct dt_adapter_whole *dt_adapter_find_whole(const struct dt_adapter *a, int param);
/* -EINVAL where the adapter says it was trained on other weights than those of base. */
int dt_adapter_check_base(const struct dt_adapter *a, struct dt_source *base, struct dt_err *err);

/*
 * Writes PEFT's folder, or, if dst ends in ".gguf", llama.cpp's file, which supports neither magnitudes nor
 * whole modules (-ENOTSUP). Magnitudes must have been measured. It is written under another name and renamed;
 * an existing dst is not replaced (-EEXIST).
 */
int dt_adapter_write(const struct dt_adapter *a, const struct dt_source *base, const char *dst,
		     struct dt_err *err);

/* dt_adapter_open of one for this base; any_base: also one that says it was trained on other weights. */
int dt_adapter_open_for(const char *path, struct dt_source *base, bool any_base, struct dt_adapter **ret,
			struct dt_err *err);
/* base with the adapter added in f32, as a source of its own; takes both over, also when it fails. */
int dt_source_adapted(struct dt_source *base, struct dt_adapter *a, struct dt_source **ret,
		      struct dt_err *err);
/*
 * dt_source_memory of a model with adapters (c->lora), which are added to copies of what they are for: a
 * source of the model without. -ENOTSUP where they have magnitudes, or their base is packed.
 */
int dt_source_memory_adapted(const struct dt_config *c, const void *const *data, enum dt_dtype type,
			     struct dt_source **ret, struct dt_err *err);
/* dt_source_adapted of the adapter at path, in the place of *src; where it fails that is closed, and NULL. */
int dt_source_adapt(struct dt_source **src, const char *path, bool any_base, struct dt_err *err);
/*
 * For a source from dt_source_adapted: the part of the adapter's update that is lost when weights are written
 * in format f, as the norm of the error over that of the update, over the first rows of some tensors. Above 1
 * nothing is left of it.
 */
int dt_adapted_loss(struct dt_source *s, enum dt_format f, double *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
