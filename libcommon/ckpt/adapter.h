/*
 * Low-rank adapters in files (model/lora.h): PEFT's folder (adapter_config.json, adapter_model.safetensors),
 * a GGUF of type "adapter" as llama.cpp writes it, or a checkpoint of a run with --lora. Read against the
 * base whose linears they are for; what cannot be applied is refused by name, never left out.
 */
#ifndef DT_CKPT_ADAPTER_H
#define DT_CKPT_ADAPTER_H

#include "ckpt/source.h"

/*
 * w + scale b a, for one parameter of the base; with magnitudes (kernels/dora.h) each row of that has the
 * length m[row] after it.
 */
struct dt_adapter_part {
	int param; /* of the base's table */
	int64_t rank, in, out;
	double scale;
	float *a, *b; /* [rank, in], [out, rank]; rows of b in the base's rotary order */
	float *m;     /* [out] in that order too; NULL: none */
	bool above;   /* m is what lengths are above those of the base's rows */
	float *ratio; /* [out] what rows of w + scale b a are multiplied by; NULL until they are measured */
};

/* A parameter of the base that was trained whole beside (PEFT's modules_to_save): all its elements. */
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
 * -EINVAL where the adapter is not for this base: a shape, a rank, half of a pair, a tensor of nothing here.
 * -ENOTSUP, naming the key, for what this version does not apply (biases).
 */
int dt_adapter_open(const char *path, const struct dt_config *base, const struct dt_params *params,
		    struct dt_adapter **ret, struct dt_err *err);
void dt_adapter_close(struct dt_adapter *a);
/*
 * Magnitudes as lengths, and ratio, from the rows of base. Nothing where the adapter has none, or they are
 * there already; dt_source_adapted does it.
 */
int dt_adapter_measure(struct dt_adapter *a, struct dt_source *base, struct dt_err *err);
bool dt_adapter_has_magnitudes(const struct dt_adapter *a);
/* The part for a parameter; NULL. */
const struct dt_adapter_part *dt_adapter_find(const struct dt_adapter *a, int param);
const struct dt_adapter_whole *dt_adapter_find_whole(const struct dt_adapter *a, int param);
/* -EINVAL where the adapter says it was trained on other weights than those of base. */
int dt_adapter_check_base(const struct dt_adapter *a, struct dt_source *base, struct dt_err *err);

/*
 * PEFT's folder, or where dst ends in ".gguf" llama.cpp's file, which has neither magnitudes nor whole
 * modules (-ENOTSUP); magnitudes have been measured. It is written under another name and renamed;
 * what is there is not replaced (-EEXIST).
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
 * How much of the updates of a source that dt_source_adapted made is lost where weights are written in f: the
 * norm of what is missing over that of the update, of the first rows of some tensors. Above 1 none is left.
 */
int dt_adapted_loss(struct dt_source *s, enum dt_format f, double *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
