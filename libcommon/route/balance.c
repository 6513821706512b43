#include "route/balance.h"

#include <float.h>
#include <math.h>

#define BLOCK_TOKENS 64.  /* of DT_PREFIX_BLOCK bytes, about */
#define COST	     1.	  /* of a token of work under way, beside one that is not cached */
#define OVER	     1.25 /* of the mean load, where a hash goes past a server */
#define ANSWER	     64.  /* tokens of an answer until some are known */

void dt_balance_init(struct dt_balance *b, enum dt_balance_policy policy, struct dt_prefix *prefix,
		     uint64_t seed)
{
	*b = (struct dt_balance){.policy = policy, .prefix = prefix, .random = seed | 1, .answer = ANSWER};
}

static uint64_t draw(struct dt_balance *b)
{
	b->random ^= b->random << 13;
	b->random ^= b->random >> 7;
	b->random ^= b->random << 17;
	return b->random * 0x2545f4914f6cdd1du;
}

/* Of equal scores, the one that served least, then one by chance. */
struct best {
	int server, ties;
	double score, served;
};

static void offer(struct dt_balance *b, struct best *best, int i, double score)
{
	double served = b->server[i].served;

	if (best->server >= 0 && (score > best->score || (score == best->score && served > best->served)))
		return;
	if (best->server >= 0 && score == best->score && served == best->served) {
		if (draw(b) % (uint64_t)++best->ties)
			return;
		best->server = i;
		return;
	}
	*best = (struct best){.server = i, .ties = 1, .score = score, .served = served};
}

static double load_of(const struct dt_balance_server *s)
{
	return s->running / s->weight;
}

/* Highest random weight: -w / ln(u), u of key and server. Servers at `most` requests are passed over. */
static int by_name(const struct dt_balance *b, uint64_t key, double most)
{
	double best = -1, weight = 0;
	uint64_t highest = 0; /* u of the best: of equal weights the order is that of u */
	int at = -1;

	for (int i = 0; i < b->n; i++) {
		const struct dt_balance_server *s = &b->server[i];
		uint64_t u;
		double w;

		if (!s->candidate || load_of(s) >= most)
			continue;
		u = dt_prefix_hash(key, &s->name, sizeof(s->name)) >> 11;
		if (at >= 0 && s->weight == weight && u <= highest)
			continue;
		w = s->weight / -log(((double)u + 0.5) * 0x1p-53);
		if (w > best) {
			best = w;
			at = i;
			weight = s->weight;
			highest = u;
		}
	}
	return at;
}

/* OVER times the mean of load, with the request that is to come. */
static double bound(const struct dt_balance *b)
{
	double weight = 0;
	int running = 1;

	for (int i = 0; i < b->n; i++)
		if (b->server[i].candidate) {
			running += b->server[i].running;
			weight += b->server[i].weight;
		}
	return weight > 0 ? ceil(OVER * running / weight) : 0;
}

static int least(struct dt_balance *b)
{
	struct best best = {.server = -1};

	for (int i = 0; i < b->n; i++)
		if (b->server[i].candidate)
			offer(b, &best, i, load_of(&b->server[i]));
	return best.server;
}

/* The candidate number k, or -1. */
static int nth(const struct dt_balance *b, uint64_t k)
{
	for (int i = 0; i < b->n; i++)
		if (b->server[i].candidate && k-- == 0)
			return i;
	return -1;
}

static uint64_t candidates(const struct dt_balance *b)
{
	uint64_t n = 0;

	for (int i = 0; i < b->n; i++)
		n += b->server[i].candidate;
	return n;
}

static int two(struct dt_balance *b)
{
	uint64_t n = candidates(b), first = n ? draw(b) % n : 0, second = n > 1 ? draw(b) % (n - 1) : 0;
	struct best best = {.server = -1};

	if (n == 0)
		return -1;
	offer(b, &best, nth(b, first), load_of(&b->server[nth(b, first)]));
	if (n > 1) {
		int other = nth(b, second + (second >= first));

		offer(b, &best, other, load_of(&b->server[other]));
	}
	return best.server;
}

static int in_turn(struct dt_balance *b)
{
	uint64_t n = candidates(b);

	return n ? nth(b, b->turn++ % n) : -1;
}

static int by_cache(struct dt_balance *b, const int *depth, int blocks)
{
	struct best best = {.server = -1};

	for (int i = 0; i < b->n; i++) {
		const struct dt_balance_server *s = &b->server[i];

		if (s->candidate)
			offer(b, &best, i, (blocks - depth[i]) * BLOCK_TOKENS + COST * s->work / s->weight);
	}
	return best.server;
}

struct dt_balance_choice dt_balance_take(struct dt_balance *b, const struct dt_balance_ask *ask)
{
	int blocks = ask->n, depth[DT_PREFIX_SERVERS];
	bool known = b->prefix && blocks > 0;
	struct dt_balance_choice c = {.server = -1};

	if (b->prefix)
		dt_prefix_match(b->prefix, ask->hash, blocks, ask->now, depth);
	if (ask->session)
		c.server = by_name(b, ask->session, DBL_MAX);
	else if (b->policy == DT_BALANCE_CACHE && b->prefix)
		c.server = by_cache(b, depth, blocks);
	else if (b->policy == DT_BALANCE_HASH && blocks > 0)
		c.server = by_name(b, ask->hash[blocks < 4 ? blocks - 1 : 3], bound(b));
	else if (b->policy == DT_BALANCE_ROUND)
		c.server = in_turn(b);
	else if (b->policy == DT_BALANCE_TWO)
		c.server = two(b);
	else
		c.server = least(b);
	if (c.server < 0)
		return c;
	c.matched = known ? depth[c.server] : 0;
	c.work = (blocks - c.matched) * BLOCK_TOKENS + b->answer;
	b->server[c.server].running++;
	b->server[c.server].work += c.work;
	b->server[c.server].served += c.work / b->server[c.server].weight;
	if (known)
		dt_prefix_insert(b->prefix, ask->hash, blocks, c.server, ask->now);
	return c;
}

void dt_balance_give(struct dt_balance *b, const struct dt_balance_choice *c, double answer)
{
	struct dt_balance_server *s = &b->server[c->server];

	s->running--;
	s->work = s->running > 0 ? s->work - c->work : 0;
	if (answer >= 0)
		b->answer += (answer - b->answer) / 64;
}
/* SPDX-License-Identifier: Apache-2.0 */
