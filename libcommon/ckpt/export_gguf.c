/* Writes GGUF, version 3. */
#include "ckpt/export_internal.h"

#include "base/tmpfile.h"
#include "kernels/activation.h"
#include "kernels/rope.h"
#include "model/family.h"
#include "model/same.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* NULL: GGUF has no such architecture. */
static const char *arch_of(const struct dt_config *c)
{
	const struct dt_family *f = dt_family_find(c->family);

	return f ? f->arch : NULL;
}

/* DeepSeek's router, which others have too: dt_gguf_router reads these keys. */
static bool has_router_keys(const struct dt_config *c)
{
	return c->kv_rank > 0 || c->router_sigmoid;
}

static void put_sizes(const struct dt_config *c, struct gguf_out *g, const char *arch)
{
	const struct dt_family *f = dt_family_find(c->family);
	bool rope = c->pos == DT_POS_ROPE, deep = has_router_keys(c);
	const struct {
		const char *key;
		int64_t v;
		bool put;
	} sizes[] = {
		{"context_length", c->max_seq, true},
		{"embedding_length", c->hidden, true},
		{"block_count", dt_config_blocks_all(c), true},
		{"nextn_predict_layers", c->mtp_layers, c->mtp_layers > 0},
		{"feed_forward_length", c->ffn, true},
		{"vocab_size", c->vocab, true},
		{"attention.head_count", c->heads, true},
		{"attention.head_count_kv", c->kv_heads, rope},
		{"attention.key_length", c->head_dim, rope},
		{"attention.value_length", c->kv_rank ? c->v_dim : c->head_dim, rope},
		{"attention.kv_lora_rank", c->kv_rank, c->kv_rank > 0},
		{"attention.q_lora_rank", c->q_rank, c->q_rank > 0},
		{"rope.dimension_count", dt_rope_dim(c), rope},
		{"attention.sliding_window", c->window, c->window > 0},
		{"attention.sliding_window_pattern", c->global_every, c->global_every > 0},
		{"expert_count", c->experts, c->experts > 0},
		{"expert_used_count", c->experts_used, c->experts > 0},
		{"expert_feed_forward_length", c->expert_ffn, f->gguf_expert_width},
		{"leading_dense_block_count", c->dense_layers, deep},
		{"expert_shared_count", c->shared_ffn ? c->shared_ffn / c->expert_ffn : 0,
		 c->shared_ffn > 0 && !f->gguf_shared_width},
		{"expert_shared_feed_forward_length", c->shared_ffn,
		 c->shared_ffn > 0 && f->gguf_shared_width},
		{"expert_gating_func", c->router_sigmoid ? 2 : 1, deep},
		{"expert_group_count", c->router_groups, c->router_groups > 0},
		{"expert_group_used_count", c->router_groups_used, c->router_groups > 0},
	};
	char key[96];

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (!sizes[i].put)
			continue;
		snprintf(key, sizeof(key), "%s.%s", arch, sizes[i].key);
		gguf_out_u32(g, key, sizes[i].v);
	}
}

