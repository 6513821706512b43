/* Unigram in tokenizer.json: the model, and its normalizer and pre-tokenizer around Metaspace. */
#include "data/tok_json.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNK_PENALTY 10.0 /* below the lowest score of a token */

static int no_memory(struct dt_err *err)
{
	return dt_err_sys(err, -ENOMEM, "cannot hold the tokenizer");
}

static bool is_byte(const char *s)
{
	return strlen(s) == 6 && !memcmp(s, "<0x", 3) && s[5] == '>';
}

/* One entry of the vocabulary, ["token", score], as piece i and word i of the trie. */
static int read_token(struct dt_tokenizer *t, const json_t *pair, int32_t i, uint32_t *at, uint32_t *n,
		      struct dt_err *err)
{
	const char *s = json_string_value(json_array_get(pair, 0));
	const json_t *score = json_array_get(pair, 1);
	char *text;
	int rc;

	if (!s || !json_is_number(score) || json_array_size(pair) != 2)
		return dt_err_set(err, -EINVAL, "model.vocab[%d] is not a token and a score", i);
	t->ug.score[i] = json_number_value(score);
	text = strdup(s);
	if (!text)
		return no_memory(err);
	*n = (uint32_t)(t->ug.bytes && is_byte(s) ? strlen(s) : dt_sp_unmark(text, strlen(s)));
	rc = dt_tok_store(t, text, *n, at, err);
	if (rc == 0)
		rc = t->ug.bytes ? dt_sp_add_token(t, s, i, err) : dt_tok_set_piece(t, i, text, *n, 0, err);
	free(text);
	return rc;
}

static int read_tokens(struct dt_tokenizer *t, const json_t *list, json_t *names, struct dt_err *err)
{
	size_t n = json_array_size(list), words = 0;
	uint32_t *at = malloc((2 * n + 1) * sizeof(*at));
	struct dt_trie_word *w = malloc((n + 1) * sizeof(*w));
	double lowest = INFINITY;
	int rc = 0;

	t->ug.score = malloc((n + 1) * sizeof(*t->ug.score));
	if (!at || !w || !t->ug.score)
		rc = no_memory(err);
	for (size_t i = 0; i < n && rc == 0; i++) {
		rc = read_token(t, json_array_get(list, i), (int32_t)i, &at[2 * i], &at[2 * i + 1], err);
		if (rc == 0)
			json_object_set_new(names,
					    json_string_value(json_array_get(json_array_get(list, i), 0)),
					    json_integer((json_int_t)i));
		if (rc == 0 && t->ug.score[i] < lowest)
			lowest = t->ug.score[i];
	}
	for (size_t i = 0; i < n && rc == 0; i++)
		if (at[2 * i + 1])
			w[words++] = (struct dt_trie_word){t->blob + at[2 * i], at[2 * i + 1], (int32_t)i};
	if (rc == 0 && dt_trie_build(&t->ug.trie, w, words) < 0)
		rc = no_memory(err);
	t->ug.tokens = (int32_t)n;
	t->ug.unk_score = lowest - UNK_PENALTY;
	free(at);
	free(w);
	return rc;
}

int dt_ug_read_model(struct dt_tokenizer *t, const json_t *model, json_t **ret_names, struct dt_err *err)
{
	const json_t *list = json_object_get(model, "vocab");
	int64_t unk = -1;
	json_t *names;
	int rc = 0;

	t->ug.on = t->sp.on = true;
	if (!json_is_array(list) || json_array_size(list) > DT_TOK_MAX_ID)
		return dt_err_set(err, -EINVAL, "model.vocab of Unigram is not an array of at most %d tokens",
				  DT_TOK_MAX_ID);
	if (!json_is_null(json_object_get(model, "unk_id")))
		rc = dt_json_int(model, "unk_id", false, 0, (int64_t)json_array_size(list) - 1, &unk, err);
	if (rc >= 0)
		rc = dt_json_bool(model, "byte_fallback", false, &t->ug.bytes, err);
	if (rc < 0)
		return rc;
	t->ug.unk = (int32_t)unk;
	names = json_object();
	rc = names ? read_tokens(t, list, names, err) : no_memory(err);
	if (rc < 0)
		json_decref(names);
	else
		*ret_names = names;
	return rc;
}

