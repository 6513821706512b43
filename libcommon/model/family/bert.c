/*
 * Encoders: BERT (Devlin et al. 2018), RoBERTa (Liu et al. 2019) and XLM-RoBERTa (Conneau et al. 2019), as in
 * transformers: with the prediction of masked tokens, with classes of a text, or without a head. Positions of
 * the RoBERTas begin at row 2 of their table, behind that of padding.
 */
#include "kernels/class_loss.h"
#include "model/block/encoder.h"
#include "model/family/family.h"

#include <stdio.h>
#include <string.h>

static const char *const embed_norm[] = {"norm0", NULL, "norm0.mean", "norm0.rstd"};
static const char *const norm1[] = {"norm1", "resid", "norm1.mean", "norm1.rstd"};
static const char *const norm2[] = {"norm2", "resid2", "norm2.mean", "norm2.rstd"};

static void build(struct dt_builder *b)
{
	const struct dt_config *c = b->c;
	const int embed = b->g->params.n;
	int x;

	dt_unit(b, -1);
	x = dt_block_post_norm(b, dt_block_embed(b), -1, DT_W_EMBED_NORM, "embed_norm", embed_norm, false);
	for (int l = 0; l < c->layers; l++) {
		dt_unit(b, l);
		x = dt_block_post_norm(b, x, dt_block_attention(b, x), DT_W_ATTN_NORM, "attn_norm", norm1,
				       false);
		x = dt_block_post_norm(b, x, dt_block_mlp(b, x), DT_W_MLP_NORM, "mlp_norm", norm2, true);
	}
	dt_unit(b, (int)c->layers);
	if (c->head == DT_ENCODER_MASKED)
		dt_block_masked_head(b, x, embed);
	else if (c->head == DT_ENCODER_CLASSES)
		dt_block_labels(b, x);
	else
		dt_block_states(b, x);
}

/* ---- config.json ---- */

/* The losses of labels, by their names in config.json: enum dt_class_loss. */
static const char *const problems[] = {"single_label_classification", "regression",
				       "multi_label_classification"};

/* Without a name, one label is a score, as transformers decides. */
static int read_loss(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	const char *problem = json_string_value(json_object_get(o, "problem_type"));
	int k = 0;

	c->label_loss = c->labels == 1 ? DT_CLASS_LOSS_MSE : DT_CLASS_LOSS_CE;
	if (!problem)
		return 0;
	while (k < 3 && strcmp(problem, problems[k]))
		k++;
	if (k == 3)
		return dt_err_set(err, -ENOTSUP, "'problem_type' of '%.40s' is not supported", problem);
	c->label_loss = k;
	return 0;
}

/* The head, by the name of the class: architectures[0]. Without one, a file has no head. */
static int read_head(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	const json_t *names = json_object_get(o, "id2label");
	const char *class = json_string_value(json_array_get(json_object_get(o, "architectures"), 0)), *what;
	int rc;

	what = class && strstr(class, "For") ? strstr(class, "For") + 3 : "";
	if (!strcmp(what, "MaskedLM") || !strcmp(what, "PreTraining"))
		return 0;
	c->head = DT_ENCODER_NONE;
	c->tied = false;
	c->pooler = true;
	if (!class || !strcmp(what, ""))
		return 0;
	if (strcmp(what, "SequenceClassification"))
		return dt_err_set(err, -ENOTSUP, "class '%.60s' is not supported", class);
	c->head = DT_ENCODER_CLASSES;
	c->pooler = false;
	c->labels = json_is_object(names) ? (int64_t)json_object_size(names) : 2;
	if ((rc = dt_hf_size(o, "num_labels", false, &c->labels, err)) < 0)
		return rc;
	return read_loss(o, c, err);
}

