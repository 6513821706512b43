/*
 * iq2_xxs: 256 elements in 66 bytes: f16 d, then for each 32 elements 4 bytes that index a codebook of 256
 * (8 elements each) and 32 bits: seven signs of each 8, the eighth makes the number of negative ones even,
 * and a 4-bit scale s; x = d (2 s + 1) / 8 (+/- 8, 25 or 43).
 */
#include "kernels/format/search.h"

#define DT_IQ_GRID 1
#include "kernels/format/iq_grids.h"

struct codebook_fields {
	uint16_t entry[32];
	uint8_t sign[32], scale[8];
};

static DT_FORMAT_CODE void fields_of(const uint8_t *s, struct codebook_fields *f)
{
	for (int j = 0; j < 8; j++) {
		uint32_t word;

		memcpy(&word, s + 2 + 8 * j + 4, 4);
		f->scale[j] = (uint8_t)(word >> 28);
		for (int g = 0; g < 4; g++) {
			f->entry[4 * j + g] = s[2 + 8 * j + g];
			f->sign[4 * j + g] = dt_even_signs(word >> 7 * g & 127);
		}
	}
}

static DT_FORMAT_CODE void fields_put(const struct codebook_fields *f, uint8_t *s)
{
	for (int j = 0; j < 8; j++) {
		uint32_t word = (uint32_t)f->scale[j] << 28;

		for (int g = 0; g < 4; g++) {
			s[2 + 8 * j + g] = (uint8_t)f->entry[4 * j + g];
			word |= (uint32_t)(f->sign[4 * j + g] & 127) << 7 * g;
		}
		memcpy(s + 2 + 8 * j + 4, &word, 4);
	}
}

#define B_BYTES	   66
#define B_FACTOR   0.125f
#define B_EACH	   32
#define B_GROUP	   8
#define B_BITS	   2
#define B_ENTRIES  256
#define B_VALUE(m) (8 + 17 * (m) + ((m) == 2))
#define B_EVEN	   true
#include "kernels/format/codebook.h"

#ifdef DT_FORMAT_HOST
/* of codes, in panels: the sign is the highest bit */
static const int8_t values[] = {8, 25, 43, 0, -8, -25, -43, 0};

const struct dt_format_traits dt_format_iq2_xxs = {
	.info = {"iq2_xxs", .gguf = 16, .file_type = 19, .block = 256, .bytes = 66, .dtype = -1,
		 .head = DT_FMT_Q5_K, .narrow = DT_FMT_IQ4_NL},
	.panel = {192, 16, 32, 128},
	.decode = decode,
	.encode = encode,
	.values = values,
	.weighted = weighted,
	.piece = piece,
};
#endif
/* SPDX-License-Identifier: Apache-2.0 */
