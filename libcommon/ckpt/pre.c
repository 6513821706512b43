/*
 * How byte-level BPE splits text before merging. GGUF names it (tokenizer.ggml.pre), tokenizer.json spells it
 * out. Patterns: the tokenizer.json files published with GPT-2, Llama 3, Qwen2 and SmolLM.
 */
#include "ckpt/source_internal.h"

#include <string.h>

#define WORDS	 "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define THE_REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct src_pre table[] = {
	{.name = "gpt-2", .byte_level_regex = true},
	{.name = "smollm", .digits = true, .byte_level_regex = true},
	{.name = "llama-bpe", .regex = WORDS "\\p{N}{1,3}" THE_REST, .ignore_merges = true, .add_bos = true},
	{.name = "qwen2", .regex = WORDS "\\p{N}" THE_REST, .nfc = true},
};
#define N (sizeof(table) / sizeof(table[0]))

const struct src_pre *src_pre_find(const char *name, size_t n)
{
	static const char *const aliases[][2] = {
		{"llama3", "llama-bpe"}, {"llama-v3", "llama-bpe"}, {"falcon3", "llama-bpe"},
		{"gpt2", "gpt-2"},	 {"phi-2", "gpt-2"},	    {"deepseek-r1-qwen", "qwen2"},
	};

	for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++)
		if (strlen(aliases[i][0]) == n && !memcmp(aliases[i][0], name, n))
			return src_pre_find(aliases[i][1], strlen(aliases[i][1]));
	for (size_t i = 0; i < N; i++)
		if (strlen(table[i].name) == n && !memcmp(table[i].name, name, n))
			return &table[i];
	return NULL;
}

static const char *type_of(const json_t *o)
{
	const char *s = json_string_value(json_object_get(o, "type"));

	return s ? s : "";
}

/* What a chain of pre-tokenizers does, in the words of the table; false: something else. */
static bool describe(const json_t *o, struct src_pre *d, int depth)
{
	const json_t *list = json_object_get(o, "pretokenizers");

	if (!strcmp(type_of(o), "Sequence") && depth < 3) {
		for (size_t i = 0; i < json_array_size(list); i++)
			if (!describe(json_array_get(list, i), d, depth + 1))
				return false;
		return true;
	}
	if (!strcmp(type_of(o), "Digits")) {
		d->digits = json_is_true(json_object_get(o, "individual_digits"));
		return d->digits && !d->regex;
	}
	if (!strcmp(type_of(o), "Split")) {
		const char *behavior = json_string_value(json_object_get(o, "behavior"));

		if (d->regex || !behavior || strcmp(behavior, "Isolated") ||
		    json_is_true(json_object_get(o, "invert")))
			return false;
		d->regex = json_string_value(json_object_get(json_object_get(o, "pattern"), "Regex"));
		return d->regex;
	}
	if (strcmp(type_of(o), "ByteLevel") || !json_is_false(json_object_get(o, "add_prefix_space")))
		return false;
	d->byte_level_regex = !json_is_false(json_object_get(o, "use_regex")); /* absent: true */
	return true;
}

const struct src_pre *src_pre_of(const json_t *tokenizer)
{
	const json_t *norm = json_object_get(tokenizer, "normalizer");
	struct src_pre d = {.nfc = !strcmp(type_of(norm), "NFC")};

	if ((json_is_object(norm) && !d.nfc) || !describe(json_object_get(tokenizer, "pre_tokenizer"), &d, 0))
		return NULL;
	for (size_t i = 0; i < N; i++)
		if (d.nfc == table[i].nfc && d.digits == table[i].digits &&
		    d.byte_level_regex == table[i].byte_level_regex && !d.regex == !table[i].regex &&
		    (!d.regex || !strcmp(d.regex, table[i].regex)))
			return &table[i];
	return NULL;
}

static json_t *byte_level(bool regex)
{
	return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets",
			 1, "use_regex", regex);
}

void src_pre_put(const struct src_pre *p, json_t *tokenizer)
{
	json_t *list = json_array();

	if (p->digits)
		json_array_append_new(list,
				      json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1));
	if (p->regex)
		json_array_append_new(list,
				      json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern",
						"Regex", p->regex, "behavior", "Isolated", "invert", 0));
	json_array_append_new(list, byte_level(p->byte_level_regex));
	json_object_set_new(tokenizer, "normalizer",
			    p->nfc ? json_pack("{s:s}", "type", "NFC") : json_null());
	json_object_set_new(tokenizer, "pre_tokenizer",
			    json_pack("{s:s, s:o}", "type", "Sequence", "pretokenizers", list));
	json_object_set_new(tokenizer, "decoder", byte_level(true));
}
