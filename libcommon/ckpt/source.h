/*
 * Reads the weights of a model in any supported format: every parameter of model/params.h under our name and
 * shape, with the configuration and tokenizer of the source. Files are mapped read-only and not loaded:
 * opening reads only their headers.
 *
 *   dt           a checkpoint folder or root (dt-checkpoint(5)): its model/ tensors
 *   ema          the same: its ema/ tensors, which were averaged in training
 *   safetensors  a Hugging Face folder (model.safetensors or an index of several, config.json) or file;
 *                quantised by GPTQ, AWQ or to fp8 too (source_coded.c)
 *   gguf         a GGUF file, of any format of quant_formats.h
 *   llmc         a model .bin of llm.c (GPT-2)
 *   llama2c      a model .bin of llama2.c
 *
 * Rotary order is not changed: config->rope_pairing says how the rows of q and k are stored (adjacent in
 * GGUF's llama and in llama2.c, half elsewhere). A file that lacks a parameter, has one of another shape, or
 * holds weights the model does not know is refused by name.
 */
#ifndef DT_CKPT_SOURCE_H
#define DT_CKPT_SOURCE_H

#include "base/json.h"
#include "kernels/quant_formats.h"
#include "model/params.h"
#include "model/vision.h"

enum dt_source_kind {
	DT_SOURCE_AUTO, /* by what is there */
	DT_SOURCE_SAFETENSORS,
	DT_SOURCE_GGUF,
	DT_SOURCE_LLMC,
	DT_SOURCE_LLAMA2C,
	DT_SOURCE_DT,
	DT_SOURCE_EMA, /* its averaged weights; once open, a source of DT_SOURCE_DT */
};
#define DT_SOURCE_KINDS "auto|safetensors|gguf|llmc|llama2c|dt" /* in the order of the enum */
#define DT_SOURCE_FROM	DT_SOURCE_KINDS "|ema"

struct dt_source;

/*
 * tokenizer: whatever dt_tokenizer_file_text (ckpt/tokenizer_file.h) takes; "none": none at all; NULL: what
 * the source itself has beside or inside it, which may be none.
 */
int dt_source_open(const char *path, enum dt_source_kind kind, const char *tokenizer, struct dt_source **ret,
		   struct dt_err *err);
/* Likewise, with the modules for further tokens (model/block/mtp.c) that the source has, else left out. */
int dt_source_open_all(const char *path, enum dt_source_kind kind, const char *tokenizer,
		       struct dt_source **ret, struct dt_err *err);
void dt_source_close(struct dt_source *s);
/*
 * The module for a further token alone, as the model of dt_config_module, which reads the same embedding and
 * head. -EINVAL: the source has none.
 */
int dt_source_open_module(const char *path, struct dt_source **ret, struct dt_err *err);
/*
 * The tower of vision alone (dt_config_tower), of the same folder. -EINVAL: the source has none; -ENOTSUP: it
 * is no safetensors folder.
 */
int dt_source_open_tower(const char *path, struct dt_source **ret, struct dt_err *err);
/*
 * A source of parameters in memory: data [table.n], by index in the config's table, whole, all of one type
 * (f32 or bf16). The memory stays the caller's, and must be valid while the source is read.
 */
int dt_source_memory(const struct dt_config *c, const void *const *data, enum dt_dtype type,
		     struct dt_source **ret, struct dt_err *err);
/*
 * The kind of source at path, never DT_SOURCE_AUTO; a folder of no other kind is taken for a root of
 * checkpoints.
 */
int dt_source_guess(const char *path, enum dt_source_kind *ret, struct dt_err *err);

enum dt_source_kind dt_source_kind(const struct dt_source *s);
const char *dt_source_path(const struct dt_source *s);
const struct dt_config *dt_source_config(const struct dt_source *s);
/* The parameter table of the config: tensor i of a source is parameter i of it. */
const struct dt_params *dt_source_params(const struct dt_source *s);
/* Of the checkpoint that s is, or the latest of those that it is made of; 0: there is none. */
int64_t dt_source_step(const struct dt_source *s);
/* The checkpoint of a dt source (step, other tensors, metadata); NULL for the others. */
struct dt_ckpt *dt_source_ckpt(const struct dt_source *s);

/*
 * A hash of the weights, from three rows of every parameter as f32: sources with the same numbers have the
 * same fingerprint in any format. Weights that were rounded differently have another.
 */
#define DT_FINGERPRINT 17
int dt_source_fingerprint(struct dt_source *s, char ret[DT_FINGERPRINT], struct dt_err *err);

/* How parameter i is stored. */
enum dt_format dt_source_format(const struct dt_source *s, int i);

/*
 * The box [off, off + shape) of parameter i (one number a dimension of it) as f32, bf16 or f16 into dst,
 * contiguous. Blocks are dequantised. Several threads may read. -EBADMSG when a checksum does not match (dt).
 */
int dt_source_read(struct dt_source *s, int i, const int64_t *off, const int64_t *shape, enum dt_dtype as,
		   void *dst, struct dt_err *err);

/*
 * The n elements of a buffer of the model's graph (running statistics), by its name, as f32. -ENOENT where
 * the source has none.
 */
int dt_source_buffer(struct dt_source *s, const char *name, int64_t n, float *dst, struct dt_err *err);

/*
 * Rows [row, row + rows) of parameter i (of a vector: elements) as they lie in the file: one after the other,
 * in dt_source_format, without alignment; valid until close. NULL where they do not lie so (dt, transposed,
 * in several tensors): then dt_source_read has them.
 */
const void *dt_source_raw(const struct dt_source *s, int i, int64_t row, int64_t rows);

/*
 * What a classifier of images came with: "classes" (names), "mean" and "deviation" of pixels between 0 and
 * 1, a channel each; what is not known is left out. Owned by s; NULL of models of text.
 */
const json_t *dt_source_images(const struct dt_source *s);
/* How the model's tower takes images; tile 0: the model has none. */
const struct dt_vision *dt_source_vision(const struct dt_source *s);
/*
 * Makes an image transformer one for images of `size` pixels a side: positions of patches are interpolated.
 * Nothing changes for size 0 and for other models. *s is replaced, and still the caller's after a failure.
 */
int dt_source_at_size(struct dt_source **s, int64_t size, struct dt_err *err);

/*
 * Text that dt_tokenizer_from_text (data/tokenizer.h) takes, and the Jinja chat template, NUL-terminated;
 * NULL: none. A GGUF or llama2.c vocabulary has been turned into a tokenizer.json. Owned by s.
 */
const char *dt_source_tokenizer(const struct dt_source *s, size_t *ret_n);
const char *dt_source_chat_template(const struct dt_source *s);
/*
 * The text of the token that begins texts and of the one that ends them, as the tokenizer's files name them
 * (tokenizer_config.json, a GGUF's ids), whether or not encoding adds it; NULL: it names none. Owned by s.
 */
enum { DT_NAMED_BOS, DT_NAMED_EOS };
extern const char *const dt_source_named_keys[2]; /* "bos_token", "eos_token" */
const char *dt_source_named(const struct dt_source *s, int which);
/* Why there is no tokenizer although the source has one, else NULL. */
const char *dt_source_note(const struct dt_source *s);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
