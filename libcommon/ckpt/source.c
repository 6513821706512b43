/* Any source as a model: finding out what it is, matching its tensors with the parameters, reading boxes. */
#include "ckpt/export_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define RUN 4096 /* elements dequantised at a time; a multiple of every block */

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
	s->map[s->nmap].p = p;
	s->map[s->nmap++].n = (size_t)st.st_size;
	*ret = p;
	*ret_n = (size_t)st.st_size;
	return 0;
}

int src_add(struct dt_source *s, const struct src_stored *t)
{
	if (s->nstored == s->cap) {
		int cap = s->cap ? 2 * s->cap : 64;
		void *grown = realloc(s->stored, (size_t)cap * sizeof(*s->stored));

		if (!grown)
			return -ENOMEM;
		s->stored = grown;
		s->cap = cap;
	}
	s->stored[s->nstored++] = *t;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct src_stored *)a)->name, ((const struct src_stored *)b)->name);
}

static const char *shape_text(char *buf, size_t n, int ndim, const int64_t *shape)
{
	size_t k = (size_t)snprintf(buf, n, "[");

	for (int d = 0; d < ndim && k < n; d++)
		k += (size_t)snprintf(buf + k, n - k, "%s%lld", d ? ", " : "", (long long)shape[d]);
	if (k < n)
		snprintf(buf + k, n - k, "]");
	return buf;
}

/* The tensor at a place, of the shape it must have there. */
static int find_stored(struct dt_source *s, const struct dt_param *p, const struct dt_place_in_file *at,
		       const struct src_stored **ret, struct dt_err *err)
{
	struct src_stored key, *t;
	char want_text[96], have_text[96];
	int64_t want[3] = {at->stack	    ? at->stack
			   : at->transposed ? p->shape[1]
					    : at->rows,
			   at->stack	    ? at->rows / at->stack
			   : at->transposed ? at->rows
					    : p->shape[1],
			   p->shape[1]};
	int ndim = at->stack ? 3 : p->ndim;

	snprintf(key.name, sizeof(key.name), "%s", at->name);
	t = bsearch(&key, s->stored, (size_t)s->nstored, sizeof(*t), by_name);
	if (!t)
		return dt_err_set(err, -ENOENT, "'%s' has no tensor '%s'", s->path, at->name);
	if (t->ndim != ndim || memcmp(t->shape, want, (size_t)ndim * sizeof(*want)))
		return dt_err_set(err, -EINVAL, "'%s': tensor '%s' is %s, not %s as the model says", s->path,
				  t->name, shape_text(have_text, sizeof(have_text), t->ndim, t->shape),
				  shape_text(want_text, sizeof(want_text), ndim, want));
	if (!t->format_known)
		return dt_err_set(err, -ENOTSUP, "'%s': the type of tensor '%s' is not supported", s->path,
				  t->name);
	t->used = true;
	*ret = t;
	return 0;
}

static int bind_param(struct dt_source *s, enum dt_names scheme, int i, struct dt_err *err)
{
	const struct dt_param *p = &s->params.p[i];
	const struct src_stored *t;
	struct dt_place_in_file at;
	int rc;

	if (!dt_names_place(scheme, &s->config, p, 0, &at))
		return dt_err_set(err, -ENOTSUP, "'%s' (family %s) has no place for '%s'", s->path,
				  s->config.family, p->name);
	rc = find_stored(s, p, &at, &t, err);
	if (rc < 0)
		return rc;
	s->view[i] = (struct src_view){.data = t->data,
				       .format = t->format,
				       .first = at.transposed  ? at.first
						: p->ndim == 2 ? at.first * p->shape[1]
							       : at.first,
				       .stride = p->ndim != 2	 ? p->shape[0]
						 : at.transposed ? at.rows
								 : p->shape[1],
				       .transposed = at.transposed};
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

int src_resolve(struct dt_source *s, enum dt_names scheme, struct dt_err *err)
{
	int rc = dt_model_params(&s->config, &s->params, err);

	if (rc < 0)
		return rc;
	s->view = calloc((size_t)s->params.n, sizeof(*s->view));
	if (!s->view)
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", s->path);
	qsort(s->stored, (size_t)s->nstored, sizeof(*s->stored), by_name);
	for (int i = 0; i < s->params.n && rc == 0; i++)
		rc = bind_param(s, scheme, i, err);
	for (int i = 0; i < s->nstored && rc == 0; i++)
		if (!s->stored[i].used && !dt_names_is_buffer(scheme, &s->config, s->stored[i].name))
			rc = dt_err_set(err, -ENOTSUP, "'%s': tensor '%s' is no part of a %s model", s->path,
					s->stored[i].name, s->config.family);
	return rc;
}

/* ---- opening ---- */

static bool exists(const char *folder, const char *name)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/%s", folder, name) < (int)sizeof(path) &&
	       access(path, F_OK) == 0;
}

