/* The table of formats, and functions that follow from their traits (format/format.h). */
#include "kernels/quant_formats.h"

#include "kernels/format/format.h"

#define DECLARE(NAME, name) extern const struct dt_format_traits dt_format_##name;
DECLARE(F32, f32)
DECLARE(F16, f16)
DECLARE(BF16, bf16)
DT_BLOCK_FORMATS(DECLARE)

#define ENTRY(NAME, name) [DT_FMT_##NAME] = &dt_format_##name,
static const struct dt_format_traits *const formats[DT_FMT_N] = {
	ENTRY(F32, f32) ENTRY(F16, f16) ENTRY(BF16, bf16) DT_BLOCK_FORMATS(ENTRY)};

const struct dt_format_traits *dt_format_traits(enum dt_format f)
{
	return formats[f];
}

const struct dt_format_info *dt_format_info(enum dt_format f)
{
	return &dt_format_traits(f)->info;
}

int dt_format_parse(const char *name)
{
	for (int i = 0; i < DT_FMT_N; i++)
		if (!strcmp(dt_format_info(i)->name, name))
			return i;
	return -1;
}

int dt_format_of_gguf(uint32_t type)
{
	for (int i = 0; i < DT_FMT_N; i++)
		if ((uint32_t)dt_format_info(i)->gguf == type)
			return i;
	return -1;
}

int dt_format_of_dtype(enum dt_dtype t)
{
	for (int i = 0; i < DT_FMT_N; i++)
		if (dt_format_info(i)->dtype == (int)t)
			return i;
	return -1;
}

enum dt_format dt_format_kept(enum dt_format f)
{
	const enum dt_format kept = dt_format_info(f)->kept;

	return kept ? kept : f;
}

void dt_dequantize(enum dt_format f, const void *src, int64_t n, float *dst)
{
	const struct dt_format_traits *t = dt_format_traits(f);

	t->decode(t, src, n, dst);
}

void dt_quantize(enum dt_format f, const float *src, int64_t n, void *dst)
{
	const struct dt_format_traits *t = dt_format_traits(f);

	t->encode(t, src, n, dst);
}

bool dt_recode(enum dt_format f, const void *src, int64_t n, enum dt_format to, void *dst)
{
	const struct dt_format_traits *t = dt_format_traits(f);

	if (!t->recode || t->info.kept != to)
		return false;
	t->recode(src, n, dst);
	return true;
}

/* ---- panels ---- */

const struct dt_quant_shape *dt_quant_shape(enum dt_format f)
{
	return &dt_format_traits(f)->panel;
}

size_t dt_panel_bytes(enum dt_format f, int64_t k)
{
	const struct dt_quant_shape *s = dt_quant_shape(f);
	size_t blocks = (size_t)(k + 31) / 32;
	size_t n = blocks * (size_t)(s->quants + s->scales) + blocks / 8 * (size_t)s->supers;

	return (n + 63) / 64 * 64;
}

size_t dt_panels_close_bytes(enum dt_format f, int64_t rows, int64_t k)
{
	return (size_t)((rows + 15) / 16) * dt_panel_bytes(f, k);
}

size_t dt_panels_bytes(enum dt_format f, int64_t rows, int64_t k)
{
	const size_t huge = (size_t)2 << 20;
	size_t n = dt_panels_close_bytes(f, rows, k);

	return n < DT_PANELS_SHARED ? n : (n + huge - 1) / huge * huge; /* whole huge pages */
}
/* SPDX-License-Identifier: Apache-2.0 */
