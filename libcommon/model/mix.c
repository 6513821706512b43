#include "model/mix.h"

#include <string.h>

static const struct mix {
	const char *name;
	enum dt_format base;
	int file_type;
} mixes[DT_FORMAT_MIX_N] = {
#define MIX(NAME, name, base, type) [DT_FORMAT_MIX_##NAME] = {#name, DT_FMT_##base, type},
	DT_FORMAT_MIXES(MIX)
#undef MIX
};

enum dt_format_mix dt_format_mix_parse(const char *name)
{
	for (int i = 1; i < DT_FORMAT_MIX_N; i++)
		if (!strcmp(mixes[i].name, name))
			return (enum dt_format_mix)i;
	return DT_FORMAT_MIX_NONE;
}

enum dt_format dt_format_mix_base(enum dt_format_mix m)
{
	return mixes[m].base;
}

int dt_format_mix_file_type(enum dt_format_mix m)
{
	return mixes[m].file_type;
}

/* llama.cpp's use_more_bits: layer i of n is in the first or last eighth, or every third of the others. */
static bool more_bits(int64_t i, int64_t n)
{
	return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
}

/* Values, and what has them beside queries and keys. */
static enum dt_format of_values(enum dt_format_mix m, const struct dt_config *c, int64_t layer)
{
	enum dt_format f = mixes[m].base;

	if (c->experts == 8)
		return DT_FMT_Q8_0;
	if (m == DT_FORMAT_MIX_Q3_K_M)
		f = layer < 2 ? DT_FMT_Q5_K : DT_FMT_Q4_K;
	else if (m == DT_FORMAT_MIX_Q3_K_L || (m == DT_FORMAT_MIX_Q4_K_S && layer < 4))
		f = DT_FMT_Q5_K;
	else if ((m == DT_FORMAT_MIX_Q4_K_M || m == DT_FORMAT_MIX_Q5_K_M) && more_bits(layer, c->layers))
		f = DT_FMT_Q6_K;
	/* 70B: eight queries share a value head, so that its bits cost little */
	return c->layers == 80 && c->kv_heads < c->heads && f == DT_FMT_Q4_K ? DT_FMT_Q5_K : f;
}

static enum dt_format of_down(enum dt_format_mix m, const struct dt_config *c, int64_t layer)
{
	switch (m) {
	case DT_FORMAT_MIX_Q3_K_M:
		return layer < c->layers / 16 ? DT_FMT_Q5_K : DT_FMT_Q4_K;
	case DT_FORMAT_MIX_Q3_K_L:
		return DT_FMT_Q5_K;
	case DT_FORMAT_MIX_Q4_K_S:
		return layer < c->layers / 8 ? DT_FMT_Q5_K : DT_FMT_Q4_K;
	default:
		return more_bits(layer, c->layers) ? DT_FMT_Q6_K : mixes[m].base;
	}
}

/* The projection behind attention. */
static enum dt_format of_output(enum dt_format_mix m, const struct dt_config *c)
{
	if (c->experts == 8)
		return m == DT_FORMAT_MIX_Q3_K_M || m == DT_FORMAT_MIX_Q4_K_S || m == DT_FORMAT_MIX_Q4_K_M
			       ? DT_FMT_Q5_K
			       : mixes[m].base;
	return m == DT_FORMAT_MIX_Q3_K_M   ? DT_FMT_Q4_K
	       : m == DT_FORMAT_MIX_Q3_K_L ? DT_FMT_Q5_K
					   : mixes[m].base;
}

enum dt_format dt_format_mix_of(enum dt_format_mix m, const struct dt_config *c, const struct dt_param *p,
				bool joined)
{
	switch (p->role) {
	case DT_W_Q:
	case DT_W_K:
		if (joined)
			return of_values(m, c, p->layer);
		return p->role == DT_W_K && c->experts == 8 ? DT_FMT_Q8_0 : mixes[m].base;
	case DT_W_V:
	case DT_W_KV_B:
		return of_values(m, c, p->layer);
	case DT_W_O:
		return of_output(m, c);
	case DT_W_DOWN:
	case DT_W_EXPERT_DOWN:
	case DT_W_SHARED_DOWN:
		return of_down(m, c, p->layer);
	default:
		return mixes[m].base;
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
