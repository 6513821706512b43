/* Any source as a model: detecting its format, opening it, querying it. */
#include "base/mapped.h"
#include "ckpt/adapter.h"
#include "ckpt/source_internal.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool exists(const char *folder, const char *name)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/%s", folder, name) < (int)sizeof(path) &&
	       access(path, F_OK) == 0;
}

static enum dt_source_kind guess_folder(const char *path)
{
	/* a root without `latest` is possible, so only Hugging Face's files are checked */
	if (exists(path, "model.safetensors") || exists(path, "model.safetensors.index.json") ||
	    (exists(path, "config.json") && !exists(path, "manifest.json")))
		return DT_SOURCE_SAFETENSORS;
	return DT_SOURCE_DT;
}

int dt_source_guess(const char *path, enum dt_source_kind *ret, struct dt_err *err)
{
	struct dt_source probe = {.path = (char *)path};
	const uint8_t *p;
	struct stat st;
	size_t n;
	int rc;

	if (stat(path, &st) < 0)
		return dt_err_sys(err, -errno, "cannot open '%s'", path);
	if (S_ISDIR(st.st_mode)) {
		*ret = guess_folder(path);
		return 0;
	}
	rc = src_map(&probe, path, &p, &n, err);
	if (rc == 0) {
		if (n >= 4 && !memcmp(p, "GGUF", 4))
			*ret = DT_SOURCE_GGUF;
		else if (src_is_llmc(p, n))
			*ret = DT_SOURCE_LLMC;
		else if (n > 9 && p[8] == '{')
			*ret = DT_SOURCE_SAFETENSORS;
		else if (strlen(path) > 11 && !strcmp(path + strlen(path) - 11, ".index.json"))
			*ret = DT_SOURCE_SAFETENSORS;
		else if (src_is_llama2c(p, n))
			*ret = DT_SOURCE_LLAMA2C;
		else if ((rc = src_refuse_pickle(p, n, path, err)) == 0)
			rc = dt_err_set(
				err, -EINVAL,
				"'%s' is neither a checkpoint, safetensors, GGUF, llm.c nor llama2.c file",
				path);
		dt_mapped_drop(probe.map[0].p, probe.map[0].n);
	}
	free(probe.map);
	return rc;
}

static int find_in(const struct dt_source *s, const char *set, const char *name)
{
	char text[80];

	snprintf(text, sizeof(text), "%s/%s", set, name);
	return dt_ckpt_find(s->ck, text);
}

/* A checkpoint of a --lora run has only adapters, and the name of their base. */
static int no_tensor(const struct dt_source *s, const char *set, const char *name, struct dt_err *err)
{
	const char *base =
		json_string_value(json_object_get(json_object_get(dt_ckpt_meta(s->ck), "base"), "model"));

	if (!base)
		return dt_err_set(err, -ENOENT, "checkpoint '%s' has no tensor '%s/%s'", dt_ckpt_path(s->ck),
				  set, name);
	dt_err_set(err, -ENOENT, "checkpoint '%s' contains only adapters, not the model they were trained on",
		   dt_ckpt_path(s->ck));
	dt_err_hint(err, "they were trained on '%s'; 'dt-shard-ckpt lora-merge' merges them into it", base);
	return -ENOENT;
}

