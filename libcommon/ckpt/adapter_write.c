/* Writes adapters in the formats of PEFT and llama.cpp. */
#include "ckpt/adapter_write.h"

#include "base/json.h"
#include "base/tmpfile.h"
#include "ckpt/gguf_out.h"
#include "kernels/rope.h"
#include "model/family.h"
#include "model/safetensors.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void release(struct adapter_writer *w)
{
	for (int i = 0; i < w->n; i++) {
		free(w->l[i].a);
		free(w->l[i].b);
		free(w->l[i].m);
	}
	free(w->l);
	adapter_whole_release(w->whole, w->nwhole);
}

/* Puts a part at rank offset `at` of a linear: its a into rows from there, its b into columns from there. */
static void stack(const struct adapter_writer *w, struct adapter_linear *l, const struct dt_adapter_part *p,
		  int64_t at, const struct dt_place_in_file *place)
{
	bool turned = dt_param_is_rotary(w->c, &w->in.params->p[p->param]);

	memcpy(l->a + at * l->in, p->a, (size_t)(p->rank * p->in) * sizeof(float));
	for (int64_t r = 0; r < p->out; r++) {
		const int64_t to = dt_place_row(place, r);
		int64_t from = turned ? dt_rope_row(r, w->c->head_dim, w->c->rope_pairing, w->pairing) : r;

		for (int64_t k = 0; k < p->rank; k++)
			l->b[to * l->rank + at + k] =
				p->b[from * p->rank + k] *
				(p->scale == l->scale ? 1.0f : (float)(p->scale / l->scale));
		if (l->m)
			l->m[to] = p->m[from];
	}
}

/* Whether part k lies in the linear of this name; then *ret is where. */
static bool lies_in(const struct adapter_writer *w, int k, const char *name, struct dt_place_in_file *ret)
{
	return adapter_place(&w->in, w->scheme, w->a->part[k].param, ret) && !strcmp(ret->name, name);
}

/*
 * Where the A of part k is among those of its linear, of which part i is the first. Parts that an adapter of
 * q, k and v together was cut into have one A; *ret_new: no part before has this one.
 */
static int64_t place_of_a(const struct adapter_writer *w, int i, int k, const char *name, bool *ret_new)
{
	const struct dt_adapter_part *p = &w->a->part[k];
	struct dt_place_in_file at;
	int64_t end = 0;

	for (int j = i; j < k; j++) {
		const struct dt_adapter_part *q = &w->a->part[j];
		bool new;
		int64_t from;

		if (!lies_in(w, j, name, &at))
			continue;
		from = place_of_a(w, i, j, name, &new);
		if (q->rank == p->rank && q->in == p->in &&
		    !memcmp(q->a, p->a, (size_t)(p->rank * p->in) * sizeof(*p->a))) {
			*ret_new = false;
			return from;
		}
		if (new)
			end = from + q->rank;
	}
	*ret_new = true;
	return end;
}

/* The linear of part i with all parts that lie in it; those behind it do nothing. */
static int add_linear(struct adapter_writer *w, int i, struct dt_err *err)
{
	struct adapter_linear l = {.scale = w->a->part[i].scale, .in = w->a->part[i].in};
	const bool dora = w->a->part[i].m != NULL;
	struct dt_place_in_file at, first;
	int64_t rows = 0;
	bool new;

	if (!adapter_place(&w->in, w->scheme, w->a->part[i].param, &first))
		return dt_err_set(err, -ENOTSUP, "the adapter of '%s' has no name in that format",
				  w->in.params->p[w->a->part[i].param].name);
	for (int k = 0; k < w->a->n; k++) {
		if (!lies_in(w, k, first.name, &at))
			continue;
		if (k < i)
			return 0;
		place_of_a(w, i, k, first.name, &new);
		l.rank += new ? w->a->part[k].rank : 0;
		rows += w->a->part[k].out;
	}
	l.out = first.rows;
	if (dora && rows != l.out)
		return dt_err_set(err, -ENOTSUP, "only some rows of '%s' have magnitudes", first.name);
	snprintf(l.name, sizeof(l.name), "%s", first.name);
	l.a = calloc((size_t)(l.rank * l.in), sizeof(float));
	l.b = calloc((size_t)(l.rank * l.out), sizeof(float));
	l.m = dora ? calloc((size_t)l.out, sizeof(float)) : NULL;
	w->l[w->n++] = l;
	if (!l.a || !l.b || (dora && !l.m))
		return dt_err_sys(err, -ENOMEM, "cannot write the adapter");
	for (int k = i; k < w->a->n; k++)
		if (lies_in(w, k, first.name, &at))
			stack(w, &l, &w->a->part[k], place_of_a(w, i, k, first.name, &new), &at);
	return 0;
}

