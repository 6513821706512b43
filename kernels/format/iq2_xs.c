/*
 * iq2_xs: 256 elements in 74 bytes: f16 d, for each 8 elements 16 bits: 9 that index a codebook of 512,
 * seven signs, the eighth makes the number of negative ones even; then a 4-bit scale s for each 16
 * elements; x = d (2 s + 1) / 8 (+/- 8, 25 or 43).
 */
#include "kernels/format/search.h"

#define DT_IQ_GRID 2
#include "kernels/format/iq_grids.h"

struct codebook_fields {
	uint16_t entry[32];
	uint8_t sign[32], scale[16];
};

static DT_FORMAT_CODE void fields_of(const uint8_t *s, struct codebook_fields *f)
{
	for (int g = 0; g < 32; g++) {
		const unsigned word = dt_u16_at(s + 2 + 2 * g);

		f->entry[g] = (uint16_t)(word & 511);
		f->sign[g] = dt_even_signs(word >> 9);
	}
	for (int j = 0; j < 16; j++)
		f->scale[j] = s[66 + j / 2] >> j % 2 * 4 & 15;
}

static DT_FORMAT_CODE void fields_put(const struct codebook_fields *f, uint8_t *s)
{
	for (int g = 0; g < 32; g++) {
		const uint16_t word = (uint16_t)(f->entry[g] | (f->sign[g] & 127) << 9);

		memcpy(s + 2 + 2 * g, &word, 2);
	}
	for (int j = 0; j < 8; j++)
		s[66 + j] = (uint8_t)(f->scale[2 * j] | f->scale[2 * j + 1] << 4);
}

#define B_BYTES	   74
#define B_FACTOR   0.125f
#define B_EACH	   16
#define B_GROUP	   8
#define B_BITS	   2
#define B_ENTRIES  512
#define B_VALUE(m) (8 + 17 * (m) + ((m) == 2))
#define B_EVEN	   true
#include "kernels/format/codebook.h"

#ifdef DT_FORMAT_HOST
/* of codes, in panels: the sign is the highest bit */
static const int8_t values[] = {8, 25, 43, 0, -8, -25, -43, 0};

const struct dt_format_traits dt_format_iq2_xs = {
	.info = {"iq2_xs", .gguf = 17, .file_type = 20, .block = 256, .bytes = 74, .dtype = -1,
		 .head = DT_FMT_Q5_K, .narrow = DT_FMT_IQ4_NL},
	.panel = {192, 32, 32, 128},
	.decode = decode,
	.encode = encode,
	.values = values,
	.weighted = weighted,
	.piece = piece,
};
#endif
/* SPDX-License-Identifier: Apache-2.0 */