/* Writes the keys of models with rotary positions, besides sizes. */
static void put_rotary(const struct dt_config *c, struct gguf_out *g, const char *arch)
{
	char key[96];

	if (has_router_keys(c)) {
		snprintf(key, sizeof(key), "%s.expert_weights_norm", arch);
		gguf_out_bool(g, key, !c->router_unscaled);
	}
	if (has_router_keys(c) && c->router_scale > 0) {
		snprintf(key, sizeof(key), "%s.expert_weights_scale", arch);
		gguf_out_f32(g, key, c->router_scale);
	}
	if (c->score_mscale > 1) { /* a tenth of mscale_all_dim */
		snprintf(key, sizeof(key), "%s.rope.scaling.yarn_log_multiplier", arch);
		gguf_out_f32(g, key, (c->score_mscale - 1) / log(c->rope_factor));
	}
	snprintf(key, sizeof(key), "%s.rope.freq_base", arch);
	gguf_out_f32(g, key, dt_rope_base(c));
	if (c->score_cap > 0) {
		snprintf(key, sizeof(key), "%s.attn_logit_softcapping", arch);
		gguf_out_f32(g, key, c->score_cap);
	}
	if (c->logit_cap > 0) {
		snprintf(key, sizeof(key), "%s.final_logit_softcapping", arch);
		gguf_out_f32(g, key, c->logit_cap);
	}
	if (c->rope_local_theta > 0) {
		snprintf(key, sizeof(key), "%s.rope.freq_base_swa", arch);
		gguf_out_f32(g, key, c->rope_local_theta);
	}
	if (c->rope_scaling == DT_ROPE_SCALING_LONGROPE) {
		snprintf(key, sizeof(key), "%s.rope.scaling.type", arch);
		gguf_out_str(g, key, "longrope", 8);
		snprintf(key, sizeof(key), "%s.rope.scaling.attn_factor", arch);
		gguf_out_f32(g, key, c->rope_mscale);
	}
	if (c->rope_scaling == DT_ROPE_SCALING_YARN || /* with the paper's parameters; others are refused */
	    c->rope_scaling == DT_ROPE_SCALING_LONGROPE) {
		snprintf(key, sizeof(key), "%s.rope.scaling.original_context_length", arch);
		gguf_out_u32(g, key, (uint32_t)c->rope_original_seq);
	}
	if (c->rope_scaling == DT_ROPE_SCALING_LINEAR || c->rope_scaling == DT_ROPE_SCALING_YARN) {
		snprintf(key, sizeof(key), "%s.rope.scaling.type", arch);
		if (c->rope_scaling == DT_ROPE_SCALING_YARN)
			gguf_out_str(g, key, "yarn", 4);
		else
			gguf_out_str(g, key, "linear", 6);
		snprintf(key, sizeof(key), "%s.rope.scaling.factor", arch);
		gguf_out_f32(g, key, c->rope_factor);
	}
}

/* Granite's factors; those that are 1 too. */
static void put_factors(const struct dt_config *c, struct gguf_out *g, const char *arch)
{
	const struct {
		const char *key;
		double v;
	} factors[] = {{"attention.scale", dt_score_scale(c)},
		       {"embedding_scale", dt_factor(c->embed_factor)},
		       {"residual_scale", dt_factor(c->residual_factor)},
		       {"logit_scale", dt_factor(c->logit_divisor)}};
	char key[96];

	for (size_t i = 0; i < sizeof(factors) / sizeof(factors[0]); i++) {
		snprintf(key, sizeof(key), "%s.%s", arch, factors[i].key);
		gguf_out_f32(g, key, factors[i].v);
	}
}

static void put_logit_factor(const struct dt_config *c, struct gguf_out *g, const char *arch)
{
	char key[96];

	snprintf(key, sizeof(key), "%s.logit_scale", arch);
	gguf_out_f32(g, key, dt_logit_scale(c));
}

/* Readers assume the exact GELU. */
static void put_parallel(const struct dt_config *c, struct gguf_out *g, const char *arch)
{
	static const char tanh_gelu[] = "gelu_new";
	char key[96];

	snprintf(key, sizeof(key), "%s.use_parallel_residual", arch);
	gguf_out_bool(g, key, c->parallel_residual);
	if (c->act != DT_ACT_GELU_TANH)
		return;
	snprintf(key, sizeof(key), "%s.hidden_activation", arch);
	gguf_out_str(g, key, tanh_gelu, strlen(tanh_gelu));
}

/* Keys of encoders. llama.cpp reads how many classes there are from their names. */
static void put_encoder(const struct dt_config *c, struct gguf_out *g, const char *arch)
{
	static const int pooling[] = {[DT_POOLING_OPEN] = 0, [DT_POOLING_MEAN] = 1, [DT_POOLING_CLS] = 2};
	const bool classes = c->head == DT_ENCODER_CLASSES;
	char key[96], name[32];

	snprintf(key, sizeof(key), "%s.attention.causal", arch);
	gguf_out_bool(g, key, false);
	gguf_out_u32(g, "tokenizer.ggml.token_type_count", c->token_types);
	snprintf(key, sizeof(key), "%s.pooling_type", arch);
	if (classes || c->pooling != DT_POOLING_OPEN)
		gguf_out_u32(g, key, classes ? 4 : pooling[c->pooling]);
	if (!classes)
		return;
	snprintf(key, sizeof(key), "%s.classifier.output_labels", arch);
	gguf_out_array(g, key, DT_GGUF_STRING, (uint64_t)c->labels);
	for (int64_t i = 0; i < c->labels; i++) {
		snprintf(name, sizeof(name), "LABEL_%lld", (long long)i);
		gguf_out_text(g, name, strlen(name));
	}
}

