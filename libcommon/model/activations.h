/*
 * The activation table: what a layer computes on the way forward, what of it backward needs, and what each
 * recomputation mode keeps. The trainer binds buffers from it, the memory plan sums it.
 *
 * Sizes are elements a token, local to one rank of a tensor-parallel group.
 *   none       everything backward reads is kept
 *   selective  cheap element-wise results are computed again: norm outputs, activation functions
 *   full       only the layer's input is kept; the layer is run again before its backward
 *   auto:SIZE  as much is computed again as the memory plan needs to fit: see struct dt_keep
 *   every:N    only the input of every N-th layer is kept; N layers are run again at a time (Chen et al.
 * 2016)
 */
#ifndef DT_MODEL_ACTIVATIONS_H
#define DT_MODEL_ACTIVATIONS_H

#include "kernels/dtype.h"
#include "model/config.h"

enum dt_recompute { DT_RECOMPUTE_NONE, DT_RECOMPUTE_SELECTIVE, DT_RECOMPUTE_FULL };
#define DT_RECOMPUTE_CHOICES "none|selective|full|every:N|auto:SIZE"

enum dt_act {
	DT_A_RESID,	 /* residual stream entering the layer */
	DT_A_NORM1,	 /* normalised input of attention */
	DT_A_NORM1_MEAN, /* LayerNorm only */
	DT_A_NORM1_RSTD,
	DT_A_QKV_RAW, /* projections before q/k norm (qk_norm models only) */
	DT_A_QK_RSTD,
	DT_A_QKV, /* after rotation */
	DT_A_LSE, /* log-sum-exp of the attention rows */
	DT_A_ATTN,
	DT_A_RESID2, /* residual stream entering the MLP */
	DT_A_NORM2,
	DT_A_NORM2_MEAN,
	DT_A_NORM2_RSTD,
	DT_A_UP,     /* before the activation function; gate and up of gated models */
	DT_A_ACT,    /* after it */
	DT_A_LATENT, /* latent attention: what goes down to the ranks, before and after the norm */
	DT_A_ROUTED, /* experts: their inputs gathered and their outputs before they are added up */
	DT_A_POST1,  /* output of attention before the norm behind it (Gemma) */
	DT_A_POST1_RSTD,
	DT_A_POST2, /* of the MLP */
	DT_A_POST2_RSTD,
	DT_ACT_N,
};

struct dt_activation {
	enum dt_act id;
	const char *name;
	int64_t per_token; /* elements; 0: this model does not have it */
	enum dt_dtype dtype;
};

/* Sizes a rank computes with: heads, kv heads and ffn after the cut over tp. */
struct dt_local_dims {
	int64_t heads, kv_heads, ffn, vocab, vocab_first;
	int64_t qkv;	/* (heads + 2 kv_heads) head_dim */
	int64_t routed; /* experts a token goes to */
};
void dt_local_dims(const struct dt_config *c, int tp, int tp_rank, struct dt_local_dims *ret);
/* The same of one layer, where they differ: ffn is what a token goes through of its experts. */
void dt_layer_dims(const struct dt_config *c, int64_t layer, int tp, int tp_rank, struct dt_local_dims *ret);

/* Fills ret[DT_ACT_N], indexed by id. compute: the type activations are kept in. */
void dt_activations(const struct dt_config *c, const struct dt_local_dims *d, enum dt_dtype compute,
		    struct dt_activation ret[DT_ACT_N]);

/*
 * What is kept for backward of layer number `layer` of its chunk. The rest lives in working sets that all
 * layers share: one, or with every > 1 as many, since a block of so many layers is run again at a time.
 */
struct dt_keep {
	enum dt_recompute mode;
	int every; /* full: layers a block, of which only the first one's input is kept; 0 is 1 */
	/*
	 * auto:SIZE (mode is none): the memory plan is to fit into so many bytes. The first `full` layers of
	 * a stage are computed again as a whole, the next `selective` ones in part: the plan chooses.
	 */
	uint64_t fit;
	int full, selective;
};
bool dt_activation_saved(enum dt_act id, struct dt_keep keep, int layer);
/* Number of the working set, and how many there are. */
static inline int dt_keep_sets(struct dt_keep k)
{
	return k.mode == DT_RECOMPUTE_FULL && k.every > 1 ? k.every : 1;
}
static inline int dt_keep_set(struct dt_keep k, int layer)
{
	return layer % dt_keep_sets(k);
}
/* The mode of the layer with this number in its stage. */
static inline enum dt_recompute dt_keep_mode(struct dt_keep k, int layer)
{
	return !k.fit			      ? k.mode
	       : layer < k.full		      ? DT_RECOMPUTE_FULL
	       : layer < k.full + k.selective ? DT_RECOMPUTE_SELECTIVE
					      : DT_RECOMPUTE_NONE;
}
/* "none", "selective", "full", "every:N" or "auto:SIZE"; -EINVAL. */
int dt_keep_parse(const char *s, struct dt_keep *ret, struct dt_err *err);
const char *dt_keep_format(struct dt_keep k, char *buf, size_t n);

/* Whether it lies along the residual stream, which sequence parallelism cuts over the tensor-parallel ranks.
 */
bool dt_activation_on_stream(enum dt_act id);

#endif
