/*
 * Quantized weights of a Hugging Face folder, several tensors per matrix [out, in]:
 *
 *   gptq  X.qweight i32 [in bits / 32, out], a bit stream along `in`; X.scales [groups, out]; X.qzeros
 *         i32 [groups, out bits / 32], a bit stream along `out`; X.g_idx i32 [in], the group of a column
 *         (AutoGPTQ). x = scale (q - z). Files of version 1 store z - 1.
 *   awq   X.qweight i32 [in, out / 8], nibble i of a word is column {0, 2, 4, 6, 1, 3, 5, 7}[i] of eight;
 *         X.qzeros likewise; X.scales f16 [in / group, out] (AutoAWQ, "gemm")
 *   fp8   X.weight E4M3 [out, in]; X.weight_scale_inv, one per block of weight_block_size, or X.weight_scale,
 *         one for the matrix; x = q scale
 *   mxfp4 X_blocks U8 [experts, out, in / 32, 16], two codes a byte, the first in its lower half; X_scales U8
 *         [experts, out, in / 32] (gpt-oss)
 *   bitsandbytes   4 bits (source_bnb.h): dequantized to the same values as bitsandbytes'
 *
 * Each becomes a stored tensor "X.weight" (mxfp4: "X"), which the importer reads like any other. Its memory
 * is reserved when the file is opened and filled when it is first read (source_coded_fill.c):
 *
 *   4 bits, groups of whole blocks of 32, in order        q4_0 if every z is 8, with equal values; else
 *                                                         q4_1, whose offset -scale z is rounded to f16
 *   8 bits likewise, every z 128                          q8_0, with equal values
 *   mxfp4                                                 mxfp4, with equal values
 *   others                                                the type of the scales (fp8: bf16; bitsandbytes:
 *                                                         the type before quantization), rounded once
 */
#include "ckpt/source_coded.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void src_coded_release(struct dt_source *s)
{
	for (int i = 0; i < s->ncoded; i++) {
		pthread_mutex_destroy(&s->coded[i]->lock);
		munmap(s->coded[i]->data, s->coded[i]->bytes);
		free(s->coded[i]);
	}
	free(s->coded);
	s->coded = NULL;
	s->ncoded = 0;
}

static int read_scheme(const struct dt_source *s, const json_t *o, struct src_scheme *k, struct dt_err *err)
{
	const char *method = json_string_value(json_object_get(o, "quant_method")), *form;
	const json_t *block = json_object_get(o, "weight_block_size");
	int64_t bits = 4;

	*k = (struct src_scheme){.method = SRC_GPTQ};
	if (method && !strcmp(method, "fp8")) {
		k->method = SRC_FP8;
		for (size_t d = 0; d < 2 && json_is_array(block); d++)
			if ((k->block[d] = json_integer_value(json_array_get(block, d))) < 1)
				return dt_err_set(err, -EBADMSG,
						  "'%s': 'weight_block_size' is not two positive sizes",
						  s->path);
		return 0;
	}
	if (method && !strcmp(method, "bitsandbytes")) {
		k->method = SRC_BNB;
		return json_is_true(json_object_get(o, "load_in_8bit"))
			       ? dt_err_set(err, -ENOTSUP,
					    "'%s': 8-bit bitsandbytes weights are not supported, only 4-bit",
					    s->path)
			       : 0;
	}
	if (method && !strcmp(method, "mxfp4")) {
		k->method = SRC_MXFP4;
		return 0;
	}
	if (method && !strcmp(method, "awq"))
		k->method = SRC_AWQ;
	else if (!method || strcmp(method, "gptq"))
		return dt_err_set(err, -ENOTSUP,
				  "'%s' is quantised with %s, which is not supported (gptq, awq, fp8, mxfp4 "
				  "and bitsandbytes are)",
				  s->path, method ? method : "an unnamed method");
	if (dt_json_int(o, "bits", true, 2, 8, &bits, err) < 0 ||
	    dt_json_int(o, "group_size", true, -1, 1 << 20, &k->group, err) < 0)
		return dt_err_prefix(err, "'%s': quantization_config", s->path);
	k->bits = (int)bits;
	form = json_string_value(json_object_get(o, k->method == SRC_AWQ ? "version" : "checkpoint_format"));
	k->add = form && !strcmp(form, "gptq_v2") ? 0 : 1;
	if (k->method == SRC_AWQ && (bits != 4 || (form && strcmp(form, "gemm") && strcmp(form, "GEMM"))))
		return dt_err_set(
			err, -ENOTSUP,
			"'%s': of AWQ only version \"gemm\" with 4 bits is supported, not \"%s\" with %lld",
			s->path, form ? form : "gemm", (long long)bits);
	if (k->method == SRC_GPTQ && form && strncmp(form, "gptq", 4))
		return dt_err_set(err, -ENOTSUP, "'%s': GPTQ checkpoint format \"%s\" is not supported",
				  s->path, form);
	return 0;
}