static void put_config(struct exporter *e, struct gguf_out *g, int file_type)
{
	const struct dt_config *c = dt_source_config(e->s);
	const char *arch = arch_of(c);
	char key[96];

	gguf_out_str(g, "general.architecture", arch, strlen(arch));
	gguf_out_str(g, "general.name", c->name, strlen(c->name));
	gguf_out_u32(g, "general.alignment", GGUF_ALIGN);
	gguf_out_u32(g, "general.quantization_version", 2);
	gguf_out_u32(g, "general.file_type", file_type);
	put_sizes(c, g, arch);
	snprintf(key, sizeof(key), "%s.attention.layer_norm_%sepsilon", arch,
		 c->norm == DT_NORM_LAYER ? "" : "rms_");
	gguf_out_f32(g, key, c->norm_eps);
	if (c->pos == DT_POS_ROPE)
		put_rotary(c, g, arch);
	if (c->encoder)
		put_encoder(c, g, arch);
	if (dt_family_find(c->family)->gguf_factors)
		put_factors(c, g, arch);
	if (dt_family_find(c->family)->gguf_logit_factor)
		put_logit_factor(c, g, arch);
	if (dt_family_find(c->family)->gguf_parallel)
		put_parallel(c, g, arch);
}

/* Tensors of a number for each rotated pair, which come first: at most 2. */
struct pairs {
	const char *name[2];
	int n;
};

static struct pairs pairs_of(const struct dt_config *c)
{
	if (c->rope_scaling == DT_ROPE_SCALING_LLAMA3)
		return (struct pairs){{"rope_freqs.weight"}, 1};
	if (c->rope_scaling == DT_ROPE_SCALING_LONGROPE)
		return (struct pairs){{"rope_factors_long.weight", "rope_factors_short.weight"}, 2};
	return (struct pairs){{NULL}, 0};
}

static uint64_t pairs_bytes(const struct dt_config *c)
{
	return gguf_align_up((uint64_t)dt_rope_dim(c) * 2);
}

/* Element i of tensor k: what divides the frequency of a pair. */
static float divisor(const struct dt_config *c, int k, int64_t i)
{
	const double plain = pow(c->rope_theta, -2.0 * (double)i / (double)dt_rope_dim(c));

	if (c->rope_scaling == DT_ROPE_SCALING_LONGROPE)
		return k ? c->rope_short[i] : c->rope_long[i];
	return (float)(plain / dt_rope_frequency(c, i));
}

/* Writes the list of tensors; returns the bytes of all data. */
static uint64_t put_infos(struct exporter *e, struct gguf_out *g, const struct dt_config *c)
{
	const struct pairs pairs = pairs_of(c);
	const int64_t half = dt_rope_dim(c) / 2;
	uint64_t at = 0;

	for (int k = 0; k < pairs.n; k++, at += pairs_bytes(c))
		gguf_out_tensor(g, pairs.name[k], 1, &half, DT_FMT_F32, at);
	for (int i = 0; i < e->n; i++) {
		struct exp_tensor *t = &e->t[i];
		int64_t dims[4];
		int ndim = exp_dims(e, t, dims);

		t->at = at;
		gguf_out_tensor(g, t->name, ndim, dims, t->format, at);
		at = gguf_align_up(at + t->bytes);
	}
	return at;
}

static void put_divisors(FILE *f, const struct dt_config *c)
{
	for (int k = 0; k < pairs_of(c).n; k++) {
		for (int64_t i = 0; i < dt_rope_dim(c) / 2; i++) {
			float x = divisor(c, k, i);

			fwrite(&x, 4, 1, f);
		}
		exp_zeros(f, pairs_bytes(c) - (uint64_t)dt_rope_dim(c) * 2);
	}
}