static enum dt_source_kind guess_folder(const char *path)
{
	/* a root may have lost its `latest`: only Hugging Face's files are looked for */
	if (exists(path, "model.safetensors") || exists(path, "model.safetensors.index.json") ||
	    (exists(path, "config.json") && !exists(path, "manifest.json")))
		return DT_SOURCE_SAFETENSORS;
	return DT_SOURCE_DT;
}

static int guess(const char *path, enum dt_source_kind *ret, struct dt_err *err)
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
		else
			rc = dt_err_set(
				err, -EINVAL,
				"'%s' is neither a checkpoint, safetensors, GGUF, llm.c nor llama2.c file",
				path);
		munmap(probe.map[0].p, probe.map[0].n);
	}
	free(probe.map);
	return rc;
}

static int open_dt(struct dt_source *s, struct dt_err *err)
{
	const json_t *tok, *text, *chat;
	int rc = dt_ckpt_open(s->path, &s->ck, err);

	if (rc < 0)
		return rc;
	rc = dt_config_from_json(json_object_get(dt_ckpt_meta(s->ck), "model"), &s->config, err);
	if (rc < 0)
		return dt_err_prefix(err, "checkpoint '%s'", dt_ckpt_path(s->ck));
	rc = dt_model_params(&s->config, &s->params, err);
	if (rc < 0)
		return rc;
	s->ck_tensor = malloc(((size_t)s->params.n + 1) * sizeof(*s->ck_tensor));
	if (!s->ck_tensor)
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", s->path);
	for (int i = 0; i < s->params.n; i++) {
		const struct dt_param *p = &s->params.p[i];
		struct dt_ckpt_tensor t;
		char name[80];

		snprintf(name, sizeof(name), "model/%s", p->name);
		s->ck_tensor[i] = dt_ckpt_find(s->ck, name);
		if (s->ck_tensor[i] < 0)
			return dt_err_set(err, -ENOENT, "checkpoint '%s' has no tensor '%s'",
					  dt_ckpt_path(s->ck), name);
		dt_ckpt_tensor(s->ck, s->ck_tensor[i], &t);
		if (t.ndim != p->ndim || memcmp(t.shape, p->shape, (size_t)t.ndim * sizeof(*t.shape)))
			return dt_err_set(err, -EINVAL,
					  "checkpoint '%s': tensor '%s' has another shape than the model",
					  dt_ckpt_path(s->ck), name);
		if (dt_format_of_dtype(t.dtype) < 0)
			return dt_err_set(err, -ENOTSUP, "checkpoint '%s': tensor '%s' is %s",
					  dt_ckpt_path(s->ck), name, dt_dtype_name(t.dtype));
	}
	tok = json_object_get(dt_ckpt_meta(s->ck), "tokenizer");
	text = json_object_get(tok, "text");
	chat = json_object_get(tok, "chat_template");
	if (json_is_string(text)) {
		s->tokenizer_n = json_string_length(text);
		s->tokenizer = malloc(s->tokenizer_n + 1);
		if (!s->tokenizer)
			return dt_err_sys(err, -ENOMEM, "cannot open '%s'", s->path);
		memcpy(s->tokenizer, json_string_value(text), s->tokenizer_n + 1);
	}
	if (json_is_string(chat))
		s->chat = strdup(json_string_value(chat));
	return 0;
}

