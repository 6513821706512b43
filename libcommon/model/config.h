/*
 * The configuration of a model. It has attributes, not architectures: nn reads the kind of norms, of biases
 * and of position encoding; the name of the family matters only to importers and messages.
 */
#ifndef DT_MODEL_CONFIG_H
#define DT_MODEL_CONFIG_H

#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

enum dt_norm_kind { DT_NORM_LAYER, DT_NORM_RMS };
enum dt_pos_kind { DT_POS_LEARNED, DT_POS_ROPE, DT_POS_NONE };
enum dt_rope_scaling {
	DT_ROPE_SCALING_NONE,
	DT_ROPE_SCALING_LINEAR,
	DT_ROPE_SCALING_LLAMA3,
	DT_ROPE_SCALING_NTK, /* a larger base */
	DT_ROPE_SCALING_YARN,
	DT_ROPE_SCALING_DYNAMIC,  /* a base that grows with the length, from rope_original_seq on */
	DT_ROPE_SCALING_LONGROPE, /* a divisor a pair, others for lengths above rope_original_seq */
};
enum { DT_ROPE_FACTORS = 128 };

enum dt_stem { DT_STEM_IMAGENET, DT_STEM_CIFAR };

/* What an encoder has behind its last layer: the prediction of masked tokens, nothing, classes of a text. */
enum dt_encoder_head { DT_ENCODER_MASKED, DT_ENCODER_NONE, DT_ENCODER_CLASSES };
/* Which of a text's final hidden states are its embedding; OPEN: the model does not say. */
enum dt_embed_pooling { DT_POOLING_OPEN, DT_POOLING_MEAN, DT_POOLING_CLS };

enum { DT_STAGES_MAX = 8 };
/* Adapters that are trained in place of the model's own tensors (model/lora.h). */
enum dt_lora_kind { DT_LORA_PLAIN, DT_LORA_RS };
#define DT_LORA_KINDS	 "lora|rslora"
#define DT_LORA_RANK_MAX 4096
struct dt_lora {
	int64_t rank;	       /* 0: none */
	double alpha, dropout; /* dropout: odds that an element of what a reads is 0 in training */
	int kind;	       /* enum dt_lora_kind */
	int base;	   /* enum dt_block_kind (kernels/unpack.h): how frozen linears of layers are kept */
	bool dora;	   /* rows of what is adapted have magnitudes that are trained (kernels/dora.h) */
	char targets[160]; /* "all", "qv" or an expression that names of linears match */
	char modules_to_save[160]; /* an expression: modules that are trained whole beside; "": none */
};

/* Layers that a list in a configuration can name. */
#define DT_LISTED_LAYERS 512

/*
 * The tower of vision in front of a decoder that reads images (model/family/idefics3.c). hidden 0: there is
 * none. Images come as square tiles of patches; rows of the tower stand in the places of one token.
 */
struct dt_tower {
	int64_t hidden, ffn, layers, heads;
	int64_t patch, channels;
	int64_t side; /* pixels of the images whose patches have positions */
	int64_t join; /* patches in a row, and in a column, that become one row of the decoder */
	int64_t out;  /* columns of such a row */
	int act;      /* enum dt_act_fn */
	double norm_eps;
	int64_t token; /* its id */
};

