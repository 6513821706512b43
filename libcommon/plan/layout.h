/*
 * The layout string: dp2.tp4.pp2.cp1.ep1.z1 (order free, absent axes are 1, z is the ZeRO stage, s1 turns
 * sequence parallelism on). Ranks are placed tp innermost, then cp, ep, dp, pp outermost: rank = ((pp_i * dp
 * + dp_i) * cp + cp_i) * tp + tp_i          (ep subdivides dp x cp)
 */
#ifndef DT_PLAN_LAYOUT_H
#define DT_PLAN_LAYOUT_H

#include "base/err.h"
#include "model/params.h"

/*
 * Axes of ranks. dp, tp, pp and cp multiply the number of ranks. ep subdivides dp x cp: its groups are runs
 * of the data index dp_i * cp + cp_i, and edp counts these runs: the ranks that hold the same experts.
 */
enum dt_mesh_axis { DT_DP, DT_TP, DT_PP, DT_CP, DT_EP, DT_EDP, DT_AXES };

/* Sets of axes. edp is all of dp x cp that ep does not cut. */
enum {
	DT_ON_DP = 1 << DT_DP,
	DT_ON_TP = 1 << DT_TP,
	DT_ON_PP = 1 << DT_PP,
	DT_ON_CP = 1 << DT_CP,
	DT_ON_EP = 1 << DT_EP,
	DT_ON_EDP = 1 << DT_EDP,
	DT_ON_DATA = DT_ON_DP | DT_ON_CP,  /* ranks with the same parameters, but experts */
	DT_ON_MODEL = DT_ON_TP | DT_ON_PP, /* ranks with the same tokens */
	DT_ON_ALL = DT_ON_DATA | DT_ON_MODEL,
};

struct dt_layout {
	union {
		struct {
			int dp, tp, pp, cp, ep;
		};
		int size[DT_EDP]; /* by axis */
	};
	int zero;	   /* 0..3 */
	int servers;	   /* --servers: number of ranks along dp that hold ZeRO-1's shares; 0: all of them */
	int chunks;	   /* v2: chunks of layers per stage (interleaved pipeline); 0 is 1 */
	bool seq_parallel; /* s1 */
};

struct dt_coords {
	union {
		struct {
			int dp, tp, pp, cp;
		};
		int at[DT_EP]; /* by axis */
	};
};

/* Refuses unknown axes, repeated axes, zero or negative sizes. "" and "dp1" are one rank. */
int dt_layout_parse(const char *s, struct dt_layout *ret, struct dt_err *err);
/* Canonical form, axes of size 1 left out, "dp1" when nothing is left. Returns buf. */
const char *dt_layout_format(const struct dt_layout *l, char *buf, size_t n);

/*
 * Context parallelism cuts a sequence of seq tokens into 2 n chunks; rank r of n has chunks r and
 * 2 n - 1 - r, so that causal attention is the same work on every rank. Where the rank's token i is in the
 * sequence.
 */
static inline int64_t dt_zigzag(int64_t seq, int n, int r, int64_t i)
{
	int64_t c = seq / (2 * n);

	if (n == 1)
		return i;
	return i < c ? r * c + i : (2 * n - 1 - r) * c + i - c;
}

int dt_layout_world(const struct dt_layout *l);
static inline int dt_layout_chunks(const struct dt_layout *l)
{
	return l->chunks > 1 ? l->chunks : 1;
}
struct dt_coords dt_layout_coords(const struct dt_layout *l, int rank);
int dt_layout_rank(const struct dt_layout *l, struct dt_coords c);
/*
 * Ranks that hold the same parameters (except experts), and this rank's number among them: ZeRO shards over
 * them.
 */
static inline int dt_layout_data(const struct dt_layout *l)
{
	return l->dp * l->cp;
}
static inline int dt_coords_data(const struct dt_layout *l, struct dt_coords c)
{
	return c.dp * l->cp + c.cp;
}
/*
 * In serving: the number of consecutive replicas that compute together, because groups over cp and ep connect
 * them, and each computes its experts for the others' tokens too. 1 without ep.
 */
int dt_layout_joined(const struct dt_layout *l);
/*
 * The first rank of c's group over a set of axes: two ranks are in one group when they differ in these axes
 * alone. -EINVAL for a set that is no product: ep or edp with one of dp and cp.
 */
int dt_layout_group(const struct dt_layout *l, struct dt_coords c, unsigned set);
/* "tp", "dp+tp", and for the sets with a name of their own "data", "model" and "world". Returns buf. */
const char *dt_axes_name(unsigned set, char *buf, size_t n);

