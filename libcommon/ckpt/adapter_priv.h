/* Inside adapter*.c. */
#ifndef DT_CKPT_ADAPTER_PRIV_H
#define DT_CKPT_ADAPTER_PRIV_H

#include "ckpt/adapter.h"
#include "model/names.h"
#include "model/safetensors.h"

/* The context of a reader that fills an adapter. */
struct adapter_in {
	struct dt_adapter *a;
	const struct dt_config *c;
	const struct dt_params *params;
	int pairing; /* rotary order of the file, enum dt_rope_pairing */
};

/*
 * adapter_part.c. Adds a part for parameter i: a [rank, in], b [out, rank] in the file's own rotary order, at
 * rows `at` of a larger linear (NULL: it is the whole of it). All are copied. -EINVAL where numbers are not
 * finite.
 */
struct adapter_part_in {
	int64_t rank;
	double scale;
	const float *a, *b, *m; /* m: magnitudes, NULL: none */
	const struct dt_place_in_file *at;
	bool above; /* of dt_adapter_part */
};
int adapter_add(struct adapter_in *in, int i, const struct adapter_part_in *p, struct dt_err *err);

/* malloc'd, of n numbers. */
float *adapter_room(int64_t n);

/*
 * adapter_whole.c: adds parameter i whole. x: the tensor of a file that holds it, at rows `at` (transposed:
 * columns; NULL: it is the whole of it), in the file's own rotary order. It is copied.
 */
struct adapter_whole_in {
	const float *x;
	const struct dt_place_in_file *at;
	bool transposed;
	bool plus_one; /* the file's norms multiply by 1 + weight */
};
int adapter_whole_add(struct adapter_in *in, int i, const struct adapter_whole_in *w, struct dt_err *err);
/* Reads the whole modules of PEFT's file, which config names under modules_to_save. */
int adapter_whole_read(struct adapter_in *in, const struct dt_safetensors *st, const char *file,
		       const json_t *config, struct dt_err *err);
/* The name of a tensor in PEFT's file without PEFT's prefix. */
const char *adapter_peft_name(const char *full);
bool adapter_is_whole(const char *full);

/* A tensor of PEFT's file as which a whole module is written. */
struct adapter_whole_out {
	char name[DT_NAMES_MAX]; /* "lm_head.weight" */
	int ndim;
	int64_t shape[2], rows, filled; /* filled: number of rows that are set */
	float *x;
};
int adapter_whole_list(const struct adapter_in *in, const struct dt_adapter *a,
		       struct adapter_whole_out **ret, int *ret_n, struct dt_err *err);
void adapter_whole_release(struct adapter_whole_out *o, int n);

int adapter_read_peft(struct adapter_in *in, const char *folder, struct dt_err *err);
int adapter_read_gguf(struct adapter_in *in, const char *path, struct dt_err *err);

/* A linear that both halves of a pair are named after. */
#define ADAPTER_NAME (DT_NAMES_MAX + 40)
/* Whether parameter i can have an adapter, and the name of its linear in the scheme, without ".weight". */
bool adapter_place(const struct adapter_in *in, enum dt_names scheme, int i, struct dt_place_in_file *ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
