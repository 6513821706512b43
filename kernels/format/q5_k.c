/* q5_k: 256 elements in 176 bytes, 5 bits each: k_min.c. */
#include "kernels/format/search.h"

const struct dt_format_traits dt_format_q5_k = {
	.info = {"q5_k", .gguf = 13, .file_type = 17, .block = 256, .bytes = 176, .dtype = -1,
		 .head = DT_FMT_Q6_K, .narrow = DT_FMT_Q5_0},
	.panel = {320, 32, 64, 0},
	.levels = 32,
	DT_K_MIN,
};
/* SPDX-License-Identifier: Apache-2.0 */
