/*
 * Writing a prompt: text is collected up to the next special token and encoded as a whole. Each byte is
 * flagged if the assistant says it; a token is a target if one of its bytes is flagged.
 */
#include "data/chat_priv.h"
#include "data/tok_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int dt_chat_no_memory(struct dt_chat_out *o)
{
	return o->rc = dt_err_sys(o->err, -ENOMEM, "cannot read the messages");
}

static int reserve_text(struct dt_chat_out *o, size_t n)
{
	size_t cap = 2 * o->text_cap + n + 64;
	char *p;
	uint8_t *f;

	if (o->text_n + n <= o->text_cap)
		return 0;
	p = realloc(o->text, cap);
	if (p)
		o->text = p;
	f = realloc(o->flag, cap);
	if (f)
		o->flag = f;
	if (!p || !f)
		return dt_chat_no_memory(o);
	o->text_cap = cap;
	return 0;
}

void dt_chat_put_n(struct dt_chat_out *o, const char *s, size_t n)
{
	if (o->closed)
		return;
	while (o->strip && n && strchr(" \t\n\v\f\r", *s) && *s) {
		s++;
		n--;
	}
	if (n == 0 || reserve_text(o, n) < 0)
		return;
	o->strip = false;
	memcpy(o->text + o->text_n, s, n);
	memset(o->flag + o->text_n, o->target, n);
	o->text_n += n;
}

void dt_chat_put(struct dt_chat_out *o, const char *s)
{
	dt_chat_put_n(o, s, strlen(s));
}

void dt_chat_turn(struct dt_chat_out *o, const struct dt_chat_message *m)
{
	o->closed |= o->in_open;
	o->in_open = m && m == o->open;
	o->target = o->whole && m && !strcmp(m->role, "assistant") && m >= o->messages &&
		    (size_t)(m - o->messages) >= o->from;
}

static void append(struct dt_chat_out *o, int32_t id, bool target)
{
	if (o->n == o->cap) {
		size_t cap = 2 * o->cap + 64;
		int32_t *p = realloc(o->ids, cap * sizeof(*p));
		uint8_t *m;

		if (p)
			o->ids = p;
		m = realloc(o->mask, cap);
		if (m)
			o->mask = m;
		if (!p || !m) {
			dt_chat_no_memory(o);
			return;
		}
		o->cap = cap;
	}
	o->mask[o->n] = target;
	o->ids[o->n++] = id;
}

/* Normalises the text as the tokenizer does, each run of equal flags separately to keep the flags. */
static void normalise(struct dt_chat_out *o)
{
	struct dt_chat_out to = {.err = o->err, .whole = true};

	if (o->c->tok->normal == DT_NORMAL_NONE)
		return;
	for (size_t at = 0, end; at < o->text_n && o->rc >= 0; at = end) {
		char *form = NULL;
		size_t n = 0;

		for (end = at; end < o->text_n && o->flag[end] == o->flag[at];)
			end++;
		n = end - at;
		o->rc = dt_tok_normalize(o->c->tok->normal, o->text + at, n, &form, &n, o->err);
		to.target = o->flag[at];
		if (o->rc >= 0)
			dt_chat_put_n(&to, form ? form : o->text + at, n);
		if (to.rc < 0)
			o->rc = to.rc;
		free(form);
	}
	free(o->text);
	free(o->flag);
	o->text = to.text;
	o->flag = to.flag;
	o->text_n = to.text_n;
	o->text_cap = to.text_cap;
}

/* Offset of the first token in the text: -1 if the tokenizer puts a blank before it. */
static int first_offset(struct dt_chat_out *o, const int32_t *ids, size_t n, int64_t *ret)
{
	size_t total = 0, len;

	for (size_t i = 0; i < n; i++)
		total += dt_tokenizer_piece(o->c->tok, ids[i], true, &len) ? len : 0;
	*ret = (int64_t)o->text_n - (int64_t)total;
	if (*ret == 0 || *ret == -1)
		return 0;
	return o->rc = dt_err_set(o->err, -EINVAL,
				  "the tokens of a text of %zu bytes decode to %zu bytes: the assistant's "
				  "tokens cannot be identified",
				  o->text_n, total);
}

