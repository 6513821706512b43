#include "data/tokenizer.h"

#include "base/json.h"
#include "data/tok_priv.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int no_memory(struct dt_err *err)
{
	return dt_err_sys(err, -ENOMEM, "cannot hold the tokenizer");
}

/* Grows the table to include id; ids in between have no piece. */
static int reserve_id(struct dt_tokenizer *t, int32_t id)
{
	int32_t cap = id + 1;
	struct dt_tok_piece *p;

	if (id < t->vocab)
		return 0;
	p = realloc(t->piece, (size_t)cap * sizeof(*p));
	if (!p)
		return -ENOMEM;
	memset(p + t->vocab, 0, (size_t)(cap - t->vocab) * sizeof(*p));
	t->piece = p;
	t->vocab = cap;
	return 0;
}

int dt_tok_store(struct dt_tokenizer *t, const char *s, size_t n, uint32_t *ret_at, struct dt_err *err)
{
	if (t->blob_n + n >= t->blob_cap) {
		size_t cap = 2 * t->blob_cap + n + 4096;
		char *blob = cap < UINT32_MAX ? realloc(t->blob, cap) : NULL;

		if (!blob)
			return no_memory(err);
		t->blob = blob;
		t->blob_cap = cap;
	}
	memcpy(t->blob + t->blob_n, s, n);
	*ret_at = (uint32_t)t->blob_n;
	t->blob_n += n;
	return 0;
}

int dt_tok_set_piece(struct dt_tokenizer *t, int32_t id, const char *s, size_t n, uint32_t flags,
		     struct dt_err *err)
{
	uint32_t at;
	int rc;

	if (reserve_id(t, id) < 0)
		return no_memory(err);
	rc = dt_tok_store(t, s, n, &at, err);
	if (rc < 0)
		return rc;
	t->piece[id].at = at;
	t->piece[id].n = (uint32_t)n;
	t->piece[id].flags |= flags | DT_PIECE_DEFINED;
	return 0;
}

int dt_tok_form(const struct dt_tokenizer *t, const char *s, size_t n, char **ret, size_t *ret_n,
		struct dt_err *err)
{
	if (t->ug.on)
		return dt_ug_normalize(&t->ug, s, n, ret, ret_n, err);
	return t->wp.on ? dt_bert_normalize(&t->wp, s, n, ret, ret_n, err)
			: dt_tok_normalize(t->normal, s, n, ret, ret_n, err);
}

int dt_tok_add(struct dt_tokenizer *t, const struct dt_added *a, bool normalized, struct dt_err *err)
{
	struct dt_added_list *l = normalized ? &t->normalized : &t->raw;
	struct dt_added copy = *a, *v = realloc(l->v, (l->n + 1) * sizeof(*v));
	char *form = NULL, *spelt = NULL;
	size_t n = a->n;
	int rc;

	if (!v)
		return no_memory(err);
	l->v = v;
	if (t->sp.on && dt_sp_spell(a->text, a->n, a->special, &spelt, &n) < 0)
		return no_memory(err);
	if (normalized && t->sp.on && dt_sp_normalizes(t)) {
		t->normalized.marked = true;
		if (dt_sp_form(t, a->text, a->n, t->sp.prefix == DT_SP_PREFIX_EACH, &form, &copy.n) < 0) {
			free(spelt);
			return no_memory(err);
		}
	} else if (normalized && (!t->sp.on || t->ug.on)) {
		rc = dt_tok_form(t, a->text, a->n, &form, &copy.n, err);
		if (rc < 0)
			return rc;
	}
	copy.text = malloc(copy.n + 1);
	if (copy.text)
		memcpy(copy.text, form ? form : a->text, copy.n);
	free(form);
	rc = copy.text ? 0 : no_memory(err);
	if (rc == 0) {
		l->v[l->n++] = copy;
		t->added++;
		t->specials += a->special;
		rc = dt_tok_set_piece(t, a->id, spelt ? spelt : a->text, n,
				      DT_PIECE_ADDED | (a->special ? DT_PIECE_SPECIAL : 0), err);
	}
	free(spelt);
	return rc;
}

static int by_bytes(const void *a, const void *b)
{
	const struct dt_added *x = a, *y = b;
	int c = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);

	return c ? c : x->n < y->n ? -1 : x->n > y->n;
}