static struct src_stored *find(struct dt_source *s, const char *base, size_t n, const char *end)
{
	char name[DT_NAMES_MAX + 32];

	snprintf(name, sizeof(name), "%.*s%s", (int)n, base, end);
	return src_find(s, name);
}

static int bad(const struct dt_source *s, const struct src_stored *t, const char *what, struct dt_err *err)
{
	return dt_err_set(err, -EBADMSG, "'%s': %s of quantised tensor '%s'", s->path, what, t->name);
}

static bool is(const struct src_stored *t, const char *type, int64_t rows, int64_t cols)
{
	return t && t->ndim == 2 && !strcmp(t->type, type) && t->shape[0] == rows && t->shape[1] == cols;
}

/* Reads the group of each column from g_idx, if columns are not grouped in order. */
static int take_groups(struct dt_source *s, struct src_coded *c, const struct src_stored *q,
		       const struct src_stored *g, struct dt_err *err)
{
	bool plain = true;

	if (!g)
		return 0;
	if (g->ndim != 1 || strcmp(g->type, "I32") || g->shape[0] != c->cols)
		return bad(s, q, "wrong g_idx", err);
	for (int64_t i = 0; i < c->cols; i++) {
		int32_t k = (int32_t)src_coded_word(g->data, i);

		if (k < 0 || k >= c->groups)
			return bad(s, q, "a g_idx outside the groups", err);
		plain = plain && k == i / c->scheme.group;
	}
	if (!plain && (uintptr_t)g->data % sizeof(int32_t))
		return bad(s, q, "unaligned g_idx", err);
	if (!plain)
		c->group_of = (const int32_t *)(const void *)g->data;
	return 0;
}

static enum dt_format format_of(const struct src_coded *c)
{
	int middle = 1 << (c->scheme.bits - 1);
	bool same = true, blocks = !c->group_of && c->scheme.group % 32 == 0 && c->cols % 32 == 0 &&
				   c->scale_type == DT_FMT_F16;

	if (!blocks || (c->scheme.bits != 4 && c->scheme.bits != 8))
		return c->scale_type;
	for (int64_t g = 0; g < c->groups && same; g++)
		for (int64_t r = 0; r < c->rows && same; r++)
			same = src_coded_zero(c, g, r) == middle;
	return c->scheme.bits == 4 ? same ? DT_FMT_Q4_0 : DT_FMT_Q4_1 : same ? DT_FMT_Q8_0 : c->scale_type;
}

/* X.qweight and the tensors that belong to it. */
static int take_integers(struct dt_source *s, struct src_coded *c, const struct src_stored *q, size_t base,
			 struct src_stored *used[4], struct dt_err *err)
{
	struct src_stored *zeros = find(s, q->name, base, ".qzeros"),
			  *scales = find(s, q->name, base, ".scales"), *g = find(s, q->name, base, ".g_idx");
	int bits = c->scheme.bits;

