/*
 * Matrices as AutoGPTQ and AutoAWQ pack them (source_coded.c reads them and describes the layouts). Blocks of
 * q4_0 and q8_0 are symmetric integers in groups of 32, so their codes are kept bit for bit.
 */
#include "ckpt/export_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GROUP 32 /* block size of both formats */

static const char weight[] = ".weight";

void dt_export_to(int word, struct dt_export *x)
{
	x->packing = word == DT_SOURCE_DT + 1	? DT_PACK_GPTQ
		     : word == DT_SOURCE_DT + 2 ? DT_PACK_AWQ
						: DT_PACK_NONE;
	x->to = x->packing ? DT_SOURCE_SAFETENSORS : (enum dt_source_kind)word;
}

int exp_packed_check(const struct dt_source *s, const struct dt_export *x, struct dt_err *err)
{
	const bool awq = x->packing == DT_PACK_AWQ;

	if (x->format == DT_FMT_Q4_0 || (x->format == DT_FMT_Q8_0 && !awq))
		return dt_config_is_image(dt_source_config(s))
			       ? dt_err_set(err, -EINVAL,
					    "image classifiers cannot be written as GPTQ or AWQ")
			       : 0;
	return dt_err_set(err, -EINVAL,
			  awq ? "--to awq needs --type q4_0" : "--to gptq needs --type q4_0 or q8_0");
}

bool exp_is_linear(const struct dt_config *c, const struct dt_param *p)
{
	return p->ndim == 2 && p->role != DT_W_ROUTER && !p->channels && p->layer >= 0 &&
	       p->layer < c->layers;
}

/* Whether its rows and columns fill whole blocks and words. */
bool exp_packed_takes(const struct exporter *e, const struct exp_tensor *t, const struct dt_param *p)
{
	const size_t n = strlen(t->name), k = sizeof(weight) - 1;

	const enum dt_format want = (enum dt_format)e->x->format;

	return dt_export_format(dt_source_config(e->s), p, want, e->x->packing) == want && !t->transposed &&
	       !t->stack && n > k && !strcmp(t->name + n - k, weight) && t->shape[0] % 8 == 0;
}

int exp_parts(const struct exporter *e, const struct exp_tensor *t, struct exp_part part[EXP_PARTS])
{
	const int64_t out = t->shape[0], in = t->shape[1], word = t->format == DT_FMT_Q8_0 ? 4 : 8;
	const bool awq = e->x->packing == DT_PACK_AWQ;

	part[0] = (struct exp_part){".qweight", "I32", 2, {awq ? in : in / word, awq ? out / word : out}};
	part[1] = (struct exp_part){".qzeros", "I32", 2, {in / GROUP, out / word}};
	part[2] = (struct exp_part){".scales", "F16", 2, {in / GROUP, out}};
	part[3] = (struct exp_part){".g_idx", "I32", 1, {in, 1}};
	for (int i = 0; i < EXP_PARTS; i++)
		part[i].bytes = (uint64_t)(part[i].dim[0] * part[i].dim[1]) * (i == 2 ? 2 : 4);
	return awq ? 3 : 4;
}

uint64_t exp_parts_bytes(const struct exporter *e, const struct exp_tensor *t)
{
	struct exp_part part[EXP_PARTS];
	uint64_t sum = 0;

	for (int i = exp_parts(e, t, part); i > 0; i--)
		sum += part[i - 1].bytes;
	return sum;
}

void exp_part_name(const char *name, const struct exp_part *p, char *ret, size_t n)
{
	snprintf(ret, n, "%.*s%s", (int)(strlen(name) - (sizeof(weight) - 1)), name, p->end);
}

/* The code of an element as these formats store it, with zero point 8 or 128. */
static uint32_t code(const struct exp_tensor *t, const char *blocks, int64_t row, int64_t col)
{
	const struct dt_format_info *f = dt_format_info(t->format);
	const uint8_t *b = (const uint8_t *)blocks + ((row * t->shape[1] + col) / GROUP) * f->bytes + 2;
	const int i = (int)(col % GROUP);

	if (t->format == DT_FMT_Q8_0)
		return (uint32_t)((int8_t)b[i] + 128);
	return i < 16 ? b[i] & 15u : b[i - 16] >> 4;
}

/* Word (i, j) of qweight. */
static uint32_t word_of(const struct exporter *e, const struct exp_tensor *t, const char *blocks, int64_t i,
			int64_t j)
{
	static const int place[8] = {0, 4, 1, 5, 2, 6, 3, 7}; /* AWQ's nibble of row 8 j + n */
	const int bits = t->format == DT_FMT_Q8_0 ? 8 : 4;
	uint32_t w = 0;

	for (int n = 0; n < 32 / bits; n++)
		w |= e->x->packing == DT_PACK_AWQ ? code(t, blocks, 8 * j + n, i) << 4 * place[n]
						  : code(t, blocks, j, i * 32 / bits + n) << bits * n;
	return w;
}

