/*
 * Families of models, one file each under model/family/: readers and writers of their configuration in other
 * formats, names of their tensors there, and the function that builds their graph. family.c has the table.
 */
#ifndef DT_MODEL_FAMILY_H
#define DT_MODEL_FAMILY_H

#include "model/gguf.h"
#include "model/graph.h"

/* Parameters that are one tensor in a file, joined along their rows. */
enum dt_joined {
	DT_JOINED_NONE,
	DT_JOINED_QKV,
	DT_JOINED_GATE_UP,
	DT_JOINED_IN_TURNS, /* a row of gate, one of up, and so on */
	DT_JOINED_EXPERTS,  /* gate and up of an expert, then those of the next */
	DT_JOINED_HEADS,    /* q, k and v of a head, then those of the next */
	DT_JOINED_SSM,	    /* Mamba-2: z, x, B, C and dt */
	DT_JOINED_SSM_CONV, /* x, B and C */
};

/* The name of a parameter in a file: %d is the layer, %e the expert (one tensor each). */
struct dt_tensor_name {
	enum dt_role role;
	const char *name; /* NULL: the end of a table */
	enum dt_joined joined;
	bool transposed; /* [in, out]; if not in blocks of a quantised format */
	bool stacked;	 /* all experts in one tensor, as always in GGUF files */
};

/* The keys of a GGUF file that begin with its architecture's name. */
struct dt_gguf_keys {
	const struct dt_gguf *g;
	char arch[24];
	char key[96];
};

/* Functions return 0 or a negative errno and fill err. Of tables of names, the first with the role counts. */
struct dt_family {
	const char *type;     /* model_type of config.json; dt_config.family */
	const char *outer[3]; /* model_types of config.json that have this family's in text_config */
	/*
	 * Of config.json whose text_config is a Llama: adds what stands beside it. NULL: text_config is this
	 * family's.
	 */
	int (*beside_text)(const json_t *o, struct dt_config *ret, struct dt_err *err);
	const char *class;  /* transformers' class; NULL: no config.json is written */
	const char *arch;   /* GGUF's general.architecture; NULL: none */
	const char *prefix; /* of tensors other than lm_head.weight in safetensors files */
	const char *head;   /* what those files call lm_head.weight; NULL: that */
	const struct dt_tensor_name *hf[6], *gguf[5]; /* tables, ended by NULL */
	int64_t hf_vocab;			      /* default of vocab_size; 0: must be given */
	bool hf_adjacent;   /* rotary pairs are adjacent rows in safetensors files */
	bool gguf_adjacent; /* likewise in GGUF files */
	bool hf_plus_one;   /* weights of norms are stored less 1 in safetensors files */
	bool mtp;	    /* may have modules for further tokens behind the last layer */
	bool images;	    /* classifies images; without tables, tensors go by their names in files too */
	bool gguf_factors;  /* GGUF has those of embeddings, scores, residuals and logits */
	bool gguf_parallel; /* GGUF has whether attention and MLP are parallel, and the kind of GELU */
	bool gguf_logit_factor; /* GGUF's logit_scale multiplies logits; else it divides them */
	bool gguf_shared_width; /* GGUF has the width of shared experts, not their number */
	bool gguf_expert_width; /* GGUF has the experts' width under a key of its own */
	/* Sets what the file says; ret has vocab and the defaults of config_hf.c. */
	int (*from_hf)(const json_t *o, struct dt_config *ret, struct dt_err *err);
	json_t *(*to_hf)(const struct dt_config *c);
	/* config.json of timm, of classifiers of images; to_timm gives NULL for what timm does not have */
	int (*from_timm)(const json_t *o, struct dt_config *ret, struct dt_err *err);
	json_t *(*to_timm)(const struct dt_config *c);
	/* Likewise; ret has the sizes that all have. NULL: another family reads these files. */
	int (*from_gguf)(struct dt_gguf_keys *k, struct dt_config *ret, struct dt_err *err);
	/* Whether a tensor of a safetensors file is no parameter; NULL: those that all families have. */
	bool (*is_buffer)(const struct dt_config *c, const char *name);
	/* Whether its name has the prefix there; NULL: all but lm_head.weight have it. */
	bool (*has_prefix)(const struct dt_config *c, const char *name);
	void (*build)(struct dt_builder *b);
};

/* Number i, NULL past the end; by name (dt_config.family), by model_type, by GGUF architecture; or NULL. */
const struct dt_family *dt_family_at(int i);
const struct dt_family *dt_family_find(const char *type);
const struct dt_family *dt_family_of_outer(const char *type);
const struct dt_family *dt_family_of_arch(const char *arch);
/* Comma-separated names for a message: model_types, or GGUF architectures. Returns buf. */
const char *dt_family_list(bool gguf, char *buf, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
