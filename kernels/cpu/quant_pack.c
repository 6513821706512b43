/* From a file's blocks to panels, and a row back. */
#include "kernels/cpu/quant.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

/* One row's share of a block of 32: integers and what scales them, in the units of the format. */
struct piece {
	uint8_t q[DT_QK];
	uint16_t d, m;	/* f16: of the block, or of the 8 blocks around it */
	uint8_t sc, mn; /* Q4_K's scale and minimum; Q6_K's two signed scales */
};

static uint16_t u16_at(const uint8_t *p)
{
	uint16_t h;

	memcpy(&h, p, 2);
	return h;
}

static void nibbles(uint8_t q[DT_QK], const uint8_t *p)
{
	for (int j = 0; j < 16; j++) {
		q[j] = p[j] & 15;
		q[j + 16] = p[j] >> 4;
	}
}

static void piece_q4_k(struct piece *s, const uint8_t *p, int j)
{
	const uint8_t *sc = p + 4, *q = p + 16 + j / 2 * 32;

	s->d = u16_at(p);
	s->m = u16_at(p + 2);
	s->sc = j < 4 ? sc[j] & 63 : (uint8_t)((sc[j + 4] & 15) | (sc[j - 4] >> 6) << 4);
	s->mn = j < 4 ? sc[j + 4] & 63 : (uint8_t)(sc[j + 4] >> 4 | (sc[j] >> 6) << 4);
	for (int i = 0; i < 32; i++)
		s->q[i] = q[i] >> (j & 1 ? 4 : 0) & 15;
}

static void piece_q6_k(struct piece *s, const uint8_t *p, int j)
{
	const uint8_t *low = p + j / 4 * 64 + j % 2 * 32, *high = p + 128 + j / 4 * 32;

	s->d = u16_at(p + 208);
	s->sc = p[192 + 2 * j];
	s->mn = p[193 + 2 * j];
	for (int i = 0; i < 32; i++)
		s->q[i] = (uint8_t)((low[i] >> j % 4 / 2 * 4 & 15) | (high[i] >> j % 4 * 2 & 3) << 4);
}

/* Block b of a row that starts at row. */
static void piece_read(struct piece *s, enum dt_format f, const uint8_t *row, int64_t b)
{
	const struct dt_format_info *info = dt_format_info(f);
	const uint8_t *p = row + b * DT_QK / info->block * info->bytes;
	const int j = (int)(b % (info->block / DT_QK));

	s->d = u16_at(p);
	s->m = 0;
	s->sc = s->mn = 0;
	if (f == DT_FMT_Q8_0) {
		for (int i = 0; i < 32; i++)
			s->q[i] = p[2 + i] ^ 0x80;
	} else if (f == DT_FMT_Q4_0) {
		nibbles(s->q, p + 2);
	} else if (f == DT_FMT_Q4_1) {
		s->m = u16_at(p + 2);
		nibbles(s->q, p + 4);
	} else if (f == DT_FMT_Q4_K) {
		piece_q4_k(s, p, j);
	} else {
		piece_q6_k(s, p, j);
	}
}

/* Where block b of row r of a panel keeps its quants, scales and supers. */
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

static void piece_write(const struct piece *s, enum dt_format f, struct place at, int r)
{
	uint32_t word[8], out;

	memcpy(word, s->q, 32);
	for (int c = 0; f == DT_FMT_Q8_0 && c < 8; c++)
		memcpy(at.quants + c * 64 + 4 * r, &word[c], 4);
	for (int c = 0; f != DT_FMT_Q8_0 && c < 4; c++) {
		out = (word[2 * c] & 0x0f0f0f0fu) | (word[2 * c + 1] & 0x0f0f0f0fu) << 4;
		memcpy(at.quants + c * 64 + 4 * r, &out, 4);
	}
	for (int c = 0; f == DT_FMT_Q6_K && c < 2; c++) {
		out = 0;
		for (int i = 0; i < 4; i++)
			out |= (word[4 * c + i] >> 4 & 0x03030303u) << 2 * i;
		memcpy(at.quants + 256 + c * 64 + 4 * r, &out, 4);
	}
	if (f == DT_FMT_Q4_K || f == DT_FMT_Q6_K) {
		at.scales[r] = s->sc;
		at.scales[16 + r] = s->mn;
		memcpy(at.supers + 2 * r, &s->d, 2);
		if (f == DT_FMT_Q4_K)
			memcpy(at.supers + 32 + 2 * r, &s->m, 2);
	} else {
		memcpy(at.scales + 2 * r, &s->d, 2);
		if (f == DT_FMT_Q4_1)
			memcpy(at.scales + 32 + 2 * r, &s->m, 2);
	}
}

