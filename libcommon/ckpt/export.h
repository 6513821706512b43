/* Writing a model source in any of the formats of ckpt/source.h. */
#ifndef DT_CKPT_EXPORT_H
#define DT_CKPT_EXPORT_H

#include "ckpt/source.h"
#include "model/mix.h"

/* How the matrices of a safetensors folder are packed: as AutoGPTQ does, or AutoAWQ. */
enum dt_packing { DT_PACK_NONE, DT_PACK_GPTQ, DT_PACK_AWQ };
/* The formats that can be written, in the order of enum dt_source_kind; then folders with packed matrices. */
#define DT_EXPORT_KINDS DT_SOURCE_KINDS "|gptq|awq"

struct dt_export {
	enum dt_source_kind to;
	/*
	 * Matrices of layers, but for routers, whose rows are a multiple of 32 and 8 in number, or a multiple
	 * of that, are packed. format is q4_0, or q8_0 of GPTQ: the numbers are those of the blocks. All else
	 * is f16 (*ret_unpacked counts the matrices), and listed in config.json.
	 */
	enum dt_packing packing;
	/*
	 * Of the matrices; -1: as stored where the target has that type, else f32. Vectors of a GGUF are f32,
	 * as are its position embeddings unless format is a plain type. The head of a q4_k or q5_k file is
	 * q6_k. A matrix whose rows are no multiple of 256 becomes q5_0 instead of q4_k or q5_k and q8_0
	 * instead of q6_k (*ret_smaller counts those), one whose rows are no multiple of 32 f16
	 * (*ret_unpacked).
	 */
	int format;
	enum dt_format_mix
		mix; /* gguf: some matrices in another format than `format`, which is the mix's base */
	int *ret_unpacked, *ret_smaller; /* may be NULL */
	int64_t step;			 /* dt */
	bool compress;			 /* dt */
	const char *tokenizer_hash;	 /* dt: for the manifest; may be NULL */
	uint64_t max_file_bytes;	 /* safetensors: past this a new file is begun; 0: never */
	bool (*progress)(void *arg, uint64_t done, uint64_t total); /* false: stop, -ECANCELED; may be NULL */
	void *arg;
};

/* Sets what number `word` of DT_EXPORT_KINDS is: to and packing. */
void dt_export_to(int word, struct dt_export *x);

/*
 * Resolves x->to from the ending of dst when it is DT_SOURCE_AUTO: ".gguf", else a checkpoint unless s is
 * one. Checks what can be refused at once (-EINVAL: a mistake of the caller's). ret_made: what will be made,
 * of dt the step folder in the root that is dst.
 */
int dt_export_check(const struct dt_source *s, const char *dst, struct dt_export *x, char *ret_made,
		    size_t made_n, struct dt_err *err);

/*
 * dst: a folder for safetensors, a root of checkpoints or a step folder in it for dt, else a file. It is
 * written under another name and renamed; an existing file or folder is not replaced (-EEXIST). Memory: a few
 * MiB. What the target cannot say about the model is refused before anything is written, by reading back what
 * would be written.
 */
int dt_export(struct dt_source *s, const char *dst, const struct dt_export *x, struct dt_err *err);

/*
 * A source that is the mean of sources of one configuration, and takes ownership of them. Configuration and
 * tokenizer are the first one's.
 */
int dt_source_average(struct dt_source **v, int n, struct dt_source **ret, struct dt_err *err);

/*
 * A source that equals base, except for parameters that dt_source_replace sets. Takes ownership of base, also
 * on failure. near: a path in the folder for the unnamed temporary file of the replacements. -ENOTSUP for a
 * model of images.
 */
int dt_source_replaced(struct dt_source *base, const char *near, struct dt_source **ret, struct dt_err *err);
/* Replaces parameter i of such a source by data, all of it, in format f. dt_source_raw works for it. */
int dt_source_replace(struct dt_source *s, int i, enum dt_format f, const void *data, struct dt_err *err);

/*
 * What the matrix p of c becomes in a GGUF, or packed, where matrices are to be `want`: see format and
 * packing of struct dt_export.
 */
enum dt_format dt_export_format(const struct dt_config *c, const struct dt_param *p, enum dt_format want,
				enum dt_packing packing);

/*
 * Upcycles a dense model to a mixture of experts: `experts` copies of its MLP, `used` of them per token, and
 * a random router from seed. Takes ownership of dense. -ENOTSUP: no family has such mixtures.
 */
int dt_source_upcycle(struct dt_source *dense, int64_t experts, int64_t used, uint64_t seed,
		      struct dt_source **ret, struct dt_err *err);

/*
 * Extends a model's vocabulary to `vocab` tokens; the new rows of embedding and head are the mean of the
 * others. Takes ownership of old. -EINVAL if that adds no tokens, or the model has none.
 */
int dt_source_add_tokens(struct dt_source *old, int64_t vocab, struct dt_source **ret, struct dt_err *err);

/*
 * Makes an encoder what a GGUF file of architecture bert has of it: positions begin at row 0 of their table,
 * and the head that predicts masked tokens and a pooler are left out. *ret_left says which of them, NULL:
 * none. Nothing changes for other models. *s is replaced, and still the caller's after a failure.
 */
int dt_source_bare(struct dt_source **s, const char **ret_left, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
