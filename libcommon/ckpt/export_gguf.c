/* GGUF, version 3. */
#include "ckpt/export_internal.h"

#include "base/tmpfile.h"
#include "kernels/rope.h"
#include "model/family.h"
#include "model/same.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ALIGN  32
#define NKV_AT 16 /* bytes before the number of keys */

void exp_gguf_text(FILE *f, const char *s, size_t n)
{
	uint64_t len = n;

	fwrite(&len, 8, 1, f);
	fwrite(s, 1, n, f);
}

static void put_key(FILE *f, const char *key, enum dt_gguf_type type)
{
	uint32_t t = type;

	exp_gguf_text(f, key, strlen(key));
	fwrite(&t, 4, 1, f);
}

void exp_gguf_str(FILE *f, const char *key, const char *s, size_t n)
{
	put_key(f, key, DT_GGUF_STRING);
	exp_gguf_text(f, s, n);
}

void exp_gguf_u32(FILE *f, const char *key, int64_t v)
{
	uint32_t u = (uint32_t)v;

	put_key(f, key, DT_GGUF_U32);
	fwrite(&u, 4, 1, f);
}

void exp_gguf_bool(FILE *f, const char *key, bool v)
{
	put_key(f, key, DT_GGUF_BOOL);
	fputc(v, f);
}

void exp_gguf_array(FILE *f, const char *key, enum dt_gguf_type type, uint64_t n)
{
	uint32_t t = type;

	put_key(f, key, DT_GGUF_ARRAY);
	fwrite(&t, 4, 1, f);
	fwrite(&n, 8, 1, f);
}

static void put_f32(FILE *f, const char *key, double v)
{
	float x = (float)v;

	put_key(f, key, DT_GGUF_F32);
	fwrite(&x, 4, 1, f);
}

/* NULL: GGUF has none. */
static const char *arch_of(const struct dt_config *c)
{
	const struct dt_family *f = dt_family_find(c->family);

	return f ? f->arch : NULL;
}

static int put_config(struct exporter *e, FILE *f, int file_type)
{
	const struct dt_config *c = dt_source_config(e->s);
	const char *arch = arch_of(c);
	bool rope = c->pos == DT_POS_ROPE;
	const struct {
		const char *key;
		int64_t v;
		bool put;
	} sizes[] = {
		{"context_length", c->max_seq, true},
		{"embedding_length", c->hidden, true},
		{"block_count", c->layers, true},
		{"feed_forward_length", c->ffn, true},
		{"vocab_size", c->vocab, true},
		{"attention.head_count", c->heads, true},
		{"attention.head_count_kv", c->kv_heads, rope},
		{"attention.key_length", c->head_dim, rope},
		{"attention.value_length", c->head_dim, rope},
		{"rope.dimension_count", c->head_dim, rope},
		{"attention.sliding_window", c->window, c->window > 0},
		{"attention.sliding_window_pattern", c->global_every, c->global_every > 0},
		{"expert_count", c->experts, c->experts > 0},
		{"expert_used_count", c->experts_used, c->experts > 0},
		{"expert_feed_forward_length", c->expert_ffn, dt_family_find(c->family)->gguf_expert_width},
	};
	char key[96];
	int n = 0;

	exp_gguf_str(f, "general.architecture", arch, strlen(arch));
	exp_gguf_str(f, "general.name", c->name, strlen(c->name));
	exp_gguf_u32(f, "general.alignment", ALIGN);
	exp_gguf_u32(f, "general.quantization_version", 2);
	exp_gguf_u32(f, "general.file_type", file_type);
	n = 5;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (!sizes[i].put)
			continue;
		snprintf(key, sizeof(key), "%s.%s", arch, sizes[i].key);
		exp_gguf_u32(f, key, sizes[i].v);
		n++;
	}
	snprintf(key, sizeof(key), "%s.attention.layer_norm_%sepsilon", arch,
		 c->norm == DT_NORM_LAYER ? "" : "rms_");
	put_f32(f, key, c->norm_eps);
	n++;
	if (!rope)
		return n;
	snprintf(key, sizeof(key), "%s.rope.freq_base", arch);
	put_f32(f, key, c->rope_theta);
	n++;
	if (c->score_cap > 0) {
		snprintf(key, sizeof(key), "%s.attn_logit_softcapping", arch);
		put_f32(f, key, c->score_cap);
		n++;
	}
	if (c->logit_cap > 0) {
		snprintf(key, sizeof(key), "%s.final_logit_softcapping", arch);
		put_f32(f, key, c->logit_cap);
		n++;
	}
	if (c->rope_local_theta > 0) {
		snprintf(key, sizeof(key), "%s.rope.freq_base_swa", arch);
		put_f32(f, key, c->rope_local_theta);
		n++;
	}
	if (c->rope_scaling == DT_ROPE_SCALING_LINEAR) {
		snprintf(key, sizeof(key), "%s.rope.scaling.type", arch);
		exp_gguf_str(f, key, "linear", 6);
		snprintf(key, sizeof(key), "%s.rope.scaling.factor", arch);
		put_f32(f, key, c->rope_factor);
		n += 2;
	}
	return n;
}