/* Row r of a panel from a row in the panel's own format. */
static void pack_row(const struct dt_packed *w, enum dt_format f, uint8_t *panel, int r, const uint8_t *row)
{
	struct piece s;

	if (f == DT_FMT_BF16) {
		for (int64_t i = 0; i < w->k; i += 2) {
			uint32_t word = u16_at(row + 2 * i);

			word |= i + 1 < w->k ? (uint32_t)u16_at(row + 2 * i + 2) << 16 : 0;
			memcpy(panel + i / 2 * 64 + 4 * r, &word, 4);
		}
		return;
	}
	for (int64_t b = 0; b < w->blocks; b++) {
		piece_read(&s, f, row, b);
		piece_write(&s, f, place_of(f, panel, w->blocks, b), r);
	}
}

int dt_packed_open(struct dt_packed **ret, struct dt_dev *dev, int64_t k)
{
	struct dt_packed *w;

	if (k <= 0)
		return -EINVAL;
	if (dev->kind != DT_DEV_CPU)
		return -ENOTSUP;
	w = calloc(1, sizeof *w);
	if (!w)
		return -ENOMEM;
	w->k = k;
	w->blocks = dt_ceil_div(k, DT_QK);
	w->kernel = dt_quant_kernels();
	*ret = w;
	return 0;
}

void dt_packed_close(struct dt_packed *w)
{
	if (!w)
		return;
	for (int i = 0; i < w->nparts; i++)
		free(w->part[i].data);
	free(w->part);
	free(w);
}

/* Rows p0 .. of a panel, through f32 where the formats differ; wide and narrow are a row each. */
static int pack_panel(const struct dt_packed *w, const struct dt_packed_part *part, int64_t p,
		      enum dt_format have, const uint8_t *src, float *wide, uint8_t *narrow)
{
	const size_t row_bytes = dt_format_bytes(have, w->k);
	uint8_t *panel = part->data + (size_t)p * part->panel_bytes;

	memset(panel, 0, part->panel_bytes);
	for (int64_t i = p * DT_PANEL; i < dt_min64(part->rows, (p + 1) * DT_PANEL); i++) {
		const uint8_t *row = src + (size_t)i * row_bytes;

		if (have == DT_FMT_Q5_0 && part->format == DT_FMT_Q8_0) {
			dt_q5_0_as_q8_0(row, w->k, narrow);
			row = narrow;
		} else if (have != part->format) {
			dt_dequantize(have, row, w->k, wide);
			for (int64_t j = 0; part->format != DT_FMT_BF16 && j < w->k; j++)
				if (!isfinite(wide[j]))
					return -EINVAL;
			dt_quantize(part->format, wide, w->k, narrow);
			row = narrow;
		}
		pack_row(w, part->format, panel, (int)(i % DT_PANEL), row);
	}
	return 0;
}

static int pack_part(const struct dt_packed *w, const struct dt_packed_part *part, struct dt_dev *dev,
		     enum dt_format have, const void *src)
{
	int bad = 0, short_of = 0;

#pragma omp parallel num_threads(dev->nthreads) reduction(+ : bad, short_of)
	{
		/* More than a row: blocks may be larger than what they hold. */
		float *wide = malloc((size_t)w->k * 4 + 64);
		uint8_t *narrow = malloc((size_t)w->k * 4 + 64);

		short_of += !wide || !narrow;
#pragma omp for schedule(static)
		for (int64_t p = 0; p < part->panels; p++)
			if (!short_of)
				bad += pack_panel(w, part, p, have, src, wide, narrow) < 0;
		free(wide);
		free(narrow);
	}
	return short_of ? -ENOMEM : bad ? -EINVAL : 0;
}