/* A tokenizer named by the user replaces what the source has. */
static int other_tokenizer(struct dt_source *s, const char *path, struct dt_err *err)
{
	struct dt_source other = {.path = (char *)path};
	struct stat st;
	const uint8_t *p = NULL;
	size_t n = 0;
	int rc = 0;

	free(s->tokenizer);
	s->tokenizer = NULL;
	s->note[0] = '\0';
	if (!strcmp(path, "none"))
		return 0;
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		rc = src_hf_tokenizer(s, path, err);
		if (rc == 0 && !s->tokenizer)
			rc = dt_err_set(err, -ENOENT, "folder '%s' holds no tokenizer.json", path);
		return rc;
	}
	rc = src_map(&other, path, &p, &n, err);
	if (rc == 0 && n >= 4 && !memcmp(p, "GGUF", 4)) {
		rc = src_open_gguf(&other, false, err);
		if (rc == 0 && !other.tokenizer)
			rc = dt_err_set(err, -ENOTSUP, "%s", other.note);
		if (rc == 0) {
			s->tokenizer = other.tokenizer;
			s->tokenizer_n = other.tokenizer_n;
			if (other.chat) {
				free(s->chat);
				s->chat = other.chat;
			}
			other.tokenizer = other.chat = NULL;
		}
	} else if (rc == 0 && p[0] != '{' && memcmp(p, "byte", n < 4 ? n : 4)) {
		rc = src_llama2c_tokenizer(s, path, err);
	} else if (rc == 0) {
		rc = dt_read_file(path, SRC_TEXT_MAX, &s->tokenizer, &s->tokenizer_n, err);
	}
	for (int i = 0; i < other.nmap; i++)
		munmap(other.map[i].p, other.map[i].n);
	free(other.map);
	free(other.tokenizer);
	free(other.chat);
	return rc;
}

int dt_source_open(const char *path, enum dt_source_kind kind, const char *tokenizer, struct dt_source **ret,
		   struct dt_err *err)
{
	struct dt_source *s = calloc(1, sizeof(*s));
	int rc = 0;

