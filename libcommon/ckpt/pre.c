/*
 * How byte-level BPE splits text before merging (pre-tokenizers). GGUF names them (tokenizer.ggml.pre),
 * tokenizer.json has the patterns. Patterns: the tokenizer.json files published with the models of each name.
 */
#include "ckpt/source_internal.h"

#include <string.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORDS	     CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define SPACES	     "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define THE_REST     "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
/* A word of GPT-4o and Tekken: upper-case letters followed by lower-case letters. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(end)                                                                                           \
	"[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" end "|"
#define THE_REST_SLASH "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES
#define CJK	       "[一-龥ࠀ-一가-퟿]+"

/* Letters of the European scripts, as DeepSeek LLM lists them. */
#define DEEPSEEK_LETTERS                                                                                     \
	"A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ"                        \
	"-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-"     \
	"Ὅὐ-"                                                                                            \
	"ὗὙὛὝὟ-\xe1\xbd\xbd"                                                                       \
	"ᾀ-ᾴᾶ-ᾼ\xe1\xbe\xbe"                                                                         \
	"ῂ-ῄῆ-ῌῐ-\xe1\xbf\x93"                                                                     \
	"ῖ-\xe1\xbf\x9b"                                                                                   \
	"ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\xe2\x84\xa6"                                        \
	""                                                                                                   \
	"ℨ\xe2\x84\xaa"                                                                                    \
	"-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-"   \
	"ꞎꭰ-"                                                                                            \
	"ꮿ"                                                                                                \
	"ﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"

static const struct src_pre table[] = {
	{"gpt-2", .step = {{SRC_PRE_WORDS}}},
	{"smollm", .step = {{SRC_PRE_DIGITS}, {SRC_PRE_WORDS}}},
	{"llama-bpe", .step = {{SRC_PRE_SPLIT, WORDS "\\p{N}{1,3}" THE_REST}, {SRC_PRE_BYTES}},
	 .ignore_merges = true, .add_bos = true},
	{"dbrx", .step = {{SRC_PRE_SPLIT, WORDS "\\p{N}{1,3}" THE_REST}, {SRC_PRE_BYTES}}},
	{"qwen2", .step = {{SRC_PRE_SPLIT, WORDS "\\p{N}" THE_REST}, {SRC_PRE_BYTES}}, .nfc = true},
	{"olmo", .step = {{SRC_PRE_WORDS}}, .nfc = true},
	{"command-r", .step = {{SRC_PRE_DIGITS}, {SRC_PRE_WORDS}}, .nfc = true},
	{"falcon", .step = {{SRC_PRE_PUNCTUATION},
			    {SRC_PRE_WORDS},
			    {SRC_PRE_NUMBERS},
			    {SRC_PRE_SPLIT, "[0-9][0-9][0-9]"}}},
	{"deepseek-llm", .step = {{SRC_PRE_SPLIT, "[\r\n]"},
				  {SRC_PRE_SPLIT, "\\s?[" DEEPSEEK_LETTERS "]+"},
				  {SRC_PRE_SPLIT, "\\s?[!-/:-~！-／：-～‘-‟　-。]+"},
				  {SRC_PRE_SPLIT, "\\s+$"},
				  {SRC_PRE_SPLIT, CJK},
				  {SRC_PRE_DIGITS},
				  {SRC_PRE_BYTES}}},
	{"deepseek-coder", .step = {{SRC_PRE_SPLIT, "[\r\n]"},
				    {SRC_PRE_SPLIT, "\\s?\\p{L}+"},
				    {SRC_PRE_SPLIT, "\\s?\\p{P}+"},
				    {SRC_PRE_SPLIT, CJK},
				    {SRC_PRE_DIGITS},
				    {SRC_PRE_BYTES}}},
	{"deepseek-v3",
	 .step = {{SRC_PRE_SPLIT, "\\p{N}{1,3}"},
		  {SRC_PRE_SPLIT, "[一-龥぀-ゟ゠-ヿ]+"},
		  {SRC_PRE_SPLIT,
		   "[!\"#$%&'()*+,\\-./"
		   ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
		   " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"},
		  {SRC_PRE_BYTES}}},
	{"tekken", .step = {{SRC_PRE_SPLIT, CASED("") "\\p{N}" THE_REST_SLASH}, {SRC_PRE_BYTES}},
	 .ignore_merges = true, .add_bos = true},
	{"gpt-4o",
	 .step = {{SRC_PRE_SPLIT, CASED(CONTRACTIONS "?") "\\p{N}{1,3}" THE_REST_SLASH}, {SRC_PRE_BYTES}}},
};
#define N (sizeof(table) / sizeof(table[0]))

