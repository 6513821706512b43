/* WordPiece in tokenizer.json, with the other parts that BERT's tokenizers have. */
#include "data/tok_json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(struct dt_err *err)
{
	return dt_err_sys(err, -ENOMEM, "cannot hold the tokenizer");
}

/* The text of a member, or fallback where it is absent or null; malloc'd. */
static int copy_text(const json_t *o, const char *key, const char *fallback, char **ret, struct dt_err *err)
{
	const char *s = fallback;
	int rc = json_is_null(json_object_get(o, key)) ? 0 : dt_json_str(o, key, false, &s, err);

	if (rc < 0)
		return rc;
	*ret = strdup(s);
	return *ret ? 0 : no_memory(err);
}

static int build_trie(struct dt_tokenizer *t, struct dt_err *err)
{
	struct dt_wp *w = &t->wp;
	struct dt_trie_word *list = malloc(((size_t)t->vocab + 1) * sizeof(*list));
	size_t n = 0;
	int rc;

	if (!list)
		return no_memory(err);
	for (int32_t i = 0; i < t->vocab; i++) {
		const struct dt_tok_piece *p = &t->piece[i];

		if (p->n)
			list[n++] = (struct dt_trie_word){t->blob + p->at, p->n, i};
	}
	rc = dt_trie_build(&w->trie, list, n);
	free(list);
	if (rc < 0)
		return no_memory(err);
	w->inside = DT_TRIE_ROOT;
	for (const char *s = w->prefix; *s && w->inside != DT_TRIE_NONE; s++)
		w->inside = dt_trie_next(&w->trie, w->inside, (uint8_t)*s);
	return 0;
}

int dt_wp_read_model(struct dt_tokenizer *t, const json_t *model, struct dt_err *err)
{
	struct dt_wp *w = &t->wp;
	const char *unk = "[UNK]";
	const json_t *id;
	int rc = dt_json_str(model, "unk_token", false, &unk, err);

	w->max_chars = 100;
	if (rc >= 0)
		rc = copy_text(model, "continuing_subword_prefix", "##", &w->prefix, err);
	if (rc >= 0)
		rc = dt_json_int(model, "max_input_chars_per_word", false, 0, INT32_MAX, &w->max_chars, err);
	if (rc < 0)
		return rc;
	id = json_object_get(json_object_get(model, "vocab"), unk);
	if (!id)
		return dt_err_set(err, -EINVAL, "model.unk_token '%.80s' is not in the vocabulary", unk);
	w->unk = (int32_t)json_integer_value(id);
	return build_trie(t, err);
}

/* One step of a Sequence, or the only one; NULL: there is none. */
static int only_one(const json_t **o, const char *what, const char *key, struct dt_err *err)
{
	const json_t *list = json_object_get(*o, key);

	if (json_is_null(*o))
		*o = NULL;
	if (!*o || strcmp(tok_json_type(*o), "Sequence"))
		return 0;
	if (!json_is_array(list) || json_array_size(list) > 1)
		return tok_json_unsupported(err, what, "Sequence of several");
	*o = json_array_get(list, 0);
	return 0;
}

int dt_wp_read_normalizer(struct dt_tokenizer *t, const json_t *o, struct dt_err *err)
{
	struct dt_wp *w = &t->wp;
	int rc = only_one(&o, "normalizer", "normalizers", err);

	if (rc < 0 || !o)
		return rc;
	if (strcmp(tok_json_type(o), "BertNormalizer"))
		return tok_json_unsupported(err, "with WordPiece the normalizer", tok_json_type(o));
	w->clean = w->chinese = w->lower = true; /* what the library's class has by default */
	rc = dt_json_bool(o, "clean_text", false, &w->clean, err);
	if (rc >= 0)
		rc = dt_json_bool(o, "handle_chinese_chars", false, &w->chinese, err);
	if (rc >= 0)
		rc = dt_json_bool(o, "lowercase", false, &w->lower, err);
	w->strip_accents = w->lower;
	if (rc >= 0 && !json_is_null(json_object_get(o, "strip_accents")))
		rc = dt_json_bool(o, "strip_accents", false, &w->strip_accents, err);
	if (rc < 0)
		return dt_err_prefix(err, "normalizer");
	snprintf(w->says, sizeof(w->says), "BERT%s%s%s%s", w->clean ? ", clean" : "",
		 w->chinese ? ", Chinese characters apart" : "", w->strip_accents ? ", no accents" : "",
		 w->lower ? ", lower case" : "");
	return 0;
}

int dt_wp_read_pre_tokenizer(struct dt_tokenizer *t, const json_t *o, struct dt_err *err)
{
	int rc = only_one(&o, "pre_tokenizer", "pretokenizers", err);

	if (rc < 0 || (o && !strcmp(tok_json_type(o), "BertPreTokenizer")))
		return rc;
	return tok_json_unsupported(err, "with WordPiece the pre_tokenizer", o ? tok_json_type(o) : NULL);
}