	if (!zeros || !scales)
		return bad(s, q, zeros ? "no scales" : "no qzeros", err);
	if (q->ndim != 2 || strcmp(q->type, "I32") || scales->ndim != 2 || !scales->format_known)
		return bad(s, q, "wrong type or shape", err);
	if (q->shape[0] > INT64_MAX / 64 || scales->shape[1] > INT64_MAX / 64)
		return bad(s, q, "sizes that do not fit together", err);
	c->rows = scales->shape[1];
	c->groups = scales->shape[0];
	c->cols = c->scheme.method == SRC_AWQ ? q->shape[0] : q->shape[0] * 32 / bits;
	if (c->scheme.group <= 0)
		c->scheme.group = c->cols;
	if (c->rows < 1 || c->cols < 1 || c->rows * bits % 32 ||
	    c->groups != (c->cols + c->scheme.group - 1) / c->scheme.group ||
	    !is(zeros, "I32", c->groups, c->rows * bits / 32) ||
	    !(c->scheme.method == SRC_AWQ ? is(q, "I32", c->cols, c->rows / 8)
					  : is(q, "I32", c->cols * bits / 32, c->rows)))
		return bad(s, q, "sizes that do not fit together", err);
	c->q = q->data;
	c->zeros = zeros->data;
	c->scales = scales->data;
	c->scale_type = scales->format;
	used[0] = zeros;
	used[1] = scales;
	used[2] = g;
	if (take_groups(s, c, q, g, err) < 0)
		return -EBADMSG;
	c->format = format_of(c);
	return 0;
}

/* X.weight of 8-bit floats, and its scale. */
static int take_fp8(struct dt_source *s, struct src_coded *c, const struct src_stored *q, size_t base,
		    struct src_stored *used[4], struct dt_err *err)
{
	struct src_stored *inv = find(s, q->name, base, ".weight_scale_inv"),
			  *scale = inv ? inv : find(s, q->name, base, ".weight_scale");
	const int64_t *block = c->scheme.block;
	int64_t n = 1;

	if (!scale || !scale->format_known)
		return bad(s, q, "no scale", err);
	for (int d = 0; d < scale->ndim; d++)
		n *= scale->shape[d];
	c->rows = q->shape[0];
	c->cols = q->shape[1];
	if (q->ndim != 2 || (n != 1 && (!block[0] || scale->ndim != 2 ||
					scale->shape[0] != (c->rows + block[0] - 1) / block[0] ||
					scale->shape[1] != (c->cols + block[1] - 1) / block[1])))
		return bad(s, q, "scales that do not fit the blocks", err);
	c->groups = n;
	c->q = q->data;
	c->scales = scale->data;
	c->scale_type = scale->format;
	c->format = DT_FMT_BF16;
	used[0] = scale;
	used[1] = find(s, q->name, base, ".input_scale"); /* scale of activations, which stay unquantized */
	return 0;
}

/* X_blocks of experts and X_scales. */
static int take_mxfp4(struct dt_source *s, struct src_coded *c, const struct src_stored *q, size_t base,
		      struct src_stored *used[4], struct dt_err *err)
{
	struct src_stored *scales = find(s, q->name, base, "_scales");

	if (!scales)
		return bad(s, q, "no scales", err);
	if (strcmp(q->type, "U8") || strcmp(scales->type, "U8") || q->ndim != 4 || scales->ndim != 3 ||
	    q->shape[3] != 16 || memcmp(q->shape, scales->shape, 3 * sizeof(*q->shape)))
		return bad(s, q, "wrong type or shape", err);
	c->stack = q->shape[0];
	c->rows = q->shape[0] * q->shape[1];
	c->cols = 32 * q->shape[2];
	if (c->rows < 1 || c->cols < 1)
		return bad(s, q, "sizes that do not fit together", err);
	c->q = q->data;
	c->scales = scales->data;
	c->format = DT_FMT_MXFP4;
	used[0] = scales;
	return 0;
}

