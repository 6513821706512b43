/* Tensors of a file: mapped, listed, matched with the model's parameters. */
#include "base/mapped.h"
#include "base/room.h"
#include "ckpt/internal.h"
#include "ckpt/source_internal.h"
#include "model/family.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEPT (32 << 20) /* bytes that may be read before their pages are unmapped */

int src_map(struct dt_source *s, const char *path, const uint8_t **ret, size_t *ret_n, struct dt_err *err)
{
	void *grown = realloc(s->map, ((size_t)s->nmap + 1) * sizeof(*s->map)), *p;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (grown)
		s->map = grown;
	if (fd < 0)
		return dt_err_sys(err, -errno, "cannot open '%s'", path);
	if (!grown || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size == 0) {
		close(fd);
		return dt_err_set(err, -EBADMSG, "'%s' is empty or not a regular file", path);
	}
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		return dt_err_sys(err, -errno, "cannot map '%s'", path);
	dt_mapped_note(p, (size_t)st.st_size, path);
	s->map[s->nmap].p = p;
	atomic_init(&s->map[s->nmap].read, 0);
	s->map[s->nmap++].n = (size_t)st.st_size;
	*ret = p;
	*ret_n = (size_t)st.st_size;
	return 0;
}

void src_reads(const struct dt_source *s, int64_t bytes)
{
	if (s->nmap == 0 || atomic_fetch_add(&s->map[0].read, bytes) + bytes < KEPT)
		return;
	atomic_store(&s->map[0].read, 0);
	for (int i = 0; i < s->nmap; i++) /* private and only read: nothing is lost */
		madvise(s->map[i].p, s->map[i].n, MADV_DONTNEED);
}

int src_add(struct dt_source *s, const struct src_stored *t)
{
	if (!DT_ROOM(s->stored, s->nstored, s->cap, 64))
		return -ENOMEM;
	s->stored[s->nstored++] = *t;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct src_stored *)a)->name, ((const struct src_stored *)b)->name);
}

void src_sort(struct dt_source *s)
{
	if (s->nstored)
		qsort(s->stored, (size_t)s->nstored, sizeof(*s->stored), by_name);
}

struct src_stored *src_find(const struct dt_source *s, const char *name)
{
	struct src_stored key;

	if (!s->nstored || snprintf(key.name, sizeof(key.name), "%s", name) >= (int)sizeof(key.name))
		return NULL;
	return bsearch(&key, s->stored, (size_t)s->nstored, sizeof(key), by_name);
}

/* The shape of the tensor at a place in the file; returns the number of dimensions. */
static int shape_at(const struct dt_param *p, const struct dt_place_in_file *at, int64_t ret[5])
{
	const int64_t rows = at->stack ? at->rows / at->stack : at->rows;
	int n = 0;

	if (dt_param_reshaped(p)) {
		n = dt_param_dims(p, ret);
		if (p->channels) /* those of all parts */
			ret[0] = rows;
		return n;
	}
	if (at->stack)
		ret[n++] = at->stack;
	if (p->ndim == 2 && at->transposed)
		ret[n++] = p->shape[1];
	ret[n++] = rows;
	if (p->ndim == 2 && !at->transposed)
		ret[n++] = p->shape[1];
	return n;
}

/* The tensor at a place in the file; blocks of a format are not transposed. Its shape is checked. */
static int find_stored(struct dt_source *s, const struct dt_param *p, struct dt_place_in_file *at,
		       const struct src_stored **ret, struct dt_err *err)
{
	struct src_stored *t = src_find(s, at->name);
	char want_text[96], have_text[200];
	int64_t want[5] = {at->stack};
	bool row; /* llama-quantize leaves out the outer dimension of a matrix of one row */
	int ndim;

	if (!t)
		return dt_err_set(err, -ENOENT, "'%s' has no tensor '%s'", s->path, at->name);
	if (t->format_known && dt_format_info(t->format)->dtype < 0)
		at->transposed = false;
	ndim = shape_at(p, at, want);
	row = s->kind == DT_SOURCE_GGUF && ndim == 2 && want[0] == 1 && t->ndim == 1 &&
	      t->shape[0] == want[1];
	if (!row && (t->ndim != ndim || memcmp(t->shape, want, (size_t)ndim * sizeof(*want))))
		return dt_err_set(err, -EINVAL, "'%s': tensor '%s' is %s, not %s as the model says", s->path,
				  t->name, ck_shape_text(have_text, sizeof(have_text), t->ndim, t->shape),
				  ck_shape_text(want_text, sizeof(want_text), ndim, want));
	if (!t->format_known)
		return dt_err_set(err, -ENOTSUP, "'%s': the type of tensor '%s' is not supported%s%s",
				  s->path, t->name, *t->type ? ": " : "", t->type);
	t->used = true;
	*ret = t;
	return 0;
}

