/* Modules trained in full beside adapters, as PEFT stores them (modules_to_save). */
#include "ckpt/adapter_priv.h"

#include "base/json.h"
#include "kernels/quant_formats.h"
#include "kernels/rope.h"
#include "model/family.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t columns(const struct dt_param *p)
{
	return p->ndim == 2 ? p->shape[1] : 1;
}

/* Row r of parameter i, converted between two rotary row orders. */
static int64_t other_row(const struct adapter_in *in, int i, int64_t r, int from, int to)
{
	return dt_param_is_rotary(in->c, &in->params->p[i]) ? dt_rope_row(r, in->c->head_dim, from, to) : r;
}

/* To be added to an element of the file's norm weight: 1, 0 or -1, as file and model may store weight - 1. */
static float shift(const struct adapter_in *in, int i, bool plus_one)
{
	return dt_param_is_scale(&in->params->p[i]) ? (float)plus_one - (float)in->c->norm_plus_one : 0;
}

int adapter_whole_add(struct adapter_in *in, int i, const struct adapter_whole_in *w, struct dt_err *err)
{
	const struct dt_param *p = &in->params->p[i];
	const int64_t rows = p->shape[0], cols = columns(p);
	const float more = shift(in, i, w->plus_one);
	struct dt_adapter_whole *all =
		realloc(in->a->whole, ((size_t)in->a->nwhole + 1) * sizeof(*in->a->whole));
	float *x = malloc((size_t)(rows * cols) * sizeof(*x));

	if (all)
		in->a->whole = all;
	if (!all || !x) {
		free(x);
		return dt_err_sys(err, -ENOMEM, "cannot read '%s'", in->a->path);
	}
	all[in->a->nwhole++] = (struct dt_adapter_whole){i, x};
	for (int64_t r = 0; r < rows; r++) {
		int64_t at = other_row(in, i, r, in->pairing, in->c->rope_pairing);

		at = w->at ? dt_place_row(w->at, at) : at;

		for (int64_t c = 0; c < cols; c++) {
			const float v = w->transposed ? w->x[c * w->at->rows + at] : w->x[at * cols + c];

			if (!isfinite(v))
				return dt_err_set(err, -EINVAL, "adapter '%s': '%s' has NaN or Inf",
						  in->a->path, p->name);
			x[r * cols + c] = v + more;
		}
	}
	return 0;
}

/* ---- PEFT's file ---- */

const char *adapter_peft_name(const char *full)
{
	static const char *const prefixes[] = {"base_model.model.",	"language_model.model.",
					       "model.language_model.", "model.",
					       "transformer.",		"gpt_neox."};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
		if (!strncmp(full, prefixes[i], strlen(prefixes[i])))
			full += strlen(prefixes[i]);
	return full;
}

bool adapter_is_whole(const char *full)
{
	return !strstr(full, ".lora_");
}

static const struct dt_safetensor *find(const struct dt_safetensors *st, const char *name)
{
	for (int i = 0; i < st->n; i++)
		if (adapter_is_whole(st->t[i].name) && !strcmp(adapter_peft_name(st->t[i].name), name))
			return &st->t[i];
	return NULL;
}

static int read_one(struct adapter_in *in, int i, const struct dt_place_in_file *at,
		    const struct dt_safetensor *t, const char *file, struct dt_err *err)
{
	const struct dt_param *p = &in->params->p[i];
	const int64_t cols = columns(p), n = at->rows * cols;
	const bool turned = at->transposed && p->ndim == 2;
	float *x;
	int rc;

	if (t->ndim != p->ndim || t->format < 0 || t->shape[0] != (turned ? cols : at->rows) ||
	    (p->ndim == 2 && t->shape[1] != (turned ? at->rows : cols)))
		return dt_err_set(err, -EINVAL, "adapter '%s': '%s' has another shape than the base's",
				  in->a->path, at->name);
	x = malloc((size_t)n * sizeof(*x));
	if (!x)
		return dt_err_sys(err, -ENOMEM, "cannot read '%s'", in->a->path);
	dt_dequantize((enum dt_format)t->format, file + t->at, n, x);
	rc = adapter_whole_add(in, i,
			       &(struct adapter_whole_in){
				       .x = x,
				       .at = at,
				       .transposed = turned,
				       .plus_one = dt_family_find(in->c->family)->hf_plus_one,
			       },
			       err);
	free(x);
	return rc;
}

/* If the base ties its head to the embeddings, a file must have both, with equal values. -ENOTSUP */
static int check_tied(const struct adapter_in *in, const struct dt_safetensors *st, const char *file,
		      struct dt_err *err)
{
	const struct dt_safetensor *head = find(st, "lm_head.weight"), *embed = NULL;
	struct dt_place_in_file at;

	for (int i = 0; i < in->params->n; i++)
		if (in->params->p[i].role == DT_W_EMBED &&
		    dt_names_place(DT_NAMES_HF, in->c, &in->params->p[i], 0, &at))
			embed = find(st, at.name);
	if (!in->c->tied || (!head && !embed) ||
	    (head && embed && head->bytes == embed->bytes &&
	     !memcmp(file + head->at, file + embed->at, head->bytes)))
		return 0;
	return dt_err_set(err, -ENOTSUP,
			  "adapter '%s': modules_to_save has different weights for head and embedding, which "
			  "are tied in '%s'",
			  in->a->path, in->c->name);
}

/* Every module named in the configuration must be present, matched like PEFT at the end of a name. */
static int check_named(const struct adapter_in *in, const struct dt_safetensors *st, const json_t *config,
		       struct dt_err *err)
{
	const json_t *names = json_object_get(config, "modules_to_save"), *v;
	size_t k;