/* set: "model" or "ema". Frozen parameters have no average; the parameter itself is used. */
static int open_dt(struct dt_source *s, const char *set, struct dt_err *err)
{
	const bool average = !strcmp(set, "ema");
	int rc = dt_ckpt_open(s->path, &s->ck, err), found = 0;

	if (rc < 0)
		return rc;
	rc = dt_config_from_json(json_object_get(dt_ckpt_meta(s->ck), "model"), &s->config, err);
	if (rc < 0)
		return dt_err_prefix(err, "checkpoint '%s'", dt_ckpt_path(s->ck));
	if (!s->modules)
		s->config.mtp_layers = 0;
	rc = dt_model_params(&s->config, &s->params, err);
	if (rc < 0)
		return rc;
	s->ck_tensor = malloc(((size_t)s->params.n + 1) * sizeof(*s->ck_tensor));
	if (!s->ck_tensor)
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", s->path);
	for (int i = 0; i < s->params.n; i++) {
		const struct dt_param *p = &s->params.p[i];
		struct dt_ckpt_tensor t;

		s->ck_tensor[i] = find_in(s, set, p->name);
		found += s->ck_tensor[i] >= 0;
		if (s->ck_tensor[i] < 0 && average)
			s->ck_tensor[i] = find_in(s, "model", p->name);
		if (s->ck_tensor[i] < 0)
			return no_tensor(s, set, p->name, err);
		dt_ckpt_tensor(s->ck, s->ck_tensor[i], &t);
		if (t.ndim != p->ndim || memcmp(t.shape, p->shape, (size_t)t.ndim * sizeof(*t.shape)))
			return dt_err_set(err, -EINVAL,
					  "checkpoint '%s': tensor '%s/%s' has another shape than the model",
					  dt_ckpt_path(s->ck), set, p->name);
		if (dt_format_of_dtype(t.dtype) < 0)
			return dt_err_set(err, -ENOTSUP, "checkpoint '%s': tensor '%s/%s' is %s",
					  dt_ckpt_path(s->ck), set, p->name, dt_dtype_name(t.dtype));
	}
	if (!found)
		return dt_err_set(err, -ENOENT, "checkpoint '%s' has no averaged weights (--ema)",
				  dt_ckpt_path(s->ck));
	rc = src_images(s, dt_ckpt_meta(s->ck), err);
	return rc < 0 ? rc : src_ckpt_tokenizer(s, s->ck, err);
}

/* A tokenizer that the user names replaces the source's. */
static int other_tokenizer(struct dt_source *s, const char *path, struct dt_err *err)
{
	if (strcmp(path, "none"))
		return src_tokenizer_from(s, path, err);
	free(s->tokenizer);
	s->tokenizer = NULL;
	s->note[0] = '\0';
	return 0;
}

/* Which part of what is in a source. */
enum part { MODEL, MODEL_AND_MODULES, TOWER };

static int open_source(const char *path, enum dt_source_kind kind, const char *tokenizer, enum part part,
		       struct dt_source **ret, struct dt_err *err)
{
	struct dt_source *s = calloc(1, sizeof(*s));
	int rc = 0;

	if (s)
		s->path = strdup(path);
	if (!s || !s->path)
		rc = dt_err_sys(err, -ENOMEM, "cannot open '%s'", path);
	if (rc == 0 && kind == DT_SOURCE_AUTO)
		rc = dt_source_guess(path, &kind, err);
	if (rc == 0 && part == TOWER && kind != DT_SOURCE_SAFETENSORS)
		rc = dt_err_set(err, -ENOTSUP,
				"'%s': a tower of vision is read from a safetensors folder only", path);
	if (rc == 0) {
		s->modules = part == MODEL_AND_MODULES;
		s->tower = part == TOWER;
		s->kind = kind == DT_SOURCE_EMA ? DT_SOURCE_DT : kind;
		rc = kind == DT_SOURCE_SAFETENSORS ? src_open_safetensors(s, err)
		     : kind == DT_SOURCE_GGUF	   ? src_open_gguf(s, true, err)
		     : kind == DT_SOURCE_LLMC	   ? src_open_llmc(s, err)
		     : kind == DT_SOURCE_LLAMA2C   ? src_open_llama2c(s, err)
						   : open_dt(s, kind == DT_SOURCE_EMA ? "ema" : "model", err);
	}
	if (rc == 0 && tokenizer)
		rc = other_tokenizer(s, tokenizer, err);
	if (rc < 0) {
		dt_source_close(s);
		return rc;
	}
	*ret = s;
	return 0;
}

