/* Where a text may be cut so that its parts, encoded separately, have the same ids as the whole. */
#include "data/bpe_train.h"
#include "data/tok_priv.h"

#include <string.h>

const char *const dt_tok_pattern[DT_BPE_PATTERNS] = {
	[DT_BPE_GPT2] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
	[DT_BPE_LLAMA3] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
			  "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
	[DT_BPE_QWEN2] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
			 "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
};

/* Whether no token that is matched in a text contains or absorbs a space; special: those count too. */
static bool has_no_spaces(const struct dt_added_list *l, bool special)
{
	for (size_t i = 0; i < l->n; i++)
		if ((special || !l->v[i].special) &&
		    (l->v[i].lstrip || l->v[i].rstrip || memchr(l->v[i].text, ' ', l->v[i].n)))
			return false;
	return true;
}

static bool strips_left(const struct dt_tokenizer *t)
{
	for (int i = 0; i < t->ug.steps; i++)
		if (t->ug.step[i].left)
			return true;
	return false;
}

bool dt_tokenizer_may_cut(const struct dt_tokenizer *t, bool special)
{
	const char *first = t->steps ? t->step[0].pattern : NULL;

	if (t->byte)
		return true;
	if (!has_no_spaces(&t->raw, special) || !has_no_spaces(&t->normalized, special))
		return false;
	if (t->wp.on) /* a word ends at white space */
		return true;
	if (t->ug.on)
		return (t->sp.split || t->ug.spaces) && !strips_left(t);
	if (t->sp.on)
		return t->sp.apart && t->sp.prefix != DT_SP_PREFIX_EACH;
	if (!first)
		return false;
	for (int i = 0; i < DT_BPE_PATTERNS; i++)
		if (!strcmp(first, dt_tok_pattern[i]))
			return true;
	return false;
}

static bool spells_both(const char *s, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (s[i] == ' ' && s[i - 1] != ' ')
			return true;
	return false;
}

void dt_tok_find_apart(struct dt_tokenizer *t)
{
	t->sp.apart = t->sp.on && !t->ug.on && !t->bpe.word_id;
	for (int32_t i = 0; i < t->vocab && t->sp.apart; i++)
		if (!(t->piece[i].flags & DT_PIECE_SPECIAL) &&
		    spells_both(t->blob + t->piece[i].at, t->piece[i].n))
			t->sp.apart = false;
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_cut(const char *s)
{
	return *s == ' ' && is_letter(s[-1]) && is_letter(s[1]);
}

size_t dt_tokenizer_cut(const char *text, size_t n, size_t from)
{
	for (size_t i = from ? from : 1; i + 1 < n; i++)
		if (is_cut(text + i))
			return i;
	return n;
}

size_t dt_tokenizer_last_cut(const char *text, size_t n)
{
	for (size_t i = n > 1 ? n - 2 : 0; i > 0; i--)
		if (is_cut(text + i))
			return i;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
