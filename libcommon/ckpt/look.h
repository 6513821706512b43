/* A checkpoint for people and programs to look at: its tensors as a tree or as JSON, elements as text. */
#ifndef DT_CKPT_LOOK_H
#define DT_CKPT_LOOK_H

#include "ckpt/ckpt.h"

#include <stdio.h>

/* One line of the tree. */
struct dt_ckpt_line {
	const char *label; /* what the lines above do not say: "layers.{0..11}", "attn.q.weight" */
	int depth;	   /* of the outermost: 0 */
	int64_t copies;	   /* that this line folds into one, 1: none */
	int tensor;	   /* -1: a branch; of several, the first */
	int64_t npieces;   /* of all that is here and below, folded ones included */
	uint64_t bytes;	   /* likewise */
};

/*
 * The tensors as a tree by the slash and the dots of their names, numbers by value, the rest in the
 * manifest's order. A branch with one thing below is a line with it. Unless all is set, neighbours called by
 * numbers whose tensors have the same names, types, shapes and cuts are one line: {0..11}, {0,2,5},
 * {0..22..2} (from, to, step).
 */
int dt_ckpt_tree(const struct dt_ckpt *c, bool all, void (*line)(void *arg, const struct dt_ckpt_line *l),
		 void *arg, struct dt_err *err);

/* [{"name", "dtype", "shape", "cut" (null: no grid), "pieces", "bytes"}, ...]; NULL: out of memory. */
json_t *dt_ckpt_list_json(const struct dt_ckpt *c);

/*
 * Elements of tensor i to f: little-endian bytes when raw, else decimal numbers that read back as the same, a
 * row of the last dimension a line. Memory: at most 64 MiB. Whether f could be written is the caller's to
 * ask.
 */
int dt_ckpt_print(struct dt_ckpt *c, int i, bool raw, FILE *f, struct dt_err *err);

#endif