int dt_source_open(const char *path, enum dt_source_kind kind, const char *tokenizer, struct dt_source **ret,
		   struct dt_err *err)
{
	return open_source(path, kind, tokenizer, MODEL, ret, err);
}

int dt_source_open_all(const char *path, enum dt_source_kind kind, const char *tokenizer,
		       struct dt_source **ret, struct dt_err *err)
{
	return open_source(path, kind, tokenizer, MODEL_AND_MODULES, ret, err);
}

int dt_source_open_tower(const char *path, struct dt_source **ret, struct dt_err *err)
{
	return open_source(path, DT_SOURCE_AUTO, NULL, TOWER, ret, err);
}

/* Leaves the parameters of the module, which it finds by name. */
static int leave_module(struct dt_source *s, struct dt_err *err)
{
	struct dt_params params = {0};
	struct src_view *view = NULL;
	struct dt_config c;
	int *tensor = NULL, rc;

	if (!s->config.mtp_layers)
		return dt_err_set(err, -EINVAL, "'%s' has no module for a further token (--mtp-layers)",
				  s->path);
	rc = dt_config_module(&s->config, &c, err);
	if (rc == 0)
		rc = dt_model_params(&c, &params, err);
	if (rc < 0)
		return rc;
	if (s->view)
		view = calloc((size_t)params.n + 1, sizeof(*view));
	else
		tensor = calloc((size_t)params.n + 1, sizeof(*tensor));
	if (!view && !tensor) {
		dt_params_release(&params);
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", s->path);
	}
	for (int i = 0; i < params.n; i++) {
		const int from = dt_params_find(&s->params, params.p[i].name);

		if (view) {
			view[i] = s->view[from];
			s->view[from].part = NULL;
		} else {
			tensor[i] = s->ck_tensor[from];
		}
	}
	for (int i = 0; view && i < s->params.n; i++)
		free(s->view[i].part);
	free(s->view);
	free(s->ck_tensor);
	dt_params_release(&s->params);
	s->config = c;
	s->params = params;
	s->view = view;
	s->ck_tensor = tensor;
	return 0;
}

int dt_source_open_module(const char *path, struct dt_source **ret, struct dt_err *err)
{
	struct dt_source *s;
	int rc = open_source(path, DT_SOURCE_AUTO, NULL, MODEL_AND_MODULES, &s, err);

	if (rc < 0)
		return rc;
	rc = leave_module(s, err);
	if (rc < 0) {
		dt_source_close(s);
		return rc;
	}
	*ret = s;
	return 0;
}

int src_same_names(struct dt_source *s, const struct dt_source *old, struct dt_err *err)
{
	int rc;

	s->kind = DT_SOURCE_DT;
	s->path = strdup(old->path);
	s->mean = malloc(sizeof(*s->mean));
	if (!s->path || !s->mean)
		return -ENOMEM;
	if ((rc = dt_model_params(&s->config, &s->params, err)) < 0)
		return rc;
	s->from = malloc((size_t)s->params.n * sizeof(*s->from));
	for (int i = 0; s->from && i < s->params.n; i++)
		s->from[i] = i;
	return s->from ? 0 : -ENOMEM;
}

void src_made_of(struct dt_source *s, struct dt_source *const *of, int n)
{
	memcpy(s->mean, of, (size_t)n * sizeof(struct dt_source *));
	s->nmean = n;
	s->tokenizer = of[0]->tokenizer;
	s->tokenizer_n = of[0]->tokenizer_n;
	s->chat = of[0]->chat;
	of[0]->tokenizer = of[0]->chat = NULL;
	for (int i = 0; i < 2; i++) {
		s->named[i] = of[0]->named[i];
		of[0]->named[i] = NULL;
	}
}