static int reserve(struct dt_source *s, struct src_coded *c, struct dt_err *err)
{
	void *grown = realloc(s->coded, ((size_t)s->ncoded + 1) * sizeof(struct src_coded *)), *p;

	if (grown)
		s->coded = grown;
	c->bytes = dt_format_bytes(c->format, c->rows * c->cols);
	p = grown ? mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			 -1, 0)
		  : MAP_FAILED;
	if (p == MAP_FAILED)
		return dt_err_sys(err, -ENOMEM, "cannot read '%s'", s->path);
	c->data = p;
	pthread_mutex_init(&c->lock, NULL);
	s->coded[s->ncoded++] = c;
	return 0;
}

/* X.weight of 4-bit codes, and the tensors that belong to it. */
static int take_bnb(struct dt_source *s, struct src_coded *c, const struct src_stored *q, size_t base,
		    struct src_stored *used[SRC_BNB_PARTS], struct dt_err *err)
{
	int rc = src_bnb_take(s, q, base, &c->bnb, used, err);

	c->rows = c->bnb.rows;
	c->cols = c->bnb.cols;
	c->format = c->bnb.format;
	return rc;
}

static int take(struct dt_source *s, const struct src_scheme *k, struct src_stored *q, size_t base,
		struct dt_err *err)
{
	struct src_coded *c = calloc(1, sizeof(*c));
	struct src_stored *used[SRC_BNB_PARTS] = {0};
	int rc;

	if (!c)
		return dt_err_sys(err, -ENOMEM, "cannot read '%s'", s->path);
	c->scheme = *k;
	rc = k->method == SRC_FP8     ? take_fp8(s, c, q, base, used, err)
	     : k->method == SRC_BNB   ? take_bnb(s, c, q, base, used, err)
	     : k->method == SRC_MXFP4 ? take_mxfp4(s, c, q, base, used, err)
				      : take_integers(s, c, q, base, used, err);
	if (rc == 0)
		rc = reserve(s, c, err);
	if (rc < 0) {
		free(c);
		return rc;
	}
	for (int i = 0; i < SRC_BNB_PARTS; i++)
		if (used[i])
			used[i]->used = true;
	q->format = c->format;
	q->format_known = 1;
	q->ndim = 2;
	q->shape[0] = c->rows;
	q->shape[1] = c->cols;
	if (c->stack) {
		q->ndim = 3;
		q->shape[0] = c->stack;
		q->shape[1] = c->rows / c->stack;
		q->shape[2] = c->cols;
	}
	q->data = c->data;
	return 0;
}

static int by_address(const void *a, const void *b)
{
	const struct src_coded *const *x = a, *const *y = b;

	return ((*x)->data > (*y)->data) - ((*x)->data < (*y)->data);
}

int src_coded_find(struct dt_source *s, const json_t *config, struct dt_err *err)
{
	const json_t *o = json_object_get(config, "quantization_config");
	struct src_scheme k;
	const char *end;
	size_t e;
	int rc;

	if (!json_is_object(o))
		return 0;
	rc = read_scheme(s, o, &k, err);
	end = k.method == SRC_FP8 || k.method == SRC_BNB ? ".weight"
	      : k.method == SRC_MXFP4			 ? "_blocks"
							 : ".qweight";
	e = strlen(end);
	src_sort(s);
	for (int i = 0; i < s->nstored && rc == 0; i++) {
		struct src_stored *t = &s->stored[i];
		size_t n = strlen(t->name);

		if (n > e && !strcmp(t->name + n - e, end) &&
		    (k.method != SRC_FP8 || !strcmp(t->type, "F8_E4M3")) &&
		    (k.method != SRC_BNB || src_bnb_is(s, t, n - e)))
			rc = take(s, &k, t, n - e, err);
	}
	/* Only now, since the list is sorted by name. */
	for (int i = 0; i < s->nstored && k.method != SRC_FP8 && k.method != SRC_BNB; i++) {
		char *name = s->stored[i].name;
		size_t n = strlen(name);

		if (n > e && !strcmp(name + n - e, end))
			strcpy(name + n - e, k.method == SRC_MXFP4 ? "" : ".weight");
	}
	if (s->ncoded)
		qsort(s->coded, (size_t)s->ncoded, sizeof(struct src_coded *), by_address);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