static int add_step(struct dt_ug *u, struct dt_ug_step st, struct dt_err *err)
{
	if (u->steps == (int)(sizeof(u->step) / sizeof(*u->step))) {
		free(st.to);
		return dt_err_set(err, -ENOTSUP, "more than %d normalizers are not supported", u->steps);
	}
	u->step[u->steps++] = st;
	return 0;
}

static int read_one(struct dt_ug *u, const json_t *o, struct dt_err *err)
{
	const char *type = tok_json_type(o), *s = "";
	struct dt_ug_step st = {.what = DT_UG_CHARSMAP};
	int rc = 0;

	if (!strcmp(type, "Precompiled")) {
		rc = dt_json_str(o, "precompiled_charsmap", true, &s, err);
		if (rc >= 0)
			rc = dt_ug_read_charsmap(u, s, err);
	} else if (!strcmp(type, "Strip")) {
		st.what = DT_UG_STRIP;
		rc = dt_json_bool(o, "strip_left", true, &st.left, err);
		if (rc >= 0)
			rc = dt_json_bool(o, "strip_right", true, &st.right, err);
	} else if (!strcmp(type, "Replace")) {
		const char *regex =
			json_string_value(json_object_get(json_object_get(o, "pattern"), "Regex"));

		if (!regex || strcmp(regex, " {2,}"))
			return tok_json_unsupported(err, "with Unigram a normalizer Replace of",
						    regex ? regex : "a string");
		rc = dt_json_str(o, "content", true, &s, err);
		st.what = DT_UG_BLANKS;
		st.to = strdup(s);
		if (!st.to)
			return no_memory(err);
	} else {
		return tok_json_unsupported(err, "with Unigram the normalizer", type);
	}
	if (rc < 0) {
		free(st.to);
		return dt_err_prefix(err, "normalizer %s", type);
	}
	return add_step(u, st, err);
}

int dt_ug_read_normalizer(struct dt_tokenizer *t, const json_t *o, struct dt_err *err)
{
	static const char *const names[] = {"character map", "stripped", "single blanks"};
	const json_t *list = json_object_get(o, "normalizers"), *v;
	struct dt_ug *u = &t->ug;
	size_t i, n = 0;
	int rc = 0;

	if (!o || json_is_null(o))
		return 0;
	if (strcmp(tok_json_type(o), "Sequence"))
		rc = read_one(u, o, err);
	else
		json_array_foreach(list, i, v)
		{
			if (rc == 0)
				rc = read_one(u, v, err);
		}
	for (int k = 0; k < u->steps && n < sizeof(u->says); k++)
		n += (size_t)snprintf(u->says + n, sizeof(u->says) - n, "%s%s", k ? ", " : "",
				      names[u->step[k].what]);
	return rc;
}

int dt_ug_read_pre_tokenizer(struct dt_tokenizer *t, const json_t *o, struct dt_err *err)
{
	const json_t *list = json_object_get(o, "pretokenizers"), *meta = o;
	int rc;

	if (!strcmp(tok_json_type(o), "Sequence")) {
		t->ug.spaces = !strcmp(tok_json_type(json_array_get(list, 0)), "WhitespaceSplit");
		meta = json_array_get(list, t->ug.spaces);
		if (json_array_size(list) != (size_t)t->ug.spaces + 1)
			return tok_json_unsupported(err, "with Unigram the pre_tokenizer",
						    "Sequence but of WhitespaceSplit and Metaspace");
	}
	if (strcmp(tok_json_type(meta), "Metaspace"))
		return tok_json_unsupported(err, "with Unigram the pre_tokenizer", tok_json_type(meta));
	rc = dt_sp_read_pre_tokenizer(t, meta, err);
	if (rc == 0 && t->sp.prefix == DT_SP_PREFIX_FIRST)
		return tok_json_unsupported(err, "with Unigram the prepend_scheme", "first");
	return rc;
}

void dt_ug_release(struct dt_ug *u)
{
	for (int i = 0; i < u->steps; i++)
		free(u->step[i].to);
	dt_trie_release(&u->trie);
	free(u->score);
	free(u->units);
	free(u->texts);
}

