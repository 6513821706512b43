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

int dt_tok_set_piece(struct dt_tokenizer *t, int32_t id, const char *s, size_t n, uint32_t flags,
		     struct dt_err *err)
{
	struct dt_tok_piece *p;

	if (reserve_id(t, id) < 0)
		return no_memory(err);
	if (t->blob_n + n >= t->blob_cap) {
		size_t cap = 2 * t->blob_cap + n + 4096;
		char *blob = cap < UINT32_MAX ? realloc(t->blob, cap) : NULL;

		if (!blob)
			return no_memory(err);
		t->blob = blob;
		t->blob_cap = cap;
	}
	memcpy(t->blob + t->blob_n, s, n);
	p = &t->piece[id];
	p->at = (uint32_t)t->blob_n;
	p->n = (uint32_t)n;
	p->flags |= flags | DT_PIECE_DEFINED;
	t->blob_n += n;
	return 0;
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
	} else if (normalized && !t->sp.on) {
		rc = dt_tok_normalize(t->normal, a->text, a->n, &form, &copy.n, err);
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

/* FNV-1a over what determines ids, each part with its length so that concatenations differ. */
static void mix(uint64_t *h, const void *p, size_t n)
{
	const unsigned char *s = p;
	uint64_t len = n;

	for (int i = 0; i < 8; i++, len >>= 8)
		*h = (*h ^ (len & 0xff)) * 0x100000001b3ull;
	for (size_t i = 0; i < n; i++)
		*h = (*h ^ s[i]) * 0x100000001b3ull;
}

static void mix_int(uint64_t *h, int64_t v)
{
	char buf[24];

	mix(h, buf, (size_t)snprintf(buf, sizeof(buf), "%lld", (long long)v));
}

static uint64_t hash_merges(const struct dt_bpe *b)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; b->tab && i <= b->mask; i++) {
		uint64_t h = 0xcbf29ce484222325ull;

		if (b->tab[i].pair == UINT64_MAX)
			continue;
		mix_int(&h, (int64_t)b->tab[i].pair);
		mix_int(&h, b->tab[i].rank);
		mix_int(&h, b->tab[i].id);
		sum += h; /* independent of the table's order */
	}
	return sum;
}

static void set_hash(struct dt_tokenizer *t)
{
	const struct dt_added_list *lists[] = {&t->raw, &t->normalized};
	uint64_t h = 0xcbf29ce484222325ull;

	mix_int(&h, t->byte);
	mix_int(&h, t->normal);
	mix_int(&h, t->eot);
	mix_int(&h, t->bos);
	for (int32_t i = 0; i < t->vocab; i++) {
		mix_int(&h, t->piece[i].flags);
		mix(&h, t->blob + t->piece[i].at, t->piece[i].n);
	}
	mix_int(&h, (int64_t)hash_merges(&t->bpe));
	mix_int(&h, t->bpe.word_id != NULL);
	if (t->sp.on)
		mix_int(&h, (int)t->sp.prefix << 1 | t->sp.split);
	for (int i = 0; i < t->steps; i++) {
		const struct dt_tok_step *s = &t->step[i];

		mix(&h, s->pattern ? s->pattern : "", s->pattern ? strlen(s->pattern) : 0);
		mix_int(&h, s->prefix_space | s->drop_match << 1 | s->drop_gap << 2 | s->to_alphabet << 3);
	}
	for (int i = 0; i < 2; i++)
		for (size_t k = 0; k < lists[i]->n; k++) {
			mix_int(&h, lists[i]->v[k].id);
			mix_int(&h, lists[i]->v[k].lstrip | lists[i]->v[k].rstrip << 1);
		}
	snprintf(t->hash, sizeof(t->hash), "%016llx", (unsigned long long)h);
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
	t->bos = -1;
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
	set_hash(t);
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

int dt_tokenizer_decode(const struct dt_tokenizer *t, const int32_t *ids, size_t n, bool special, char **ret,
			size_t *ret_n, struct dt_err *err)
{
	bool strip = t->sp.strip;
	size_t total = 0, len;
	char *out;

	for (size_t i = 0; i < n; i++) {
		if (!dt_tokenizer_piece(t, ids[i], special, &len))
			return dt_err_set(err, -EINVAL, "id %d is not in the vocabulary of %d", ids[i],
					  t->vocab);
		total += len;
	}
	out = malloc(total + 1);
	if (!out)
		return dt_err_sys(err, -ENOMEM, "cannot decode %zu ids", n);
	total = 0;
	for (size_t i = 0; i < n; i++) {
		const char *s = dt_tokenizer_piece(t, ids[i], special, &len);

		if (strip && len) { /* of a special token that is printed nothing, and nothing behind it */
			strip = false;
			if (*s == ' ') {
				s++;
				len--;
			}
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
	for (int32_t i = 0; i < t->vocab; i++)
		if ((t->piece[i].flags & DT_PIECE_DEFINED) && t->piece[i].n == n &&
		    !memcmp(t->blob + t->piece[i].at, s, n))
			return i;
	return -1;
}

void dt_tokenizer_describe(const struct dt_tokenizer *t, struct dt_tokenizer_info *ret)
{
	static const char *const forms[] = {"", "NFC", "NFD", "NFKC", "NFKD"};

	*ret = (struct dt_tokenizer_info){.kind = t->byte ? "byte" : "BPE",
					  .merges = t->bpe.merges,
					  .added = t->added,
					  .special = t->specials,
					  .normalizer = forms[t->normal]};
	for (int i = 0; i < t->steps; i++)
		if (t->step[i].pattern)
			ret->pattern[ret->patterns++] = t->step[i].pattern;
}
/* SPDX-License-Identifier: Apache-2.0 */
