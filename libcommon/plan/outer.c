#include "plan/outer.h"

static int64_t fragments(const struct dt_run_sync *s)
{
	return s->fragments > 1 ? s->fragments : 1;
}

int dt_outer_fragment(const struct dt_run_sync *s, const struct dt_config *c, const struct dt_local *l, int u)
{
	const int layer = dt_config_shares_embed(c) && l->unit[u].layer == c->layers ? -1 : l->unit[u].layer;

	if (l->unit[u].frozen || l->unit[u].numel == 0)
		return -1;
	return (int)((layer + 1) % fragments(s));
}

int64_t dt_outer_turn(const struct dt_run_sync *s, int p)
{
	return (p + 1) * s->every / fragments(s);
}

size_t dt_outer_bytes(const struct dt_run_sync *s, int64_t n)
{
	return s->comm == DT_OUTER_F32	  ? 4 * (size_t)n
	       : s->comm == DT_OUTER_BF16 ? 2 * (size_t)n
					  : (size_t)dt_outer_blocks(n) * sizeof(struct dt_e3m0);
}

size_t dt_outer_sent(const struct dt_run_sync *s, const struct dt_local *l, int u)
{
	size_t n = 0;

	if (s->comm != DT_OUTER_E3M0)
		return dt_outer_bytes(s, l->unit[u].numel);
	for (int i = 0; i < l->n; i++)
		n += l->p[i].unit == u ? dt_outer_bytes(s, l->p[i].numel) : 0;
	return n;
}

size_t dt_outer_wire(const struct dt_run_sync *s, const struct dt_config *c, const struct dt_local *l,
		     int ranks)
{
	const size_t copies = s->comm == DT_OUTER_E3M0 ? 1 + (size_t)ranks : 1;
	size_t most = 0;

	if (s->kind != DT_SYNC_DILOCO || (s->comm == DT_OUTER_F32 && !s->delay))
		return 0; /* sent directly from where it is computed */
	for (int p = 0; p < fragments(s); p++) {
		size_t n = 0;

		for (int u = 0; u < l->nunit; u++)
			if (dt_outer_fragment(s, c, l, u) == p)
				n += dt_outer_sent(s, l, u);
		most = n > most ? n : most;
	}
	return most * copies;
}
/* SPDX-License-Identifier: Apache-2.0 */
