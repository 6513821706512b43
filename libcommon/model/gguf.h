/*
 * The head of a GGUF file (version 2 and 3, little-endian): key-value pairs and the list of tensors, checked
 * against the file so that whoever follows a pointer or a tensor's place stays inside it.
 * Source: docs/gguf.md of ggerganov/ggml.
 */
#ifndef DT_MODEL_GGUF_H
#define DT_MODEL_GGUF_H

#include "model/config.h"

#include <stddef.h>

/* Of a value. */
enum dt_gguf_type {
	DT_GGUF_U8,
	DT_GGUF_I8,
	DT_GGUF_U16,
	DT_GGUF_I16,
	DT_GGUF_U32,
	DT_GGUF_I32,
	DT_GGUF_F32,
	DT_GGUF_BOOL,
	DT_GGUF_STRING,
	DT_GGUF_ARRAY,
	DT_GGUF_U64,
	DT_GGUF_I64,
	DT_GGUF_F64,
	DT_GGUF_TYPE_N,
};

struct dt_gguf_kv {
	const char *key; /* key_n bytes, not terminated */
	size_t key_n;
	enum dt_gguf_type type; /* of the elements, when it is an array */
	bool array;
	uint64_t n;		   /* elements; 1 for a scalar */
	const unsigned char *data; /* unaligned */
};

struct dt_gguf_tensor {
	char name[65];
	int ndim;
	int64_t shape[4]; /* row-major: the row length is last (the file has it first) */
	uint32_t type;	  /* as in the file: kernels/quant_formats.h knows some */
	int format;	  /* enum dt_format, -1: not one of those; then bytes is 0 and the place unchecked */
	uint64_t at, bytes; /* from the start of the file */
};

struct dt_gguf {
	const unsigned char *file; /* borrowed: must outlive this */
	size_t bytes;
	struct dt_gguf_kv *kv;
	struct dt_gguf_tensor *tensor;
	int nkv, ntensor;
	uint64_t data_at;
};

/* name is for messages. -EBADMSG when the file is damaged, -ENOTSUP when it is of another version. */
int dt_gguf_parse(const void *file, size_t bytes, const char *name, struct dt_gguf *ret, struct dt_err *err);
void dt_gguf_release(struct dt_gguf *g);

/* Bytes of a value; 0: they differ from one to the next. type < DT_GGUF_TYPE_N. */
unsigned dt_gguf_type_bytes(uint32_t type);

/*
 * A model in several files, NAME-00001-of-00003.gguf and so on (gguf-split of llama.cpp): the first has the
 * metadata, every one says which it is. map gives each further part, which may go once it has been added; its
 * tensors follow those of the first in g, where `at` is a place in their own file. 0 also where there is one.
 */
typedef int dt_gguf_map_fn(void *to, const char *path, const uint8_t **ret, size_t *ret_n,
			   struct dt_err *err);
typedef int dt_gguf_part_fn(void *to, const struct dt_gguf *part, struct dt_err *err);
int dt_gguf_add_parts(struct dt_gguf *g, const char *first, dt_gguf_map_fn *map, dt_gguf_part_fn *add,
		      void *to, struct dt_err *err);

/* NULL: no such key. */
const struct dt_gguf_kv *dt_gguf_find(const struct dt_gguf *g, const char *key);
const struct dt_gguf_tensor *dt_gguf_find_tensor(const struct dt_gguf *g, const char *name);

/*
 * As the dt_json_* of base/json.h: 1 when the key was there, 0 when it was not and need not be. Integers may
 * have any width; an array of equal ones counts as that one (head_count_kv a layer).
 */
int dt_gguf_int(const struct dt_gguf *g, const char *key, bool required, int64_t min, int64_t max,
		int64_t *ret, struct dt_err *err);
int dt_gguf_real(const struct dt_gguf *g, const char *key, bool required, double *ret, struct dt_err *err);
int dt_gguf_bool(const struct dt_gguf *g, const char *key, bool *ret, struct dt_err *err);
/* *ret is not terminated. */
int dt_gguf_str(const struct dt_gguf *g, const char *key, bool required, const char **ret, size_t *ret_n,
		struct dt_err *err);
/* Element i of an array of numbers. */
int64_t dt_gguf_int_at(const struct dt_gguf_kv *kv, uint64_t i);
double dt_gguf_real_at(const struct dt_gguf_kv *kv, uint64_t i);
/* Walks an array of strings: *at starts as kv->data; call it kv->n times at most. */
void dt_gguf_next_string(const unsigned char **at, const char **ret, size_t *ret_n);

/*
 * What the model is: architectures llama (Mistral and Mixtral included), gpt2, qwen2, qwen3, gemma3. Biases,
 * q and k norms and an untied head are seen by their tensors. llama's q and k rows are stored for adjacent
 * pairs (rope_pairing).
 */
int dt_config_from_gguf(const struct dt_gguf *g, struct dt_config *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