/* Appends tokens with their flags, found by walking along the text. */
static void append_flagged(struct dt_chat_out *o, const int32_t *ids, size_t n, int64_t at)
{
	for (size_t i = 0; i < n && o->rc >= 0; i++) {
		size_t len = 0;
		bool target = false;

		dt_tokenizer_piece(o->c->tok, ids[i], true, &len);
		for (int64_t b = at; b < at + (int64_t)len; b++)
			target |= b >= 0 && o->flag[b];
		append(o, ids[i], target);
		at += (int64_t)len;
	}
}

void dt_chat_flush(struct dt_chat_out *o)
{
	int32_t *ids;
	int64_t at = 0;
	size_t n;

	if (o->rc >= 0 && o->whole && o->text_n)
		normalise(o);
	if (o->rc < 0 || o->text_n == 0)
		return;
	o->rc = dt_tokenizer_encode(o->c->tok, o->text, o->text_n, false, &ids, &n, o->err);
	if (o->rc < 0)
		return;
	if (o->whole && first_offset(o, ids, n, &at) == 0)
		append_flagged(o, ids, n, at);
	for (size_t i = 0; i < n && !o->whole && o->rc >= 0; i++)
		append(o, ids[i], false);
	o->text_n = 0;
	free(ids);
}

/* Whether the token absorbs blanks after it, as Phi-3's do. */
static bool strips(const struct dt_tokenizer *t, int32_t id)
{
	for (size_t i = 0; i < t->raw.n; i++)
		if (t->raw.v[i].id == id)
			return t->raw.v[i].rstrip;
	return false;
}

static void special(struct dt_chat_out *o, int32_t id)
{
	dt_chat_flush(o);
	if (o->rc >= 0)
		append(o, id, o->target);
	o->strip = strips(o->c->tok, id);
}

void dt_chat_special(struct dt_chat_out *o, const char *s)
{
	o->closed |= o->in_open;
	for (int i = 0; i < o->c->nspecial && !o->closed; i++)
		if (!strcmp(o->c->special[i].text, s)) {
			special(o, o->c->special[i].id);
			return;
		}
	dt_chat_put(o, s);
}

/* A tile: what it is, and the tokens in whose places its rows stand. */
static void put_tile(struct dt_chat_out *o, const char *tag)
{
	const int32_t id = dt_tokenizer_find(o->c->tok, tag, strlen(tag));

	dt_chat_special(o, "<fake_token_around_image>");
	if (id >= 0)
		special(o, id);
	else
		dt_chat_put(o, tag);
	for (int i = 0; i < o->c->tile_rows && o->rc >= 0; i++)
		dt_chat_special(o, "<image>");
}

static void put_image(struct dt_chat_out *o, const struct dt_chat_image *image)
{
	char tag[40];

	for (int r = 0; r < image->rows; r++) {
		for (int c = 0; c < image->cols; c++) {
			snprintf(tag, sizeof(tag), "<row_%d_col_%d>", r + 1, c + 1);
			put_tile(o, tag);
		}
		dt_chat_put(o, "\n");
	}
	dt_chat_put(o, image->rows ? "\n" : "");
	put_tile(o, "<global-img>");
	dt_chat_special(o, "<fake_token_around_image>");
}

void dt_chat_content(struct dt_chat_out *o, const struct dt_chat_message *m)
{
	size_t at = 0;

	for (int i = 0; i < m->nimages; i++) {
		dt_chat_put_n(o, m->s + at, m->image_at[i] - at);
		at = m->image_at[i];
		put_image(o, &o->c->image[m->first_image + i]);
	}
	dt_chat_put_n(o, m->s + at, m->n - at);
}

void dt_chat_begin(struct dt_chat_out *o)
{
	int32_t bos = dt_tokenizer_bos(o->c->tok);

	if (bos >= 0)
		append(o, bos, false);
}

void dt_chat_end_of_text(struct dt_chat_out *o)
{
	int32_t eot = dt_tokenizer_eot(o->c->tok);

	o->closed |= o->in_open;
	if (eot >= 0 && !o->closed)
		special(o, eot);
}
/* SPDX-License-Identifier: Apache-2.0 */