static int read_sizes(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	const char *positions = "absolute";
	int rc;

	c->encoder = c->tied = c->qkv_bias = c->out_bias = c->mlp_bias = true;
	c->norm = DT_NORM_LAYER;
	c->pos = DT_POS_LEARNED;
	c->act = DT_ACT_GELU_ERF;
	c->hidden = 768;
	c->ffn = 3072;
	c->layers = c->heads = 12;
	c->max_seq += 512;
	if ((rc = dt_hf_size(o, "hidden_size", false, &c->hidden, err)) < 0 ||
	    (rc = dt_hf_size(o, "intermediate_size", false, &c->ffn, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_hidden_layers", false, &c->layers, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_attention_heads", false, &c->heads, err)) < 0 ||
	    (rc = dt_hf_size(o, "max_position_embeddings", false, &c->max_seq, err)) < 0 ||
	    (rc = dt_hf_size(o, "type_vocab_size", false, &c->token_types, err)) < 0 ||
	    (rc = dt_hf_act(o, "hidden_act", &c->act, err)) < 0 ||
	    (rc = dt_json_real(o, "layer_norm_eps", false, &c->norm_eps, err)) < 0 ||
	    (rc = dt_json_bool(o, "tie_word_embeddings", false, &c->tied, err)) < 0 ||
	    (rc = dt_json_str(o, "position_embedding_type", false, &positions, err)) < 0 ||
	    (rc = dt_hf_refuse(o, "is_decoder", true, err)) < 0)
		return rc;
	if (strcmp(positions, "absolute"))
		return dt_err_set(err, -ENOTSUP, "'position_embedding_type' of '%.40s' is not supported",
				  positions);
	if (c->max_seq <= c->pos_first)
		return dt_err_set(err, -EINVAL,
				  "'max_position_embeddings' is %lld, but positions begin at %lld",
				  (long long)c->max_seq, (long long)c->pos_first);
	c->max_seq -= c->pos_first;
	c->kv_heads = c->heads;
	if ((rc = dt_hf_even_heads(c, err)) < 0)
		return rc;
	return read_head(o, c, err);
}

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	c->norm_eps = 1e-12;
	c->token_types = 2;
	return read_sizes(o, c, err);
}

static int roberta_from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int64_t padding = 1;
	int rc;

	c->norm_eps = 1e-12;
	c->token_types = 2;
	c->bos = 0;
	c->eos = 2;
	if ((rc = dt_json_int(o, "pad_token_id", false, 0, 1 << 16, &padding, err)) < 0)
		return rc;
	c->pos_first = padding + 1;
	return read_sizes(o, c, err);
}

static json_t *to_hf(const struct dt_config *c)
{
	static const char *const heads[] = {"MaskedLM", "Model", "SequenceClassification"};
	const bool bert = !strcmp(c->family, "bert"), xlm = !strcmp(c->family, "xlm-roberta");
	char class[64];
	json_t *o = json_pack(
		"{s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:I}", "hidden_size", (json_int_t)c->hidden,
		"intermediate_size", (json_int_t)c->ffn, "num_hidden_layers", (json_int_t)c->layers,
		"num_attention_heads", (json_int_t)c->heads, "max_position_embeddings",
		(json_int_t)(c->pos_first + c->max_seq), "type_vocab_size", (json_int_t)c->token_types,
		"hidden_act", dt_hf_act_name(c->act), "layer_norm_eps", c->norm_eps, "pad_token_id",
		(json_int_t)(bert ? 0 : c->pos_first - 1));
	json_t *names = json_object();

	snprintf(class, sizeof(class), "%s%s%s",
		 bert  ? "Bert"
		 : xlm ? "XLMRoberta"
		       : "Roberta",
		 c->head == DT_ENCODER_NONE ? "" : "For", heads[c->head]);
	json_object_set_new(o, "architectures", json_pack("[s]", class));
	for (int64_t i = 0; i < c->labels; i++) {
		char key[24], name[32];

		snprintf(key, sizeof(key), "%lld", (long long)i);
		snprintf(name, sizeof(name), "LABEL_%lld", (long long)i);
		json_object_set_new(names, key, json_string(name));
	}
	if (c->labels) {
		json_object_set(o, "id2label", names);
		json_object_set_new(o, "problem_type", json_string(problems[c->label_loss]));
	}
	json_decref(names);
	return o;
}

/* ---- GGUF ---- */

/* LLAMA_POOLING_TYPE_* of llama.cpp; RANK: classes of the first token's state. */
enum { POOLING_NONE, POOLING_MEAN, POOLING_CLS, POOLING_LAST, POOLING_RANK };

static int64_t rows_of(const struct dt_gguf *g, const char *tensor)
{
	const struct dt_gguf_tensor *t = dt_gguf_find_tensor(g, tensor);

	return !t ? 0 : t->ndim == 1 ? 1 : t->shape[0]; /* of one row, llama-quantize makes a vector */
}

static int read_pooling(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	int64_t type = POOLING_NONE;
	int rc = dt_gguf_int(k->g, dt_gguf_key(k, "pooling_type"), false, POOLING_NONE, POOLING_RANK, &type,
			     err);

	if (rc < 0)
		return rc;
	if (type == POOLING_LAST)
		return dt_err_set(err, -ENOTSUP,
				  "embeddings of the last token ('%s' of %lld) are not supported", k->key,
				  (long long)type);
	c->pooling = type == POOLING_MEAN  ? DT_POOLING_MEAN
		     : type == POOLING_CLS ? DT_POOLING_CLS
					   : DT_POOLING_OPEN;
	return 0;
}