static void sort_added(struct dt_tokenizer *t)
{
	struct dt_added_list *lists[] = {&t->raw, &t->normalized};

	for (int i = 0; i < 2; i++) {
		if (lists[i]->n)
			qsort(lists[i]->v, lists[i]->n, sizeof(*lists[i]->v), by_bytes);
		for (size_t k = 0; k < lists[i]->n; k++)
			if (lists[i]->v[k].n)
				lists[i]->first[(unsigned char)lists[i]->v[k].text[0]] = true;
	}
}

static int make_byte(struct dt_tokenizer *t, struct dt_err *err)
{
	struct dt_added end = {.text = (char *)DT_TOK_END_OF_TEXT,
			       .n = strlen(DT_TOK_END_OF_TEXT),
			       .id = 256,
			       .special = true};
	int rc = dt_bpe_init(&t->bpe, 0, err);

	t->byte = true;
	for (int i = 0; i < 256 && rc == 0; i++) {
		char c = (char)i;

		t->bpe.byte_id[i] = i;
		rc = dt_tok_set_piece(t, i, &c, 1, 0, err);
	}
	if (rc == 0)
		rc = dt_tok_add(t, &end, false, err);
	t->eot = 256;
	t->bos = t->end = -1;
	return rc;
}

int dt_tokenizer_from_text(const char *text, size_t n, struct dt_tokenizer **ret, struct dt_err *err)
{
	struct dt_tokenizer *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return no_memory(err);
	t->text = malloc(n + 1);
	if (!t->text) {
		free(t);
		return no_memory(err);
	}
	memcpy(t->text, text, n);
	t->text[n] = '\0';
	t->text_n = n;
	rc = n == 4 && !memcmp(text, "byte", 4) ? make_byte(t, err) : dt_tok_read_json(t, text, n, err);
	if (rc < 0) {
		dt_tokenizer_close(t);
		return rc;
	}
	t->prefix = t->bos >= 0 ? t->bos : t->eot;
	sort_added(t);
	dt_tok_find_apart(t);
	dt_tok_set_hash(t);
	*ret = t;
	return 0;
}

int dt_tokenizer_open(const char *spec, struct dt_tokenizer **ret, struct dt_err *err)
{
	char path[PATH_MAX];
	struct stat st;
	char *text;
	size_t n;
	int rc;

	if (!strcmp(spec, "byte"))
		return dt_tokenizer_from_text("byte", 4, ret, err);
	rc = snprintf(path, sizeof(path), "%s%s", spec,
		      stat(spec, &st) == 0 && S_ISDIR(st.st_mode) ? "/tokenizer.json" : "");
	if (rc >= (int)sizeof(path))
		return dt_err_sys(err, -ENAMETOOLONG, "cannot open '%s'", spec);
	rc = dt_read_file(path, DT_TOK_MAX_FILE, &text, &n, err);
	if (rc < 0)
		return rc;
	rc = dt_tokenizer_from_text(text, n, ret, err);
	free(text);
	return rc < 0 ? dt_err_prefix(err, "cannot use the tokenizer '%s'", path) : 0;
}

void dt_tokenizer_close(struct dt_tokenizer *t)
{
	if (!t)
		return;
	for (int i = 0; i < t->steps; i++) {
		pcre2_code_free(t->step[i].re);
		free(t->step[i].pattern);
	}
	for (size_t i = 0; i < t->raw.n; i++)
		free(t->raw.v[i].text);
	for (size_t i = 0; i < t->normalized.n; i++)
		free(t->normalized.v[i].text);
	free(t->raw.v);
	free(t->normalized.v);
	dt_bpe_release(&t->bpe);
	dt_bytemap_release(&t->sp.chars);
	free(t->sp.char_id);
	dt_wp_release(&t->wp);
	dt_ug_release(&t->ug);
	free(t->piece);
	free(t->blob);
	free(t->text);
	free(t);
}

int32_t dt_tokenizer_vocab(const struct dt_tokenizer *t)
{
	return t->vocab;
}

int32_t dt_tokenizer_eot(const struct dt_tokenizer *t)
{
	return t->eot;
}

int32_t dt_tokenizer_bos(const struct dt_tokenizer *t)
{
	return t->bos;
}

int dt_tokenizer_seps(const struct dt_tokenizer *t)
{
	return t->seps ? t->seps : 1;
}