static struct src_view view_of(const struct dt_param *p, const struct dt_place_in_file *at,
			       const struct src_stored *t)
{
	struct src_view v = {.data = t->data,
			     .format = t->format,
			     .first = p->ndim == 2 && !at->transposed ? at->first * p->shape[1] : at->first,
			     .stride = p->ndim != 2	? 1
				       : at->transposed ? at->rows
							: p->shape[1],
			     .run = at->run < at->every ? at->run : 0,
			     .every = at->every,
			     .transposed = at->transposed};

	if (at->transposed && at->stack) {
		v.each = p->shape[0] / at->stack;
		v.step = at->every / at->run;
		v.stride = v.each * v.step;
		v.cols = p->shape[1];
	}
	return v;
}

static int bind_param(struct dt_source *s, enum dt_names scheme, int i, struct dt_err *err)
{
	const struct dt_param *p = &s->params.p[i];
	const struct src_stored *t;
	struct dt_place_in_file at;
	int rc;

	if (!dt_names_place(scheme, &s->config, p, 0, &at))
		return dt_err_set(err, -ENOTSUP, "'%s' (family %s): this format has no tensor for '%s'",
				  s->path, s->config.family, p->name);
	rc = find_stored(s, p, &at, &t, err);
	if (rc < 0)
		return rc;
	s->view[i] = view_of(p, &at, t);
	if (at.split == 1)
		return 0;
	s->view[i].part_rows = at.rows;
	s->view[i].part = calloc((size_t)at.split, sizeof(*s->view[i].part));
	if (!s->view[i].part)
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", s->path);
	for (int64_t e = 0; e < at.split && rc == 0; e++) {
		dt_names_place(scheme, &s->config, p, e, &at);
		rc = find_stored(s, p, &at, &t, err);
		if (rc == 0 && t->format != s->view[i].format)
			rc = dt_err_set(err, -ENOTSUP, "'%s': tensor '%s' is %s, that of expert 0 is %s",
					s->path, t->name, dt_format_info(t->format)->name,
					dt_format_info(s->view[i].format)->name);
		s->view[i].part[e] = rc == 0 ? t->data : NULL;
	}
	return rc;
}

/* Reads a vector of the file, converted to f32. */
static int read_vector(const struct dt_source *s, const char *name, int64_t n, float *dst, struct dt_err *err)
{
	const struct src_stored *t = src_find(s, name);

	if (!t)
		return dt_err_set(err, -ENOENT, "'%s' has no tensor '%s'", s->path, name);
	if (t->ndim != 1 || t->shape[0] != n || !t->format_known || dt_format_info(t->format)->dtype < 0)
		return dt_err_set(err, -EINVAL, "'%s': '%s' is not a vector of %lld numbers", s->path, name,
				  (long long)n);
	dt_dequantize(t->format, t->data, n, dst);
	return 0;
}

int dt_source_buffer(struct dt_source *s, const char *name, int64_t n, float *dst, struct dt_err *err)
{
	const int64_t off = 0;
	char full[80];
	int at;

	if (s->mean)
		return dt_err_set(err, -ENOTSUP, "averaging running statistics is not supported ('%s')",
				  name);
	if (!s->ck)
		return read_vector(s, name, n, dst, err);
	snprintf(full, sizeof(full), "model/%s", name);
	at = dt_ckpt_find(s->ck, full);
	if (at < 0)
		return dt_err_set(err, -ENOENT, "checkpoint '%s' has no '%s'", dt_ckpt_path(s->ck), full);
	return dt_ckpt_read(s->ck, at, &off, &n, DT_F32, dst, err);
}

/*
 * Files of a model whose head is tied to the embedding may repeat the embedding as the head. A head with
 * other values would be lost, so it is refused.
 */
static int check_tied(const struct dt_source *s, struct dt_err *err)
{
	const struct src_stored *head = s->config.tied ? src_find(s, "lm_head.weight") : NULL;
	const struct dt_param *embed = NULL;
	const struct src_view *v = s->view;

	for (int i = 0; i < s->params.n && !embed; i++)
		if (s->params.p[i].role == DT_W_EMBED)
			embed = &s->params.p[i], v = &s->view[i];
	if (!head || !embed || head->used)
		return 0;
	if (head->format_known && head->format == v->format && head->ndim == 2 &&
	    head->shape[0] == embed->shape[0] && head->shape[1] == embed->shape[1] &&
	    !memcmp(head->data, v->data, dt_format_bytes(v->format, dt_param_numel(embed))))
		return 0;
	return dt_err_set(err, -EINVAL,
			  "'%s': tensor '%s' differs from the embedding, but the configuration ties the two "
			  "('tie_word_embeddings')",
			  s->path, head->name);
}