static int add_linears(struct adapter_writer *w, struct dt_err *err)
{
	int rc = 0;

	w->l = calloc((size_t)w->a->n, sizeof(*w->l));
	if (!w->l)
		return dt_err_sys(err, -ENOMEM, "cannot write the adapter");
	for (int i = 0; i < w->a->n && rc == 0; i++)
		rc = add_linear(w, i, err);
	return rc;
}

/* The full name of a module or tensor in the model. */
static void full_name(const struct adapter_writer *w, const char *own, char name[2 * ADAPTER_NAME])
{
	bool head = !strncmp(own, "lm_head", strlen("lm_head"));

	snprintf(name, 2 * ADAPTER_NAME, "%s%s", head ? "" : dt_family_find(w->c->family)->prefix, own);
}

/* The names of the modules trained in full, each once. */
static json_t *whole_modules(const struct adapter_writer *w)
{
	json_t *r = json_array();

	for (int i = 0; i < w->nwhole; i++) {
		char name[2 * ADAPTER_NAME];
		bool there = false;

		full_name(w, w->whole[i].name, name);
		*strrchr(name, '.') = '\0';
		for (size_t k = 0; k < json_array_size(r); k++)
			there |= !strcmp(json_string_value(json_array_get(r, k)), name);
		if (!there)
			json_array_append_new(r, json_string(name));
	}
	return r;
}

static json_t *peft_config(const struct adapter_writer *w)
{
	json_t *targets = json_array(), *ranks = json_object(), *alphas = json_object(), *o;
	const struct adapter_linear *first = &w->l[0];

	for (int i = 0; i < w->n; i++) {
		const struct adapter_linear *l = &w->l[i];
		char name[2 * ADAPTER_NAME];

		full_name(w, l->name, name);
		json_array_append_new(targets, json_string(name));
		if (l->rank != first->rank)
			json_object_set_new(ranks, name, json_integer(l->rank));
		if (l->rank != first->rank || l->scale != first->scale)
			json_object_set_new(alphas, name, json_real(l->scale * (double)l->rank));
	}
	o = json_pack("{s:s, s:s, s:s, s:I, s:f, s:f, s:s, s:b, s:b, s:b, s:b, s:o, s:o, s:o}", "peft_type",
		      "LORA", "task_type", "CAUSAL_LM", "base_model_name_or_path", w->c->name, "r",
		      (json_int_t)first->rank, "lora_alpha", first->scale * (double)first->rank,
		      "lora_dropout", 0.0, "bias", "none", "use_rslora", 0, "use_dora", first->m != NULL,
		      "fan_in_fan_out", !strcmp(w->c->family, "gpt2"), "inference_mode", 1, "target_modules",
		      targets, "rank_pattern", ranks, "alpha_pattern", alphas);
	if (w->nwhole) {
		json_object_set_new(o, "modules_to_save", whole_modules(w));
		json_object_set_new(o, "ensure_weight_tying", json_boolean(w->c->tied));
	}
	return o;
}

/* Adds the tensors of modules trained in full to the head; their data begin at byte `at`. */
static void head_of_whole(const struct adapter_writer *w, json_t *head, uint64_t at)
{
	for (int i = 0; i < w->nwhole; i++) {
		const struct adapter_whole_out *o = &w->whole[i];
		const uint64_t n = (uint64_t)(o->shape[0] * o->shape[1]) * sizeof(float);
		char name[2 * ADAPTER_NAME], full[2 * ADAPTER_NAME + 48];
		json_t *shape = json_pack("[I]", (json_int_t)o->shape[0]);

		if (o->ndim == 2)
			json_array_append_new(shape, json_integer(o->shape[1]));
		full_name(w, o->name, name);
		snprintf(full, sizeof(full), "base_model.model.%s", name);
		json_object_set_new(head, full,
				    json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape,
					      "data_offsets", (json_int_t)at, (json_int_t)(at + n)));
		at += n;
	}
}

static int put_head(const struct adapter_writer *w, FILE *f, struct dt_err *err)
{
	json_t *head = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
	uint64_t at = 0, n;
	size_t pad;
	char *text;

	if (w->a->base[0])
		json_object_set_new(json_object_get(head, "__metadata__"), "dt_base_fingerprint",
				    json_string(w->a->base));
	for (int i = 0; i < 3 * w->n; i++) {
		static const char *const part[] = {"lora_A.weight", "lora_B.weight", "lora_magnitude_vector"};
		const struct adapter_linear *l = &w->l[i / 3];
		char name[2 * ADAPTER_NAME], full[2 * ADAPTER_NAME + 48];
		int64_t rows = i % 3 ? l->out : l->rank, cols = i % 3 ? l->rank : l->in;
		json_t *shape;

		if (i % 3 == 2 && !l->m)
			continue;
		full_name(w, l->name, name);
		snprintf(full, sizeof(full), "base_model.model.%s.%s", name, part[i % 3]);
		shape = i % 3 == 2 ? json_pack("[I]", (json_int_t)rows)
				   : json_pack("[I, I]", (json_int_t)rows, (json_int_t)cols);
		n = (uint64_t)(rows * (i % 3 == 2 ? 1 : cols)) * sizeof(float);
		json_object_set_new(head, full,
				    json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape,
					      "data_offsets", (json_int_t)at, (json_int_t)(at + n)));
		at += n;
	}
	head_of_whole(w, head, at);
	text = json_dumps(head, JSON_COMPACT);
	json_decref(head);
	if (!text)
		return dt_err_sys(err, -ENOMEM, "cannot write the adapter");
	pad = (8 - strlen(text) % 8) % 8; /* pads with blanks to align the data */
	n = strlen(text) + pad;
	fwrite(&n, 8, 1, f);
	fwrite(text, 1, strlen(text), f);
	fwrite("        ", 1, pad, f);
	free(text);
	return 0;
}

