/*
 * Mixes of block formats, as llama-quantize writes them (llama.cpp's llama_tensor_get_type): most matrices of
 * a file in one format, those that rounding harms most in another. A mix is a line here, and its rules in
 * mix.c.
 */
#ifndef DT_MODEL_MIX_H
#define DT_MODEL_MIX_H

#include "model/params.h"

/* X(NAME, name, format of most matrices, general.file_type of a GGUF file) */
#define DT_FORMAT_MIXES(X)                                                                                   \
	X(Q3_K_M, q3_k_m, Q3_K, 12)                                                                          \
	X(Q3_K_L, q3_k_l, Q3_K, 13)                                                                          \
	X(Q4_K_S, q4_k_s, Q4_K, 14)                                                                          \
	X(Q4_K_M, q4_k_m, Q4_K, 15)                                                                          \
	X(Q5_K_M, q5_k_m, Q5_K, 17)

#define DT_FORMAT_MIX_ENTRY(NAME, name, base, type) DT_FORMAT_MIX_##NAME,
enum dt_format_mix { DT_FORMAT_MIX_NONE, DT_FORMAT_MIXES(DT_FORMAT_MIX_ENTRY) DT_FORMAT_MIX_N };
#undef DT_FORMAT_MIX_ENTRY
#define DT_FORMAT_MIX_BAR(NAME, name, base, type) "|" #name
#define DT_FORMAT_MIX_CHOICES			  DT_FORMAT_MIXES(DT_FORMAT_MIX_BAR)

/* By name; DT_FORMAT_MIX_NONE: there is none such. */
enum dt_format_mix dt_format_mix_parse(const char *name);
enum dt_format dt_format_mix_base(enum dt_format_mix m);
int dt_format_mix_file_type(enum dt_format_mix m);
/*
 * The format of matrix p, in whose place a file may have q, k and v joined. The head, and an embedding that
 * is the head too, are as the base format has them (dt_param_format).
 */
enum dt_format dt_format_mix_of(enum dt_format_mix m, const struct dt_config *c, const struct dt_param *p,
				bool joined);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