/* Writes row i of a part to dst. GPTQ's first version stores zero points minus one. */
static void fill(const struct exporter *e, const struct exp_tensor *t, const char *blocks, int k,
		 const struct exp_part *p, int64_t i, char *dst)
{
	const uint32_t zero = (t->format == DT_FMT_Q8_0 ? 0x80808080u : 0x88888888u);
	const uint32_t less = e->x->packing == DT_PACK_AWQ ? 0
			      : t->format == DT_FMT_Q8_0   ? 0x01010101u
							   : 0x11111111u;
	const int bytes = dt_format_info(t->format)->bytes;

	for (int64_t j = 0; j < p->dim[1]; j++) {
		uint32_t w = k == 0   ? word_of(e, t, blocks, i, j)
			     : k == 1 ? zero - less
				      : (uint32_t)(i / GROUP);

		if (k == 2)
			memcpy(dst + 2 * j, blocks + (j * (t->shape[1] / GROUP) + i) * bytes, 2);
		else
			memcpy(dst + 4 * j, &w, 4);
	}
}

int exp_write_parts(struct exporter *e, const struct exp_tensor *t, const char *blocks, FILE *f,
		    struct dt_err *err)
{
	struct exp_part part[EXP_PARTS];
	const int n = exp_parts(e, t, part);
	char *row = malloc((size_t)(t->shape[0] > t->shape[1] ? t->shape[0] : t->shape[1]) * 4);
	int rc = 0;

	if (!row)
		return dt_err_sys(err, -ENOMEM, "cannot write '%s'", t->name);
	for (int k = 0; k < n && rc == 0; k++) {
		const size_t bytes = (size_t)part[k].bytes / (size_t)part[k].dim[0];

		for (int64_t i = 0; i < part[k].dim[0] && rc == 0; i++) {
			fill(e, t, blocks, k, &part[k], i, row);
			rc = exp_put(e, row, bytes, f, err);
		}
	}
	free(row);
	return rc < 0 ? rc : exp_cancelled(e, t->bytes, err);
}

/* Adds a name within its layer, "self_attn.q_proj", if it is not in the list. */
static void add_module(json_t *list, const char *name)
{
	const char *at = strstr(name, "layers."), *dot = at ? strchr(at + 7, '.') : NULL;
	json_t *m = dot ? json_stringn(dot + 1, strlen(dot + 1) - (sizeof(weight) - 1)) : NULL, *o;
	size_t i;

	json_array_foreach(list, i, o) if (json_equal(o, m))
	{
		json_decref(m);
		return;
	}
	if (m)
		json_array_append_new(list, m);
}

/*
 * The quantization_config. It lists the packed linears (GPTQ) or the linears not packed (AWQ), unless all
 * linears of the layers are packed.
 */
json_t *exp_packed_config(const struct exporter *e)
{
	json_t *yes = json_array(), *no = json_array(), *o;
	const bool awq = e->x->packing == DT_PACK_AWQ;

	for (int i = 0; i < e->n; i++) {
		const struct dt_param *p = &dt_source_params(e->s)->p[e->t[i].part[0]];

		if (e->t[i].packed ||
		    (p->ndim == 2 && p->layer >= 0 && p->layer < dt_source_config(e->s)->layers))
			add_module(e->t[i].packed ? yes : no, e->t[i].name);
	}
	if (awq) {
		o = json_pack("{s:s, s:i, s:i, s:b, s:s}", "quant_method", "awq", "bits", 4, "group_size",
			      GROUP, "zero_point", 1, "version", "gemm");
		json_object_set(o, "modules_to_not_convert", json_array_size(no) ? no : json_null());
	} else {
		o = json_pack("{s:s, s:i, s:i, s:b, s:b, s:b, s:s, s:{s:[s]}}", "quant_method", "gptq",
			      "bits", e->x->format == DT_FMT_Q8_0 ? 8 : 4, "group_size", GROUP, "desc_act", 0,
			      "sym", 1, "lm_head", 0, "checkpoint_format", "gptq", "meta", "quantizer",
			      "dt:" DT_VERSION);
		if (json_array_size(no))
			json_object_set_new(o, "modules_in_block_to_quantize", json_pack("[O]", yes));
	}
	json_decref(yes);
	json_decref(no);
	return o;
}
/* SPDX-License-Identifier: Apache-2.0 */