void adapter_put_linear(const struct adapter_linear *l, FILE *f, size_t align)
{
	static const char zeros[GGUF_ALIGN];

	for (int side = 0; side < 2; side++) {
		size_t n = (size_t)(side ? l->rank * l->out : l->rank * l->in) * sizeof(float);

		fwrite(side ? l->b : l->a, 1, n, f);
		fwrite(zeros, 1, align ? (align - n % align) % align : 0, f);
	}
	if (l->m)
		fwrite(l->m, sizeof(*l->m), (size_t)l->out, f);
}

/* Writes the configuration last. */
static int fill_peft(void *arg, const char *folder, struct dt_err *err)
{
	const struct adapter_writer *w = arg;
	char path[PATH_MAX];
	struct dt_tmpfile f;
	json_t *o;
	char *text;
	int rc;

	if (snprintf(path, sizeof(path), "%s/adapter_model.safetensors", folder) >= (int)sizeof(path))
		return dt_err_sys(err, -ENAMETOOLONG, "cannot write '%s'", folder);
	rc = dt_tmpfile_open(&f, path, err);
	if (rc < 0)
		return rc;
	rc = put_head(w, f.f, err);
	for (int i = 0; i < w->n && rc == 0; i++)
		adapter_put_linear(&w->l[i], f.f, 0);
	for (int i = 0; i < w->nwhole && rc == 0; i++)
		fwrite(w->whole[i].x, sizeof(float), (size_t)(w->whole[i].shape[0] * w->whole[i].shape[1]),
		       f.f);
	if (rc < 0) {
		dt_tmpfile_abort(&f);
		return rc;
	}
	if ((rc = dt_tmpfile_commit(&f, err)) < 0)
		return rc;
	o = peft_config(w);
	text = o ? json_dumps(o, JSON_INDENT(2)) : NULL;
	json_decref(o);
	if (!text)
		return dt_err_sys(err, -ENOMEM, "cannot write '%s'", folder);
	snprintf(path, sizeof(path), "%s/adapter_config.json", folder);
	rc = dt_tmpfile_open(&f, path, err);
	if (rc == 0) {
		fwrite(text, 1, strlen(text), f.f);
		rc = dt_tmpfile_commit(&f, err);
	}
	free(text);
	return rc;
}

int dt_adapter_write(const struct dt_adapter *a, const struct dt_source *base, const char *dst,
		     struct dt_err *err)
{
	size_t n = strlen(dst);
	bool gguf = n > 5 && !strcmp(dst + n - 5, ".gguf");
	const struct dt_config *c = dt_source_config(base);
	struct adapter_writer w = {.a = a,
				   .c = c,
				   .in = {.c = c, .params = dt_source_params(base)},
				   .scheme = gguf ? DT_NAMES_GGUF : DT_NAMES_HF,
				   .pairing = dt_names_pairing(gguf ? DT_NAMES_GGUF : DT_NAMES_HF, c)};
	struct stat st;
	int rc;

	if (stat(dst, &st) == 0)
		return dt_err_set(err, -EEXIST, "'%s' already exists", dst);
	if (gguf && dt_adapter_has_magnitudes(a))
		return dt_err_set(
			err, -ENOTSUP,
			"GGUF adapters cannot hold DoRA magnitudes: merge this one, or write a PEFT folder");
	if (gguf && a->nwhole)
		return dt_err_set(err, -ENOTSUP,
				  "GGUF adapters cannot hold fully trained modules (modules_to_save): merge "
				  "this one, or write a PEFT folder");
	rc = add_linears(&w, err);
	if (rc == 0)
		rc = adapter_whole_list(&w.in, a, &w.whole, &w.nwhole, err);
	if (rc == 0 && gguf)
		rc = adapter_write_gguf(&w, dst, err);
	if (rc == 0 && !gguf)
		rc = dt_tmpfolder_write(dst, fill_peft, &w, err);
	release(&w);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
