/* Writes llm.c's and llama2.c's model files; source_bin.c describes the layout. */
#include "ckpt/export_internal.h"

#include "base/tmpfile.h"
#include "kernels/activation.h"
#include "model/same.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define LLMC_PAD 128 /* the vocabulary is padded to a multiple of it */

/* Writes the arrays of names; a name with %d is one array over all layers. */
static int write_arrays(struct exporter *e, const char *const *names, int n, FILE *f, uint64_t pad,
			struct dt_err *err)
{
	int64_t layers = dt_source_config(e->s)->layers;
	int rc = 0;

	for (int i = 0; i < n && rc == 0; i++) {
		const char *percent = strstr(names[i], "%d");

		for (int64_t l = 0; l < (percent ? layers : 1) && rc == 0; l++) {
			char name[DT_NAMES_MAX];
			const struct exp_tensor *t;

			if (percent)
				snprintf(name, sizeof(name), "%.*s%lld%s", (int)(percent - names[i]),
					 names[i], (long long)l, percent + 2);
			else
				snprintf(name, sizeof(name), "%s", names[i]);
			t = exp_find(e, name);
			rc = t ? exp_write(e, t, f, err)
			       : dt_err_set(err, -ENOTSUP,
					    "the format needs '%s', which the model does not have", name);
		}
		if (i == 0)
			exp_zeros(f, pad); /* padding rows of the embedding */
	}
	return rc;
}

static int refuse(const char *what, const struct dt_config *c, struct dt_err *err)
{
	return dt_err_set(err, -ENOTSUP, "the format of %s cannot represent this model (%s, family '%s')",
			  what, c->name, c->family);
}

int exp_llmc(struct exporter *e, const char *dst, struct dt_err *err)
{
	static const char *const names[] = {
		"token_embd.weight",	     "position_embd.weight",	"blk.%d.attn_norm.weight",
		"blk.%d.attn_norm.bias",     "blk.%d.attn_qkv.weight",	"blk.%d.attn_qkv.bias",
		"blk.%d.attn_output.weight", "blk.%d.attn_output.bias", "blk.%d.ffn_norm.weight",
		"blk.%d.ffn_norm.bias",	     "blk.%d.ffn_up.weight",	"blk.%d.ffn_up.bias",
		"blk.%d.ffn_down.weight",    "blk.%d.ffn_down.bias",	"output_norm.weight",
		"output_norm.bias"};
	const struct dt_config *c = dt_source_config(e->s);
	int64_t vp = (c->vocab + LLMC_PAD - 1) / LLMC_PAD * LLMC_PAD;
	int32_t head[256] = {20240326,
			     3,
			     (int32_t)c->max_seq,
			     (int32_t)c->vocab,
			     (int32_t)c->layers,
			     (int32_t)c->heads,
			     (int32_t)c->hidden,
			     (int32_t)vp};
	struct dt_tmpfile f;
	int rc;

	if (strcmp(c->family, "gpt2") || !c->tied || c->ffn != 4 * c->hidden || c->norm_eps != 1e-5 ||
	    c->norm != DT_NORM_LAYER || c->pos != DT_POS_LEARNED || c->act != DT_ACT_GELU_TANH ||
	    !c->qkv_bias || !c->out_bias || !c->mlp_bias)
		return refuse("llm.c", c, err);
	rc = exp_list(e, false, err);
	if (rc < 0)
		return rc;
	/* one type for all tensors: bf16 if asked for, or if all are bf16 */
	head[1] = e->x->format == DT_FMT_BF16 ? 5 : 3;
	for (int i = 0; e->x->format < 0 && i < e->n; i++)
		head[1] = (i == 0 || head[1] == 5) && e->t[i].format == DT_FMT_BF16 ? 5 : 3;
	if (e->x->format >= 0 && e->x->format != DT_FMT_F32 && e->x->format != DT_FMT_BF16)
		return dt_err_set(err, -ENOTSUP, "files of llm.c can only have type f32 or bf16");
	for (int i = 0; i < e->n; i++)
		e->t[i].format = head[1] == 5 ? DT_FMT_BF16 : DT_FMT_F32;
	e->file = dst;
	rc = dt_tmpfile_open(&f, dst, err);
	if (rc < 0)
		return rc;
	fwrite(head, 4, 256, f.f);
	rc = write_arrays(e, names, sizeof(names) / sizeof(*names), f.f,
			  (uint64_t)((vp - c->vocab) * c->hidden) * (head[1] == 5 ? 2 : 4), err);
	if (rc == 0)
		return dt_tmpfile_commit(&f, err);
	dt_tmpfile_abort(&f);
	return rc;
}

/* Writes two unused tables: cosines and sines of every position. */
static void put_tables(FILE *f, const struct dt_config *c)
{
	for (int k = 0; k < 2; k++)
		for (int64_t t = 0; t < c->max_seq; t++)
			for (int64_t i = 0; i < c->head_dim / 2; i++) {
				double a = (double)t * dt_rope_frequency(c, i);
				float x = (float)(k ? sin(a) : cos(a));

				fwrite(&x, 4, 1, f);
			}
}

int exp_llama2c(struct exporter *e, const char *dst, struct dt_err *err)
{
	static const char *const names[] = {
		"token_embd.weight",	  "blk.%d.attn_norm.weight", "blk.%d.attn_q.weight",
		"blk.%d.attn_k.weight",	  "blk.%d.attn_v.weight",    "blk.%d.attn_output.weight",
		"blk.%d.ffn_norm.weight", "blk.%d.ffn_gate.weight",  "blk.%d.ffn_down.weight",
		"blk.%d.ffn_up.weight",	  "output_norm.weight"};
	static const char *const last[] = {"output.weight"};
	const struct dt_config *c = dt_source_config(e->s);
	const int32_t vocab = (int32_t)c->vocab;
	const struct src_llama2c head = {(int32_t)c->hidden, (int32_t)c->ffn,	   (int32_t)c->layers,
					 (int32_t)c->heads,  (int32_t)c->kv_heads, c->tied ? vocab : -vocab,
					 (int32_t)c->max_seq};
	const struct dt_config back = src_llama2c_config(&head);
	struct dt_tmpfile f;
	int rc;

	if (!dt_config_same(c, &back, NULL))
		return refuse("llama2.c", c, err);
	if (e->x->format >= 0 && e->x->format != DT_FMT_F32)
		return dt_err_set(err, -ENOTSUP, "files of llama2.c can only have type f32");
	rc = exp_list(e, false, err);
	if (rc < 0)
		return rc;
	for (int i = 0; i < e->n; i++)
		e->t[i].format = DT_FMT_F32;
	e->file = dst;
	rc = dt_tmpfile_open(&f, dst, err);
	if (rc < 0)
		return rc;
	fwrite(&head, sizeof(head), 1, f.f);
	rc = write_arrays(e, names, sizeof(names) / sizeof(*names), f.f, 0, err);
	if (rc == 0)
		put_tables(f.f, c);
	if (rc == 0 && !c->tied)
		rc = write_arrays(e, last, 1, f.f, 0, err);
	if (rc == 0)
		return dt_tmpfile_commit(&f, err);
	dt_tmpfile_abort(&f);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