struct node { /* the best way to spell a word up to here */
	double score;
	uint32_t from; /* where its last token begins */
	int32_t id;    /* of that, -1: none ends here */
};

static void offer(struct node *to, double score, size_t from, int32_t id)
{
	if (to->id >= 0 && score <= to->score)
		return;
	*to = (struct node){score, (uint32_t)from, id};
}

/* unk: what stands for the unknown token's id. */
static void find_best(const struct dt_ug *u, const char *s, size_t n, int32_t unk, struct node *best)
{
	for (size_t i = 0; i <= n; i++)
		best[i] = (struct node){.id = -1};
	for (size_t at = 0, len; at < n; at += len) {
		uint32_t node = DT_TRIE_ROOT, c;
		bool single = false;

		len = dt_utf8_next(s + at, n - at, &c);
		for (size_t i = at; i < n; i++) {
			node = dt_trie_next(&u->trie, node, (uint8_t)s[i]);
			if (node == DT_TRIE_NONE)
				break;
			if (u->trie.id[node] < 0)
				continue;
			offer(&best[i + 1], u->score[u->trie.id[node]] + best[at].score, at,
			      u->trie.id[node]);
			single |= i + 1 - at == len;
		}
		if (!single)
			offer(&best[at + len], u->unk_score + best[at].score, at, unk);
	}
}

static int32_t exact(const struct dt_trie *t, const char *s, size_t n)
{
	uint32_t node = DT_TRIE_ROOT;

	for (size_t i = 0; i < n && node != DT_TRIE_NONE; i++)
		node = dt_trie_next(t, node, (uint8_t)s[i]);
	return node == DT_TRIE_NONE ? -1 : t->id[node];
}

/* Puts the ids of an unknown run before *at: a token of that text, its bytes, or the unknown token. */
static int put_unknown(const struct dt_tokenizer *t, const char *s, size_t n, int32_t *ids, size_t *at,
		       struct dt_err *err)
{
	int32_t id = exact(&t->ug.trie, s, n);
	bool bytes = t->ug.bytes && id < 0;

	for (size_t i = 0; i < n && bytes; i++)
		bytes = t->bpe.byte_id[(unsigned char)s[i]] >= 0;
	if (bytes) {
		for (size_t i = n; i-- > 0;)
			ids[--*at] = t->bpe.byte_id[(unsigned char)s[i]];
		return 0;
	}
	if (id < 0)
		id = t->ug.unk;
	if (id < 0)
		return dt_err_set(err, -EINVAL, "'%.*s' is not in the vocabulary, which has no unknown token",
				  n > 40 ? 40 : (int)n, s);
	ids[--*at] = id;
	return 0;
}

int64_t dt_ug_ids(const struct dt_tokenizer *t, const char *s, size_t n, int32_t *ids, struct dt_err *err)
{
	const int32_t unk = t->ug.unk >= 0 ? t->ug.unk : INT32_MAX;
	struct node few[DT_BPE_SHORT + 1], *best = few;
	size_t at = n, end = n;
	int rc = 0;

	if (n >= UINT32_MAX)
		return dt_err_sys(err, -ENOMEM, "cannot encode a word of %zu bytes", n);
	if (n > DT_BPE_SHORT && !(best = malloc((n + 1) * sizeof(*best))))
		return dt_err_sys(err, -ENOMEM, "cannot encode a word of %zu bytes", n);
	find_best(&t->ug, s, n, unk, best);
	while (end > 0 && rc == 0) {
		size_t from = best[end].from;

		if (best[end].id != unk) {
			ids[--at] = best[end].id;
			end = from;
			continue;
		}
		while (from > 0 && best[from].id == unk)
			from = best[from].from;
		rc = put_unknown(t, s + from, end - from, ids, &at, err);
		end = from;
	}
	if (best != few)
		free(best);
	if (rc < 0)
		return rc;
	memmove(ids, ids + at, (n - at) * sizeof(*ids));
	return (int64_t)(n - at);
}
/* SPDX-License-Identifier: Apache-2.0 */
