#include "model/file.h"

#include "base/mapped.h"
#include "kernels/activation.h"
#include "kernels/rope.h"
#include "model/family/family.h"
#include "model/gguf.h"
#include "model/names.h"
#include "model/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool ends(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

struct map {
	void *at;
	size_t bytes;
};

static int map_file(const char *path, struct map *ret, struct dt_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc = 0;
	struct stat st;

	if (fd < 0)
		return dt_err_sys(err, -errno, "cannot open '%s'", path);
	if (fstat(fd, &st) < 0)
		rc = dt_err_sys(err, -errno, "cannot read '%s'", path);
	else if (st.st_size == 0)
		rc = dt_err_set(err, -EBADMSG, "'%s' is empty", path);
	if (rc == 0) {
		ret->bytes = (size_t)st.st_size;
		ret->at = mmap(NULL, ret->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
		if (ret->at == MAP_FAILED)
			rc = dt_err_sys(err, -errno, "cannot map '%s'", path);
		else
			dt_mapped_note(ret->at, ret->bytes, path);
	}
	close(fd);
	return rc;
}

struct gguf_head { /* while a model's GGUF files are read one after another */
	struct map map;
	struct dt_model_file *f;
};

static void unmap(struct map *m)
{
	dt_mapped_drop(m->at, m->bytes);
	m->at = NULL;
}

static int map_part(void *to, const char *path, const uint8_t **ret, size_t *ret_n, struct dt_err *err)
{
	struct gguf_head *h = to;
	int rc;

	unmap(&h->map);
	rc = map_file(path, &h->map, err);
	*ret = h->map.at;
	*ret_n = h->map.bytes;
	return rc;
}

static int count_part(void *to, const struct dt_gguf *g, struct dt_err *err)
{
	struct dt_model_file *f = ((struct gguf_head *)to)->f;
	uint64_t bytes = 0;
	bool known = true;

	(void)err;
	for (int i = 0; i < g->ntensor; i++) {
		int64_t n = 1;

		for (int d = 0; d < g->tensor[i].ndim; d++)
			n *= g->tensor[i].shape[d];
		f->params += n;
		bytes += g->tensor[i].bytes;
		known &= g->tensor[i].format >= 0;
	}
	/* For block formats of unknown size, use the size of the data section. */
	f->weight_bytes += known ? bytes : g->bytes - g->data_at;
	f->tensors += g->ntensor;
	return 0;
}

/* Records the type of every parameter; records none if a parameter is missing or has an unsupported type. */
static int note_formats(const struct dt_gguf *g, const struct dt_config *c, struct dt_model_file *f,
			struct dt_err *err)
{
	struct dt_params t;
	int rc = dt_model_params(c, &t, err);

	if (rc < 0)
		return rc;
	f->format = malloc((size_t)t.n);
	if (!f->format)
		rc = dt_err_sys(err, -ENOMEM, "cannot describe a model");
	for (int i = 0; i < t.n && f->format; i++) {
		struct dt_place_in_file at;
		const struct dt_gguf_tensor *v = dt_names_place(DT_NAMES_GGUF, c, &t.p[i], 0, &at)
							 ? dt_gguf_find_tensor(g, at.name)
							 : NULL;

		if (v && v->format >= 0)
			f->format[i] = (int8_t)v->format;
		else
			dt_model_file_release(f);
	}
	dt_params_release(&t);
	return rc;
}

static int from_gguf(const char *path, struct dt_config *c, struct dt_model_file *f, struct dt_err *err)
{
	struct gguf_head h = {.f = f};
	struct dt_gguf g;
	struct map m;
	int rc = map_file(path, &m, err);

	if (rc < 0)
		return rc;
	rc = dt_gguf_parse(m.at, m.bytes, path, &g, err);
	if (rc == 0) {
		count_part(&h, &g, err);
		rc = dt_gguf_add_parts(&g, path, map_part, count_part, &h, err);
		if (rc == 0 && (rc = dt_config_from_gguf(&g, c, err)) < 0)
			dt_err_prefix(err, "'%s'", path);
		if (rc == 0)
			rc = note_formats(&g, c, f, err);
		snprintf(f->kind, sizeof(f->kind), "gguf");
		dt_gguf_release(&g);
	}
	unmap(&h.map);
	unmap(&m);
	return rc;
}

void dt_model_file_release(struct dt_model_file *f)
{
	free(f->format);
	f->format = NULL;
}

struct guess { /* what the tensors of a Llama-like model reveal of its shape */
	int64_t vocab, hidden, layers, ffn, q, k, norm;
	bool head, q_norm, bias;
};

static void look(const struct dt_safetensor *t, struct guess *g)
{
	const char *layer = strstr(t->name, "layers.");
	long n = layer ? strtol(layer + 7, NULL, 10) : -1;

	if (n >= g->layers && n < 4096)
		g->layers = n + 1;
	if (ends(t->name, "embed_tokens.weight") && t->ndim == 2) {
		g->vocab = t->shape[0];
		g->hidden = t->shape[1];
	} else if (ends(t->name, "lm_head.weight")) {
		g->head = true;
	} else if (ends(t->name, "mlp.up_proj.weight") && t->ndim == 2) {
		g->ffn = t->shape[0];
	} else if (ends(t->name, "self_attn.q_proj.weight") && t->ndim == 2) {
		g->q = t->shape[0];
	} else if (ends(t->name, "self_attn.k_proj.weight") && t->ndim == 2) {
		g->k = t->shape[0];
	} else if (ends(t->name, "self_attn.q_proj.bias")) {
		g->bias = true;
	} else if (ends(t->name, "self_attn.q_norm.weight") && t->ndim == 1) {
		g->q_norm = true;
		g->norm = t->shape[0];
	}
}

static int from_guess(const struct guess *g, struct dt_config *c, const char *path, struct dt_err *err)
{
	int64_t d = g->q_norm ? g->norm : g->q % 128 == 0 && g->k % 128 == 0 ? 128 : 64;

	if (!g->hidden || !g->layers || !g->ffn || !g->q || !g->k || d < 1 || g->q % d || g->k % d) {
		dt_err_set(err, -EINVAL,
			   "'%s' has no config.json next to it, and not the tensors of a known model", path);
		return -EINVAL;
	}
	dt_config_find_preset("llama-2-7b", c);
	snprintf(c->name, sizeof(c->name), "%.60s", basename(path));
	c->vocab = g->vocab;
	c->hidden = g->hidden;
	c->layers = g->layers;
	c->ffn = g->ffn;
	c->head_dim = d;
	c->heads = g->q / d;
	c->kv_heads = g->k / d;
	c->tied = !g->head;
	c->qk_norm = g->q_norm;
	c->qkv_bias = g->bias;
	c->max_seq = 131072;
	c->bos = c->eos = -1;
	return dt_config_check(c, err);
}

int dt_config_from_weights(const char *path, struct dt_config *ret, struct dt_err *err)
{
	struct dt_safetensors s = {0};
	struct map m;
	int rc = map_file(path, &m, err);

	if (rc < 0)
		return rc;
	rc = dt_safetensors_parse(m.at, m.bytes, path, &s, err);
	if (rc == 0 && !dt_resnet_from_tensors(&s, ret))
		rc = dt_err_set(err, -EINVAL,
				"'%s' has no config.json next to it, and not the tensors of a ResNet", path);
	dt_safetensors_release(&s);
	unmap(&m);
	return rc;
}

static int add_safetensors(const char *path, struct dt_model_file *f, struct guess *g, struct dt_err *err)
{
	struct dt_safetensors s;
	struct map m;
	int rc = map_file(path, &m, err);

	if (rc < 0)
		return rc;
	rc = dt_safetensors_parse(m.at, m.bytes, path, &s, err);
	if (rc == 0) {
		for (int i = 0; i < s.n; i++) {
			int64_t n = 1;

			for (int d = 0; d < s.t[i].ndim; d++)
				n *= s.t[i].shape[d];
			f->params += n;
			f->weight_bytes += s.t[i].bytes;
			look(&s.t[i], g);
		}
		f->tensors += s.n;
		snprintf(f->kind, sizeof(f->kind), "safetensors");
		dt_safetensors_release(&s);
	}
	unmap(&m);
	return rc;
}

static int from_safetensors(const char *path, struct dt_config *c, struct dt_model_file *f,
			    struct dt_err *err)
{
	struct guess g = {0};
	char config[PATH_MAX];
	const char *slash = strrchr(path, '/');
	int rc = add_safetensors(path, f, &g, err);

	if (rc < 0)
		return rc;
	snprintf(config, sizeof(config), "%.*sconfig.json", slash ? (int)(slash - path + 1) : 0, path);
	if (access(config, R_OK) == 0)
		return dt_config_load(config, c, err);
	return dt_config_from_weights(path, c, NULL) == 0 ? 0 : from_guess(&g, c, path, err);
}

/* Adds all safetensors files of a folder, which are the shards of one model. */
static int add_folder(const char *path, struct dt_model_file *f, struct dt_err *err)
{
	DIR *d = opendir(path);
	char file[PATH_MAX];
	struct guess g = {0};
	struct dirent *e;
	int rc = 0;

	while (d && rc == 0 && (e = readdir(d))) {
		if (strncmp(e->d_name, "model", 5) || !ends(e->d_name, ".safetensors"))
			continue;
		if (snprintf(file, sizeof(file), "%s/%s", path, e->d_name) >= (int)sizeof(file))
			rc = dt_err_sys(err, -ENAMETOOLONG, "cannot open '%s'", path);
		else
			rc = add_safetensors(file, f, &g, err);
	}
	if (d)
		closedir(d);
	return rc;
}

int dt_model_describe(const char *name, struct dt_config *ret, struct dt_model_file *ret_file,
		      struct dt_err *err)
{
	struct dt_model_file f = {.kind = "description"};
	struct dt_config c;
	struct stat st;
	char magic[4] = "";
	FILE *in;
	int rc;

	if (dt_config_find_preset(name, &c) == 0 || stat(name, &st) < 0) {
		rc = dt_config_load(name, &c, err);
	} else if (S_ISDIR(st.st_mode)) {
		rc = dt_config_load(name, &c, err);
		if (rc == 0)
			rc = add_folder(name, &f, err);
	} else {
		in = S_ISREG(st.st_mode) ? fopen(name, "re") : NULL;
		if (in && fread(magic, 1, 4, in) == 4 && !memcmp(magic, "GGUF", 4))
			rc = from_gguf(name, &c, &f, err);
		else if (ends(name, ".safetensors"))
			rc = from_safetensors(name, &c, &f, err);
		else
			rc = dt_config_load(name, &c, err);
		if (in)
			fclose(in);
	}
	if (rc < 0) {
		dt_model_file_release(&f);
		return rc;
	}
	*ret = c;
	*ret_file = f;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
