/*
 * Gradient compression (implemented in comm/compress.h): the methods, the bytes that they send and the memory
 * that they need, for all tensors of a rank together.
 *
 * bf16      half the bytes
 * int8      blocks of 256 codes and a scale
 * powersgd  two thin factors of each matrix
 * top-k     the largest entries
 * one-bit   signs and a mean magnitude a block of 4096
 */
#ifndef DT_PLAN_COMPRESS_H
#define DT_PLAN_COMPRESS_H

#include "plan/layout.h"

enum dt_compress_kind {
	DT_COMPRESS_BF16,
	DT_COMPRESS_POWERSGD,
	DT_COMPRESS_TOP_K,
	DT_COMPRESS_ONE_BIT,
	DT_COMPRESS_INT8
};
#define DT_COMPRESS_CHOICES "bf16|powersgd|top-k|one-bit|int8"

struct dt_compress_opts {
	enum dt_compress_kind kind;
	size_t rows; /* powersgd, of a tensor alone: of the matrix; 0: about square */
	int rank;    /* powersgd: columns of the factors; 0: 4 */
	double keep; /* top-k: share of the entries sent, (0, 1]; 0: 0.01 */
};

/* One of the tensors that are compressed together. */
struct dt_compress_part {
	size_t at, n; /* its first element in the buffer, and its number of elements */
	size_t rows;  /* of the matrix; 0: about square */
	bool plain; /* sent uncompressed in f32: a vector, or a matrix that factors would not make smaller */
};

struct dt_compress_shape {
	size_t rows, cols, rank;
};

/* powersgd: a part as a matrix, whose last row may be incomplete, and the columns of its factors. */
struct dt_compress_shape dt_compress_shape(const struct dt_compress_opts *o,
					   const struct dt_compress_part *p);
/* top-k: entries of a part that are sent. */
size_t dt_compress_entries(const struct dt_compress_opts *o, const struct dt_compress_part *p);

enum { DT_SIGNS_BLOCK = 4096, DT_INT8_BLOCK = 256 };
struct dt_signs { /* blocks as they are sent */
	float magnitude;
	uint8_t bit[DT_SIGNS_BLOCK / 8];
};
struct dt_int8 {
	float scale;
	int8_t code[DT_INT8_BLOCK];
};

/* Counts over all parts, and where things lie in the working memory, in bytes. */
struct dt_compress_work {
	size_t plain, rows, cols, entries,
		blocks;	   /* elements of what is plain, of P and Q; entries; blocks */
	size_t each;	   /* int8: blocks that a rank sums */
	size_t mine_bytes; /* bytes that a rank sends in one message */
	size_t small, p, q, sort, sum, mine, all, bytes;
};
void dt_compress_work(const struct dt_compress_opts *o, const struct dt_compress_part *part, int n, int ranks,
		      struct dt_compress_work *ret);
/* Bytes a rank sends for one sum, by ring algorithms. */
double dt_compress_wire(const struct dt_compress_opts *o, const struct dt_compress_part *part, int n,
			int ranks);

/*
 * The parts of a rank's gradients, in the order of its flat buffer of trained parameters; at most l->n.
 * Returns how many. Matrices of 1024 elements and more are compressed.
 */
int dt_compress_parts(const struct dt_compress_opts *o, const struct dt_params *t, const struct dt_local *l,
		      struct dt_compress_part *ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