int32_t dt_tokenizer_end(const struct dt_tokenizer *t)
{
	return t->end;
}

int32_t dt_tokenizer_prefix(const struct dt_tokenizer *t)
{
	return t->prefix;
}

void dt_tokenizer_set_prefix(struct dt_tokenizer *t, int32_t id)
{
	t->prefix = id;
}

const char *dt_tokenizer_hash(const struct dt_tokenizer *t)
{
	return t->hash;
}

const char *dt_tokenizer_text(const struct dt_tokenizer *t, size_t *ret_n)
{
	*ret_n = t->text_n;
	return t->text;
}

const char *dt_tokenizer_piece(const struct dt_tokenizer *t, int32_t id, bool special, size_t *ret_n)
{
	if (id < 0 || id >= t->vocab)
		return NULL;
	*ret_n = (t->piece[id].flags & DT_PIECE_SPECIAL) && !special ? 0 : t->piece[id].n;
	return t->blob + t->piece[id].at;
}

/* The bytes of an id with which a decoded text begins: NULL for an id out of range. */
static const char *first_piece(const struct dt_tokenizer *t, int32_t id, bool special, size_t *ret_n)
{
	const char *s = dt_tokenizer_piece(t, id, special, ret_n);
	const bool printed = s && *ret_n;

	if (printed && t->wp.first) {
		*ret_n = t->wp.first[id].n;
		return t->blob + t->wp.first[id].at;
	}
	if (printed && t->sp.strip && !t->sp.bare && *s == ' ') {
		--*ret_n;
		s++;
	}
	return s;
}

int dt_tokenizer_decode(const struct dt_tokenizer *t, const int32_t *ids, size_t n, bool special, char **ret,
			size_t *ret_n, struct dt_err *err)
{
	size_t total = 0, len, first_len = 0;
	bool first = true;
	char *out;

	for (size_t i = 0; i < n; i++) {
		if (!dt_tokenizer_piece(t, ids[i], special, &len))
			return dt_err_set(err, -EINVAL, "id %d is not in the vocabulary of %d", ids[i],
					  t->vocab);
		if (t->wp.first && t->wp.first[ids[i]].n > first_len)
			first_len = t->wp.first[ids[i]].n;
		total += len;
	}
	out = malloc(total + first_len + 1);
	if (!out)
		return dt_err_sys(err, -ENOMEM, "cannot decode %zu ids", n);
	total = 0;
	for (size_t i = 0; i < n; i++) {
		const char *s = dt_tokenizer_piece(t, ids[i], special, &len);

		if (first && len) { /* of a special token that is printed nothing, and nothing behind it */
			first = false;
			s = first_piece(t, ids[i], special, &len);
			for (size_t k = 0; t->sp.bare && k < len; k++)
				if (s[k] != ' ')
					out[total++] = s[k];
			len = t->sp.bare ? 0 : len;
		}
		memcpy(out + total, s, len);
		total += len;
	}
	out[total] = '\0';
	*ret = out;
	*ret_n = total;
	return 0;
}

int32_t dt_tokenizer_find(const struct dt_tokenizer *t, const char *s, size_t n)
{
	const struct dt_tok_piece *text = t->wp.first ? t->wp.first : t->piece;

	for (int32_t i = 0; i < t->vocab; i++)
		if ((t->piece[i].flags & DT_PIECE_DEFINED) && text[i].n == n &&
		    !memcmp(t->blob + text[i].at, s, n))
			return i;
	return -1;
}

void dt_tokenizer_describe(const struct dt_tokenizer *t, struct dt_tokenizer_info *ret)
{
	static const char *const forms[] = {"", "NFC", "NFD", "NFKC", "NFKD"};

	*ret = (struct dt_tokenizer_info){.kind = t->byte    ? "byte"
						  : t->wp.on ? "WordPiece"
						  : t->ug.on ? "Unigram"
							     : "BPE",
					  .merges = t->bpe.merges,
					  .added = t->added,
					  .special = t->specials,
					  .normalizer = t->wp.on   ? t->wp.says
							: t->ug.on ? t->ug.says
								   : forms[t->normal]};
	for (int i = 0; i < t->steps; i++)
		if (t->step[i].pattern)
			ret->pattern[ret->patterns++] = t->step[i].pattern;
}
/* SPDX-License-Identifier: Apache-2.0 */