/* Parses the head as a reader would, in front of zeros in place of the data. */
static int check_head(struct exporter *e, const char *head, size_t n, uint64_t data, struct dt_err *err)
{
	size_t size = n + (size_t)data;
	char *p =
		mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	const struct dt_config *c = dt_source_config(e->s);
	const char *what = "";
	struct dt_err why = {0};
	struct dt_config back, without = *c; /* readers see modules by their tensors */
	struct dt_gguf g;
	int rc;

	if (p == MAP_FAILED)
		return dt_err_sys(err, -errno, "cannot check the head of the file");
	memcpy(p, head, n);
	for (int k = 0; k < pairs_of(c).n; k++)
		for (int64_t i = 0; i < dt_rope_dim(c) / 2; i++) {
			float x = divisor(c, k, i);

			memcpy(p + n + (uint64_t)k * pairs_bytes(c) + 4 * i, &x, 4);
		}
	without.mtp_layers = 0;
	rc = dt_gguf_parse(p, size, "the file to be written", &g, err);
	if (rc == 0) {
		rc = dt_config_from_gguf(&g, &back, &why);
		if (rc < 0)
			what = why.msg;
		else if (dt_config_same(&without, &back, &what) &&
			 (back.rope_pairing != e->pairing || (c->rope_dim && c->rope_pairing != e->pairing)))
			what = "its rotary order"; /* rows that are rotated in part are not reordered */
		if (*what)
			rc = dt_err_set(err, -ENOTSUP,
					"a GGUF file of architecture '%s' cannot represent this model: %s",
					arch_of(c), what);
		dt_gguf_release(&g);
	}
	munmap(p, size);
	return rc;
}

/* The number of keys is filled in at the end, as a stream in memory cannot seek back. */
static int make_head(struct exporter *e, struct gguf_out *g, FILE *f, uint64_t *ret_data, struct dt_err *err)
{
	const struct dt_config *c = dt_source_config(e->s);
	const char *chat = dt_source_chat_template(e->s);
	uint64_t bytes[DT_FMT_N] = {0}, best = 0;
	int file_type = 0, rc;

	for (int i = 0; i < e->n; i++) /* the format of most of the bytes */
		if ((bytes[e->t[i].format] += e->t[i].bytes) > best) {
			best = bytes[e->t[i].format];
			file_type = dt_format_info(e->t[i].format)->file_type;
		}
	if (e->x->mix)
		file_type = dt_format_mix_file_type(e->x->mix);
	gguf_out_begin(g, f, (uint64_t)(e->n + pairs_of(c).n));
	put_config(e, g, file_type);
	rc = exp_gguf_tokenizer(e, g, err);
	if (rc < 0)
		return rc;
	if (chat)
		gguf_out_str(g, "tokenizer.chat_template", chat, strlen(chat));
	*ret_data = put_infos(e, g, c);
	exp_zeros(f, gguf_align_up((uint64_t)ftell(f)) - (uint64_t)ftell(f));
	return 0;
}

int exp_gguf(struct exporter *e, const char *dst, struct dt_err *err)
{
	const struct dt_config *c = dt_source_config(e->s);
	struct dt_tmpfile f;
	char *head = NULL;
	uint64_t data = 0;
	struct gguf_out g = {0};
	size_t n = 0;
	FILE *mem;
	int rc;

	if (!arch_of(c))
		return dt_err_set(err, -ENOTSUP, "writing family '%s' as GGUF is not supported", c->family);
	rc = exp_list(e, true, err);
	if (rc < 0)
		return rc;
	mem = open_memstream(&head, &n);
	if (!mem)
		return dt_err_sys(err, -ENOMEM, "cannot write '%s'", dst);
	rc = make_head(e, &g, mem, &data, err);
	if (fclose(mem) != 0 && rc == 0)
		rc = dt_err_sys(err, -ENOMEM, "cannot write '%s'", dst);
	if (rc == 0)
		gguf_out_patch(&g, head);
	if (rc == 0)
		rc = check_head(e, head, n, data, err);
	e->file = dst;
	if (rc == 0)
		rc = dt_tmpfile_open(&f, dst, err);
	if (rc == 0) {
		fwrite(head, 1, n, f.f);
		put_divisors(f.f, c);
		for (int i = 0; i < e->n && rc == 0; i++) {
			rc = exp_write(e, &e->t[i], f.f, err);
			exp_zeros(f.f, gguf_align_up(e->t[i].bytes) - e->t[i].bytes);
		}
		if (rc == 0)
			rc = dt_tmpfile_commit(&f, err);
		else
			dt_tmpfile_abort(&f);
	}
	free(head);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