	if (s)
		s->path = strdup(path);
	if (!s || !s->path)
		rc = dt_err_sys(err, -ENOMEM, "cannot open '%s'", path);
	if (rc == 0 && kind == DT_SOURCE_AUTO)
		rc = guess(path, &kind, err);
	if (rc == 0) {
		s->kind = kind;
		rc = kind == DT_SOURCE_SAFETENSORS ? src_open_safetensors(s, err)
		     : kind == DT_SOURCE_GGUF	   ? src_open_gguf(s, true, err)
		     : kind == DT_SOURCE_LLMC	   ? src_open_llmc(s, err)
		     : kind == DT_SOURCE_LLAMA2C   ? src_open_llama2c(s, err)
						   : open_dt(s, err);
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

void dt_source_close(struct dt_source *s)
{
	if (!s)
		return;
	for (int i = 0; i < s->nmap; i++)
		munmap(s->map[i].p, s->map[i].n);
	for (int i = 0; i < s->nmean; i++)
		dt_source_close(s->mean[i]);
	free(s->mean);
	if (s->ck)
		dt_ckpt_close(s->ck);
	for (int i = 0; s->view && i < s->params.n; i++)
		free(s->view[i].part);
	dt_params_release(&s->params);
	free(s->map);
	free(s->stored);
	free(s->view);
	free(s->ck_tensor);
	free(s->tokenizer);
	free(s->chat);
	free(s->path);
	free(s);
}

/* ---- asking ---- */

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

	if (s->mean) { /* a mean of blocks is numbers */
		enum dt_format f = dt_source_format(s->mean[0], i);

		return dt_format_info(f)->dtype < 0 ? DT_FMT_F32 : f;
	}
	if (!s->ck)
		return s->view[i].format;
	dt_ckpt_tensor(s->ck, s->ck_tensor[i], &t);
	return (enum dt_format)dt_format_of_dtype(t.dtype);
}

const void *dt_source_raw(const struct dt_source *s, int i)
{
	const struct src_view *v = s->view ? &s->view[i] : NULL;

	if (!v || v->transposed || v->part || v->first % dt_format_info(v->format)->block)
		return NULL;
	return v->data + dt_format_bytes(v->format, v->first);
}

/* ---- reading ---- */

static void put(enum dt_dtype as, const float *x, int64_t n, void *dst)
{
	dt_quantize((enum dt_format)dt_format_of_dtype(as), x, n, dst);
}

/* n elements from number `from` of a stored tensor, which need not begin a block. */
static void read_run(const struct src_view *v, int64_t from, int64_t n, enum dt_dtype as, char *dst)
{
	const struct dt_format_info *f = dt_format_info(v->format);
	int64_t size = dt_dtype_size(as);
	float x[RUN];

	if (f->dtype == (int)as) {
		memcpy(dst, v->data + from * size, (size_t)(n * size));
		return;
	}
	while (n > 0) {
		int64_t lead = from % f->block, take = RUN - lead < n ? RUN - lead : n;
		int64_t whole = (lead + take + f->block - 1) / f->block * f->block;

		dt_dequantize(v->format, v->data + dt_format_bytes(v->format, from - lead), whole, x);
		put(as, x + lead, take, dst);
		from += take;
		n -= take;
		dst += take * size;
	}
}

/*
 * A row of a transposed tensor lies scattered; only plain types are stored so. Tiles keep lines in the cache.
 */
static void read_transposed(const struct src_view *v, const int64_t *off, const int64_t *shape,
			    enum dt_dtype as, char *dst)
{
	enum { TILE = 64 };
	int64_t es = dt_format_info(v->format)->bytes, size = dt_dtype_size(as);

