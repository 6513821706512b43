/*
 * iq2_s: 256 elements in 82 bytes: f16 d, for each 8 elements the low byte of an index into a codebook of
 * 1024, for each 8 elements a byte of signs, 8 bytes with the high two bits of the indices, a 4-bit scale s
 * for each 16 elements; x = d (2 s + 1) / 8 (+/- 8, 25 or 43).
 */
#include "kernels/format/search.h"

#define DT_IQ_GRID 3
#include "kernels/format/iq_grids.h"

struct codebook_fields {
	uint16_t entry[32];
	uint8_t sign[32], scale[16];
};

static DT_FORMAT_CODE void fields_of(const uint8_t *s, struct codebook_fields *f)
{
	for (int g = 0; g < 32; g++) {
		f->entry[g] = (uint16_t)(s[2 + g] | (s[66 + g / 4] >> g % 4 * 2 & 3) << 8);
		f->sign[g] = s[34 + g];
	}
	for (int j = 0; j < 16; j++)
		f->scale[j] = s[74 + j / 2] >> j % 2 * 4 & 15;
}

static DT_FORMAT_CODE void fields_put(const struct codebook_fields *f, uint8_t *s)
{
	memset(s + 66, 0, 8);
	for (int g = 0; g < 32; g++) {
		s[2 + g] = (uint8_t)f->entry[g];
		s[34 + g] = f->sign[g];
		s[66 + g / 4] |= (uint8_t)(f->entry[g] >> 8 << g % 4 * 2);
	}
	for (int j = 0; j < 8; j++)
		s[74 + j] = (uint8_t)(f->scale[2 * j] | f->scale[2 * j + 1] << 4);
}

#define B_BYTES	   82
#define B_FACTOR   0.125f
#define B_EACH	   16
#define B_GROUP	   8
#define B_BITS	   2
#define B_ENTRIES  1024
#define B_VALUE(m) (8 + 17 * (m) + ((m) == 2))
#define B_EVEN	   false
#include "kernels/format/codebook.h"

#ifdef DT_FORMAT_HOST
/* of codes, in panels: the sign is the highest bit */
static const int8_t values[] = {8, 25, 43, 0, -8, -25, -43, 0};

const struct dt_format_traits dt_format_iq2_s = {
	.info = {"iq2_s", .gguf = 22, .file_type = 28, .block = 256, .bytes = 82, .dtype = -1,
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
