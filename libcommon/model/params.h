/*
 * The parameter table: every parameter once, in the order the forward pass meets it. The trainer allocates
 * it, the checkpoint writes it, the estimator sums it, reshard recuts it, the server loads it, importers
 * rename into it.
 *
 * Linear weights are [out, in]. q, k, v (and gate, up) are separate tensors that lie next to each other in
 * memory
 * (`fused`), so that one matmul computes them together while files, cuts and people see them apart.
 *
 * A norm's weight is what it multiplies by, less one where the configuration says norm_plus_one.
 *
 * Names:  embed.weight  pos.weight  layers.N.attn_norm.{weight,bias}  layers.N.attn.{q,k,v,o}.{weight,bias}
 *   layers.N.attn.{q,k}_norm.weight  layers.N.mlp_norm.{weight,bias}
 * layers.N.mlp.{gate,up,down}.{weight,bias} norm.{weight,bias}  head.weight
 *   layers.N.{attn,mlp}_post_norm.weight  layers.N.attn.{q_a,q_a_norm,kv_a,kv_a_norm,kv_b}.weight
 *   layers.N.{attn,mlp}.PROJECTION.{lora_a,lora_b,lora_m} of adapters (model/lora.h)
 *   layers.N.mlp.router.{weight,bias}  layers.N.mlp.{experts,shared}.{gate,up,down}.weight
 *   layers.N.mlp.experts.{gate,up,down}.bias  layers.N.attn.sinks
 *   layers.N.mixer_norm.weight  layers.N.ssm.{z,x,b,c,dt,out,norm}.weight
 *   layers.N.ssm.conv_{x,b,c}.{weight,bias}  layers.N.ssm.{dt.bias,a_log,d}
 *   type.weight  embed_norm.{weight,bias}  masked.{dense,norm}.{weight,bias}  head.bias
 *   pooler.{weight,bias}  labels.{weight,bias} of encoders
 *   patch.{weight,bias}  connector.weight of a tower of vision, whose embed.weight has positions
 *   mtp.{embed_norm,hidden_norm,norm,proj}.weight, and mtp.NAME of what a layer has as layers.N.NAME
 */
#ifndef DT_MODEL_PARAMS_H
#define DT_MODEL_PARAMS_H

#include "kernels/quant_formats.h"
#include "model/config.h"