/*
 * Checks that the model can be cut so: heads % tp, kv heads and tp, layers >= pp, ... -EINVAL with a message,
 * or -ENOMEM.
 */
int dt_layout_check(const struct dt_layout *l, const struct dt_config *c, struct dt_err *err);

/*
 * Layers [*first, *last) of virtual stage i of pp x chunks, balanced; the embedding is on the first, norm and
 * head on the last. Chunk c of stage p is virtual stage c * pp + p. Out of memory: an even cut, and
 * dt_output_lost.
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
	int64_t packed;		  /* of a packed unit: bytes before it in the rank's packed buffer */
};

/* The frozen parameters of a layer are a unit of their own, before that of its trained parameters. */
struct dt_local_unit {
	int layer;	     /* as dt_param.layer */
	int64_t flat, numel; /* padded to a multiple of 32 elements */
	bool frozen;
	bool packed;	 /* kept in blocks: its elements have no place in the flat buffer */
	bool experts;	 /* experts cut by ep: replicated along edp; other units along dp x cp */
	int64_t trained; /* of a trained unit: number of elements of trained units before it */
	int place;	 /* number of this rank's layers before it */
	/*
	 * Elements of this rank's share with ZeRO (else of the whole unit); of the shares of units before it;
	 * of those of trained units before it. With layout.servers they are a server's, on every rank.
	 */
	int64_t share, share_flat, share_trained;
};

struct dt_local {
	struct dt_local_param *p;
	int n;
	struct dt_local_unit *unit;
	int nunit;
	int64_t numel;	 /* the whole flat buffer, padding included */
	int64_t trained; /* elements of trained units: the size of gradients, masters and states */
	int64_t share, share_trained; /* the same of this rank's shares */
	int64_t packed_bytes;
};

/*
 * Parameter servers (train/servers.h): how many there are, the rank along dp that is server k, and which one
 * a rank is: dt_layout_servers() where it is none. They are spread over the ranks, and so over machines.
 */
static inline int dt_layout_servers(const struct dt_layout *l)
{
	return l->servers ? l->servers : l->dp;
}
static inline int dt_layout_server_rank(const struct dt_layout *l, int k)
{
	return (int)((int64_t)k * l->dp / dt_layout_servers(l));
}
static inline int dt_layout_server(const struct dt_layout *l, int rank)
{
	int n = dt_layout_servers(l), k = (int)(((int64_t)rank * n + l->dp - 1) / l->dp);

	return k < n && dt_layout_server_rank(l, k) == rank ? k : n;
}

/* The number of shares that a unit is cut into (ranks that hold the same elements), and this rank's share. */
static inline int dt_unit_copies(const struct dt_layout *l, const struct dt_local_unit *u)
{
	return l->servers ? l->servers : dt_layout_data(l) / (u->experts ? l->ep : 1);
}
static inline int dt_unit_copy(const struct dt_layout *l, const struct dt_local_unit *u, struct dt_coords at)
{
	return l->servers ? dt_layout_server(l, at.dp) : dt_coords_data(l, at) / (u->experts ? l->ep : 1);
}
/* Where in the unit the share of the rank at `at` begins. */
static inline int64_t dt_unit_share_first(const struct dt_layout *l, const struct dt_local_unit *u,
					  struct dt_coords at)
{
	return l->zero ? dt_unit_copy(l, u, at) * u->share : 0;
}

/*
 * A tied head on a last stage that is not the first appears there as a second copy of embed.weight. Experts
 * that ep divides are a unit of their own behind the rest of their layer.
 */
int dt_local_build(const struct dt_params *t, const struct dt_config *c, const struct dt_layout *l,
		   struct dt_coords at, struct dt_local *ret, struct dt_err *err);
void dt_local_release(struct dt_local *l);

/*
 * Slots of DT_B_UNIT_W and DT_B_UNIT_G: two of layers, two of layers' experts that ep divides, the ends, of
 * which the last may have such experts too; then the same of frozen units; of packed ones, which only layers
 * have, the first four.
 */
enum {
	DT_UNIT_SLOT_EXPERTS = 2,
	DT_UNIT_SLOT_EMBED = 4,
	DT_UNIT_SLOT_FINAL = 5,
	DT_UNIT_SLOT_FINAL_EXPERTS = 6, /* of a module for a further token */
	DT_UNIT_SLOT_FROZEN = 7,
	DT_UNIT_SLOT_PACKED = 14,
	DT_UNIT_SLOTS = 18
};
/* Which of them local unit u lies in. */
int dt_unit_slot(const struct dt_local *l, int u, int64_t layers);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
