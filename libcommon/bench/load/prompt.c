/* Generates prompts: the same tokens for the same seed, with prefixes shared as the workload requires. */
#include "base/rng.h"
#include "bench/load/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const words[] = {
	"time",	 "water", "house",  "people", "light",	"river", "small", "great", "under", "never",
	"story", "green", "street", "music",  "friend", "early", "paper", "stone", "seven", "walk",
	"table", "night", "school", "answer", "summer", "north", "bread", "horse", "glass", "begin",
	"field", "ocean", "garden", "window", "letter", "ship",	 "cloud", "voice", "metal", "circle",
	"hand",	 "earth", "winter", "number", "market", "old",	 "young", "sound", "road",  "mountain",
};

enum { NWORDS = sizeof(words) / sizeof(words[0]) };

char *dt_load_words(void)
{
	struct load_text t = {0};

	for (int i = 0; i < NWORDS; i++)
		if (dt_load_text_add(&t, " ", i > 0) < 0 ||
		    dt_load_text_add(&t, words[i], strlen(words[i])) < 0) {
			free(t.s);
			return NULL;
		}
	return t.s;
}

/* Index, below n, of the token or word at position `at` of request i's prompt. */
static uint64_t pick(const struct dt_load_target *t, const struct dt_load *l, int i, int at, int n)
{
	const struct dt_load_item *it = &l->item[i];
	int block = it->nblock ? at / it->block_len : 0;
	uint32_t stream = 4 * (uint32_t)i; /* of the seed: neighbouring seeds are unrelated */
	uint64_t seed = t->seed;
	struct dt_rng r;

	if (it->prefix >= 0 && at < it->prefix_len) {
		stream = 4 * (uint32_t)it->prefix + 1;
	} else if (block < it->nblock) {
		stream = 4 * (uint32_t)it->block[block] + 2;
		seed ^= (uint64_t)it->block[block] >> 30 << 30;
		at -= block * it->block_len;
	}
	r = dt_rng_make(seed, DT_RNG_DATA, stream);
	return dt_rng_below(&r, (uint64_t)at, (uint64_t)n);
}

static char *prompt_words(const struct dt_load_target *t, const struct dt_load *l, int i)
{
	struct load_text b = {0};

	for (int at = 0; at < l->item[i].input; at++) {
		const char *w = words[pick(t, l, i, at, NWORDS)];

		if (dt_load_text_add(&b, " ", at > 0) < 0 || dt_load_text_add(&b, w, strlen(w)) < 0) {
			free(b.s);
			return NULL;
		}
	}
	return b.s;
}

/* The prompt of this turn, with the history. */
static json_t *prompt_value(const struct dt_load_target *t, const struct dt_load *l, int i,
			    const json_t *history)
{
	char *text = NULL;
	json_t *v = NULL;

	if (t->prompt == DT_LOAD_TOKENS) {
		v = json_array();
		for (int at = 0; v && at < l->item[i].input; at++)
			json_array_append_new(v, json_integer(t->id[pick(t, l, i, at, t->nid)]));
		return v;
	}
	text = prompt_words(t, l, i);
	if (!text)
		return NULL;
	if (t->prompt == DT_LOAD_CHAT) {
		v = history ? json_copy((json_t *)history) : json_array();
		json_array_append_new(v, json_pack("{s:s,s:s}", "role", "user", "content", text));
	} else {
		v = history ? json_sprintf("%s %s", json_string_value(history), text) : json_string(text);
	}
	free(text);
	return v;
}

char *dt_load_body(const struct dt_load_target *t, const struct dt_load *l, int i, const json_t *history,
		   json_t **ret_said)
{
	bool more = i + 1 < l->n && l->item[i + 1].turn > l->item[i].turn;
	json_t *v = prompt_value(t, l, i, history), *o;
	char *ret;

	*ret_said = v && more ? json_incref(v) : NULL;
	o = json_pack("{s:s,s:o,s:i,s:f,s:I,s:b,s:b,s:{s:b}}", "model", t->name,
		      t->prompt == DT_LOAD_CHAT ? "messages" : "prompt", v, "max_tokens", l->item[i].output,
		      "temperature", t->temperature, "seed", (json_int_t)i, "ignore_eos", 1, "stream", 1,
		      "stream_options", "include_usage", 1);
	ret = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	if (!ret) {
		json_decref(*ret_said);
		*ret_said = NULL;
	}
	return ret;
}

json_t *dt_load_reply(const struct dt_load_target *t, json_t *said, const char *reply)
{
	json_t *v;

	if (t->prompt == DT_LOAD_CHAT) {
		json_array_append_new(said, json_pack("{s:s,s:s}", "role", "assistant", "content", reply));
		return said;
	}
	v = json_sprintf("%s%s", json_string_value(said), reply);
	json_decref(said);
	return v;
}
/* SPDX-License-Identifier: Apache-2.0 */
