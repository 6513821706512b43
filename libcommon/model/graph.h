/*
 * A model as data: tensors (parameters), and nodes that compute values from values and tensors, in the order
 * of the forward pass. A family (model/family/) builds its graph the way one writes a forward pass; nothing
 * else about the model is written anywhere. plan/lower.h derives from it what one rank executes.
 *
 * A unit is what is fetched, reduced and recomputed together: the embedding, a layer, the final norm and
 * head. Units are numbered as dt_param.layer numbers them, from -1.
 *
 * Values have no sizes here: those follow from the local shapes of tensors (each op's shape rule).
 */
#ifndef DT_MODEL_GRAPH_H
#define DT_MODEL_GRAPH_H

#include "kernels/dtype.h"
#include "model/params.h"

#define DT_NODE_IN    5
#define DT_NODE_OUT   6
#define DT_NODE_PARAM 9

#define DT_OPF_ROWS    1u
#define DT_OPF_CHEAP   2u
#define DT_OPF_OVER    4u
#define DT_OPF_GATHER  8u
#define DT_OPF_ENTERS  16u
#define DT_OPF_INSIDE  32u
#define DT_OPF_PARTIAL 64u
#define DT_OPF_SETS    128u
#define DT_OPF_ADDS    256u
#define DT_OPF_BESIDE  512u
#define DT_OPF_KEEP    1024u
#define DT_OPF_GRAD    (DT_OPF_SETS | DT_OPF_ADDS)

enum dt_op {
#define DT_OP(NAME, text, flags) DT_OP_##NAME,
#include "model/op/op.list"
#undef DT_OP
	DT_OP_N,
};
const char *dt_node_op_name(enum dt_op op);
unsigned dt_node_op_flags(enum dt_op op);

/* A batch of images, and the window that slides over it: kernels/conv.h. */
struct dt_sliding {
	int64_t channels, height, width;
	int64_t kernel, stride, pad;
};

/* What an op needs besides its operands. Counts are the model's in a graph, the rank's in a program. */
struct dt_attr {
	bool layernorm; /* norm: LayerNorm, else RMSNorm */
	bool plus_one;	/* RMSNorm multiplies by 1 + weight */
	float eps;
	float scale; /* factor: embed: of rows; attention: of scores; loss: of logits */
	float cap;   /* attention: of scores, loss: of logits; 0: none */
	int act;     /* enum dt_act_fn */
	bool gated;  /* experts: rows come by token, not by choice */
	bool whole;  /* heads_norm: over all of q and all of k; ssm_norm: over the heads of all ranks */
	bool local;  /* rope: the angles of layers with a window */
	int64_t heads, kv_heads, head_dim, value_dim;
	int64_t latent_dim,
		rope_dim; /* latent attention: columns of the latent, of the rotated key; else 0 */
	int64_t taps;	  /* of a convolution over tokens (model/op/ssm.c, which has the other sizes) */
	int64_t window;	  /* attention: keys a row sees, 0: all */
	bool all;	  /* attention: without a causal mask, of encoders and images */
	int64_t joined;	  /* flatten: rows that become one, of a tower of vision; 0: all of a sample */
	int64_t tokens;	  /* of an image: attention is among these, class_row; else 0 */
	int label_loss;	  /* classify: enum dt_class_loss */
	/* mixtures: kernels/moe.h says what these do to scores */
	int64_t experts, used;
	bool frozen; /* loss, norms, experts: the tensors have no gradient */
	int64_t groups, groups_used;
	float route_scale;
	bool unscaled, sigmoid;
	float drop;  /* dropout: probability that an element becomes 0 */
	bool down;   /* experts: what their width comes back from */
	bool back;   /* exchange: from the experts' ranks */
	bool begins; /* exchange, enter: only starts it; a later node waits for it */
	bool parts;  /* products: computed for one rank's rows after another, as a gather delivers them */
	bool sends;  /* products: each rank's rows are sent to it as soon as they are computed */
	bool owned;  /* rows by choice are those for this rank's experts, from all ranks of ep */
	int64_t expert_begin, expert_n; /* experts of this rank and its group over ep; 0: not cut */
	int64_t capacity;		/* choices an expert takes of a microbatch; 0: all */
	struct dt_sliding window2d;	/* of convolutions and pooling, over their input */
	bool relu;			/* batch norm, conv_bias: of what it adds up */
	/* batch norm: where among the buffers its running mean is, variances follow; conv_bias: its bias */
	int64_t buffer;
};