	json_array_foreach(names, k, v)
	{
		const char *name = json_string_value(v) ? json_string_value(v) : "?";
		const size_t n = strlen(name);
		bool there = false;

		for (int i = 0; i < st->n && !there; i++) {
			const char *full = st->t[i].name, *dot = strrchr(full, '.');
			const size_t len = dot ? (size_t)(dot - full) : 0;

			there = adapter_is_whole(full) && len >= n && !strncmp(full + len - n, name, n);
		}
		if (!there)
			return dt_err_set(err, -EINVAL,
					  "adapter '%s': modules_to_save names '%.100s', but the file has no "
					  "tensor of it",
					  in->a->path, name);
	}
	return 0;
}

int adapter_whole_read(struct adapter_in *in, const struct dt_safetensors *st, const char *file,
		       const json_t *config, struct dt_err *err)
{
	bool *used = calloc((size_t)st->n + 1, sizeof(*used));
	struct dt_place_in_file at;
	int whole = 0, rc = used ? 0 : dt_err_sys(err, -ENOMEM, "cannot read '%s'", in->a->path);

	for (int i = 0; i < st->n; i++)
		whole += adapter_is_whole(st->t[i].name);
	for (int i = 0; i < in->params->n && whole && rc == 0; i++) {
		const struct dt_safetensor *t = NULL;

		if (dt_names_place(DT_NAMES_HF, in->c, &in->params->p[i], 0, &at) && at.split == 1)
			t = find(st, at.name);
		if (t) {
			used[t - st->t] = true;
			rc = read_one(in, i, &at, t, file, err);
		}
	}
	for (int i = 0; i < st->n && rc == 0; i++) {
		const char *full = st->t[i].name;
		const bool tied = in->c->tied && !strcmp(adapter_peft_name(full), "lm_head.weight");

		if (adapter_is_whole(full) && !used[i] && !tied)
			rc = dt_err_set(err, -ENOTSUP, "adapter '%s': tensor '%.150s' is not supported",
					in->a->path, full);
	}
	free(used);
	if (rc == 0)
		rc = check_tied(in, st, file, err);
	return rc < 0 ? rc : check_named(in, st, config, err);
}

/* ---- writing PEFT's file ---- */

void adapter_whole_release(struct adapter_whole_out *o, int n)
{
	for (int i = 0; i < n; i++)
		free(o[i].x);
	free(o);
}

/* The tensor named at->name; adds a new one if there is none. */
static struct adapter_whole_out *tensor(struct adapter_whole_out *o, int *n, const struct dt_param *p,
					const struct dt_place_in_file *at)
{
	const bool turned = at->transposed && p->ndim == 2;
	struct adapter_whole_out *t = &o[*n];

	for (int i = 0; i < *n; i++)
		if (!strcmp(o[i].name, at->name))
			return &o[i];
	*t = (struct adapter_whole_out){.ndim = p->ndim, .shape = {at->rows, columns(p)}, .rows = at->rows};
	if (turned) {
		t->shape[0] = columns(p);
		t->shape[1] = at->rows;
	}
	snprintf(t->name, sizeof(t->name), "%s", at->name);
	t->x = calloc((size_t)(at->rows * columns(p)), sizeof(*t->x));
	(*n)++;
	return t;
}

static int put(const struct adapter_in *in, const struct dt_adapter_whole *w, struct adapter_whole_out *o,
	       int *n, struct dt_err *err)
{
	const struct dt_param *p = &in->params->p[w->param];
	const int64_t cols = columns(p);
	const float less = shift(in, w->param, dt_family_find(in->c->family)->hf_plus_one);
	struct dt_place_in_file at;
	struct adapter_whole_out *t;

	if (!dt_names_place(DT_NAMES_HF, in->c, p, 0, &at) || at.split != 1)
		return dt_err_set(err, -ENOTSUP, "'%s' has no name in the format of the adapter", p->name);
	t = tensor(o, n, p, &at);
	if (!t->x)
		return dt_err_sys(err, -ENOMEM, "cannot write the adapter");
	for (int64_t r = 0; r < p->shape[0]; r++) {
		const int64_t to = dt_place_row(&at, r),
			      from = other_row(in, w->param, r, in->c->rope_pairing,
					       dt_names_pairing(DT_NAMES_HF, in->c));

		for (int64_t c = 0; c < cols; c++)
			t->x[at.transposed && p->ndim == 2 ? c * at.rows + to : to * cols + c] =
				w->x[from * cols + c] - less;
	}
	t->filled += p->shape[0];
	if (p->role != DT_W_EMBED || !in->c->tied)
		return 0;
	snprintf(at.name, sizeof(at.name), "lm_head.weight");
	t = tensor(o, n, p, &at);
	if (!t->x)
		return dt_err_sys(err, -ENOMEM, "cannot write the adapter");
	memcpy(t->x, w->x, (size_t)(p->shape[0] * cols) * sizeof(*t->x));
	t->filled = p->shape[0];
	return 0;
}

int adapter_whole_list(const struct adapter_in *in, const struct dt_adapter *a,
		       struct adapter_whole_out **ret, int *ret_n, struct dt_err *err)
{
	struct adapter_whole_out *o = calloc(2 * (size_t)a->nwhole + 1, sizeof(*o));
	int n = 0, rc = o ? 0 : dt_err_sys(err, -ENOMEM, "cannot write the adapter");

	for (int i = 0; i < a->nwhole && rc == 0; i++)
		rc = put(in, &a->whole[i], o, &n, err);
	for (int i = 0; i < n && rc == 0; i++)
		if (o[i].filled != o[i].rows)
			rc = dt_err_set(err, -ENOTSUP, "only a part of '%s' was trained", o[i].name);
	*ret = o;
	*ret_n = n;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
