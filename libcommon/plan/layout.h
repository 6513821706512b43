/*
 * The layout string: dp2.tp4.pp2.cp1.ep1.z1 (order free, absent axes are 1, z is the ZeRO stage, s1 turns
 * sequence parallelism on). Ranks are placed tp innermost, then cp, ep, dp, pp outermost: rank = ((pp_i * dp
 * + dp_i) * cp + cp_i) * tp + tp_i          (ep subdivides dp x cp)
 */
#ifndef DT_PLAN_LAYOUT_H
#define DT_PLAN_LAYOUT_H

#include "base/err.h"
#include "model/params.h"

struct dt_layout {
	int dp, tp, pp, cp, ep;
	int zero;	   /* 0..3 */
	int chunks;	   /* v2: each stage has so many chunks of layers (interleaved pipeline); 0 is 1 */
	bool seq_parallel; /* s1 */
};

struct dt_coords {
	int dp, tp, pp, cp;
};

/* Refuses unknown axes, repeated axes, zero or negative sizes. "" and "dp1" are one rank. */
int dt_layout_parse(const char *s, struct dt_layout *ret, struct dt_err *err);
/* Canonical form, axes of size 1 left out, "dp1" when nothing is left. Returns buf. */
const char *dt_layout_format(const struct dt_layout *l, char *buf, size_t n);

int dt_layout_world(const struct dt_layout *l);
static inline int dt_layout_chunks(const struct dt_layout *l)
{
	return l->chunks > 1 ? l->chunks : 1;
}
struct dt_coords dt_layout_coords(const struct dt_layout *l, int rank);
int dt_layout_rank(const struct dt_layout *l, struct dt_coords c);

/* Whether this model can be cut so: heads % tp, kv heads and tp, layers >= pp, ... One clear line when not.
 */
int dt_layout_check(const struct dt_layout *l, const struct dt_config *c, struct dt_err *err);

/*
 * Layers [*first, *last) of virtual stage i of pp x chunks, balanced; the embedding is on the first, norm and
 * head on the last. Chunk c of stage p is virtual stage c * pp + p.
 */
void dt_layout_stage(const struct dt_layout *l, const struct dt_config *c, int stage, int *first, int *last);

/*
 * What one rank holds of the model: its parameters in flat order. A unit is the embedding, a layer, or the
 * final norm and head; each unit is one contiguous run of elements (64-byte aligned at 2 bytes an element),
 * so collectives and optimizer steps run over units, and a ZeRO shard is a range of elements.
 */
struct dt_local_param {
	int index;		  /* into the parameter table */
	int64_t off[2], shape[2]; /* box of the global tensor */
	int64_t flat, numel;	  /* elements from the start of the rank's flat buffer */
	int unit;		  /* local unit number */
};

struct dt_local_unit {
	int layer;	     /* as dt_param.layer */
	int64_t flat, numel; /* padded to a multiple of 32 elements */
};

struct dt_local {
	struct dt_local_param *p;
	int n;
	struct dt_local_unit *unit;
	int nunit;
	int64_t numel; /* the whole flat buffer, padding included */
};

/* A tied head on a last stage that is not the first appears there as a second copy of embed.weight. */
int dt_local_build(const struct dt_params *t, const struct dt_config *c, const struct dt_layout *l,
		   struct dt_coords at, struct dt_local *ret, struct dt_err *err);
void dt_local_release(struct dt_local *l);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