const struct src_pre *src_pre_find(const char *name, size_t n)
{
	/* names that split alike; mpt and olmo both use GPT-NeoX's tokenizer */
	static const char *const aliases[][2] = {
		{"llama3", "llama-bpe"},
		{"llama-v3", "llama-bpe"},
		{"falcon3", "llama-bpe"},
		{"roberta-bpe", "gpt-2"},
		{"gpt2", "gpt-2"},
		{"phi-2", "gpt-2"},
		{"deepseek-r1-qwen", "qwen2"},
		{"starcoder", "smollm"},
		{"refact", "smollm"},
		{"mpt", "olmo"},
		{"llama4", "gpt-4o"},
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

static bool says(const json_t *o, const char *key, const char *value)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s && !strcmp(s, value);
}

/* The table's entry for one pre-tokenizer; SRC_PRE_END: not in the table. */
static struct src_pre_step step_of(const json_t *o)
{
	const char *regex = json_string_value(json_object_get(json_object_get(o, "pattern"), "Regex"));

	if (!strcmp(type_of(o), "Digits"))
		return (struct src_pre_step){json_is_true(json_object_get(o, "individual_digits"))
						     ? SRC_PRE_DIGITS
						     : SRC_PRE_NUMBERS};
	if (!strcmp(type_of(o), "Punctuation") && says(o, "behavior", "Contiguous"))
		return (struct src_pre_step){SRC_PRE_PUNCTUATION};
	if (!strcmp(type_of(o), "Split") && regex && says(o, "behavior", "Isolated"))
		return (struct src_pre_step){SRC_PRE_SPLIT, regex};
	if (!strcmp(type_of(o), "ByteLevel") && json_is_false(json_object_get(o, "add_prefix_space")))
		return (struct src_pre_step){json_is_false(json_object_get(o, "use_regex")) ? SRC_PRE_BYTES
											    : SRC_PRE_WORDS};
	return (struct src_pre_step){SRC_PRE_END};
}

/* Appends the steps of a chain of pre-tokenizers at d's n; returns the new n, -1: one is unknown. */
static int describe(const json_t *o, struct src_pre *d, int n, int depth)
{
	const json_t *list = json_object_get(o, "pretokenizers");

	if (!strcmp(type_of(o), "Sequence") && depth < 3) {
		for (size_t i = 0; i < json_array_size(list) && n >= 0; i++)
			n = describe(json_array_get(list, i), d, n, depth + 1);
		return n;
	}
	if (n == SRC_PRE_STEPS - 1)
		return -1;
	d->step[n] = step_of(o);
	return d->step[n].what == SRC_PRE_END ? -1 : n + 1;
}

static bool same_steps(const struct src_pre *a, const struct src_pre *b)
{
	for (int i = 0; i < SRC_PRE_STEPS; i++)
		if (a->step[i].what != b->step[i].what ||
		    (a->step[i].regex && strcmp(a->step[i].regex, b->step[i].regex) != 0))
			return false;
	return true;
}

const struct src_pre *src_pre_of(const json_t *tokenizer)
{
	const json_t *norm = json_object_get(tokenizer, "normalizer");
	bool ignore = json_is_true(json_object_get(json_object_get(tokenizer, "model"), "ignore_merges"));
	struct src_pre d = {.nfc = !strcmp(type_of(norm), "NFC")};
	const struct src_pre *found = NULL;

	if (!strcmp(type_of(norm), "Sequence") && json_array_size(json_object_get(norm, "normalizers")) == 0)
		norm = NULL;
	if ((json_is_object(norm) && !d.nfc) ||
	    describe(json_object_get(tokenizer, "pre_tokenizer"), &d, 0, 0) < 0)
		return NULL;
	for (size_t i = 0; i < N; i++) /* two names may differ only in ignore_merges */
		if (d.nfc == table[i].nfc && same_steps(&d, &table[i]) &&
		    (!found || table[i].ignore_merges == ignore))
			found = &table[i];
	return found;
}

static json_t *byte_level(bool regex)
{
	return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets",
			 1, "use_regex", regex);
}

static json_t *step_json(const struct src_pre_step *s)
{
	switch (s->what) {
	case SRC_PRE_SPLIT:
		return json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex", s->regex,
				 "behavior", "Isolated", "invert", 0);
	case SRC_PRE_DIGITS:
	case SRC_PRE_NUMBERS:
		return json_pack("{s:s, s:b}", "type", "Digits", "individual_digits",
				 s->what == SRC_PRE_DIGITS);
	case SRC_PRE_PUNCTUATION:
		return json_pack("{s:s, s:s}", "type", "Punctuation", "behavior", "Contiguous");
	default:
		return byte_level(s->what == SRC_PRE_WORDS);
	}
}

void src_pre_put(const struct src_pre *p, json_t *tokenizer)
{
	json_t *list = json_array();

	for (int i = 0; p->step[i].what != SRC_PRE_END; i++)
		json_array_append_new(list, step_json(&p->step[i]));
	json_object_set_new(tokenizer, "normalizer",
			    p->nfc ? json_pack("{s:s}", "type", "NFC") : json_null());
	json_object_set_new(tokenizer, "pre_tokenizer",
			    json_pack("{s:s, s:o}", "type", "Sequence", "pretokenizers", list));
	json_object_set_new(tokenizer, "decoder", byte_level(true));
}
/* SPDX-License-Identifier: Apache-2.0 */