int dt_packed_append(struct dt_packed *w, struct dt_dev *dev, enum dt_format as, enum dt_format have,
		     const void *src, int64_t rows)
{
	struct dt_packed_part part = {as, w->rows, rows, dt_ceil_div(rows, DT_PANEL), 0, NULL}, *more;
	const struct dt_quant_shape *s = dt_quant_shape(as);
	const size_t huge = (size_t)2 << 20;
	size_t n;
	int r;

	if (!s->quants || (as != have && !dt_format_info(as)->writable))
		return -ENOTSUP;
	if (rows <= 0 || w->k % dt_format_info(as)->block || w->k % dt_format_info(have)->block)
		return -EINVAL;
	part.panel_bytes = dt_panel_bytes(as, w->k);
	n = dt_panels_bytes(as, rows, w->k);
	part.data = aligned_alloc(n < huge ? 64 : huge, n);
	more = realloc(w->part, (size_t)(w->nparts + 1) * sizeof *more);
	w->part = more ? more : w->part;
	if (!part.data || !more) {
		free(part.data);
		return -ENOMEM;
	}
	if (n >= huge)
		madvise(part.data, n, MADV_HUGEPAGE); /* fewer page walks; not having them is no failure */
	r = pack_part(w, &part, dev, have, src);
	if (r < 0) {
		free(part.data);
		return r;
	}
	w->part[w->nparts++] = part;
	w->rows += rows;
	return 0;
}

int64_t dt_packed_rows(const struct dt_packed *w)
{
	return w->rows;
}

int64_t dt_packed_k(const struct dt_packed *w)
{
	return w->k;
}

size_t dt_packed_bytes(const struct dt_packed *w)
{
	size_t n = 0;

	for (int i = 0; i < w->nparts; i++)
		n += dt_panels_bytes(w->part[i].format, w->part[i].rows, w->k);
	return n;
}

/* Element j of row r in a block's quants. */
static int quant_at(enum dt_format f, const uint8_t *quants, int r, int j)
{
	const int c = j / 4, byte = 4 * r + j % 4;

	if (f == DT_FMT_Q8_0)
		return quants[c * 64 + byte];
	return (quants[c / 2 * 64 + byte] >> (c & 1 ? 4 : 0) & 15) |
	       (f == DT_FMT_Q6_K ? (quants[256 + c / 4 * 64 + byte] >> c % 4 * 2 & 3) << 4 : 0);
}

int dt_packed_row(const struct dt_packed *w, int64_t i, float *out)
{
	const struct dt_packed_part *part = w->part;
	uint8_t *panel;
	int r;

	if (i < 0 || i >= w->rows)
		return -EINVAL;
	while (i >= part->first + part->rows)
		part++;
	panel = part->data + (size_t)((i - part->first) / DT_PANEL) * part->panel_bytes;
	r = (int)((i - part->first) % DT_PANEL);
	for (int64_t j = 0; part->format == DT_FMT_BF16 && j < w->k; j++)
		out[j] = dt_bf16_to_f32(u16_at(panel + j / 2 * 64 + 4 * r + j % 2 * 2));
	for (int64_t b = 0; part->format != DT_FMT_BF16 && b < w->blocks; b++) {
		const struct place at = place_of(part->format, panel, w->blocks, b);
		const bool k4 = part->format == DT_FMT_Q4_K, k6 = part->format == DT_FMT_Q6_K;
		const float d = dt_f16_to_f32(u16_at((k4 || k6 ? at.supers : at.scales) + 2 * r));
		float scale[2] = {d, d}, min = 0;

		if (k4) {
			scale[0] = scale[1] = d * (float)at.scales[r];
			min = -(dt_f16_to_f32(u16_at(at.supers + 32 + 2 * r)) * (float)at.scales[16 + r]);
		} else if (k6) {
			scale[0] = d * (float)(int8_t)at.scales[r];
			scale[1] = d * (float)(int8_t)at.scales[16 + r];
		} else if (part->format == DT_FMT_Q4_1) {
			min = dt_f16_to_f32(u16_at(at.scales + 32 + 2 * r));
		}
		for (int j = 0; j < DT_QK; j++) {
			const int q = quant_at(part->format, at.quants, r, j) -
				      dt_quant_shape(part->format)->offset;
			const float v = scale[j / 16] * (float)q;

			out[b * DT_QK + j] = part->format == DT_FMT_Q4_1 || k4 ? v + min : v;
		}
	}
	return 0;
}