static uint64_t align_up(uint64_t n)
{
	return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static void put_info(FILE *f, const char *name, int ndim, const int64_t *shape, enum dt_format format,
		     uint64_t at)
{
	uint32_t n = (uint32_t)ndim, type = (uint32_t)dt_format_info(format)->gguf;

	exp_gguf_text(f, name, strlen(name));
	fwrite(&n, 4, 1, f);
	for (int d = ndim - 1; d >= 0; d--)
		fwrite(&shape[d], 8, 1, f);
	fwrite(&type, 4, 1, f);
	fwrite(&at, 8, 1, f);
}

/* The list of tensors; returns the bytes of all data. Llama 3's divisors come first. */
static uint64_t put_infos(struct exporter *e, FILE *f, int64_t half)
{
	uint64_t at = 0;

	if (half) {
		put_info(f, "rope_freqs.weight", 1, &half, DT_FMT_F32, 0);
		at = align_up((uint64_t)half * 4);
	}
	for (int i = 0; i < e->n; i++) {
		struct exp_tensor *t = &e->t[i];

		const int64_t deep[3] = {t->stack, t->stack ? t->shape[0] / t->stack : 0, t->shape[1]};

		t->at = at;
		put_info(f, t->name, t->stack ? 3 : t->ndim, t->stack ? deep : t->shape, t->format, at);
		at = align_up(at + t->bytes);
	}
	return at;
}

static void put_divisors(FILE *f, const struct dt_config *c)
{
	for (int64_t i = 0; i < c->head_dim / 2; i++) {
		float x = (float)(pow(c->rope_theta, -2.0 * (double)i / (double)c->head_dim) /
				  dt_rope_frequency(c, i));

		fwrite(&x, 4, 1, f);
	}
	exp_zeros(f, align_up((uint64_t)c->head_dim * 2) - (uint64_t)c->head_dim * 2);
}

/* The head as a reader will take it, over a file of zeros that is never written. */
static int check_head(struct exporter *e, const char *head, size_t n, uint64_t data, bool factors,
		      struct dt_err *err)
{
	size_t size = n + (size_t)data;
	char *p =
		mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	const struct dt_config *c = dt_source_config(e->s);
	const char *what = "";
	struct dt_config back;
	struct dt_gguf g;
	int rc;

	if (p == MAP_FAILED)
		return dt_err_sys(err, -errno, "cannot check the head of the file");
	memcpy(p, head, n);
	for (int64_t i = 0; factors && i < c->head_dim / 2; i++) {
		float x = (float)(pow(c->rope_theta, -2.0 * (double)i / (double)c->head_dim) /
				  dt_rope_frequency(c, i));

		memcpy(p + n + 4 * i, &x, 4);
	}
	rc = dt_gguf_parse(p, size, "the file to be written", &g, err);
	if (rc == 0) {
		rc = dt_config_from_gguf(&g, &back, err);
		if (rc == 0 && (!dt_config_same(c, &back, &what) || back.rope_pairing != e->pairing))
			rc = dt_err_set(err, -ENOTSUP,
					"a GGUF file of architecture '%s' cannot say what this model is: %s",
					arch_of(c), what);
		dt_gguf_release(&g);
	}
	munmap(p, size);
	return rc;
}

/* The number of keys, at NKV_AT, is put in by the caller: a stream in memory cannot go back. */
static int make_head(struct exporter *e, FILE *f, uint64_t *ret_data, uint64_t *ret_nkv, struct dt_err *err)
{
	const struct dt_config *c = dt_source_config(e->s);
	bool factors = c->rope_scaling == DT_ROPE_SCALING_LLAMA3;
	const char *chat = dt_source_chat_template(e->s);
	uint64_t ntensor = (uint64_t)e->n + factors, nkv = 0;
	uint32_t version = 3;
	int file_type = 0, tok = 0, rc;
	uint64_t bytes[DT_FMT_N] = {0}, best = 0;

	for (int i = 0; i < e->n; i++) /* the type of most of the weights */
		if ((bytes[e->t[i].format] += e->t[i].bytes) > best) {
			best = bytes[e->t[i].format];
			file_type = dt_format_info(e->t[i].format)->file_type;
		}
	fwrite("GGUF", 1, 4, f);
	fwrite(&version, 4, 1, f);
	fwrite(&ntensor, 8, 1, f);
	fwrite(&nkv, 8, 1, f);
	nkv = (uint64_t)put_config(e, f, file_type);
	rc = exp_gguf_tokenizer(e, f, &tok, err);
	if (rc < 0)
		return rc;
	nkv += (uint64_t)tok;
	if (chat) {
		exp_gguf_str(f, "tokenizer.chat_template", chat, strlen(chat));
		nkv++;
	}
	*ret_data = put_infos(e, f, factors ? c->head_dim / 2 : 0);
	exp_zeros(f, align_up((uint64_t)ftell(f)) - (uint64_t)ftell(f));
	*ret_nkv = nkv;
	return 0;
}

int exp_gguf(struct exporter *e, const char *dst, struct dt_err *err)
{
	const struct dt_config *c = dt_source_config(e->s);
	bool factors = c->rope_scaling == DT_ROPE_SCALING_LLAMA3;
	struct dt_tmpfile f;
	char *head = NULL;
	uint64_t data = 0, nkv = 0;
	size_t n = 0;
	FILE *mem;
	int rc;

	if (!arch_of(c))
		return dt_err_set(err, -ENOTSUP, "GGUF has no architecture for family '%s' here", c->family);
	rc = exp_list(e, true, err);
	if (rc < 0)
		return rc;
	mem = open_memstream(&head, &n);
	if (!mem)
		return dt_err_sys(err, -ENOMEM, "cannot write '%s'", dst);
	rc = make_head(e, mem, &data, &nkv, err);
	if (fclose(mem) != 0 && rc == 0)
		rc = dt_err_sys(err, -ENOMEM, "cannot write '%s'", dst);
	if (rc == 0)
		memcpy(head + NKV_AT, &nkv, 8);
	if (rc == 0)
		rc = check_head(e, head, n, data, factors, err);
	if (rc == 0)
		rc = dt_tmpfile_open(&f, dst, err);
	if (rc == 0) {
		fwrite(head, 1, n, f.f);
		if (factors)
			put_divisors(f.f, c);
		for (int i = 0; i < e->n && rc == 0; i++) {
			rc = exp_write(e, &e->t[i], f.f, err);
			exp_zeros(f.f, align_up(e->t[i].bytes) - e->t[i].bytes);
		}
		if (rc == 0)
			rc = dt_tmpfile_commit(&f, err);
		else
			dt_tmpfile_abort(&f);
	}
	free(head);
	return rc;
}
