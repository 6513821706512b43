#include "ckpt/source_internal.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add_tensors(struct dt_source *s, const struct dt_gguf *g, struct dt_err *err)
{
	for (int i = 0; i < g->ntensor; i++) {
		const struct dt_gguf_tensor *t = &g->tensor[i];
		struct src_stored d = {.format_known = t->format >= 0,
				       .format = (enum dt_format)(t->format < 0 ? 0 : t->format),
				       .ndim = t->ndim,
				       .data = g->file + t->at};

		memcpy(d.shape, t->shape, sizeof(d.shape));
		snprintf(d.name, sizeof(d.name), "%s", t->name);
		if (src_add(s, &d) < 0)
			return dt_err_sys(err, -ENOMEM, "cannot open '%s'", s->path);
	}
	return 0;
}

/* The tensors of one more part, behind those of the first: what the model is can be seen from all. */
static int join(struct dt_gguf *all, const struct dt_gguf *part, const char *path, struct dt_err *err)
{
	struct dt_gguf_tensor *v =
		realloc(all->tensor, (size_t)(all->ntensor + part->ntensor + 1) * sizeof(*v));

	if (!v)
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", path);
	all->tensor = v;
	for (int i = 0; i < part->ntensor; i++) {
		if (dt_gguf_find_tensor(all, part->tensor[i].name))
			return dt_err_set(err, -EBADMSG, "'%s': tensor '%s' is in another part already", path,
					  part->tensor[i].name);
		v[all->ntensor++] = part->tensor[i];
	}
	return 0;
}

static int check_part(const struct dt_gguf *g, const char *path, int64_t no, int64_t parts,
		      struct dt_err *err)
{
	int64_t is = 0, of = 0;
	int rc = dt_gguf_int(g, "split.no", true, 0, 99999, &is, err);

	if (rc >= 0)
		rc = dt_gguf_int(g, "split.count", true, 0, 99999, &of, err);
	if (rc < 0)
		return dt_err_prefix(err, "'%s'", path);
	return is == no && of == parts
		       ? 0
		       : dt_err_set(err, -EBADMSG, "'%s' is part %lld of %lld, not %lld of %lld", path,
				    (long long)is + 1, (long long)of, (long long)no + 1, (long long)parts);
}

static int add_part(struct dt_source *s, struct dt_gguf *all, const char *path, int64_t no, int64_t parts,
		    struct dt_err *err)
{
	struct dt_gguf g;
	const uint8_t *p;
	size_t n;
	int rc = src_map(s, path, &p, &n, err);

	if (rc < 0)
		return rc;
	rc = dt_gguf_parse(p, n, path, &g, err);
	if (rc < 0)
		return rc;
	rc = check_part(&g, path, no, parts, err);
	if (rc == 0)
		rc = join(all, &g, path, err);
	if (rc == 0)
		rc = add_tensors(s, &g, err);
	dt_gguf_release(&g);
	return rc;
}

/*
 * A model in several files, NAME-00001-of-00003.gguf and so on (gguf-split of llama.cpp): the first has the
 * metadata, every one says which it is.
 */
static int add_parts(struct dt_source *s, struct dt_gguf *g, struct dt_err *err)
{
	int64_t parts = 1, total = -1;
	char tail[32], path[PATH_MAX];
	size_t n = strlen(s->path), k;
	int rc = dt_gguf_int(g, "split.count", false, 0, 99999, &parts, err);

	if (rc < 0 || parts <= 1)
		return rc < 0 ? rc : 0;
	rc = dt_gguf_int(g, "split.tensors.count", false, 0, INT32_MAX, &total, err);
	if (rc >= 0)
		rc = check_part(g, s->path, 0, parts, err);
	if (rc < 0) {
		dt_err_hint(err, "give the first part");
		return rc;
	}
	k = (size_t)snprintf(tail, sizeof(tail), "-%05d-of-%05lld.gguf", 1, (long long)parts);
	if (n <= k || n >= sizeof(path) || strcmp(s->path + n - k, tail))
		return dt_err_set(err, -EINVAL,
				  "'%s' is the first of %lld parts, but its name does not end in '%s'",
				  s->path, (long long)parts, tail);
	for (int64_t i = 1; i < parts && rc >= 0; i++) {
		snprintf(path, sizeof(path), "%.*s-%05lld-of-%05lld.gguf", (int)(n - k), s->path,
			 (long long)i + 1, (long long)parts);
		rc = add_part(s, g, path, i, parts, err);
	}
	if (rc >= 0 && total >= 0 && total != g->ntensor)
		rc = dt_err_set(err, -EBADMSG, "'%s': the parts hold %d tensors, the first says %lld",
				s->path, g->ntensor, (long long)total);
	return rc < 0 ? rc : 0;
}

static int read_chat(struct dt_source *s, const struct dt_gguf *g, struct dt_err *err)
{
	const char *text;
	size_t n;
	int rc = dt_gguf_str(g, "tokenizer.chat_template", false, &text, &n, err);

	if (rc == 1 && !memchr(text, 0, n))
		s->chat = strndup(text, n);
	return rc < 0 ? rc : 0;
}

int src_open_gguf(struct dt_source *s, bool weights, struct dt_err *err)
{
	struct dt_gguf g;
	const uint8_t *p;
	size_t n;
	int rc = src_map(s, s->path, &p, &n, err);

	if (rc < 0)
		return rc;
	rc = dt_gguf_parse(p, n, s->path, &g, err);
	if (rc < 0)
		return rc;
	if (weights) {
		rc = add_tensors(s, &g, err);
		if (rc == 0)
			rc = add_parts(s, &g, err);
		if (rc == 0 && !dt_gguf_find_tensor(&g, "token_embd.weight"))
			rc = dt_err_set(err, -EINVAL, "'%s' holds no weights%s", s->path,
					g.ntensor ? " of a language model" : ", only a vocabulary");
	}
	if (rc == 0 && weights) {
		rc = dt_config_from_gguf(&g, &s->config, err);
		if (rc < 0)
			dt_err_prefix(err, "'%s'", s->path);
	}
	if (rc == 0 && weights)
		rc = src_resolve(s, SRC_GGUF, err);
	if (rc == 0)
		rc = src_gguf_tokenizer(s, &g, err);
	if (rc == 0)
		rc = read_chat(s, &g, err);
	dt_gguf_release(&g);
	return rc;
}
