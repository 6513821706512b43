/* Reads adapters in the formats of PEFT and llama.cpp. */
#include "ckpt/adapter_halves.h"

#include "base/json.h"
#include "kernels/quant_formats.h"
#include "kernels/rope.h"
#include "model/family.h"
#include "model/gguf.h"
#include "model/safetensors.h"

#include <errno.h>
#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX ((size_t)64 << 30)

static bool ends(const char *s, const char *with)
{
	size_t n = strlen(s), k = strlen(with);

	return n >= k && !strcmp(s + n - k, with);
}

/* ---- PEFT ---- */

static bool is_empty(const json_t *v)
{
	return json_is_null(v) || json_is_false(v) || (json_is_array(v) && json_array_size(v) == 0) ||
	       (json_is_object(v) && json_object_size(v) == 0) ||
	       (json_is_string(v) && (!*json_string_value(v) || !strcmp(json_string_value(v), "none")));
}

/* Keys without effect on the computation, and those read here. Any other key that is set is refused. */
static bool is_known(const char *key)
{
	static const char *const known[] = {
		"peft_type",	     "r",
		"lora_alpha",	     "use_rslora",
		"use_dora",	     "rank_pattern",
		"alpha_pattern",     "task_type",
		"auto_mapping",	     "base_model_name_or_path",
		"revision",	     "inference_mode",
		"lora_dropout",	     "target_modules",
		"exclude_modules",   "fan_in_fan_out",
		"init_lora_weights", "layers_to_transform",
		"layers_pattern",    "megatron_core",
		"megatron_config",   "peft_version",
		"qalora_group_size", "runtime_config",
		"modules_to_save",   "ensure_weight_tying",
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (!strcmp(known[i], key))
			return true;
	return false;
}

static int check_config(const struct adapter_in *in, const json_t *o, struct dt_err *err)
{
	const char *type = json_string_value(json_object_get(o, "peft_type"));
	const json_t *init = json_object_get(o, "init_lora_weights");
	const char *key;
	json_t *v;

	if (!type || strcmp(type, "LORA"))
		return dt_err_set(err, -ENOTSUP, "adapter '%s' is of type '%.40s', not LORA", in->a->path,
				  type ? type : "?");
	json_object_foreach((json_t *)o, key, v)
	{
		if (is_known(key) || is_empty(v))
			continue;
		return dt_err_set(err, -ENOTSUP,
				  "adapter '%s': '%.60s' of adapter_config.json is not supported",
				  in->a->path, key);
	}
	if (json_is_string(init) && strcmp(json_string_value(init), "gaussian") &&
	    strcmp(json_string_value(init), "orthogonal"))
		return dt_err_set(err, -ENOTSUP,
				  "adapter '%s': init_lora_weights '%.40s' changes the base weights, which "
				  "is not supported",
				  in->a->path, json_string_value(init));
	if (!(json_number_value(json_object_get(o, "r")) >= 1) ||
	    !json_is_number(json_object_get(o, "lora_alpha")))
		return dt_err_set(err, -EINVAL, "adapter '%s': adapter_config.json lacks r or lora_alpha",
				  in->a->path);
	return 0;
}

/* Splits "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight": the linear, its adapter's part. */
static int split_name(const struct adapter_in *in, const char *full, struct adapter_half *h,
		      struct dt_err *err)
{
	static const struct {
		const char *text;
		int kind;
	} part[] = {{".lora_A.weight", ADAPTER_HALF_A},
		    {".lora_B.weight", ADAPTER_HALF_B},
		    {".lora_magnitude_vector", ADAPTER_HALF_M},
		    {".lora_magnitude_vector.weight", ADAPTER_HALF_M}};
	const char *s = adapter_peft_name(full), *end = NULL;

	for (size_t i = 0; i < sizeof(part) / sizeof(*part); i++)
		if (ends(s, part[i].text)) {
			end = part[i].text;
			h->kind = part[i].kind;
		}
	if (!end)
		return dt_err_set(err, -ENOTSUP, "adapter '%s': tensor '%.150s' is not supported",
				  in->a->path, full);
	if (snprintf(h->name, sizeof(h->name), "%.*s", (int)(strlen(s) - strlen(end)), s) >=
	    (int)sizeof(h->name))
		return dt_err_set(err, -EINVAL, "adapter '%s': a tensor's name is too long", in->a->path);
	return 0;
}

static int read_halves(const struct adapter_in *in, const struct dt_safetensors *st, const char *file,
		       struct adapter_halves *f, struct dt_err *err)
{
	int rc = 0;

	f->h = calloc((size_t)st->n + 1, sizeof(*f->h));
	if (!f->h)
		return dt_err_sys(err, -ENOMEM, "cannot read '%s'", in->a->path);
	for (int i = 0; i < st->n && rc == 0; i++) {
		const struct dt_safetensor *t = &st->t[i];
		struct adapter_half *h = &f->h[f->n];

		if (adapter_is_whole(t->name))
			continue;
		f->n++;
		rc = split_name(in, t->name, h, err);
		if (rc == 0 && (t->ndim != (h->kind == ADAPTER_HALF_M ? 1 : 2) || t->format < 0))
			rc = dt_err_set(
				err, -ENOTSUP, "adapter '%s': tensor '%.150s' is not a floating-point %s",
				in->a->path, t->name, h->kind == ADAPTER_HALF_M ? "vector" : "matrix");
		h->format = (enum dt_format)t->format;
		h->rows = t->shape[0];
		h->cols = h->kind == ADAPTER_HALF_M ? 1 : t->shape[1];
		h->data = (const uint8_t *)file + t->at;
	}
	return rc;
}

int adapter_read_peft(struct adapter_in *in, const char *folder, struct dt_err *err)
{
	char path[4200], *text = NULL, *file = NULL;
	struct dt_safetensors st = {0};
	struct adapter_halves f = {0};
	json_t *o = NULL;
	size_t n;
	int rc;

	snprintf(path, sizeof(path), "%s/adapter_config.json", folder);
	rc = dt_read_file(path, 1 << 20, &text, &n, err);
	if (rc == 0)
		rc = dt_json_parse(text, n, path, &o, err);
	if (rc == 0)
		rc = check_config(in, o, err);
	snprintf(path, sizeof(path), "%s/adapter_model.safetensors", folder);
	if (rc == 0)
		rc = dt_read_file(path, FILE_MAX, &file, &n, err);
	if (rc == 0)
		rc = dt_safetensors_parse(file, n, path, &st, err);
	if (rc == 0) {
		const char *base = "";

		f.config = o;
		if (st.head && dt_json_str(json_object_get(st.head, "__metadata__"), "dt_base_fingerprint",
					   false, &base, NULL) > 0)
			snprintf(in->a->base, sizeof(in->a->base), "%s", base);
		in->pairing = dt_names_pairing(DT_NAMES_HF, in->c);
		rc = read_halves(in, &st, file, &f, err);
	}
	if (rc == 0)
		rc = adapter_add_halves(in, DT_NAMES_HF, &f, err);
	if (rc == 0)
		rc = adapter_whole_read(in, &st, file, o, err);
	dt_safetensors_release(&st);
	json_decref(o);
	free(f.h);
	free(text);
	free(file);
	return rc;
}

/* ---- GGUF ---- */

static int check_head(const struct adapter_in *in, const struct dt_gguf *g, double *ret_alpha,
		      struct dt_err *err)
{
	const struct dt_family *f = dt_family_find(in->c->family);
	static const char *const keys[] = {"general.type", "adapter.type", "general.architecture"};
	const char *want[] = {"adapter", "lora", f && f->arch ? f->arch : "?"}, *s;
	size_t n;
	int rc;

	for (int i = 0; i < 3; i++) {
		if ((rc = dt_gguf_str(g, keys[i], true, &s, &n, err)) < 0)
			return rc;
		if (strlen(want[i]) != n || strncmp(s, want[i], n))
			return dt_err_set(err, -EINVAL, "adapter '%s': %s is '%.*s', not '%s'", in->a->path,
					  keys[i], n < 40 ? (int)n : 40, s, want[i]);
	}
	rc = dt_gguf_real(g, "adapter.lora.alpha", true, ret_alpha, err);
	return rc < 0 ? rc : 0;
}

static int gguf_halves(const struct adapter_in *in, const struct dt_gguf *g, const char *file,
		       struct adapter_halves *f, struct dt_err *err)
{
	f->h = calloc((size_t)g->ntensor + 1, sizeof(*f->h));
	if (!f->h)
		return dt_err_sys(err, -ENOMEM, "cannot read '%s'", in->a->path);
	for (int i = 0; i < g->ntensor; i++) {
		const struct dt_gguf_tensor *t = &g->tensor[i];
		struct adapter_half *h = &f->h[f->n++];

		h->kind = ends(t->name, ".weight.lora_b") ? ADAPTER_HALF_B : ADAPTER_HALF_A;
		if ((h->kind == ADAPTER_HALF_A && !ends(t->name, ".weight.lora_a")) || t->ndim != 2 ||
		    t->format < 0)
			return dt_err_set(err, -ENOTSUP, "adapter '%s': tensor '%s' is not supported",
					  in->a->path, t->name);
		snprintf(h->name, sizeof(h->name), "%.*s", (int)(strlen(t->name) - strlen(".weight.lora_a")),
			 t->name);
		h->format = (enum dt_format)t->format;
		h->rows = t->shape[0];
		h->cols = t->shape[1];
		h->data = (const uint8_t *)file + t->at;
	}
	return 0;
}

int adapter_read_gguf(struct adapter_in *in, const char *path, struct dt_err *err)
{
	struct dt_gguf g = {0};
	struct adapter_halves f = {0};
	char *file = NULL;
	size_t n;
	int rc = dt_read_file(path, FILE_MAX, &file, &n, err);

	if (rc == 0)
		rc = dt_gguf_parse(file, n, path, &g, err);
	if (rc == 0)
		rc = check_head(in, &g, &f.alpha, err);
	if (rc == 0) {
		in->pairing = dt_names_pairing(DT_NAMES_GGUF, in->c);
		rc = gguf_halves(in, &g, file, &f, err);
	}
	if (rc == 0)
		rc = adapter_add_halves(in, DT_NAMES_GGUF, &f, err);
	dt_gguf_release(&g);
	free(f.h);
	free(file);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
