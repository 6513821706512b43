/*
 * How weights lie in files, block by block: GGUF's types, as ggml-quants of llama.cpp defines them, and
 * mxfp4 as the OCP Microscaling specification 1.0 does (e = 255 makes the block NaN; ggml takes it for
 * 2^128). format/NAME.c begins with the layout of its format.
 *
 * Arithmetic is single precision in the order written, without contraction, so that results equal those of
 * the gguf Python package bit by bit. No device and no allocation: readers of files use this.
 */
#ifndef DT_KERNELS_QUANT_FORMATS_H
#define DT_KERNELS_QUANT_FORMATS_H

#include "kernels/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Every format of blocks, a line each: X(NAME, name). All else there is to know of one is format/name.c.
 * The first have panels of their own in products (quant.h); products have the others as one of these,
 * number for number.
 */
#define DT_PANEL_FORMATS(X)                                                                                  \
	X(Q8_0, q8_0)                                                                                        \
	X(Q4_0, q4_0)                                                                                        \
	X(Q4_1, q4_1)                                                                                        \
	X(Q4_K, q4_k)                                                                                        \
	X(Q5_K, q5_k)                                                                                        \
	X(Q6_K, q6_k)                                                                                        \
	X(MXFP4, mxfp4)
#define DT_OTHER_FORMATS(X)                                                                                  \
	X(Q5_0, q5_0)                                                                                        \
	X(IQ4_NL, iq4_nl)
#define DT_BLOCK_FORMATS(X) DT_PANEL_FORMATS(X) DT_OTHER_FORMATS(X)

#define DT_FORMAT_ENTRY(NAME, name) DT_FMT_##NAME,
enum dt_format { DT_FMT_F32, DT_FMT_F16, DT_FMT_BF16, DT_BLOCK_FORMATS(DT_FORMAT_ENTRY) DT_FMT_N };

/* Choices of options, each "|name". */
#define DT_FORMAT_BAR(NAME, name) "|" #name
#define DT_BLOCK_CHOICES	  DT_BLOCK_FORMATS(DT_FORMAT_BAR)
#define DT_PANEL_CHOICES	  DT_PANEL_FORMATS(DT_FORMAT_BAR)

struct dt_format_info {
	const char *name; /* "q8_0" */
	int gguf;	  /* the number of the type in GGUF */
	int file_type;	  /* general.file_type of a GGUF file made mostly of it */
	int block, bytes; /* elements of a block, and what they take */
	int dtype;	  /* enum dt_dtype; -1: blocks */
	/*
	 * Other formats (0: none): of the head in a file of this one, as GGUF's own writer chooses it; of
	 * rows that are whole blocks of 32 but not of this; that products keep it in, the very same numbers.
	 */
	enum dt_format head, narrow, kept;
};

const struct dt_format_info *dt_format_info(enum dt_format f);
/* -1: no such name, number. */
int dt_format_parse(const char *name);
int dt_format_of_gguf(uint32_t type);
int dt_format_of_dtype(enum dt_dtype t);

/* What products have weights stored in f as, number for number: f, or another. */
enum dt_format dt_format_kept(enum dt_format f);

/* Bytes of n elements; n is a multiple of the block. */
static inline size_t dt_format_bytes(enum dt_format f, int64_t n)
{
	const struct dt_format_info *i = dt_format_info(f);

	return (size_t)(n / i->block) * (size_t)i->bytes;
}

/*
 * How quant.h lays a format out: panels of 16 rows, bytes of a panel for each 32 elements of k, and for each
 * 256 of them (kernels/cpu/quant.h says what they are). quants 0: it does not.
 */
struct dt_quant_shape {
	int quants, scales;
	int supers;
	int offset; /* of the integers */
};
const struct dt_quant_shape *dt_quant_shape(enum dt_format f);
/* Bytes of one panel of rows of k elements, of all panels of so many rows, and of the memory they take. */
size_t dt_panel_bytes(enum dt_format f, int64_t k);
size_t dt_panels_close_bytes(enum dt_format f, int64_t rows, int64_t k);
size_t dt_panels_bytes(enum dt_format f, int64_t rows, int64_t k);

/* n elements, a multiple of the block; src needs no alignment. */
void dt_dequantize(enum dt_format f, const void *src, int64_t n, float *dst);

/* Twice the number of an e2m1 code, -12 to 12; and the scale of a block of mxfp4 halved to go with it. */
extern const int8_t dt_e2m1_twice[16];
float dt_mxfp4_half_scale(uint8_t e);

/* The very same numbers in another format: where to is not f's kept, false, and nothing is done. */
bool dt_recode(enum dt_format f, const void *src, int64_t n, enum dt_format to, void *dst);

/*
 * The other way. Rounding as GGUF's reference: to nearest even for f16 and bf16; blocks of 32 as their
 * files say; q4_k, q5_k and q6_k are searched for (format/search.h).
 */
void dt_quantize(enum dt_format f, const float *src, int64_t n, void *dst);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
