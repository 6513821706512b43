/* q4_k: 256 elements in 144 bytes, 4 bits each: k_min.c. */
#include "kernels/format/search.h"

const struct dt_format_traits dt_format_q4_k = {
	.info = {"q4_k", .gguf = 12, .file_type = 15, .block = 256, .bytes = 144, .dtype = -1,
		 .head = DT_FMT_Q6_K, .narrow = DT_FMT_Q5_0},
	.panel = {256, 32, 64, 0},
	.levels = 16,
	DT_K_MIN,
};
/* SPDX-License-Identifier: Apache-2.0 */
