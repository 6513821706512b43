/* Shared by the exporters; private to ckpt/. */
#ifndef DT_CKPT_EXPORT_INTERNAL_H
#define DT_CKPT_EXPORT_INTERNAL_H

#include "ckpt/export.h"
#include "ckpt/gguf_out.h"
#include "ckpt/source_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct exp_tensor { /* of the file to be written */
	char name[DT_NAMES_MAX];
	int ndim;
	int64_t shape[2];
	enum dt_format format;
	bool transposed;
	bool packed;	     /* stored as several tensors of the file: exp_parts */
	int part[5], nparts; /* parameters, joined along our rows: one below the other, or (run > 0) so many
				rows of each in turns */
	int64_t run;
	int64_t row0;  /* one part: the row of the parameter at which the tensor begins (an expert's) */
	int64_t stack; /* > 0: one more dimension, experts outermost */
	/*
	 * Transposed and stack > 0: shape[0] rows, those of an expert one behind the other; in each the
	 * elements of the parts in turns.
	 */
	int buffer; /* > 0: not a parameter, but buffer number buffer - 1 of the model */
	uint64_t bytes, at;
};

struct exporter {
	struct dt_source *s;
	const struct dt_export *x;
	const char *file; /* that is being written */
	enum dt_names scheme;
	int pairing;		  /* enum dt_rope_pairing of the target */
	bool plus_one;		  /* the target's norms multiply by 1 + weight */
	struct dt_params buffers; /* of the model: running statistics */
	struct exp_tensor *t;
	int n, unpacked, smaller;
	uint64_t done, total;
	char *buf, *tmp;
	size_t buf_bytes, tmp_bytes;
};

/* Lists the tensors of the target and their sizes. blocks: it can hold quantised ones. */
int exp_list(struct exporter *e, bool blocks, struct dt_err *err);
/* The model's buffers into e->buffers. */
int exp_buffers(struct exporter *e, struct dt_err *err);
void exp_release(struct exporter *e);
/* NULL: no such tensor. */
const struct exp_tensor *exp_find(const struct exporter *e, const char *name);
/* The tensor's dimensions in the file; returns how many. */
int exp_dims(const struct exporter *e, const struct exp_tensor *t, int64_t ret[4]);
/* Reads rows [row, row + n) of the file of a transposed tensor of experts. Plain types only. */
int exp_read_experts(struct exporter *e, const struct exp_tensor *t, int64_t row, int64_t n, char *dst,
		     struct dt_err *err);
/* n bytes to e->file, which f is. */
int exp_put(const struct exporter *e, const void *p, size_t n, FILE *f, struct dt_err *err);
/* Writes all elements of t, in its format, in bands. */
int exp_write(struct exporter *e, const struct exp_tensor *t, FILE *f, struct dt_err *err);
/* *buf holds at least want bytes; -ENOMEM. */
static inline int exp_grow(char **buf, size_t *have, size_t want)
{
	char *grown;

	if (want <= *have)
		return 0;
	grown = realloc(*buf, want);
	if (!grown)
		return -ENOMEM;
	*buf = grown;
	*have = want;
	return 0;
}
/* n zero bytes. */
void exp_zeros(FILE *f, uint64_t n);
/* Counts `more` bytes as done and calls progress; -ECANCELED if it returns false. */
int exp_cancelled(struct exporter *e, uint64_t more, struct dt_err *err);

/* The piece of a tokenizer.json with an id; NULL: none. Borrowed from root. */
const char *exp_token(const json_t *root, int64_t id);

/* ---- export_packed.c: matrices as AutoGPTQ and AutoAWQ pack them ---- */

struct exp_part {
	const char *end; /* of the name, in place of ".weight" */
	const char *type;
	int ndim;
	int64_t dim[2];
	uint64_t bytes;
};
#define EXP_PARTS 4
/* -EINVAL: the type or the model does not go with x->packing. */
int exp_packed_check(const struct dt_source *s, const struct dt_export *x, struct dt_err *err);
/* A matrix of a layer that a product reads. */
bool exp_is_linear(const struct dt_config *c, const struct dt_param *p);
bool exp_packed_takes(const struct exporter *e, const struct exp_tensor *t, const struct dt_param *p);
/* How many tensors a packed one is, and which. */
int exp_parts(const struct exporter *e, const struct exp_tensor *t, struct exp_part part[EXP_PARTS]);
uint64_t exp_parts_bytes(const struct exporter *e, const struct exp_tensor *t);
void exp_part_name(const char *name, const struct exp_part *p, char *ret, size_t n);
/* All of them, one behind the other; blocks: t's rows in t->format. */
int exp_write_parts(struct exporter *e, const struct exp_tensor *t, const char *blocks, FILE *f,
		    struct dt_err *err);
/* quantization_config; a new reference, NULL: no memory. */
json_t *exp_packed_config(const struct exporter *e);

int exp_safetensors(struct exporter *e, const char *dst, struct dt_err *err);
int exp_gguf(struct exporter *e, const char *dst, struct dt_err *err);
int exp_llmc(struct exporter *e, const char *dst, struct dt_err *err);
int exp_llama2c(struct exporter *e, const char *dst, struct dt_err *err);
int exp_dt(struct exporter *e, const char *dst, struct dt_err *err);
/* The keys tokenizer.* of a GGUF. A tokenizer that GGUF has no name for is an error. */
int exp_gguf_tokenizer(struct exporter *e, struct gguf_out *g, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
