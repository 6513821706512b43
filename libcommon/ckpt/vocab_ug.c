/*
 * Unigram vocabularies of GGUF (model "t5") as tokenizer.json: scores, and the character map that normalises.
 * With remove_extra_whitespaces, runs of blanks are one and those at the ends go, as WhitespaceSplit has it;
 * else every blank is a U+2581.
 */
#include "ckpt/source_internal.h"

#include "base/base64.h"

#include <errno.h>
#include <stdlib.h>

/* The normalizer: null without a character map; NULL: no memory, or the map is not one of bytes. */
static json_t *normalizer_json(const struct dt_gguf *g)
{
	const struct dt_gguf_kv *map = dt_gguf_find(g, "tokenizer.ggml.precompiled_charsmap");
	json_t *o;
	char *text;

	if (!map || !map->n)
		return json_null();
	if (!map->array || (map->type != DT_GGUF_U8 && map->type != DT_GGUF_I8))
		return NULL;
	text = malloc(dt_base64_chars(map->n));
	if (!text)
		return NULL;
	dt_base64_encode(map->data, map->n, text);
	o = json_pack("{s:s, s:s%}", "type", "Precompiled", "precompiled_charsmap", text,
		      dt_base64_chars(map->n));
	free(text);
	return o;
}

/* split: words are apart. */
static json_t *meta_json(const struct src_vocab *v, bool split)
{
	return json_pack("{s:s, s:s, s:s, s:b}", "type", "Metaspace", "replacement", "\xe2\x96\x81",
			 "prepend_scheme", v->add_space ? "always" : "never", "split", split);
}

static json_t *pre_json(const struct src_vocab *v, bool words)
{
	if (!words)
		return meta_json(v, false);
	return json_pack("{s:s, s:[{s:s}, o]}", "type", "Sequence", "pretokenizers", "type",
			 "WhitespaceSplit", meta_json(v, true));
}

/* [["token", score], ...], NULL: a token is not UTF-8. *ret_unk: the unknown token's id, null: none. */
static json_t *pieces_json(const struct src_vocab *v, json_t **ret_unk, bool *ret_bytes)
{
	json_t *list = json_array();

	*ret_unk = NULL;
	*ret_bytes = false;
	for (int i = 0; i < v->n; i++) {
		json_t *pair = json_pack("[s%, f]", v->t[i].s, v->t[i].n, v->t[i].score);

		if (!pair || json_array_append_new(list, pair) < 0) {
			json_decref(*ret_unk);
			json_decref(list);
			return NULL;
		}
		if (v->t[i].type == SRC_TOKEN_UNKNOWN && !*ret_unk)
			*ret_unk = json_integer(i);
		*ret_bytes |= v->t[i].type == SRC_TOKEN_BYTE;
	}
	if (!*ret_unk)
		*ret_unk = json_null();
	return list;
}

int src_vocab_unigram(struct dt_source *s, const struct dt_gguf *g, const struct src_vocab *v,
		      struct dt_err *err)
{
	bool words = false, bytes;
	int rc = dt_gguf_bool(g, "tokenizer.ggml.remove_extra_whitespaces", &words, err);
	json_t *pieces, *normalizer, *unk;

	if (rc < 0)
		return dt_err_prefix(err, "'%s'", s->path);
	normalizer = normalizer_json(g);
	if (!normalizer)
		return src_vocab_note(s, "its character map is not bytes", NULL, 0);
	pieces = pieces_json(v, &unk, &bytes);
	if (!pieces) {
		json_decref(normalizer);
		return src_vocab_note(s, "a token is not UTF-8", NULL, 0);
	}
	return src_vocab_finish(s,
				json_pack("{s:s, s:n, s:n, s:o, s:o, s:o, s:o, s:o, s:{s:s, s:o, s:o, s:b}}",
					  "version", "1.0", "truncation", "padding", "added_tokens",
					  src_added_json(v), "normalizer", normalizer, "pre_tokenizer",
					  pre_json(v, words), "post_processor", src_around_json(v), "decoder",
					  meta_json(v, words), "model", "type", "Unigram", "unk_id", unk,
					  "vocab", pieces, "byte_fallback", bytes),
				err);
}
/* SPDX-License-Identifier: Apache-2.0 */
