/*
 * Block formats of weights in files: GGUF's types, as defined by ggml-quants of llama.cpp, and mxfp4 as the
 * OCP Microscaling specification 1.0 defines it (e = 255 makes the block NaN; ggml reads it as 2^128).
 * format/NAME.c begins with the layout of its format.
 *
 * Arithmetic is single precision in the order written, without contraction, so that results equal those of
 * the gguf Python package bit for bit. No device and no allocation: readers of files use this.
 */
#ifndef DT_KERNELS_QUANT_FORMATS_H
#define DT_KERNELS_QUANT_FORMATS_H

#include "kernels/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Every block format, one per line: X(NAME, name). Everything else about a format is in format/name.c. Those
 * of the first list have their own panel layout in products (quant.h); products convert the others exactly to
 * one of these.
 */
#define DT_PANEL_FORMATS(X)                                                                                  \
	X(Q8_0, q8_0)                                                                                        \
	X(Q4_0, q4_0)                                                                                        \
	X(Q4_1, q4_1)                                                                                        \
	X(Q5_1, q5_1)                                                                                        \
	X(Q2_K, q2_k)                                                                                        \
	X(Q3_K, q3_k)                                                                                        \
	X(Q4_K, q4_k)                                                                                        \
	X(Q5_K, q5_k)                                                                                        \
	X(Q6_K, q6_k)                                                                                        \
	X(MXFP4, mxfp4)                                                                                      \
	X(IQ4_XS, iq4_xs)                                                                                    \
	X(IQ3_S, iq3_s)                                                                                      \
	X(IQ3_XXS, iq3_xxs)                                                                                  \
	X(IQ2_S, iq2_s)                                                                                      \
	X(IQ2_XS, iq2_xs)                                                                                    \
	X(IQ2_XXS, iq2_xxs)
#define DT_OTHER_FORMATS(X)                                                                                  \
	X(Q5_0, q5_0)                                                                                        \
	X(IQ4_NL, iq4_nl)
#define DT_BLOCK_FORMATS(X) DT_PANEL_FORMATS(X) DT_OTHER_FORMATS(X)

#define DT_FORMAT_ENTRY(NAME, name) DT_FMT_##NAME,
enum dt_format { DT_FMT_F32, DT_FMT_F16, DT_FMT_BF16, DT_BLOCK_FORMATS(DT_FORMAT_ENTRY) DT_FMT_N };

/* Choices of an option, each as "|name". */
#define DT_FORMAT_BAR(NAME, name) "|" #name
#define DT_BLOCK_CHOICES	  DT_BLOCK_FORMATS(DT_FORMAT_BAR)
#define DT_PANEL_CHOICES	  DT_PANEL_FORMATS(DT_FORMAT_BAR)

struct dt_format_info {
	const char *name; /* "q8_0" */
	int gguf;	  /* the number of the type in GGUF */
	int file_type;	  /* general.file_type of a GGUF file whose tensors are mostly of this type */
	int block, bytes; /* elements and bytes of a block */
	int dtype;	  /* enum dt_dtype; -1: a block format */
	/*
	 * Related formats (0: none). head: of the output head in a file of this format, as GGUF's writer
	 * chooses it. narrow: for rows that are a multiple of 32 elements but not of this block. kept: the
	 * format that products convert this one to, exactly.
	 */
	enum dt_format head, narrow, kept;
};

const struct dt_format_info *dt_format_info(enum dt_format f);
/* -1: no such name or number. */
int dt_format_parse(const char *name);
int dt_format_of_gguf(uint32_t type);
int dt_format_of_dtype(enum dt_dtype t);

/* The format that products keep weights of format f in, without loss: f itself or another. */
enum dt_format dt_format_kept(enum dt_format f);

/* Bytes of n elements; n is a multiple of the block size. */
static inline size_t dt_format_bytes(enum dt_format f, int64_t n)
{
	const struct dt_format_info *i = dt_format_info(f);

	return (size_t)(n / i->block) * (size_t)i->bytes;
}

/*
 * The panel layout of a format in quant.h: panels of 16 rows; bytes of a panel per 32 elements of k (quants,
 * scales) and per 256 (supers), see kernels/cpu/quant.h. quants 0: no panel layout.
 */
struct dt_quant_shape {
	int quants, scales;
	int supers;
	int offset; /* added to the stored integers */
};
const struct dt_quant_shape *dt_quant_shape(enum dt_format f);
/* Parts below this many bytes share memory: an expert of 3 MiB takes 3, not two pages of 2 MiB. */
enum { DT_PANELS_SHARED = 16 << 20 };
/* Bytes of one panel of rows of k elements; of all panels of `rows` rows; of the memory allocated for
 * them. */
size_t dt_panel_bytes(enum dt_format f, int64_t k);
size_t dt_panels_close_bytes(enum dt_format f, int64_t rows, int64_t k);
size_t dt_panels_bytes(enum dt_format f, int64_t rows, int64_t k);

/* n is a multiple of the block size; src needs no alignment. */
void dt_dequantize(enum dt_format f, const void *src, int64_t n, float *dst);

/* Twice the value of an e2m1 code, -12 to 12. */
extern const int8_t dt_e2m1_twice[16];

/* Converts exactly to another format. Returns false, and does nothing, if `to` is not f's kept. */
bool dt_recode(enum dt_format f, const void *src, int64_t n, enum dt_format to, void *dst);

/*
 * Encodes. Rounds as GGUF's reference: to nearest even for f16 and bf16; blocks of 32 as format/NAME.c says;
 * q2_k to q6_k, iq4_xs, iq3 and iq2 search for scales (format/search.h).
 */
void dt_quantize(enum dt_format f, const float *src, int64_t n, void *dst);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
