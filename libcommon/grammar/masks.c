/*
 * Masks of the tokens that may come next, which states remember. Many states differ little: in a string of
 * at most 200 characters there is one for each number of characters left, and they allow the same tokens but
 * for the longest. So a mask begins with that of a state that agrees for some bytes, and only tokens of more
 * bytes are read. Inside JSON strings, which tokens may come is known for the vocabulary (strings.c).
 */
#include "grammar/matcher_priv.h"

#include <stdlib.h>
#include <string.h>

#define MAX_PAIRS    1024      /* of states that are compared */
#define ENOUGH	     15	       /* bytes of agreement with which no other is looked for */
#define COMPARE_WORK (1 << 18) /* max expansions while states are compared */
#define MANY	     4096      /* visited tokens of a mask with which others may begin */

/*
 * Sets the bits of the level's tokens that may come after state `from`; returns the number of tokens visited.
 * It visits them in the order of their bytes. Of each only those bytes are read that it does not share with
 * the one before, and where a byte is not allowed, all tokens that share it are skipped: they are not looked
 * at, so that the mask of a state that allows few tokens takes about as long as these.
 */
static int fill(struct dt_parser *p, int32_t from, const struct dt_vocab_level *l, uint32_t *bits)
{
	int visited = 0;
	int good = 0; /* bytes of the last visited token that fit: depth[0 .. good] is valid */

	p->depth[0] = from;
	for (int i = 0; i < l->n && !p->failed;) {
		const struct dt_vocab_own *t = &l->own[i];
		const uint8_t *rest = l->rest + t->at;
		const int n = t[1].at - t->at;
		int k = 0;

		if (t->shared > good) {
			i = t->over;
			continue;
		}
		i++;
		if (dt_states_many(p))
			dt_states_forget(p, p->depth, t->shared + 1);
		visited++;
		good = t->shared;
		for (; k < n; k++, good++) {
			const int32_t next = dt_state_next(p, p->depth[good], rest[k]);

			if (next < 0)
				break;
			p->depth[good + 1] = next;
		}
		if (k == n)
			bits[t->id / 32] |= 1u << t->id % 32;
	}
	return visited;
}

struct pairs {
	int n;
	int32_t a[MAX_PAIRS], b[MAX_PAIRS];
	int16_t at[2 * MAX_PAIRS]; /* hash table (open addressing) of indices + 1; 0: free */
};

static bool pair_add(struct pairs *q, int32_t a, int32_t b)
{
	const uint64_t h = ((uint64_t)(uint32_t)a << 32 | (uint32_t)b) * 0x9e3779b97f4a7c15u;
	uint32_t at = (uint32_t)(h >> 40) % (2 * MAX_PAIRS);

	for (; q->at[at]; at = (at + 1) % (2 * MAX_PAIRS))
		if (q->a[q->at[at] - 1] == a && q->b[q->at[at] - 1] == b)
			return true;
	if (q->n == MAX_PAIRS)
		return false;
	q->a[q->n] = a;
	q->b[q->n++] = b;
	q->at[at] = (int16_t)q->n;
	return true;
}

/*
 * A number of bytes up to which states a and b allow the same texts, at most `most`: all pairs of states are
 * found that the same bytes lead to.
 */
static int agreement(struct dt_parser *p, int32_t a, int32_t b, int most)
{
	struct pairs q;

	q.n = 0;
	memset(q.at, 0, sizeof(q.at));
	pair_add(&q, a, b);
	for (int bytes = 0, at = 0; bytes < most; bytes++) {
		const int end = q.n;

		if (at == end) /* no new pairs */
			return most;
		for (; at < end; at++)
			for (int c = 0; c < p->nclass; c++) {
				const int32_t x = dt_state_next(p, q.a[at], p->byte_of[c]);
				const int32_t y = dt_state_next(p, q.b[at], p->byte_of[c]);

				if (p->failed || (x < 0) != (y < 0) || (x != y && !pair_add(&q, x, y)))
					return bytes;
			}
	}
	return most;
}

/*
 * Begins m's mask by one of those used last; returns the level of the tokens that are still to be read.
 * States are compared where perhaps no token leads: it is no error if that fails or takes too long.
 */
static const struct dt_vocab_level *begin(struct dt_parser *p, const struct dt_matcher *m, uint32_t *bits)
{
	const struct dt_vocab_level *level = p->order->level;
	const int64_t work = p->work;
	/* none where tokens may be named: bytes do not tell which of them come next */
	const int late = p->g->tokens ? 0 : DT_LATE;
	int best = 0, same = 0;

	p->work = COMPARE_WORK;
	for (int i = 0; i < late && same < ENOUGH; i++) {
		const struct dt_mask *k = &p->mask[p->late[i]];
		int n = k->state < 0 ? 0 : agreement(p, k->state, m->now, level[DT_VOCAB_LEVELS - 1].least);

		if (n > same) {
			same = n;
			best = p->late[i];
		}
		p->failed = false;
	}
	p->work = work;
	for (level += DT_VOCAB_LEVELS - 1; level->least > same + 1; level--)
		continue;
	for (size_t i = 0; i < p->mask_words; i++)
		bits[i] = same > 0 ? p->mask[best].bits[i] & level->shorter[i] : 0;
	if (same > 0)
		p->mask[best].used = ++p->clock;
	return level;
}

