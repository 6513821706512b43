/*
 * The header of a safetensors file: a length, then JSON with each tensor's name, type, shape and offsets.
 * Checked against the file: tensors are inside it, in order, without overlaps or gaps, and sizes match
 * shapes. Source: the format's description in huggingface/safetensors.
 */
#ifndef DT_MODEL_SAFETENSORS_H
#define DT_MODEL_SAFETENSORS_H

#include "base/json.h"

#include <stddef.h>

enum { DT_SAFETENSORS_DIMS = 8 }; /* most dimensions of a tensor */

struct dt_safetensor {
	const char *name;
	const char *dtype; /* "BF16" */
	int format;	   /* enum dt_format; -1: a type we do not support */
	int ndim;	   /* 0: a scalar */
	int64_t shape[DT_SAFETENSORS_DIMS];
	uint64_t at, bytes; /* offset in the file, size */
};

struct dt_safetensors {
	struct dt_safetensor *t; /* in the order of the file */
	int n;
	json_t *head;
};

/* -EBADMSG when the file is damaged or not a safetensors file. name is for messages. */
int dt_safetensors_parse(const void *file, size_t bytes, const char *name, struct dt_safetensors *ret,
			 struct dt_err *err);
void dt_safetensors_release(struct dt_safetensors *s);

/* The type's name in safetensors; NULL: the format has none. */
const char *dt_safetensors_dtype(int f);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
