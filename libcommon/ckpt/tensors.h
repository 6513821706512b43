/*
 * Named tensors of a checkpoint, or of a model in any format of ckpt/source.h: to list, compare, summarise
 * and print. A checkpoint has all its tensors, optimizer states included; another source has one tensor
 * "model/NAME" for each parameter, and its quantised blocks are read as f32.
 */
#ifndef DT_CKPT_TENSORS_H
#define DT_CKPT_TENSORS_H

#include "ckpt/ckpt.h"
#include "ckpt/source.h"

struct dt_tensors;

struct dt_tensor_desc {
	const char *name;
	const char *type;    /* as stored: "bf16", "q8_0" */
	enum dt_dtype dtype; /* what dt_tensors_read gives */
	int ndim;
	int64_t shape[DT_CKPT_MAX_DIM];
	int npieces;
	uint64_t bytes; /* as stored */
	bool regular;	/* the pieces are a grid of grid[d] cuts in each dimension */
	int64_t grid[DT_CKPT_MAX_DIM];
};

int dt_tensors_open(const char *path, struct dt_tensors **ret, struct dt_err *err);
void dt_tensors_close(struct dt_tensors *t);

const char *dt_tensors_path(const struct dt_tensors *t);
/* "dt", "gguf" ...: a word of DT_SOURCE_KINDS. */
const char *dt_tensors_kind(const struct dt_tensors *t);
/* One line when a checkpoint's `latest` was not used, else NULL. */
const char *dt_tensors_note(const struct dt_tensors *t);
/* NULL for other sources. */
struct dt_ckpt *dt_tensors_ckpt(const struct dt_tensors *t);
/* NULL: a checkpoint that does not say which model it is of. */
const struct dt_config *dt_tensors_config(const struct dt_tensors *t);
/* The parameter that tensor i holds, or holds an optimizer state of; NULL: none. */
const struct dt_param *dt_tensors_param(const struct dt_tensors *t, int i);

int dt_tensors_n(const struct dt_tensors *t);
const struct dt_tensor_desc *dt_tensors_desc(const struct dt_tensors *t, int i);
int dt_tensors_find(const struct dt_tensors *t, const char *name); /* -1: absent */

/*
 * Tensor i as boxes that cover it once and are read best: its pieces, or bands of at most 16 MiB. box k of
 * dt_tensors_nboxes.
 */
int dt_tensors_nboxes(const struct dt_tensors *t, int i);
void dt_tensors_box(const struct dt_tensors *t, int i, int k, int64_t *off, int64_t *shape);
/* A box of tensor i in its dtype, contiguous. -EBADMSG when a checksum does not match. */
int dt_tensors_read(struct dt_tensors *t, int i, const int64_t *off, const int64_t *shape, void *dst,
		    struct dt_err *err);

/* ---- compare.c ---- */

/* One tensor of two sets. */
struct dt_tensor_delta {
	const char *name;
	const char *why; /* "only in A", "only in B", "shape": nothing was compared; else NULL */
	uint64_t n_differ;
	double max_abs; /* max |a - b|; infinite where one is NaN and the other is not */
	double max_rel; /* max_abs / max |a| */
	bool differs;	/* beyond the tolerance */
	bool reordered; /* B's rows were first put into A's rotary order */
	bool shifted;	/* 1 was first added to B's norm, or subtracted, to match A's convention */
};

struct dt_diff {
	double tolerance;  /* < 0: bit by bit, other types by value; else max |a - b| > tolerance max |a| */
	bool weights_only; /* tensors model/... alone */
	int workers;	   /* threads; below 2: this one alone */
	void (*report)(void *arg, const struct dt_tensor_delta *d); /* in order, after all are compared */
	void (*progress)(void *arg, uint64_t done, uint64_t total); /* one call at a time, from any thread */
	void *arg;
};

/*
 * Compares all tensors by name, in the order of a and then those only in b. The two may store rotary rows
 * (config rope_pairing) and norms (norm_plus_one) in different ways: then b's are turned into a's way.
 * Memory: one box of each per thread. Returns the number of tensors that differ.
 */
int dt_tensors_diff(struct dt_tensors *a, struct dt_tensors *b, const struct dt_diff *o, struct dt_err *err);

struct dt_tensor_stats {
	uint64_t n, zeros, nans, infs;	 /* elements */
	double min, max, mean, std, rms; /* of the finite ones; 0 when there are none */
};
int dt_tensor_stats(struct dt_tensors *t, int i, struct dt_tensor_stats *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
