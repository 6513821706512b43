/* Converts rows between file blocks and panels (quant.h), 32 elements at a time, for each format. */
#include "kernels/cpu/quant.h"
#include "kernels/format/format.h"

/* Reads block b of a row. */
static void piece_read(struct dt_panel_piece *s, enum dt_format f, const uint8_t *row, int64_t b)
{
	const struct dt_format_traits *t = dt_format_traits(f);

	s->d = s->m = 0;
	s->sc = s->mn = 0;
	t->piece(t, s, row + b * DT_QK / t->info.block * t->info.bytes, (int)(b % (t->info.block / DT_QK)));
}

/* Addresses of quants, scales and supers of block b of row r of a panel. */
struct place {
	uint8_t *quants, *scales, *supers;
};

static struct place place_of(enum dt_format f, uint8_t *panel, int64_t blocks, int64_t b)
{
	const struct dt_quant_shape *s = dt_quant_shape(f);
	uint8_t *scales = panel + blocks * s->quants;

	return (struct place){panel + b * s->quants, scales + b * s->scales,
			      scales + blocks * s->scales + b / 8 * s->supers};
}

static void piece_write(const struct dt_panel_piece *s, enum dt_format f, struct place at, int r)
{
	const int bits = dt_panel_bits(f), high = bits & 4;
	uint32_t word[8], out;

	memcpy(word, s->q, 32);
	for (int c = 0; bits == 8 && c < 8; c++)
		memcpy(at.quants + c * 64 + 4 * r, &word[c], 4);
	for (int c = 0; bits != 8 && bits & 4 && c < 4; c++) {
		out = (word[2 * c] & 0x0f0f0f0fu) | (word[2 * c + 1] & 0x0f0f0f0fu) << 4;
		memcpy(at.quants + c * 64 + 4 * r, &out, 4);
	}
	for (int c = 0; bits & 2 && c < 2; c++) {
		out = 0;
		for (int i = 0; i < 4; i++)
			out |= (word[4 * c + i] >> high & 0x03030303u) << 2 * i;
		memcpy(at.quants + (high + c) * 64 + 4 * r, &out, 4);
	}
	for (int c = 0; bits & 1 && c < 8; c++) {
		uint8_t *to = at.quants + (bits - 1) * 64 + 4 * r;

		for (int e = 0; e < 4; e++)
			to[e] |= (uint8_t)(s->q[4 * c + e] >> (bits - 1) << c);
	}
	if (dt_panel_supers(f)) {
		at.scales[r] = s->sc;
		if (!dt_panel_signed(f))
			at.scales[16 + r] = s->mn;
		memcpy(at.supers + 2 * r, &s->d, 2);
		if (dt_is_k_min(f) || dt_panel_joined(f))
			memcpy(at.supers + 32 + 2 * r, &s->m, 2);
	} else {
		memcpy(at.scales + 2 * r, &s->d, 2);
		if (dt_panel_half_min(f))
			memcpy(at.scales + 32 + 2 * r, &s->m, 2);
	}
}

void dt_quant_pack_row(const struct dt_packed *w, enum dt_format f, uint8_t *panel, int r, const uint8_t *row)
{
	struct dt_panel_piece s;

	if (f == DT_FMT_BF16) {
		for (int64_t i = 0; i < w->k; i += 2) {
			uint32_t word = dt_u16_at(row + 2 * i);

			word |= i + 1 < w->k ? (uint32_t)dt_u16_at(row + 2 * i + 2) << 16 : 0;
			memcpy(panel + i / 2 * 64 + 4 * r, &word, 4);
		}
		return;
	}
	if (f == DT_FMT_F32) {
		for (int64_t i = 0; i < w->k; i++)
			memcpy(panel + i * 64 + 4 * r, row + 4 * i, 4);
		return;
	}
	for (int64_t b = 0; b < w->blocks; b++) {
		piece_read(&s, f, row, b);
		piece_write(&s, f, place_of(f, panel, w->blocks, b), r);
	}
}