struct dt_config {
	char name[64];	 /* preset or file it came from */
	char family[24]; /* Hugging Face model_type: gpt2, llama, mistral, qwen2, qwen3, ... */
	int64_t vocab, hidden, ffn, layers, heads, kv_heads, head_dim;
	int64_t max_seq; /* positions the model was made for */
	enum dt_norm_kind norm;
	double norm_eps;
	enum dt_pos_kind pos;
	double rope_theta;
	enum dt_rope_scaling rope_scaling;
	double rope_factor, rope_low_freq,
		rope_high_freq; /* llama3: factor, low_freq_factor, high_freq_factor */
	int64_t rope_original_seq;
	double rope_beta_fast,
		rope_beta_slow; /* yarn: rotations over the original length between which it blends */
	double rope_mscale;	/* yarn, longrope: what cos and sin are multiplied by */
	float rope_short[DT_ROPE_FACTORS],
		rope_long[DT_ROPE_FACTORS]; /* longrope: what divides frequencies */
	bool rope_untruncated;		    /* yarn: the ends of its blend are not whole pairs */
	int rope_pairing;		    /* enum dt_rope_pairing of the stored weights */
	int act;			    /* enum dt_act_fn */
	bool gated;			    /* SwiGLU, GeGLU: gate and up */
	bool tied;			    /* head.weight is embed.weight */
	bool qkv_bias, out_bias, mlp_bias;
	bool qk_norm;	/* RMSNorm over head_dim of q and k (Qwen3) */
	int64_t window; /* sliding attention window, 0: none */
	/* Of what follows not everything is trained (dt_config_computable) or served (dt_config_servable). */
	int64_t global_every;	 /* n > 0: layers n - 1, 2n - 1, ... see all tokens, others window */
	bool post_norms;	 /* norms also behind attention and MLP (Gemma 2 and 3) */
	bool norm_plus_one;	 /* norms multiply by 1 + weight (Gemma as Hugging Face stores it) */
	bool embed_scaled;	 /* embeddings times sqrt(hidden) (Gemma) */
	double rope_local_theta; /* > 0: of layers with a window, where rope_theta and its scaling are the
				    others' */
	int64_t rope_skip_every; /* n > 0: layers n - 1, 2n - 1, ... have no rotary positions (SmolLM3) */
	bool parallel_residual;	 /* attention and MLP read the same stream (GPT-NeoX) */
	bool one_norm;		 /* and the same norm of it, attention's (Cohere) */
	bool norm_no_bias;	 /* LayerNorms have no bias (Cohere) */
	bool no_pre_norms;	 /* none in front of attention and MLP (OLMo 2) */
	bool qk_norm_whole;	 /* qk_norm's are over the whole of q and of k (OLMo 2), not over heads */
	double score_cap;	 /* scores are score_cap tanh(score / score_cap) (Gemma 2); 0: as they are */
	double logit_cap;	 /* likewise logits */
	bool attn_sinks;	 /* a logit per head joins the scores of each row (gpt-oss) */
	bool value_head;	 /* a vector beside the head gives each token a value (rl/returns.h) */
	int64_t score_dim;	 /* scores over its square root; 0: over head_dim's */
	double score_mscale;	 /* yarn of DeepSeek: scores are multiplied by its square; 0: 1 */
	/*
	 * Granite: factors of embeddings, of scores (in place of score_dim and score_mscale), and of what
	 * attention and MLP add to the residual stream; logits are divided by logit_divisor. 0: none.
	 */
	double embed_factor, score_factor, residual_factor, logit_divisor;
	int64_t experts, experts_used; /* mixture of experts; 0: none */
	int64_t expert_ffn;	       /* width of one of them */
	int64_t shared_ffn;	       /* width of the experts that every token goes through, all together */
	int64_t dense_layers;	       /* the first so many layers have an MLP of width ffn instead */
	bool router_bias;	       /* added to what an expert is worth, for the choice alone */
	bool router_sigmoid;	       /* scores go through sigmoids, not a softmax (DeepSeek-V3) */
	int64_t router_groups, router_groups_used; /* of experts; choices are of the best groups; 0: none */
	double router_scale;			   /* of the weights of choices; 0: 1 */
	bool router_unscaled; /* weights of the experts used are the softmax's over all, not scaled to add up
				 to 1 */
	int64_t mtp_layers;   /* modules behind the last layer, each of which predicts one more token
				 (block/mtp.c) */
	bool module;	      /* this is such a module alone (dt_config_module), and in no file */
	bool expert_bias;     /* biases of the experts' products and of the router's scores (gpt-oss) */
	int64_t kv_rank,
		q_rank; /* latent attention (DeepSeek-V2, 2.1): ranks, 0: none; head_dim is all of q */
	int64_t rope_dim, v_dim; /* of head_dim, the rotated part, 0: all; width of a value head */
	/*
	 * Mamba-2 (Dao and Gu 2024): layers mix tokens by a state [ssm_head_dim, ssm_state] of each head in
	 * place of attention (kernels/ssm.h). 0 heads: no such layers. Else bit l % 64 of attn_layers[l / 64]
	 * is set if layer l has attention all the same; without any, nothing reads heads, kv_heads and
	 * head_dim. ffn and experts 0: no MLP follows the mixer, as in Mamba-2 itself.
	 */
	int64_t ssm_heads, ssm_head_dim, ssm_groups, ssm_state, ssm_kernel;
	uint64_t attn_layers[DT_LISTED_LAYERS / 64];
	/*
	 * Encoders (BERT: Devlin et al. 2018): attention without a causal mask, norms behind the sums of the
	 * residual stream.
	 */
	bool encoder;
	int64_t token_types; /* rows of a table that is added to embeddings; 0: none */
	int64_t pos_first;   /* row of the table of positions that position 0 has (RoBERTa: 2) */
	enum dt_encoder_head head;
	bool pooler;	/* head NONE: the file has a pooler, which only classes use */
	int64_t labels; /* classes of head CLASSES, 1: a score; 0: another head */
	int label_loss; /* enum dt_class_loss (kernels/class_loss.h) that they are trained with */
	enum dt_embed_pooling pooling;
	int64_t mask_token; /* takes the place of masked tokens in training; 0: not known */
	int64_t bos, eos;   /* -1: none */
	double init_std;
	/*
	 * Classifiers of images (dt_config_is_image): vocab has the classes; of the rest above, layers and
	 * norm_eps.
	 */
	int64_t image_size, channels; /* sides of an image, and 1 or 3; of a policy 1, and what is observed */
	char blocks
		[24]; /* "3-4-6-3": blocks of a ResNet's stages, widths of a perceptron's or CNN's layers */
	bool bottleneck;	 /* blocks of three convolutions */
	enum dt_stem stem;	 /* 7 x 7 and pooling, or 3 x 3 */
	int64_t patch;		 /* image transformers: side of a patch; 0: convolutions */
	bool zero_init_residual; /* the last norm of each block begins with weight 0 */
	struct dt_tower tower;
	bool sees; /* this is such a tower alone (dt_config_tower), and in no file */
	struct dt_lora lora;
	char freeze[256]; /* of a run (model/freeze.h), in no file: tensors that are not trained; "": none */
};