/*
 * llama.cpp's converter writes BERT, RoBERTa and XLM-RoBERTa alike, positions from row 0 on, without a pooler
 * and without the head that predicts masked tokens. A BERT with classes has its pooler left out too: what is
 * left does not compute its classes.
 */
static int from_gguf(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	bool causal = false;
	int rc;

	c->encoder = true;
	c->norm = DT_NORM_LAYER;
	c->pos = DT_POS_LEARNED;
	c->act = DT_ACT_GELU_ERF;
	c->kv_heads = c->heads;
	c->head = DT_ENCODER_NONE;
	c->token_types = rows_of(k->g, "token_types.weight");
	c->labels = rows_of(k->g, "cls.output.weight");
	if (c->labels)
		c->head = DT_ENCODER_CLASSES;
	c->label_loss = c->labels == 1 ? DT_CLASS_LOSS_MSE : DT_CLASS_LOSS_CE;
	if ((rc = dt_hf_even_heads(c, err)) < 0 ||
	    (rc = dt_gguf_key_real(k, "attention.layer_norm_epsilon", true, &c->norm_eps, err)) < 0 ||
	    (rc = dt_gguf_bool(k->g, dt_gguf_key(k, "attention.causal"), &causal, err)) < 0)
		return rc;
	if (causal)
		return dt_err_set(err, -ENOTSUP, "'%s' of a '%s' model is not supported", k->key, k->arch);
	if (c->labels && !rows_of(k->g, "cls.weight"))
		return dt_err_set(err, -ENOTSUP,
				  "the file has classes ('cls.output.weight') without the linear in front of "
				  "them ('cls.weight')");
	return read_pooling(k, c, err);
}

/* ---- names ---- */

static const struct dt_tensor_name gguf[] = {
	{DT_W_TYPES, "token_types.weight"},
	{DT_W_EMBED_NORM, "token_embd_norm.weight"},
	{DT_W_EMBED_NORM_B, "token_embd_norm.bias"},
	{DT_W_ATTN_NORM, "blk.%d.attn_output_norm.weight"},
	{DT_W_ATTN_NORM_B, "blk.%d.attn_output_norm.bias"},
	{DT_W_MLP_NORM, "blk.%d.layer_output_norm.weight"},
	{DT_W_MLP_NORM_B, "blk.%d.layer_output_norm.bias"},
	{DT_W_LABELS_DENSE, "cls.weight"},
	{DT_W_LABELS_DENSE_B, "cls.bias"},
	{DT_W_LABELS, "cls.output.weight"},
	{DT_W_LABELS_B, "cls.output.bias"},
	{0},
};

