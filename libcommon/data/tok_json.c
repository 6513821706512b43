/* Reads tokenizer.json. A feature that would change ids and is not supported is refused by name. */
#include "data/tok_json.h"
#include "base/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Refuses a member unless it is absent, null, false, 0 or empty. */
static int must_be_empty(const json_t *o, const char *key, struct dt_err *err)
{
	const json_t *v = json_object_get(o, key);

	if (!v || json_is_null(v) || json_is_false(v) || (json_is_string(v) && !json_string_length(v)) ||
	    (json_is_number(v) && json_number_value(v) == 0.0))
		return 0;
	return dt_err_set(err, -ENOTSUP, "model.%s is not supported", key);
}

static int read_vocab(struct dt_tokenizer *t, const json_t *vocab, struct dt_err *err)
{
	const char *key;
	json_t *v;
	char *bytes;
	int rc = 0;

	if (!json_is_object(vocab))
		return dt_err_set(err, -EINVAL, "model.vocab is not an object");
	json_object_foreach((json_t *)vocab, key, v)
	{
		size_t n = strlen(key);
		json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
		int64_t len;

		if (id < 0 || id >= DT_TOK_MAX_ID)
			return dt_err_set(err, -EINVAL, "the id of token '%.80s' is not a number below %d",
					  key, DT_TOK_MAX_ID);
		if (id < t->vocab && (t->piece[id].flags & DT_PIECE_DEFINED))
			return dt_err_set(err, -EINVAL, "token '%.80s' has the id %d of another", key,
					  (int)id);
		if (t->sp.on) {
			rc = dt_sp_add_token(t, key, (int32_t)id, err);
			if (rc < 0)
				return rc;
			continue;
		}
		if (t->wp.on) {
			rc = dt_tok_set_piece(t, (int32_t)id, key, n, 0, err);
			if (rc < 0)
				return rc;
			continue;
		}
		bytes = malloc(n + 1);
		if (!bytes)
			return dt_err_sys(err, -ENOMEM, "cannot read model.vocab");
		len = dt_byte_decode(key, n, bytes);
		rc = dt_tok_set_piece(t, (int32_t)id, len < 0 ? key : bytes, len < 0 ? n : (size_t)len, 0,
				      err);
		if (rc == 0 && len == 1)
			t->bpe.byte_id[(unsigned char)bytes[0]] = (int32_t)id;
		free(bytes);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int id_of(const json_t *vocab, const char *s, int32_t *ret)
{
	const json_t *v = json_object_get(vocab, s);

	if (!v)
		return -ENOENT;
	*ret = (int32_t)json_integer_value(v); /* checked by read_vocab */
	return 0;
}

/* Reads merge i: "a b" or ["a", "b"]. */
static int read_merge(struct dt_tokenizer *t, const json_t *vocab, const json_t *m, size_t i,
		      struct dt_err *err)
{
	const char *a = json_string_value(json_array_get(m, 0)), *b = json_string_value(json_array_get(m, 1));
	const char *both = json_string_value(m), *space = both ? strchr(both, ' ') : NULL;
	int32_t left, right, id;
	char *joined;
	size_t an;
	int rc = 0;

	if (space) {
		a = both;
		b = space + 1;
	}
	an = space ? (size_t)(space - both) : a ? strlen(a) : 0;
	if (!a || !b || !an || !*b || (space && strchr(b, ' ')) ||
	    (json_is_array(m) && json_array_size(m) != 2))
		return dt_err_set(err, -EINVAL, "merge %zu is not a pair of tokens", i);
	joined = malloc(an + strlen(b) + 1);
	if (!joined)
		return dt_err_sys(err, -ENOMEM, "cannot read model.merges");
	memcpy(joined, a, an);
	joined[an] = '\0';
	rc = id_of(vocab, joined, &left);
	if (rc == 0)
		rc = id_of(vocab, b, &right);
	strcpy(joined + an, b);
	if (rc == 0)
		rc = id_of(vocab, joined, &id);
	if (rc < 0)
		rc = dt_err_set(err, -EINVAL, "merge %zu ('%.80s') is not in the vocabulary", i, joined);
	else
		dt_bpe_add(&t->bpe, left, right, (uint32_t)i, id);
	free(joined);
	return rc;
}

/* For ignore_merges: indexes the words that are tokens themselves. */
static int index_words(struct dt_tokenizer *t, struct dt_err *err)
{
	struct dt_bpe *b = &t->bpe;

	b->word_id = malloc(((size_t)t->vocab + 1) * sizeof(*b->word_id));
	if (!b->word_id)
		return dt_err_sys(err, -ENOMEM, "cannot read model.vocab");
	for (int32_t i = 0; i < t->vocab; i++) {
		const struct dt_tok_piece *p = &t->piece[i];
		int64_t at;

		if (!(p->flags & DT_PIECE_DEFINED) || !p->n)
			continue;
		at = dt_bytemap_add(&b->words, t->blob + p->at, p->n);
		if (at < 0)
			return dt_err_sys(err, (int)at, "cannot read model.vocab");
		b->word_id[at] = i;
	}
	return 0;
}

static int read_wordpiece(struct dt_tokenizer *t, const json_t *model, struct dt_err *err)
{
	int rc = dt_bpe_init(&t->bpe, 0, err);

	t->wp.on = true;
	if (rc == 0)
		rc = read_vocab(t, json_object_get(model, "vocab"), err);
	return rc < 0 ? rc : dt_wp_read_model(t, model, err);
}

static int read_unigram_model(struct dt_tokenizer *t, const json_t *model, json_t **names, struct dt_err *err)
{
	int rc = dt_bpe_init(&t->bpe, 0, err);

	json_decref(*names); /* the vocabulary is a list */
	*names = NULL;
	return rc < 0 ? rc : dt_ug_read_model(t, model, names, err);
}

/* ret_names: {"token": id}, which the caller drops. */
static int read_model(struct dt_tokenizer *t, const json_t *model, json_t **ret_names, struct dt_err *err)
{
	static const char *const empty[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
	const json_t *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges");
	bool ignore = false;
	size_t i, n = json_array_size(merges);
	const json_t *m;
	int rc;

	if (!json_is_object(model))
		return dt_err_set(err, -EINVAL, "key 'model' is missing");
	*ret_names = json_incref(json_object_get(model, "vocab"));
	if (!strcmp(tok_json_type(model), "WordPiece"))
		return read_wordpiece(t, model, err);
	if (!strcmp(tok_json_type(model), "Unigram"))
		return read_unigram_model(t, model, ret_names, err);
	if (strcmp(tok_json_type(model), "BPE"))
		return tok_json_unsupported(err, "model.type", tok_json_type(model));
	for (i = 0; i < sizeof(empty) / sizeof(*empty); i++)
		if ((rc = must_be_empty(model, empty[i], err)) < 0)
			return rc;
	rc = dt_json_bool(model, "ignore_merges", false, &ignore, err);
	if (rc >= 0)
		rc = dt_json_bool(model, "byte_fallback", false, &t->sp.on, err);
	if (rc < 0)
		return rc;
	if (!json_is_array(merges) || n >= UINT32_MAX / 4)
		return dt_err_set(err, -EINVAL, "model.merges is not an array");
	rc = dt_bpe_init(&t->bpe, n, err);
	if (rc == 0)
		rc = read_vocab(t, vocab, err);
	for (i = 0; i < n && rc == 0; i++) {
		m = json_array_get(merges, i);
		rc = read_merge(t, vocab, m, i, err);
	}
	if (rc == 0 && ignore)
		rc = index_words(t, err);
	if (rc == 0 && json_is_string(json_object_get(model, "unk_token")))
		for (i = 0; i < 256; i++)
			if (t->bpe.byte_id[i] < 0)
				return dt_err_set(err, -ENOTSUP,
						  "model.unk_token with a vocabulary that lacks bytes is not "
						  "supported");
	return rc;
}

/* Reads the normaliser: null, one, or a Sequence of at most one. */
static int read_normalizer(struct dt_tokenizer *t, const json_t *o, struct dt_err *err)
{
	static const char *const forms[] = {[DT_NORMAL_NFC] = "NFC", "NFD", "NFKC", "NFKD"};
	const json_t *list = json_object_get(o, "normalizers");

	if (!o || json_is_null(o))
		return 0;
	if (!strcmp(tok_json_type(o), "Sequence")) {
		if (!json_is_array(list) || json_array_size(list) > 1)
			return tok_json_unsupported(err, "normalizer", "Sequence of several");
		o = json_array_get(list, 0);
		if (!o)
			return 0;
	}
	for (int i = DT_NORMAL_NFC; i <= DT_NORMAL_NFKD; i++)
		if (!strcmp(tok_json_type(o), forms[i])) {
			t->normal = (enum dt_normal)i;
			return 0;
		}
	return tok_json_unsupported(err, "normalizer", tok_json_type(o));
}

static int read_added(struct dt_tokenizer *t, const json_t *vocab, const json_t *o, struct dt_err *err)
{
	const char *text = NULL;
	bool normalized = false, single = false;
	struct dt_added a = {0};
	int64_t id = 0;
	int32_t known;
	int rc = dt_json_int(o, "id", true, 0, DT_TOK_MAX_ID - 1, &id, err);

	if (rc >= 0)
		rc = dt_json_str(o, "content", true, &text, err);
	if (rc >= 0)
		rc = dt_json_bool(o, "special", false, &a.special, err);
	if (rc >= 0)
		rc = dt_json_bool(o, "normalized", false, &normalized, err);
	if (rc >= 0)
		rc = dt_json_bool(o, "lstrip", false, &a.lstrip, err);
	if (rc >= 0)
		rc = dt_json_bool(o, "rstrip", false, &a.rstrip, err);
	if (rc >= 0)
		rc = dt_json_bool(o, "single_word", false, &single, err);
	if (rc < 0)
		return rc;
	if (!*text)
		return dt_err_set(err, -EINVAL, "an added token has no text");
	if (single)
		return dt_err_set(err, -ENOTSUP, "'%.80s': single_word is not supported", text);
	a.id = (int32_t)id;
	a.text = (char *)text;
	a.n = strlen(text);
	if (id_of(vocab, text, &known) == 0 ? known != a.id
					    : a.id < t->vocab && (t->piece[a.id].flags & DT_PIECE_DEFINED))
		return dt_err_set(err, -EINVAL, "'%.80s' has the id %d, which contradicts the vocabulary",
				  text, a.id);
	return dt_tok_add(t, &a, normalized, err);
}

static void find_eot(struct dt_tokenizer *t)
{
	static const char *const names[] = {DT_TOK_END_OF_TEXT, "<|end_of_text|>", "<｜end▁of▁sentence｜>",
					    "</s>", "<eos>"};
	const struct dt_added_list *lists[] = {&t->raw, &t->normalized};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names) && t->eot < 0; i++)
		for (int k = 0; k < 2; k++)
			for (size_t j = 0; j < lists[k]->n; j++)
				if (lists[k]->v[j].n == strlen(names[i]) &&
				    !memcmp(lists[k]->v[j].text, names[i], lists[k]->v[j].n))
					t->eot = lists[k]->v[j].id;
	if (t->eot < 0)
		t->eot = t->end;
}

/* What byte-level BPE has between the texts and the model. */
static int read_byte_level(struct dt_tokenizer *t, const json_t *root, struct dt_err *err)
{
	const json_t *pre = json_object_get(root, "pre_tokenizer"), *dec = json_object_get(root, "decoder");
	bool byte_level = false;
	int rc = read_normalizer(t, json_object_get(root, "normalizer"), err);

	if (rc == 0 && pre && !json_is_null(pre))
		rc = tok_json_pre_tokenizer(t, pre, 0, &byte_level, err);
	if (rc == 0 && !byte_level)
		rc = tok_json_unsupported(err, "a tokenizer without pre_tokenizer", "ByteLevel");
	if (rc == 0 && dec && !json_is_null(dec) && strcmp(tok_json_type(dec), "ByteLevel"))
		rc = tok_json_unsupported(err, "decoder", tok_json_type(dec));
	return rc;
}

static int read_sentencepiece(struct dt_tokenizer *t, const json_t *root, struct dt_err *err)
{
	int rc = dt_sp_read_normalizer(t, json_object_get(root, "normalizer"), err);

	if (rc == 0)
		rc = dt_sp_read_pre_tokenizer(t, json_object_get(root, "pre_tokenizer"), err);
	if (rc == 0)
		rc = dt_sp_read_decoder(t, json_object_get(root, "decoder"), err);
	if (rc == 0 && !t->sp.marks && !t->sp.meta)
		rc = dt_err_set(err, -ENOTSUP,
				"byte_fallback is not supported without a normalizer or pre_tokenizer that "
				"replaces blanks by U+2581");
	return rc;
}

static int read_unigram(struct dt_tokenizer *t, const json_t *root, struct dt_err *err)
{
	int rc = dt_ug_read_normalizer(t, json_object_get(root, "normalizer"), err);

	if (rc == 0)
		rc = dt_ug_read_pre_tokenizer(t, json_object_get(root, "pre_tokenizer"), err);
	return rc < 0 ? rc : dt_sp_read_decoder(t, json_object_get(root, "decoder"), err);
}

static int read_bert(struct dt_tokenizer *t, const json_t *root, struct dt_err *err)
{
	int rc = dt_wp_read_normalizer(t, json_object_get(root, "normalizer"), err);

	if (rc == 0)
		rc = dt_wp_read_pre_tokenizer(t, json_object_get(root, "pre_tokenizer"), err);
	return rc < 0 ? rc : dt_wp_read_decoder(t, json_object_get(root, "decoder"), err);
}

static int read_all(struct dt_tokenizer *t, const json_t *root, struct dt_err *err)
{
	const json_t *model = json_object_get(root, "model"), *added = json_object_get(root, "added_tokens");
	json_t *names = NULL;
	int rc;

	if (!json_is_object(root))
		return dt_err_set(err, -EINVAL, "this is not a tokenizer.json");
	rc = read_model(t, model, &names, err);
	if (rc == 0)
		rc = t->wp.on	? read_bert(t, root, err)
		     : t->ug.on ? read_unigram(t, root, err)
		     : t->sp.on ? read_sentencepiece(t, root, err)
				: read_byte_level(t, root, err);
	for (size_t i = 0; i < json_array_size(added) && rc == 0; i++) {
		rc = read_added(t, names, json_array_get(added, i), err);
		if (rc < 0)
			dt_err_prefix(err, "added_tokens[%zu]", i);
	}
	json_decref(names);
	if (rc == 0)
		rc = tok_json_post(t, json_object_get(root, "post_processor"), 0, err);
	if (rc == 0 && t->vocab == 0)
		rc = dt_err_set(err, -EINVAL, "the vocabulary is empty");
	if (rc == 0 && t->wp.on)
		rc = dt_wp_spell(t, err);
	find_eot(t);
	return rc;
}

int dt_tok_read_json(struct dt_tokenizer *t, const char *text, size_t n, struct dt_err *err)
{
	json_t *root;
	int rc = dt_json_parse(text, n, "tokenizer.json", &root, err);

	t->eot = t->bos = t->end = -1;
	if (rc < 0)
		return rc;
	rc = read_all(t, root, err);
	json_decref(root);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