int dt_wp_read_decoder(struct dt_tokenizer *t, const json_t *o, struct dt_err *err)
{
	struct dt_wp *w = &t->wp;
	int rc = only_one(&o, "decoder", "decoders", err);

	if (rc < 0 || !o)
		return rc;
	if (strcmp(tok_json_type(o), "WordPiece"))
		return tok_json_unsupported(err, "with WordPiece the decoder", tok_json_type(o));
	w->joined = w->cleanup = true;
	rc = copy_text(o, "prefix", "##", &w->decode_prefix, err);
	if (rc >= 0)
		rc = dt_json_bool(o, "cleanup", false, &w->cleanup, err);
	return rc < 0 ? dt_err_prefix(err, "decoder") : 0;
}

/* Replaces from by to, which is not longer, wherever it occurs; in place. Returns the new length. */
static size_t replace(char *s, size_t n, const char *from, const char *to)
{
	size_t from_n = strlen(from), to_n = strlen(to), o = 0;

	for (size_t i = 0; i < n;) {
		if (n - i >= from_n && !memcmp(s + i, from, from_n)) {
			memcpy(s + o, to, to_n);
			o += to_n;
			i += from_n;
		} else {
			s[o++] = s[i++];
		}
	}
	return o;
}

/* The decoder's clean-up of English, of one token: no two tokens are looked at together. */
static size_t clean_up(char *s, size_t n)
{
	static const char *const pairs[][2] = {
		{" .", "."},   {" ?", "?"},	{" !", "!"},	 {" ,", ","},
		{" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},	 {" do not", " don't"},
		{" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
	};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++)
		n = replace(s, n, pairs[i][0], pairs[i][1]);
	return n;
}

static int spell(struct dt_tokenizer *t, int32_t id, char *s, struct dt_err *err)
{
	const struct dt_wp *w = &t->wp;
	const struct dt_tok_piece raw = t->piece[id];
	size_t prefix = w->joined ? strlen(w->decode_prefix) : 0, n;
	bool inside = w->joined && raw.n >= prefix && !memcmp(t->blob + raw.at, w->decode_prefix, prefix);
	struct dt_tok_piece *out[] = {&t->piece[id], &w->first[id]};
	int rc = 0;

	for (int i = 0; i < 2 && rc == 0; i++) {
		bool first = i == 1, cut = !first && inside;

		n = cut ? raw.n - prefix : raw.n;
		s[0] = ' ';
		memcpy(s + 1, t->blob + raw.at + (cut ? prefix : 0), n);
		if (!first && !cut)
			n++;
		else
			memmove(s, s + 1, n);
		if (w->cleanup)
			n = clean_up(s, n);
		out[i]->n = (uint32_t)n;
		rc = dt_tok_store(t, s, n, &out[i]->at, err);
	}
	return rc;
}

int dt_wp_spell(struct dt_tokenizer *t, struct dt_err *err)
{
	size_t longest = 0;
	char *s;
	int rc = 0;

	for (int32_t i = 0; i < t->vocab; i++)
		longest = t->piece[i].n > longest ? t->piece[i].n : longest;
	s = malloc(longest + 2);
	t->wp.first = calloc((size_t)t->vocab + 1, sizeof(*t->wp.first));
	if (!s || !t->wp.first)
		rc = no_memory(err);
	for (int32_t i = 0; i < t->vocab && rc == 0; i++)
		if (t->piece[i].flags & DT_PIECE_DEFINED)
			rc = spell(t, i, s, err);
	free(s);
	return rc;
}

void dt_wp_release(struct dt_wp *w)
{
	dt_trie_release(&w->trie);
	free(w->prefix);
	free(w->decode_prefix);
	free(w->first);
}

/* The longest token from node on that s starts with; *ret_n: its bytes. -1: none. */
static int32_t longest(const struct dt_trie *t, uint32_t node, const char *s, size_t n, size_t *ret_n)
{
	int32_t id = -1;

	for (size_t i = 0; i < n; i++) {
		node = dt_trie_next(t, node, (uint8_t)s[i]);
		if (node == DT_TRIE_NONE)
			break;
		if (t->id[node] >= 0) {
			id = t->id[node];
			*ret_n = i + 1;
		}
	}
	return id;
}

int64_t dt_wp_ids(const struct dt_wp *w, const char *s, size_t n, int32_t *ids)
{
	uint32_t node = DT_TRIE_ROOT;
	int64_t count = 0;
	size_t len = 0;

	if ((int64_t)n > w->max_chars && (int64_t)dt_utf8_count(s, n) > w->max_chars)
		n = 0;
	for (size_t at = 0; at < n; at += len, node = w->inside) {
		int32_t id = node == DT_TRIE_NONE ? -1 : longest(&w->trie, node, s + at, n - at, &len);

		if (id < 0) {
			count = 0;
			break;
		}
		ids[count++] = id;
	}
	if (count == 0)
		ids[count++] = w->unk;
	return count;
}
/* SPDX-License-Identifier: Apache-2.0 */