struct dt_node {
	enum dt_op op;
	int unit;
	const char *name;	  /* what it computes in its unit: "qkv", "attn_norm" */
	int in[DT_NODE_IN];	  /* values; -1: absent */
	int out[DT_NODE_OUT];	  /* likewise; the last ones may be scratch of this node */
	int param[DT_NODE_PARAM]; /* tensors, by index into the table; -1: absent */
	struct dt_attr attr;
	bool ahead; /* of a module that predicts one token more than the model (model/block/mtp.c) */
	bool entry; /* the unit's residual stream begins here: full recomputation starts from its sum */
};

struct dt_graph {
	struct dt_params params;
	struct dt_params buffers; /* state without gradients, f32, whole on every rank, in this order */
	struct dt_node *node;
	int nnode, capacity;
	int nvalue;
	const char **value_name; /* [nvalue] */
	int value_capacity;
	int layers; /* units are -1 .. layers */
};

/* A node without operands, results or parameters. */
static inline struct dt_node dt_node_blank(enum dt_op op, int unit, const char *name)
{
	struct dt_node n = {.op = op, .unit = unit, .name = name};

	for (int i = 0; i < DT_NODE_IN; i++)
		n.in[i] = -1;
	for (int i = 0; i < DT_NODE_OUT; i++)
		n.out[i] = -1;
	for (int i = 0; i < DT_NODE_PARAM; i++)
		n.param[i] = -1;
	return n;
}

int dt_graph_build(const struct dt_config *c, struct dt_graph *ret, struct dt_err *err);
void dt_graph_release(struct dt_graph *g);

/* ---- for model/block/ and model/family/ ---- */

struct dt_builder {
	const struct dt_config *c;
	struct dt_graph *g;
	int layer;	/* of what follows, as dt_param.layer */
	bool entered;	/* the unit's stream has begun */
	bool ahead;	/* what follows belongs to a module for a further token */
	int params_cap; /* of g->params */
	int buffers_cap;
	bool failed; /* out of memory: later calls do nothing */
};

/* Nodes and tensors added from now on belong to unit `layer`. */
void dt_unit(struct dt_builder *b, int layer);
/*
 * Appends a parameter, named "layers.N.NAME" inside a layer, "mtp.NAME" inside a module for a further token;
 * cols 0: a vector. Returns its index.
 */
int dt_tensor_add(struct dt_builder *b, enum dt_role role, const char *name, int64_t rows, int64_t cols);
/* Cut over tp along dim, in whole pieces of `unit` elements; kv: DT_CUT_KV. */
void dt_tensor_cut(struct dt_builder *b, int tensor, enum dt_cut how, int dim, int64_t unit);
/* A convolution's weights [out, in kernel^2], initialised as He et al. 2015 (fan out). */
int dt_tensor_add_conv(struct dt_builder *b, const char *name, int64_t out, int64_t in, int64_t kernel);
/* Appends a buffer of n elements, named so; returns the number of elements in front of it. */
int64_t dt_buffer_add(struct dt_builder *b, const char *name, int64_t n, enum dt_init init);
/* The tensor itself, to set attributes that the calls above do not; NULL after a failure. */
struct dt_param *dt_tensor_at(struct dt_builder *b, int tensor);
/* A new node of this op with no operands yet, and results out[0 .. outs) named so; NULL after a failure. */
struct dt_node *dt_node_add(struct dt_builder *b, enum dt_op op, const char *name, int outs,
			    const char *const *out_names);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
