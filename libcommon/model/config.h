/*
 * What a model is, as data. Attributes, not architectures: nn reads how a model normalises, where it has
 * biases, how it knows positions; the name of the family only matters to importers and to messages.
 */
#ifndef DT_MODEL_CONFIG_H
#define DT_MODEL_CONFIG_H

#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

enum dt_norm_kind { DT_NORM_LAYER, DT_NORM_RMS };
enum dt_pos_kind { DT_POS_LEARNED, DT_POS_ROPE };
enum dt_rope_scaling { DT_ROPE_SCALING_NONE, DT_ROPE_SCALING_LINEAR, DT_ROPE_SCALING_LLAMA3 };

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
	int rope_pairing; /* enum dt_rope_pairing of the stored weights */
	int act;	  /* enum dt_act_fn */
	bool gated;	  /* SwiGLU, GeGLU: gate and up */
	bool tied;	  /* head.weight is embed.weight */
	bool qkv_bias, out_bias, mlp_bias;
	bool qk_norm;	  /* RMSNorm over head_dim of q and k (Qwen3) */
	int64_t window;	  /* sliding attention window, 0: none */
	int64_t bos, eos; /* -1: none */
	double init_std;
};

/*
 * NAME is a preset, a config.json (or "-"), a Hugging Face folder holding one, or one of our checkpoints
 * (manifest.json with a "model" object). An architecture we do not know is refused by name.
 */
int dt_config_load(const char *name, struct dt_config *ret, struct dt_err *err);

/* The preset number i, NULL past the end; and by name (-ENOENT). */
const struct dt_config *dt_config_preset(int i);
int dt_config_find_preset(const char *name, struct dt_config *ret);

/* Hugging Face config.json, as parsed. */
int dt_config_from_hf(const json_t *o, struct dt_config *ret, struct dt_err *err);
/*
 * The other way; dtype: of the weights, "float32". -ENOTSUP for a family without a class of its own.
 * Attributes that a family's class does not have are left out: read it back to see whether it says the same.
 */
int dt_config_to_hf(const struct dt_config *c, const char *dtype, json_t **ret, struct dt_err *err);

/* Our own form, every field, as stored in manifest.json; from_json accepts what to_json wrote. */
json_t *dt_config_to_json(const struct dt_config *c);
int dt_config_from_json(const json_t *o, struct dt_config *ret, struct dt_err *err);

/* Refuses impossible models (heads not a multiple of kv_heads, odd rotary dimension, zero layers ...). */
int dt_config_check(const struct dt_config *c, struct dt_err *err);

/* Radians a position of pair i of a head, after the model's scaling (Llama 3.1's: Grattafiori et al. 2024).
 */
double dt_rope_frequency(const struct dt_config *c, int64_t i);

#endif
