#include "data/tok_priv.h"

#include <string.h>

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

/* Pieces do not show which tokens continue a word: their texts at the start of a text do. */
static void mix_wordpiece(uint64_t *h, const struct dt_tokenizer *t)
{
	const struct dt_wp *w = &t->wp;

	mix(h, w->prefix, strlen(w->prefix));
	mix_int(h, w->unk);
	mix_int(h, w->max_chars);
	mix_int(h, w->clean | w->chinese << 1 | w->strip_accents << 2 | w->lower << 3);
	mix_int(h, t->end);
	for (int32_t i = 0; i < t->vocab; i++)
		mix(h, t->blob + w->first[i].at, w->first[i].n);
}

static void mix_unigram(uint64_t *h, const struct dt_tokenizer *t)
{
	const struct dt_ug *u = &t->ug;

	mix_int(h, u->bytes | u->spaces << 1);
	mix_int(h, u->unk);
	mix(h, u->score, (size_t)u->tokens * sizeof(*u->score));
	mix(h, u->units ? (const void *)u->units : "", u->units_n * sizeof(*u->units));
	mix(h, u->texts ? u->texts : "", u->texts_n);
	for (int i = 0; i < u->steps; i++) {
		mix_int(h, (int)u->step[i].what << 2 | u->step[i].left << 1 | u->step[i].right);
		mix(h, u->step[i].to ? u->step[i].to : "", u->step[i].to ? strlen(u->step[i].to) : 0);
	}
	mix_int(h, t->end);
}

void dt_tok_set_hash(struct dt_tokenizer *t)
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
	if (t->wp.on)
		mix_wordpiece(&h, t);
	if (t->ug.on)
		mix_unigram(&h, t);
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
/* SPDX-License-Identifier: Apache-2.0 */