static inline bool dt_config_is_image(const struct dt_config *c)
{
	return c->image_size > 0;
}
/* Whether it is an encoder whose head tells the classes, or the score, of a text. */
static inline bool dt_config_has_labels(const struct dt_config *c)
{
	return c->encoder && c->head == DT_ENCODER_CLASSES;
}
/* Whether training reads the type of each token: those of a text and of its pair. */
static inline bool dt_config_has_types(const struct dt_config *c)
{
	return dt_config_has_labels(c) && c->token_types > 1;
}
/* Tokens of an image: its patches and the class token. 0: a network of convolutions. */
static inline int64_t dt_config_tokens(const struct dt_config *c)
{
	return c->patch ? (c->image_size / c->patch) * (c->image_size / c->patch) + 1 : 0;
}

/* The numbers of c->blocks; returns how many, -EINVAL where it has others or too many. */
int dt_config_blocks(const struct dt_config *c, int64_t ret[DT_STAGES_MAX]);
/*
 * What a family of images leaves open is filled in: layers from blocks, and sizes of decoders, which nothing
 * looks at, with 1. A perceptron by its widths, "mlp:784-512-10", as a configuration: 1, 0: no such name,
 * -EINVAL.
 */
void dt_config_complete_image(struct dt_config *c);
int dt_config_perceptron(const char *name, struct dt_config *ret, struct dt_err *err);

/*
 * NAME is a preset, a config.json (or "-"), a Hugging Face folder holding one, or one of our checkpoints
 * (manifest.json with a "model" object). An architecture we do not know is refused by name. A safetensors
 * file is described by the config.json beside it, else by its tensors, if they are a ResNet's. Modules for
 * further tokens (mtp_layers) are left out: whoever uses them says so.
 */
int dt_config_load(const char *name, struct dt_config *ret, struct dt_err *err);
/* What the tensors of a safetensors file say; -EINVAL where they are not a ResNet's. */
int dt_config_from_weights(const char *path, struct dt_config *ret, struct dt_err *err);
/* Parsed JSON: a manifest, our own form, Hugging Face's or timm's. path: for names. */
int dt_config_from_any(const json_t *o, const char *path, struct dt_config *ret, struct dt_err *err);