/* Which tensor of its unit. */
enum dt_role {
	DT_W_EMBED,
	DT_W_POS,
	DT_W_ATTN_NORM,
	DT_W_ATTN_NORM_B,
	DT_W_Q,
	DT_W_K,
	DT_W_V,
	DT_W_Q_B,
	DT_W_K_B,
	DT_W_V_B,
	DT_W_Q_NORM,
	DT_W_K_NORM,
	DT_W_O,
	DT_W_O_B,
	DT_W_MLP_NORM,
	DT_W_MLP_NORM_B,
	DT_W_GATE,
	DT_W_UP,
	DT_W_GATE_B,
	DT_W_UP_B,
	DT_W_DOWN,
	DT_W_DOWN_B,
	DT_W_FINAL_NORM,
	DT_W_FINAL_NORM_B,
	DT_W_HEAD,
	DT_W_VALUE,
	DT_W_POST_ATTN_NORM,
	DT_W_POST_MLP_NORM,
	DT_W_Q_A, /* latent attention: down to the rank, norm; Q_UP and KV_B go up again */
	DT_W_Q_A_NORM,
	DT_W_Q_UP,
	DT_W_KV_A,
	DT_W_KV_A_NORM,
	DT_W_KV_B,
	DT_W_SINKS,
	DT_W_ROUTER,
	DT_W_ROUTER_B,	     /* for the choice alone */
	DT_W_ROUTER_SCORE_B, /* of the scores */
	DT_W_SHARED_GATE,
	DT_W_SHARED_UP,
	DT_W_SHARED_DOWN,
	DT_W_EXPERT_GATE, /* all experts of a layer in one tensor, one below the other */
	DT_W_EXPERT_UP,
	DT_W_EXPERT_DOWN,
	DT_W_EXPERT_GATE_B,
	DT_W_EXPERT_UP_B,
	DT_W_EXPERT_DOWN_B,
	DT_W_MTP_EMBED_NORM, /* of a module for a further token (model/block/mtp.c) */
	DT_W_MTP_HIDDEN_NORM,
	DT_W_MTP_NORM,
	DT_W_MTP_PROJ,
	DT_W_SSM_Z, /* Mamba-2 (model/block/ssm.c): projections, the convolutions of x, B and C, the scan */
	DT_W_SSM_X,
	DT_W_SSM_B,
	DT_W_SSM_C,
	DT_W_SSM_DT,
	DT_W_SSM_CONV_X,
	DT_W_SSM_CONV_B,
	DT_W_SSM_CONV_C,
	DT_W_SSM_CONV_X_B,
	DT_W_SSM_CONV_B_B,
	DT_W_SSM_CONV_C_B,
	DT_W_SSM_DT_B,
	DT_W_SSM_A_LOG,
	DT_W_SSM_D,
	DT_W_SSM_NORM,
	DT_W_SSM_OUT,
	DT_W_TYPES, /* of an encoder: token types, the norm of embeddings, and what its head has */
	DT_W_EMBED_NORM,
	DT_W_EMBED_NORM_B,
	DT_W_MASKED,
	DT_W_MASKED_B,
	DT_W_MASKED_NORM,
	DT_W_MASKED_NORM_B,
	DT_W_HEAD_B,
	DT_W_POOLER,
	DT_W_POOLER_B,
	DT_W_LABELS_DENSE, /* of classes: in the place of a pooler */
	DT_W_LABELS_DENSE_B,
	DT_W_LABELS,
	DT_W_LABELS_B,
	DT_W_CLASS_TOKEN, /* of an image transformer, in front of its patches */
	DT_W_CONV,	  /* of images; those of networks without a table of names go by their names */
	DT_W_CONV_B,
	DT_W_BATCH_NORM,
	DT_W_BATCH_NORM_B,
	DT_W_CLASSES,
	DT_W_CLASSES_B,
	DT_W_CONNECTOR, /* of a tower of vision: from its columns to those of the decoder */
	DT_W_BUFFER,
	DT_W_LORA_A, /* of an adapter (model/lora.h) */
	DT_W_LORA_B,
	DT_W_LORA_M,
	DT_ROLE_N,
};

/*
 * UNIFORM: between -init_std and init_std.
 * DIRAC: of a convolution; output channel i < in begins as input channel i, the others are UNIFORM.
 * WHITEN: of a convolution over pixels: whitening filters of the training images (data/whiten.h), which a
 * trainer computes; without images they are NORMAL.
 * SSM_STEP, SSM_DECAY: of Mamba-2, as its authors publish: what softplus makes steps of, between 0.001 and
 * 0.1 and even in their logarithms; logarithms of numbers that are even between 1 and 16.
 */
enum dt_init {
	DT_INIT_NORMAL,
	DT_INIT_ONES,
	DT_INIT_ZEROS,
	DT_INIT_UNIFORM,
	DT_INIT_DIRAC,
	DT_INIT_WHITEN,
	DT_INIT_SSM_STEP,
	DT_INIT_SSM_DECAY,
};

/* How a parameter is cut over the tensor-parallel axis. */
enum dt_cut {
	DT_CUT_NONE,  /* every rank holds it whole */
	DT_CUT_UNITS, /* dimension cut_dim, whole units of cut_unit elements, the first ranks one unit more */
	DT_CUT_KV,    /* as UNITS when there are tp units or more; else rank r holds unit r * units / tp */
};

