/*
 * The head of a safetensors file: a length, then JSON that names every tensor with its type, shape and place.
 * Checked against the file: places inside it, in order, without overlaps and gaps, sizes that match the
 * shapes. Source: the format's description in huggingface/safetensors.
 */
#ifndef DT_MODEL_SAFETENSORS_H
#define DT_MODEL_SAFETENSORS_H

#include "base/json.h"

#include <stddef.h>

enum { DT_SAFETENSORS_DIMS = 8 }; /* sizes of a shape, at most */

struct dt_safetensor {
	const char *name;
	const char *dtype; /* "BF16" */
	int format;	   /* enum dt_format; -1: none of those we compute with */
	int ndim;	   /* 0: a scalar */
	int64_t shape[DT_SAFETENSORS_DIMS];
	uint64_t at, bytes; /* from the start of the file */
};

struct dt_safetensors {
	struct dt_safetensor *t; /* in the order of the file */
	int n;
	json_t *head;
};

/* -EBADMSG when it is damaged or not a safetensors file. name is for messages. */
int dt_safetensors_parse(const void *file, size_t bytes, const char *name, struct dt_safetensors *ret,
			 struct dt_err *err);
void dt_safetensors_release(struct dt_safetensors *s);

/* The name of a type as safetensors writes it, NULL: enum dt_format f has none. */
const char *dt_safetensors_dtype(int f);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