/* The preset number i, NULL past the end; and by name (-ENOENT). */
const struct dt_config *dt_config_preset(int i);
int dt_config_find_preset(const char *name, struct dt_config *ret);

/* Hugging Face config.json, or timm's, as parsed. */
int dt_config_from_hf(const json_t *o, struct dt_config *ret, struct dt_err *err);
/*
 * The other way; dtype: of the weights, "float32". -ENOTSUP for a family without a class of its own.
 * Classifiers of images get timm's form, or {"model": our own} where timm does not have them.
 * Attributes that a family's class does not have are left out: read it back to see whether it says the same.
 */
int dt_config_to_hf(const struct dt_config *c, const char *dtype, json_t **ret, struct dt_err *err);

/* Our own form, every field, as stored in manifest.json; from_json accepts what to_json wrote. */
json_t *dt_config_to_json(const struct dt_config *c);
int dt_config_from_json(const json_t *o, struct dt_config *ret, struct dt_err *err);

/* Sets the vocabulary size; 0: unchanged. */
int dt_config_set_vocab(struct dt_config *c, int64_t vocab, struct dt_err *err);

/* Refuses impossible models (heads not a multiple of kv_heads, odd rotary dimension, zero layers ...). */
int dt_config_check(const struct dt_config *c, struct dt_err *err);

/* Of classifiers of images, for dt_config_check. */
int dt_config_check_image(const struct dt_config *c, struct dt_err *err);

/* -ENOTSUP, naming what it is, for a model that nn does not train, or does not compute at all. */
int dt_config_computable(const struct dt_config *c, struct dt_err *err);
int dt_config_servable(const struct dt_config *c, struct dt_err *err);

/* A dense Llama of about so many parameters, for when nothing else is known of a model. -ERANGE below 1e6. */
int dt_config_of_size(double params, struct dt_config *ret, struct dt_err *err);

/*
 * Layers differ in some models. Has it experts; its window (0: sees all); the MLP width a token goes
 * through.
 */
static inline bool dt_layer_has_experts(const struct dt_config *c, int64_t layer)
{
	return c->experts > 0 && layer >= c->dense_layers;
}
static inline int64_t dt_layer_window(const struct dt_config *c, int64_t layer)
{
	return c->global_every > 0 && (layer + 1) % c->global_every == 0 ? 0 : c->window;
}
static inline bool dt_layer_is_listed(const struct dt_config *c, int64_t layer)
{
	return layer < DT_LISTED_LAYERS && c->attn_layers[layer / 64] >> layer % 64 & 1;
}
/* Whether the layer has Mamba-2's mixer in place of attention, and whether an MLP or experts follow. */
static inline bool dt_layer_is_ssm(const struct dt_config *c, int64_t layer)
{
	return c->ssm_heads > 0 && !dt_layer_is_listed(c, layer);
}
static inline bool dt_layer_has_mlp(const struct dt_config *c, int64_t layer)
{
	return c->ffn > 0 || dt_layer_has_experts(c, layer);
}
/* How many of the layers first, ..., end - 1 have Mamba-2's mixer; whether some layer attends. */
int64_t dt_config_ssm_layers(const struct dt_config *c, int64_t first, int64_t end);
static inline bool dt_config_attends(const struct dt_config *c)
{
	return dt_config_ssm_layers(c, 0, c->layers) < c->layers;
}
/* Whether the layer rotates q and k. */
static inline bool dt_layer_rotates(const struct dt_config *c, int64_t layer)
{
	return c->pos == DT_POS_ROPE && !(c->rope_skip_every > 0 && (layer + 1) % c->rope_skip_every == 0);
}
/* The largest number of keys that any layer attends to; 0: some layer attends to all. */
static inline int64_t dt_config_span(const struct dt_config *c)
{
	return c->global_every > 0 ? 0 : c->window;
}
static inline int64_t dt_layer_width(const struct dt_config *c, int64_t layer)
{
	return dt_layer_has_experts(c, layer) ? c->experts_used * c->expert_ffn + c->shared_ffn : c->ffn;
}
/* Decoder blocks: layers, and behind them those of modules for further tokens. */
static inline int64_t dt_config_blocks_all(const struct dt_config *c)
{
	return c->layers + c->mtp_layers;
}
/*
 * The module for a further token of a model that has one, as a model of its own: a decoder of one layer that
 * reads the model's final hidden states besides token ids. -EINVAL: c has no module.
 */