void dt_masks_forget(struct dt_parser *p)
{
	for (int i = 0; i < DT_MASKS; i++)
		p->mask[i].state = -1;
}

int dt_masks_used_last(const struct dt_parser *p, int *ret)
{
	int n = 0;

	for (int i = 0; i < DT_MASKS; i++) {
		int at = n < DT_MASKS_KEPT ? n : DT_MASKS_KEPT - 1;

		if (p->mask[i].state < 0 ||
		    (n == DT_MASKS_KEPT && p->mask[i].used <= p->mask[ret[n - 1]].used))
			continue;
		for (; at > 0 && p->mask[ret[at - 1]].used < p->mask[i].used; at--)
			ret[at] = ret[at - 1];
		ret[at] = i;
		n += n < DT_MASKS_KEPT;
	}
	return n;
}

void dt_masks_close(struct dt_parser *p)
{
	for (int i = 0; i < DT_MASKS; i++)
		free(p->mask[i].bits);
	free(p->depth);
}

/* Drops the masks of another vocabulary. */
static bool set_order(struct dt_parser *p, const struct dt_vocab_order *o)
{
	if (p->order == o && p->serial == o->serial)
		return true;
	for (int i = 0; i < p->nknown; i++)
		p->known[i].mask = -1;
	dt_masks_close(p);
	memset(p->mask, 0, sizeof(p->mask));
	dt_masks_forget(p);
	p->depth = malloc(((size_t)o->longest + 1) * sizeof(*p->depth));
	p->order = p->depth ? o : NULL;
	p->serial = o->serial;
	p->mask_words = ((size_t)o->vocab + 31) / 32;
	return p->depth;
}

/* The mask that was not used for the longest time. */
static struct dt_mask *oldest(struct dt_parser *p)
{
	struct dt_mask *old = &p->mask[0];

	for (int i = 0; i < DT_MASKS && old->bits; i++)
		if (!p->mask[i].bits || p->mask[i].used < old->used)
			old = &p->mask[i];
	if (old->state >= 0)
		p->known[old->state].mask = -1;
	old->state = -1;
	return old;
}

const uint32_t *dt_mask_known(struct dt_parser *p, const struct dt_matcher *m, const struct dt_vocab_order *o)
{
	struct dt_mask *k;

	if (p->order != o || p->serial != o->serial || p->known[m->now].mask < 0)
		return NULL;
	k = &p->mask[p->known[m->now].mask];
	k->used = ++p->clock;
	return k->bits;
}

/* Adds the tokens that the state's token elements match. */
static void add_tokens(const struct dt_parser *p, const struct dt_matcher *m, uint32_t *bits)
{
	const struct dt_known_state *k = &p->known[m->now];
	const struct dt_grammar *g = p->g;

	for (int i = 0; i < k->n && g->tokens; i++) {
		const int32_t top = p->tops[k->first + i];
		const struct dt_elem e = top < 0 ? (struct dt_elem){0} : g->elem[p->node[top].pos];
		const bool all = e.index & 1;
		const int32_t id = e.index / 2;

		if (e.type != DT_ELEM_TOKEN)
			continue;
		for (int32_t t = all ? 0 : id; t < (all ? p->order->vocab : id + 1); t++)
			if (t < p->order->vocab && dt_gr_is_token(g, e, t))
				bits[t / 32] |= 1u << t % 32;
	}
}

/* Sets m's mask k by reading tokens. */
static void read_tokens(struct dt_parser *p, const struct dt_matcher *m, const struct dt_mask *k)
{
	const struct dt_vocab_level *level = begin(p, m, k->bits);
	const int visited = fill(p, m->now, level, k->bits);

	add_tokens(p, m, k->bits);
	if (level == p->order->level && visited > MANY)
		p->late[p->nlate++ % DT_LATE] = (int)(k - p->mask);
}

const uint32_t *dt_mask_of(struct dt_parser *p, struct dt_matcher *m, const struct dt_vocab_order *o)
{
	struct dt_in_string s;
	struct dt_mask *k;
	int32_t after;

	if (!set_order(p, o))
		return NULL;
	if (p->known[m->now].mask >= 0)
		return dt_mask_known(p, m, o);
	k = oldest(p);
	if (!k->bits)
		k->bits = malloc(p->mask_words * sizeof(*k->bits));
	if (!k->bits)
		return NULL;
	if (dt_state_in_string(p, m->now, &s) && (after = dt_state_number(p, &s.after)) >= 0) {
		memset(k->bits, 0, p->mask_words * sizeof(*k->bits));
		fill(p, after, &o->string->rest, k->bits);
		dt_string_mask(o->string, p->mask_words, &s, k->bits);
	} else {
		read_tokens(p, m, k);
	}
	k->used = ++p->clock;
	if (p->failed)
		return NULL;
	k->state = m->now;
	p->known[m->now].mask = (int)(k - p->mask);
	return k->bits;
}
/* SPDX-License-Identifier: Apache-2.0 */
