/*
 * iq3_s: 256 elements in 110 bytes: f16 d, for each 4 elements the low byte of an index into a codebook of
 * 512, 8 bytes with the ninth bits, for each 8 elements a byte of signs, a 4-bit scale s for each 32
 * elements; x = d (2 s + 1) (+/- 1, 3 .. 15).
 */
#include "kernels/format/search.h"

#define DT_IQ_GRID 5
#include "kernels/format/iq_grids.h"

struct codebook_fields {
	uint16_t entry[64];
	uint8_t sign[32], scale[8];
};

static DT_FORMAT_CODE void fields_of(const uint8_t *s, struct codebook_fields *f)
{
	for (int i = 0; i < 64; i++)
		f->entry[i] = (uint16_t)(s[2 + i] | (s[66 + i / 8] >> i % 8 & 1) << 8);
	for (int g = 0; g < 32; g++)
		f->sign[g] = s[74 + g];
	for (int j = 0; j < 8; j++)
		f->scale[j] = s[106 + j / 2] >> j % 2 * 4 & 15;
}

static DT_FORMAT_CODE void fields_put(const struct codebook_fields *f, uint8_t *s)
{
	memset(s + 66, 0, 8);
	for (int i = 0; i < 64; i++) {
		s[2 + i] = (uint8_t)f->entry[i];
		s[66 + i / 8] |= (uint8_t)(f->entry[i] >> 8 << i % 8);
	}
	for (int g = 0; g < 32; g++)
		s[74 + g] = f->sign[g];
	for (int j = 0; j < 4; j++)
		s[106 + j] = (uint8_t)(f->scale[2 * j] | f->scale[2 * j + 1] << 4);
}

#define B_BYTES	   110
#define B_FACTOR   1.0f
#define B_EACH	   32
#define B_GROUP	   4
#define B_BITS	   3
#define B_ENTRIES  512
#define B_VALUE(m) (1 + 2 * (m))
#define B_EVEN	   false
#include "kernels/format/codebook.h"

#ifdef DT_FORMAT_HOST
/* of codes, in panels: the sign is the highest bit */
static const int8_t values[] = {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15};

const struct dt_format_traits dt_format_iq3_s = {
	.info = {"iq3_s", .gguf = 21, .file_type = 26, .block = 256, .bytes = 110, .dtype = -1,
		 .head = DT_FMT_Q6_K, .narrow = DT_FMT_IQ4_NL},
	.panel = {256, 16, 32, 128},
	.decode = decode,
	.encode = encode,
	.values = values,
	.weighted = weighted,
	.piece = piece,
};
#endif
/* SPDX-License-Identifier: Apache-2.0 */
