/* Printing tensors: as a tree, as JSON, as numbers. */
#ifndef DT_CKPT_LOOK_H
#define DT_CKPT_LOOK_H

#include "ckpt/tensors.h"

#include <stdio.h>

/* One line of the tree. */
struct dt_tree_line {
	const char *label; /* the part of the name below its parent: "layers.{0..11}", "attn.q.weight" */
	int depth;	   /* 0: outermost */
	int64_t copies;	   /* number of entries folded into this line */
	int tensor;	   /* its tensor, of several the first; -1: a branch */
	int64_t npieces;   /* of all tensors here and below, folded ones included */
	uint64_t bytes;	   /* likewise */
};

/*
 * The tensors as a tree by the slash and the dots of their names, numbers by value, the rest in the order of
 * v. A branch with one thing below is a line with it. Unless all is set, neighbours called by numbers whose
 * tensors have the same names, types, shapes and cuts are one line: {0..11}, {0,2,5}, {0..22..2} (from, to,
 * step).
 */
int dt_tree(const struct dt_tensor_desc *v, int n, bool all,
	    void (*line)(void *arg, const struct dt_tree_line *l), void *arg, struct dt_err *err);
int dt_ckpt_tree(const struct dt_ckpt *c, bool all, void (*line)(void *arg, const struct dt_tree_line *l),
		 void *arg, struct dt_err *err);

/* Rising numbers in the notation of the tree: 0..11 or 0,2,5 or 0..22..2. */
void dt_print_numbers(FILE *f, const int64_t *v, int n);

/* [{"name", "dtype", "shape", "cut" (null: no grid), "pieces", "bytes"}, ...]; NULL: out of memory. */
json_t *dt_tensors_json(const struct dt_tensors *t);

/*
 * Elements of tensor i to f: little-endian bytes when raw, else decimal numbers that read back as the same, a
 * row of the last dimension a line. Memory: at most one box. Whether f could be written is the caller's to
 * ask.
 */
int dt_tensors_print(struct dt_tensors *t, int i, bool raw, FILE *f, struct dt_err *err);

/* ---- report.c: tables for dt-shard-ckpt ---- */

/* The tree with types, shapes, cuts and sizes, and a line of totals. */
int dt_report_list(struct dt_tensors *t, bool all, FILE *f, struct dt_err *err);

json_t *dt_report_list_json(const struct dt_tensors *t);

/*
 * dt_ckpt_verify of path: its findings as lines to f (may be NULL) and {"path", "ok", "bytes", "findings"} to
 * list. Returns the number of findings.
 */
int dt_report_verify(const char *path, int workers,
		     void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg, FILE *f,
		     json_t *list, struct dt_err *err);

struct dt_report_diff {
	double tolerance;					    /* as in struct dt_diff */
	bool weights_only;					    /* likewise */
	int workers;						    /* likewise */
	bool all;						    /* a line for every tensor */
	void (*progress)(void *arg, uint64_t done, uint64_t total); /* may be NULL */
	void *arg;
};

/*
 * dt_tensors_diff of a and b: *ret_json when not NULL; else the tensors that differ to f, those of one kind
 * in all layers as one line unless all is set (the elements that differ are added up, the largest differences
 * stay), then whether the sets are equal, and what was turned from b's way to store it into a's. Returns the
 * number of tensors that differ. (report_diff.c)
 */
int dt_report_diff(struct dt_tensors *a, struct dt_tensors *b, const struct dt_report_diff *o, FILE *f,
		   json_t **ret_json, struct dt_err *err);

/* mean, deviation, extremes, zeros and non-numbers of every tensor; *ret_json when not NULL, else to f. */
int dt_report_stats(struct dt_tensors *t, void (*progress)(void *arg, uint64_t done, uint64_t total),
		    void *arg, FILE *f, json_t **ret_json, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