	for (int64_t r0 = 0; r0 < shape[0]; r0 += TILE)
		for (int64_t c0 = 0; c0 < shape[1]; c0 += TILE)
			for (int64_t c = c0; c < c0 + TILE && c < shape[1]; c++)
				for (int64_t r = r0; r < r0 + TILE && r < shape[0]; r++) {
					const uint8_t *from =
						v->data +
						es * (v->first + (off[1] + c) * v->stride + off[0] + r);
					char *to = dst + (r * shape[1] + c) * size;
					float x;

					if (dt_format_info(v->format)->dtype == (int)as) {
						memcpy(to, from, (size_t)size);
					} else {
						dt_dequantize(v->format, from, 1, &x);
						put(as, &x, 1, to);
					}
				}
}

static int read_mean(struct dt_source *s, int i, const int64_t *off, const int64_t *shape, enum dt_dtype as,
		     char *dst, struct dt_err *err)
{
	int64_t n = 1;
	double *sum;
	float *x;
	int rc = 0;

	for (int d = 0; d < s->params.p[i].ndim; d++)
		n *= shape[d];
	sum = calloc((size_t)n + 1, sizeof(*sum));
	x = malloc(((size_t)n + 1) * sizeof(*x));
	if (!sum || !x)
		rc = dt_err_sys(err, -ENOMEM, "cannot average '%s'", s->params.p[i].name);
	for (int k = 0; k < s->nmean && rc == 0; k++) {
		rc = dt_source_read(s->mean[k], i, off, shape, DT_F32, x, err);
		for (int64_t j = 0; j < n && rc == 0; j++)
			sum[j] += (double)x[j];
	}
	for (int64_t j = 0; j < n && rc == 0; j++)
		x[j] = (float)(sum[j] / s->nmean);
	if (rc == 0)
		put(as, x, n, dst);
	free(sum);
	free(x);
	return rc;
}

int dt_source_average(struct dt_source **v, int n, struct dt_source **ret, struct dt_err *err)
{
	struct dt_source *s = calloc(1, sizeof(*s));
	const char *what = "";
	int rc = 0;

	for (int i = 1; i < n && rc == 0; i++)
		if (!exp_same_model(&v[0]->config, &v[i]->config, &what) ||
		    v[0]->config.rope_pairing != v[i]->config.rope_pairing ||
		    v[0]->config.norm_plus_one != v[i]->config.norm_plus_one)
			rc = dt_err_set(err, -EINVAL,
					"'%s' and '%s' are not the same model: they differ in %s",
					dt_source_path(v[0]), dt_source_path(v[i]),
					*what ? what : "how rotary rows or norms are stored");
	if (rc == 0 && s) {
		s->path = strdup(dt_source_path(v[0]));
		s->mean = malloc((size_t)n * sizeof(struct dt_source *));
	}
	if (rc == 0 && (!s || !s->path || !s->mean))
		rc = dt_err_sys(err, -ENOMEM, "cannot average");
	if (rc == 0)
		rc = dt_model_params(&v[0]->config, &s->params, err);
	if (rc < 0) {
		for (int i = 0; i < n; i++)
			dt_source_close(v[i]);
		dt_source_close(s);
		return rc;
	}
	memcpy(s->mean, v, (size_t)n * sizeof(struct dt_source *));
	s->nmean = n;
	s->kind = DT_SOURCE_DT;
	s->config = v[0]->config;
	if (v[0]->tokenizer) {
		s->tokenizer = v[0]->tokenizer;
		s->tokenizer_n = v[0]->tokenizer_n;
		v[0]->tokenizer = NULL;
	}
	s->chat = v[0]->chat;
	v[0]->chat = NULL;
	*ret = s;
	return 0;
}

static void read_box(const struct src_view *v, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
		     enum dt_dtype as, char *dst)
{
	if (cols == v->stride) { /* whole rows are one run */
		cols *= rows;
		rows = 1;
	}
	for (int64_t r = 0; r < rows; r++)
		read_run(v, v->first + (row0 + r) * v->stride + col0, cols, as,
			 dst + r * cols * dt_dtype_size(as));
}

int dt_source_read(struct dt_source *s, int i, const int64_t *off, const int64_t *shape, enum dt_dtype as,
		   void *dst, struct dt_err *err)
{
	const struct dt_param *p = &s->params.p[i];
	const struct src_view *v;
	int64_t row0, rows, col0, cols;

	if (dt_format_of_dtype(as) < 0)
		return dt_err_set(err, -EINVAL, "'%s' cannot be read as %s", p->name, dt_dtype_name(as));
	for (int d = 0; d < p->ndim; d++)
		if (off[d] < 0 || shape[d] < 0 || off[d] > p->shape[d] || shape[d] > p->shape[d] - off[d])
			return dt_err_set(err, -EINVAL, "the box asked for reaches out of '%s'", p->name);
	if (s->mean)
		return read_mean(s, i, off, shape, as, dst, err);
	if (s->ck)
		return dt_ckpt_read(s->ck, s->ck_tensor[i], off, shape, as, dst, err);
	v = &s->view[i];
	if (v->transposed) {
		read_transposed(v, off, shape, as, dst);
		return 0;
	}
	row0 = p->ndim == 2 ? off[0] : 0;
	rows = p->ndim == 2 ? shape[0] : 1;
	col0 = off[p->ndim - 1];
	cols = shape[p->ndim - 1];
	if (!v->part)
		read_box(v, row0, rows, col0, cols, as, dst);
	for (int64_t n; v->part && rows > 0; row0 += n, rows -= n) {
		struct src_view one = *v;

		one.data = v->part[row0 / v->part_rows];
		n = v->part_rows - row0 % v->part_rows;
		n = n < rows ? n : rows;
		read_box(&one, row0 % v->part_rows, n, col0, cols, as, dst);
		dst = (char *)dst + n * cols * dt_dtype_size(as);
	}
	return 0;
}