void dt_source_close(struct dt_source *s)
{
	if (!s)
		return;
	for (int i = 0; i < s->nmap; i++)
		dt_mapped_drop(s->map[i].p, s->map[i].n);
	for (int i = 0; i < s->nmean; i++)
		dt_source_close(s->mean[i]);
	src_coded_release(s);
	free(s->mean);
	free(s->from);
	if (s->over && s->over_fd > 0)
		close(s->over_fd);
	free(s->over);
	free(s->mean_row);
	dt_adapter_close(s->adapter);
	if (s->ck)
		dt_ckpt_close(s->ck);
	for (int i = 0; s->view && i < s->params.n; i++)
		free(s->view[i].part);
	dt_params_release(&s->params);
	free(s->map);
	free(s->stored);
	free(s->view);
	free(s->ck_tensor);
	json_decref(s->images);
	free(s->tokenizer);
	free(s->chat);
	free(s->named[0]);
	free(s->named[1]);
	free(s->path);
	free(s);
}

enum dt_source_kind dt_source_kind(const struct dt_source *s)
{
	return s->kind;
}

const char *dt_source_path(const struct dt_source *s)
{
	return s->ck ? dt_ckpt_path(s->ck) : s->path;
}

const struct dt_config *dt_source_config(const struct dt_source *s)
{
	return &s->config;
}

const struct dt_params *dt_source_params(const struct dt_source *s)
{
	return &s->params;
}

struct dt_ckpt *dt_source_ckpt(const struct dt_source *s)
{
	return s->ck;
}

int64_t dt_source_step(const struct dt_source *s)
{
	int64_t latest = s->ck ? dt_ckpt_step(s->ck) : 0;

	for (int i = 0; i < s->nmean; i++) {
		int64_t step = dt_source_step(s->mean[i]);

		latest = step > latest ? step : latest;
	}
	return latest;
}

const char *dt_source_tokenizer(const struct dt_source *s, size_t *ret_n)
{
	*ret_n = s->tokenizer_n;
	return s->tokenizer;
}

const char *dt_source_chat_template(const struct dt_source *s)
{
	return s->chat;
}

const char *dt_source_note(const struct dt_source *s)
{
	return s->note[0] ? s->note : s->ck ? dt_ckpt_note(s->ck) : NULL;
}

enum dt_format dt_source_format(const struct dt_source *s, int i)
{
	struct dt_ckpt_tensor t;

	if (s->over)
		return s->over[i].data ? s->over[i].format : dt_source_format(s->mean[0], i);
	if (s->mean) { /* a mean of quantized blocks is f32 */
		int from = s->from ? s->from[i] : i;
		enum dt_format f = from < 0 ? DT_FMT_F32 : dt_source_format(s->mean[0], from);

		return dt_format_info(f)->dtype < 0 ? DT_FMT_F32 : f;
	}
	if (!s->ck)
		return s->view[i].format;
	dt_ckpt_tensor(s->ck, s->ck_tensor[i], &t);
	return (enum dt_format)dt_format_of_dtype(t.dtype);
}

const void *dt_source_raw(const struct dt_source *s, int i, int64_t row, int64_t rows)
{
	const struct src_view *v = s->over ? &s->over[i] : s->view ? &s->view[i] : NULL;
	const struct dt_param *p = &s->params.p[i];
	const uint8_t *data;
	int64_t at;

	if (s->over && !v->data)
		return dt_source_raw(s->mean[0], i, row, rows);
	if (!v || v->transposed || (rows > 1 && p->ndim == 2 && v->stride != p->shape[1]) ||
	    (v->part && row / v->part_rows != (row + rows - 1) / v->part_rows) ||
	    src_run(v, v->part ? row % v->part_rows : row, rows, &at) < rows)
		return NULL;
	at = v->first + at * v->stride;
	if (at % dt_format_info(v->format)->block)
		return NULL;
	data = v->part ? v->part[row / v->part_rows] : v->data;
	src_reads(s, dt_format_bytes(v->format, rows * v->stride));
	src_coded_need(s, data);
	return data + dt_format_bytes(v->format, at);
}
/* SPDX-License-Identifier: Apache-2.0 */