#define LAYER "encoder.layer.%d."
static const struct dt_tensor_name shared[] = {
	{DT_W_EMBED, "embeddings.word_embeddings.weight"},
	{DT_W_POS, "embeddings.position_embeddings.weight"},
	{DT_W_TYPES, "embeddings.token_type_embeddings.weight"},
	{DT_W_EMBED_NORM, "embeddings.LayerNorm.weight"},
	{DT_W_EMBED_NORM_B, "embeddings.LayerNorm.bias"},
	{DT_W_Q, LAYER "attention.self.query.weight"},
	{DT_W_K, LAYER "attention.self.key.weight"},
	{DT_W_V, LAYER "attention.self.value.weight"},
	{DT_W_Q_B, LAYER "attention.self.query.bias"},
	{DT_W_K_B, LAYER "attention.self.key.bias"},
	{DT_W_V_B, LAYER "attention.self.value.bias"},
	{DT_W_O, LAYER "attention.output.dense.weight"},
	{DT_W_O_B, LAYER "attention.output.dense.bias"},
	{DT_W_ATTN_NORM, LAYER "attention.output.LayerNorm.weight"},
	{DT_W_ATTN_NORM_B, LAYER "attention.output.LayerNorm.bias"},
	{DT_W_UP, LAYER "intermediate.dense.weight"},
	{DT_W_UP_B, LAYER "intermediate.dense.bias"},
	{DT_W_DOWN, LAYER "output.dense.weight"},
	{DT_W_DOWN_B, LAYER "output.dense.bias"},
	{DT_W_MLP_NORM, LAYER "output.LayerNorm.weight"},
	{DT_W_MLP_NORM_B, LAYER "output.LayerNorm.bias"},
	{0},
};
static const struct dt_tensor_name bert[] = {
	{DT_W_MASKED, "cls.predictions.transform.dense.weight"},
	{DT_W_MASKED_B, "cls.predictions.transform.dense.bias"},
	{DT_W_MASKED_NORM, "cls.predictions.transform.LayerNorm.weight"},
	{DT_W_MASKED_NORM_B, "cls.predictions.transform.LayerNorm.bias"},
	{DT_W_HEAD, "cls.predictions.decoder.weight"},
	{DT_W_HEAD_B, "cls.predictions.bias"},
	{DT_W_POOLER, "pooler.dense.weight"},
	{DT_W_POOLER_B, "pooler.dense.bias"},
	{DT_W_LABELS_DENSE, "pooler.dense.weight"},
	{DT_W_LABELS_DENSE_B, "pooler.dense.bias"},
	{DT_W_LABELS, "classifier.weight"},
	{DT_W_LABELS_B, "classifier.bias"},
	{0},
};
/* A RoBERTa with classes has a linear of the classifier where BERT has the pooler. */
static const struct dt_tensor_name roberta[] = {
	{DT_W_MASKED, "lm_head.dense.weight"},
	{DT_W_MASKED_B, "lm_head.dense.bias"},
	{DT_W_MASKED_NORM, "lm_head.layer_norm.weight"},
	{DT_W_MASKED_NORM_B, "lm_head.layer_norm.bias"},
	{DT_W_HEAD, "lm_head.decoder.weight"},
	{DT_W_HEAD_B, "lm_head.bias"},
	{DT_W_POOLER, "pooler.dense.weight"},
	{DT_W_POOLER_B, "pooler.dense.bias"},
	{DT_W_LABELS_DENSE, "classifier.dense.weight"},
	{DT_W_LABELS_DENSE_B, "classifier.dense.bias"},
	{DT_W_LABELS, "classifier.out_proj.weight"},
	{DT_W_LABELS_B, "classifier.out_proj.bias"},
	{0},
};

static bool begins(const char *name, const char *with)
{
	return !strncmp(name, with, strlen(with));
}

/* Copies of tied tensors; the head that predicts whether sentences follow; a pooler that no head reads. */
static bool is_buffer(const struct dt_config *c, const char *name)
{
	return !strcmp(name, "embeddings.position_ids") || begins(name, "cls.seq_relationship.") ||
	       !strcmp(name, "cls.predictions.decoder.bias") || !strcmp(name, "lm_head.decoder.bias") ||
	       (c->tied && (!strcmp(name, "cls.predictions.decoder.weight") ||
			    !strcmp(name, "lm_head.decoder.weight"))) ||
	       (c->head != DT_ENCODER_MASKED && (begins(name, "cls.") || begins(name, "lm_head."))) ||
	       (c->head == DT_ENCODER_MASKED && begins(name, "pooler."));
}

/* Tensors of heads have no prefix, and those of a model without a head have none. */
static bool has_prefix(const struct dt_config *c, const char *name)
{
	return c->head != DT_ENCODER_NONE && !begins(name, "cls.") && !begins(name, "lm_head.") &&
	       !begins(name, "classifier.");
}

const struct dt_family dt_family_bert = {
	.type = "bert",
	.class = "BertForMaskedLM",
	.prefix = "bert.",
	.arch = "bert",
	.hf = {shared, bert},
	.gguf = {gguf, dt_names_gguf},
	.hf_vocab = 30522,
	.from_hf = from_hf,
	.to_hf = to_hf,
	.from_gguf = from_gguf,
	.is_buffer = is_buffer,
	.has_prefix = has_prefix,
	.build = build,
};

const struct dt_family dt_family_roberta = {
	.type = "roberta",
	.class = "RobertaForMaskedLM",
	.prefix = "roberta.",
	.hf = {shared, roberta},
	.hf_vocab = 50265,
	.from_hf = roberta_from_hf,
	.to_hf = to_hf,
	.is_buffer = is_buffer,
	.has_prefix = has_prefix,
	.build = build,
};

const struct dt_family dt_family_xlm_roberta = {
	.type = "xlm-roberta",
	.class = "XLMRobertaForMaskedLM",
	.prefix = "roberta.",
	.hf = {shared, roberta},
	.hf_vocab = 30522,
	.from_hf = roberta_from_hf,
	.to_hf = to_hf,
	.is_buffer = is_buffer,
	.has_prefix = has_prefix,
	.build = build,
};
/* SPDX-License-Identifier: Apache-2.0 */