int dt_quant_at(enum dt_format f, const uint8_t *quants, int r, int j)
{
	const int c = j / 4, byte = 4 * r + j % 4, bits = dt_panel_bits(f), high = bits & 4;
	int v = 0;

	if (bits == 8)
		return quants[c * 64 + byte] - 128;
	if (bits & 4)
		v = quants[c / 2 * 64 + byte] >> (c & 1 ? 4 : 0) & 15;
	if (bits & 2)
		v |= (quants[(high + c / 4) * 64 + byte] >> c % 4 * 2 & 3) << high;
	if (bits & 1)
		v |= (quants[(bits - 1) * 64 + byte] >> c & 1) << (bits - 1);
	return dt_panel_table(f) ? dt_format_traits(f)->values[v] : v - dt_quant_shape(f)->offset;
}

/* Steps and minima (added) of the halves of a block in row r. */
static void scales_of(enum dt_format f, struct place at, int r, float step[2], float min[2])
{
	const uint16_t bits = dt_u16_at((dt_panel_supers(f) ? at.supers : at.scales) + 2 * r);
	const float d = (f == DT_FMT_MXFP4 ? dt_bf16_to_f32(bits) : dt_f16_to_f32(bits)) * dt_panel_factor(f);
	const uint8_t *s = at.scales + r;

	step[0] = step[1] = d;
	min[0] = min[1] = 0;
	if (dt_is_k_min(f)) {
		step[0] = step[1] = d * (float)s[0];
		min[0] = min[1] = -(dt_half_at(at.supers + 32 + 2 * r) * (float)s[16]);
	} else if (dt_panel_joined(f)) {
		for (int h = 0; h < 2; h++) {
			step[h] = d * (float)(s[16 * h] & 15);
			min[h] = -(dt_half_at(at.supers + 32 + 2 * r) * (float)(s[16 * h] >> 4));
		}
	} else if (dt_panel_halves(f)) {
		step[0] = d * (float)(int8_t)s[0];
		step[1] = d * (float)(int8_t)s[16];
	} else if (dt_panel_signed(f)) {
		step[0] = step[1] = d * (float)(int8_t)s[0];
	} else if (dt_panel_half_min(f)) {
		min[0] = min[1] = dt_half_at(at.scales + 32 + 2 * r);
	}
}

int dt_packed_row(const struct dt_packed *w, int64_t i, float *out)
{
	const struct dt_packed_part *part = w->part;
	uint8_t *panel;
	int r;

	if (w->dev)
		return -ENOTSUP;
	if (i < 0 || i >= w->rows)
		return -EINVAL;
	while (i >= part->first + part->rows)
		part++;
	panel = part->data + (size_t)((i - part->first) / DT_PANEL) * part->panel_bytes;
	r = (int)((i - part->first) % DT_PANEL);
	for (int64_t j = 0; part->format == DT_FMT_BF16 && j < w->k; j++)
		out[j] = dt_bf16_to_f32(dt_u16_at(panel + j / 2 * 64 + 4 * r + j % 2 * 2));
	for (int64_t j = 0; part->format == DT_FMT_F32 && j < w->k; j++)
		memcpy(&out[j], panel + j * 64 + 4 * r, 4);
	for (int64_t b = 0; !dt_is_float(part->format) && b < w->blocks; b++) {
		const struct place at = place_of(part->format, panel, w->blocks, b);
		const bool minimum = dt_panel_minimum(part->format) || dt_panel_joined(part->format);
		float step[2], min[2];

		scales_of(part->format, at, r, step, min);
		for (int j = 0; j < DT_QK; j++) {
			const float v = step[j / 16] * (float)dt_quant_at(part->format, at.quants, r, j);

			out[b * DT_QK + j] = minimum ? v + min[j / 16] : v;
		}
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