/* The tensor of a module for a further token at this layer, by which it is known. */
static const struct src_stored *module_at(const struct dt_source *s, enum dt_names scheme, int64_t layer)
{
	char key[64];

	snprintf(key, sizeof(key),
		 scheme == DT_NAMES_GGUF ? "blk.%lld.nextn.eh_proj.weight" : "layers.%lld.eh_proj.weight",
		 (long long)layer);
	return src_find(s, key);
}

/*
 * Whether the tensor belongs to a module that predicts a further token. Files of DeepSeek-V3 and GLM-4.5 have
 * one behind the layers, with copies of the embedding and of the head.
 */
static bool is_of_module(const struct dt_source *s, enum dt_names scheme, const char *name)
{
	long long layer;

	return sscanf(name, scheme == DT_NAMES_GGUF ? "blk.%lld." : "layers.%lld.", &layer) == 1 &&
	       layer >= s->config.layers && module_at(s, scheme, layer);
}

/* Whether the tensor `copy` of a module is the tensor `of` of the model, where the file has it. */
static int check_copy(const struct dt_source *s, const char *copy, const char *of, struct dt_err *err)
{
	const struct src_stored *a, *b = src_find(s, of);
	char name[64];

	snprintf(name, sizeof(name), "layers.%lld.%s", (long long)s->config.layers, copy);
	a = src_find(s, name);
	if (!a || !b)
		return 0;
	if (a->format_known && b->format_known && a->format == b->format && a->ndim == 2 && b->ndim == 2 &&
	    a->shape[0] == b->shape[0] && a->shape[1] == b->shape[1] &&
	    !memcmp(a->data, b->data, dt_format_bytes(b->format, b->shape[0] * b->shape[1])))
		return 0;
	return dt_err_set(err, -ENOTSUP,
			  "'%s': tensor '%s' differs from '%s': modules for further tokens with an embedding "
			  "or a head of their own are not supported",
			  s->path, a->name, b->name);
}

static int check_copies(const struct dt_source *s, struct dt_err *err)
{
	int rc = check_copy(s, "embed_tokens.weight", "embed_tokens.weight", err);

	return rc < 0 ? rc
		      : check_copy(s, "shared_head.head.weight",
				   s->config.tied ? "embed_tokens.weight" : "lm_head.weight", err);
}

/* Whether the model has a module for a further token, which is wanted. */
static bool has_module(const struct dt_source *s, enum dt_names scheme)
{
	const struct dt_family *f = dt_family_find(s->config.family);

	return s->modules && f && f->mtp && module_at(s, scheme, s->config.layers);
}

int src_resolve(struct dt_source *s, enum dt_names scheme, struct dt_err *err)
{
	int rc;

	for (int i = 0; i < s->nstored && dt_config_is_image(&s->config) && !s->config.patch; i++) {
		char text[DT_NAMES_MAX];
		const char *name = dt_names_of_images(s->stored[i].name, text);

		memmove(s->stored[i].name, name, strlen(name) + 1);
	}
	src_sort(s);
	s->config.mtp_layers = has_module(s, scheme);
	rc = dt_model_params(&s->config, &s->params, err);
	if (rc < 0)
		return rc;
	s->view = calloc((size_t)s->params.n, sizeof(*s->view));
	if (!s->view)
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", s->path);
	for (int i = 0; i < s->params.n && rc == 0; i++)
		rc = bind_param(s, scheme, i, err);
	for (int i = 0; i < s->nstored && rc == 0; i++)
		if (!s->stored[i].used && !dt_names_is_buffer(scheme, &s->config, s->stored[i].name) &&
		    !is_of_module(s, scheme, s->stored[i].name))
			rc = dt_err_set(err, -ENOTSUP, "'%s': tensor '%s' is not part of a %s model", s->path,
					s->stored[i].name, s->config.family);
	if (rc == 0 && scheme == DT_NAMES_HF)
		rc = check_tied(s, err);
	return rc == 0 && scheme == DT_NAMES_HF && s->config.mtp_layers ? check_copies(s, err) : rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
