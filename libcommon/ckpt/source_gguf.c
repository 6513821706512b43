#include "ckpt/source_internal.h"

#include <errno.h>
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

static int map_part(void *to, const char *path, const uint8_t **ret, size_t *ret_n, struct dt_err *err)
{
	return src_map(to, path, ret, ret_n, err);
}

static int add_part(void *to, const struct dt_gguf *part, struct dt_err *err)
{
	return add_tensors(to, part, err);
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
			rc = dt_gguf_add_parts(&g, s->path, map_part, add_part, s, err);
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
		rc = src_resolve(s, DT_NAMES_GGUF, err);
	if (rc == 0)
		rc = src_gguf_tokenizer(s, &g, err);
	if (rc == 0)
		rc = read_chat(s, &g, err);
	dt_gguf_release(&g);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