struct dt_param {
	char name[56];
	enum dt_role role;
	int layer; /* -1: embedding unit; 0 .. layers - 1; layers: final unit */
	int ndim;
	int64_t shape[2];
	enum dt_init init;
	double init_std; /* residual projections: init_std / sqrt(2 layers), GPT-2 */
	bool frozen;	 /* not trained: it has no gradient, no master and no optimizer state */
	int blocks;	 /* frozen: enum dt_block_kind it is kept in, else 0 */
	bool decay;	 /* weight decay applies: matrices, not norms and biases */
	double rate;	 /* its learning rate over the run's, of --lr-scale (dt_run_rates) */
	bool partial; /* not cut, but each tensor-parallel rank's gradient is only a part of the whole one */
	bool fused;   /* lies right behind the previous parameter in memory */
	enum dt_cut cut;
	int cut_dim;
	int64_t cut_unit;
	int ones;	 /* dimensions of length 1 in front of shape in files */
	bool channels;	 /* of a convolution of each channel by itself, in files [shape[0], 1, shape[1]] */
	int64_t kernel;	 /* > 0: of a convolution, in files [shape[0], shape[1] / kernel^2, kernel, kernel] */
	int64_t experts; /* stacked in dimension 0, which ep divides among its ranks; 0: not an expert's */
};

struct dt_params {
	struct dt_param *p;
	int n;
};

int dt_model_params(const struct dt_config *c, struct dt_params *ret, struct dt_err *err);
void dt_params_release(struct dt_params *p);

/* A vector that a norm multiplies by; not its bias. */
static inline bool dt_param_is_scale(const struct dt_param *p)
{
	switch (p->role) {
	case DT_W_ATTN_NORM:
	case DT_W_MLP_NORM:
	case DT_W_FINAL_NORM:
	case DT_W_POST_ATTN_NORM:
	case DT_W_POST_MLP_NORM:
	case DT_W_Q_NORM:
	case DT_W_K_NORM:
	case DT_W_Q_A_NORM:
	case DT_W_KV_A_NORM:
	case DT_W_MTP_EMBED_NORM:
	case DT_W_MTP_HIDDEN_NORM:
	case DT_W_MTP_NORM:
	case DT_W_BATCH_NORM:
	case DT_W_EMBED_NORM:
	case DT_W_MASKED_NORM:
	case DT_W_SSM_NORM:
		return true;
	default:
		return false;
	}
}

/* Whether files have it in other dimensions than shape's. */
static inline bool dt_param_reshaped(const struct dt_param *p)
{
	return p->kernel || p->ones || p->channels;
}
/* The shape in files, up to four dimensions; returns how many. */
int dt_param_dims(const struct dt_param *p, int64_t ret[4]);
/* "layers.N.NAME"; layer -1: NAME. Cut where it is longer than n. Large models have thousands of these. */
void dt_layer_name(char *buf, size_t n, int64_t layer, const char *name);

/* Elements of the global tensor, and of all of them. Tied heads are counted once. */
int64_t dt_param_numel(const struct dt_param *p);
int64_t dt_params_total(const struct dt_params *p);
/* Of those that are trained. */
int64_t dt_params_trained(const struct dt_params *p);
static inline bool dt_params_any_frozen(const struct dt_params *p)
{
	for (int i = 0; i < p->n; i++)
		if (p->p[i].frozen)
			return true;
	return false;
}

/* Index of a name, or -1. */
int dt_params_find(const struct dt_params *p, const char *name);

/* The box [off, off + shape) of the global tensor that tensor-parallel rank r of tp holds. Empty boxes are
 * legal. */
void dt_param_cut(const struct dt_param *p, int tp, int r, int64_t off[2], int64_t shape[2]);

/* Parameters a token meets: of the experts only those it is sent to. */
int64_t dt_params_active(const struct dt_config *c, const struct dt_params *t);

/*
 * The format of p in a file of c where matrices are to be `want`, as GGUF's own writer chooses: vectors and
 * routers f32; of rows that are not whole blocks of a format another one, or f16; the head of q4_k and q5_k
 * q6_k.
 */
enum dt_format dt_param_format(const struct dt_config *c, const struct dt_param *p, enum dt_format want);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