int dt_config_module(const struct dt_config *c, struct dt_config *ret, struct dt_err *err);
/*
 * The tower of vision of a model that has one, as a model of its own: an encoder whose tokens are patches,
 * and whose vocabulary are their positions. It reads rows of pixels besides, and returns rows of the
 * decoder. -EINVAL: c has no tower.
 */
int dt_config_tower(const struct dt_config *c, struct dt_config *ret, struct dt_err *err);
/* Of a tower alone: pixels of a patch, and patches that become one row. */
static inline int64_t dt_tower_pixels(const struct dt_tower *t)
{
	return t->channels * t->patch * t->patch;
}
static inline int64_t dt_tower_joined(const struct dt_tower *t)
{
	return t->join * t->join;
}
/* Whether the last unit reads the embedding too: as its head, or to embed tokens that a module is given. */
static inline bool dt_config_shares_embed(const struct dt_config *c)
{
	return c->tied || c->mtp_layers > 0;
}
/* Width of a head's value: head_dim, but in latent attention. */
static inline int64_t dt_value_dim(const struct dt_config *c)
{
	return c->kv_rank > 0 ? c->v_dim : c->head_dim;
}

/* Number of elements of a head that are rotated: the first ones, or of a latent model's the last. */
static inline int64_t dt_rope_dim(const struct dt_config *c)
{
	return c->rope_dim ? c->rope_dim : c->head_dim;
}
/*
 * Radians per position of pair i of a head, after the model's scaling (Llama 3.1's: Grattafiori et al. 2024).
 */
double dt_rope_frequency(const struct dt_config *c, int64_t i);
/*
 * The factor of cos and sin: 1 except for YaRN and LongRoPE; YaRN's by the paper, 0.1 mscale ln(factor) + 1;
 * LongRoPE's (Ding et al. 2024), sqrt(1 + ln(factor) / ln(rope_original_seq)), and its factor, max_seq over
 * that length, at least 1.
 */
double dt_rope_long_mscale(const struct dt_config *c, double factor);
double dt_rope_long_factor(const struct dt_config *c);
double dt_rope_mscale(const struct dt_config *c);
double dt_rope_yarn_mscale(double factor, double mscale);
/* The base of the frequencies, where a larger one is all there is to the scaling. */
double dt_rope_base(const struct dt_config *c);
/*
 * Fixes a dynamic scaling, and LongRoPE's choice between divisors, to their value for sequences of this
 * length; leaves other scalings as they are.
 */
void dt_rope_for_length(struct dt_config *c, int64_t positions);
/* The number of positions that the model supports, with its scaling. */
int64_t dt_config_positions(const struct dt_config *c);
/*
 * Stretches the positions of a model without scaling: "linear:F", "ntk:F", "dynamic:F", "yarn:F", "llama3:F",
 * with the parameters of the papers. NULL: as it is; what the model has already is no error.
 */
int dt_config_scale_rope(struct dt_config *c, const char *spec, struct dt_err *err);
/* The same in layers with a window, where those have a base of their own (rope_local_theta > 0). */
double dt_rope_local_frequency(const struct dt_config *c, int64_t i);

/* The factor of attention scores. */
double dt_score_scale(const struct dt_config *c);
/* What a factor of 0 stands for is 1. */
static inline double dt_factor(double v)
{
	return v > 0 ? v : 1;
}
/*
 * A residual stream x with x += r delta is r y for the stream y = x / r with y += delta, and an RMSNorm of x
 * is that of y with an epsilon smaller by r^2: r is in the embeddings' factor and in the epsilon of the norms
 * of the stream, and nowhere else.
 */
double dt_embed_scale(const struct dt_config *c);
double dt_stream_eps(const struct dt_config *c);
/* The factor of logits, in front of their cap. */
double dt_logit_scale(const struct dt_config *c);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
