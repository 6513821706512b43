/*
 * iq3_xxs: 256 elements in 98 bytes: f16 d, for each 4 elements an index into a codebook of 256, for each
 * 32 elements 32 bits: seven signs of each 8, the eighth makes the number of negative ones even, and a
 * 4-bit scale s; x = d (2 s + 1) / 4 (+/- 4, 12 .. 52 or 62).
 */
#include "kernels/format/search.h"

#define DT_IQ_GRID 4
#include "kernels/format/iq_grids.h"

struct codebook_fields {
	uint16_t entry[64];
	uint8_t sign[32], scale[8];
};

static DT_FORMAT_CODE void fields_of(const uint8_t *s, struct codebook_fields *f)
{
	for (int i = 0; i < 64; i++)
		f->entry[i] = s[2 + i];
	for (int j = 0; j < 8; j++) {
		uint32_t word;

		memcpy(&word, s + 66 + 4 * j, 4);
		f->scale[j] = (uint8_t)(word >> 28);
		for (int g = 0; g < 4; g++)
			f->sign[4 * j + g] = dt_even_signs(word >> 7 * g & 127);
	}
}

static DT_FORMAT_CODE void fields_put(const struct codebook_fields *f, uint8_t *s)
{
	for (int i = 0; i < 64; i++)
		s[2 + i] = (uint8_t)f->entry[i];
	for (int j = 0; j < 8; j++) {
		uint32_t word = (uint32_t)f->scale[j] << 28;

		for (int g = 0; g < 4; g++)
			word |= (uint32_t)(f->sign[4 * j + g] & 127) << 7 * g;
		memcpy(s + 66 + 4 * j, &word, 4);
	}
}

#define B_BYTES	   98
#define B_FACTOR   0.25f
#define B_EACH	   32
#define B_GROUP	   4
#define B_BITS	   3
#define B_ENTRIES  256
#define B_VALUE(m) (4 + 8 * (m) + 2 * ((m) == 7))
#define B_EVEN	   true
#include "kernels/format/codebook.h"

#ifdef DT_FORMAT_HOST
/* of codes, in panels: the sign is the highest bit */
static const int8_t values[] = {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62};

const struct dt_format_traits dt_format_iq3_xxs = {
	.info = {"iq3_xxs", .gguf = 18, .file_type = 23, .block = 256, .bytes = 98, .dtype = -1,
		 .head = DT_FMT_Q5_K, .narrow = DT_FMT_IQ4_NL},
	.panel = {256, 16, 32, 128},
	.decode = decode,
	.encode = encode,
	.values = values,
	.weighted = weighted,
	.piece = piece,
};
#endif
/* SPDX-License-Identifier: Apache-2.0 */
