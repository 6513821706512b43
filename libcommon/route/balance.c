#include "route/balance.h"

#include <float.h>
#include <math.h>

#define BLOCK_TOKENS 64.  /* approximate tokens in DT_PREFIX_BLOCK bytes */
#define COST	     1.	  /* of a token of work in progress, relative to an uncached one */
#define OVER	     1.25 /* times the mean load, above which hashing skips a server */
#define ANSWER	     64.  /* assumed tokens of an answer until some are known */

void dt_balance_init(struct dt_balance *b, enum dt_balance_policy policy, struct dt_prefix *prefix,
		     uint64_t seed)
{
	*b = (struct dt_balance){.policy = policy, .prefix = prefix, .random = seed | 1, .answer = ANSWER};
}

static void note_load(struct dt_balance *b, int i)
{
	const struct dt_balance_server *s = &b->server[i];

	b->load[i] = s->work / s->weight;
	dt_balance_set_bit(b->full, i, s->most > 0 && s->running >= s->most);
}

void dt_balance_add(struct dt_balance *b, int i, uint64_t name, double weight, int most)
{
	b->server[i] = (struct dt_balance_server){.name = name, .weight = weight, .most = most};
	b->served[i] = 0;
	note_load(b, i);
}

void dt_balance_change(struct dt_balance *b, int i, double weight, int most)
{
	b->server[i].weight = weight;
	b->server[i].most = most;
	note_load(b, i);
}

static uint64_t draw(struct dt_balance *b)
{
	b->random ^= b->random << 13;
	b->random ^= b->random >> 7;
	b->random ^= b->random << 17;
	return b->random * 0x2545f4914f6cdd1du;
}

#define EACH(b, i)                                                                                           \
	for (int i = dt_balance_next((b)->candidate, 0); i >= 0; i = dt_balance_next((b)->candidate, i + 1))

/* The best server so far: of equal scores, the one that has served least, then a random one. */
struct best {
	int server, ties;
	double score, served;
};

static void offer(struct dt_balance *b, struct best *best, int i, double score)
{
	const double served = b->served[i];

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

/*
 * Highest random weight: maximises -w / ln(u), u a hash of key and server. Skips servers with `most`
 * requests.
 */
static int by_name(const struct dt_balance *b, uint64_t key, double most)
{
	double best = -1, weight = 0;
	uint64_t highest = 0; /* u of the best server: decides between equal weights */
	int at = -1;

	EACH(b, i)
	{
		const struct dt_balance_server *s = &b->server[i];
		uint64_t u;
		double w;

		if (load_of(s) >= most)
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

/* OVER times the mean load, including the new request. */
static double bound(const struct dt_balance *b)
{
	double weight = 0;
	int running = 1;

	EACH(b, i)
	{
		running += b->server[i].running;
		weight += b->server[i].weight;
	}
	return weight > 0 ? ceil(OVER * running / weight) : 0;
}

static int least(struct dt_balance *b)
{
	struct best best = {.server = -1};

	EACH(b, i)
	offer(b, &best, i, load_of(&b->server[i]));
	return best.server;
}

/* The k-th candidate, or -1. */
static int nth(const struct dt_balance *b, uint64_t k)
{
	EACH(b, i)
	if (k-- == 0)
		return i;
	return -1;
}

static uint64_t candidates(const struct dt_balance *b)
{
	uint64_t n = 0;

	for (int w = 0; w < DT_BALANCE_WORDS; w++)
		n += (uint64_t)__builtin_popcountll(b->candidate[w]);
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

/* The minimum of v [n]; n must be a multiple of 4. */
static double smallest(const double *v, int n)
{
	double m[4] = {v[0], v[1], v[2], v[3]};

	for (int i = 0; i < n; i += 4)
		for (int k = 0; k < 4; k++)
			m[k] = v[i + k] < m[k] ? v[i + k] : m[k];
	return fmin(fmin(m[0], m[1]), fmin(m[2], m[3]));
}

/*
 * Chooses as repeated offers would, but without a branch per server: 256 servers cost 0.6 us more than 2, not
 * 3.
 */
static int by_cache(struct dt_balance *b, const int *depth, int blocks)
{
	const int n = (b->n + 63) / 64 * 64;
	double score[DT_PREFIX_SERVERS], served[DT_PREFIX_SERVERS], least;
	uint64_t ties = 0, which;

	for (int i = 0; i < n; i++)
		score[i] = dt_balance_bit(b->candidate, i)
				   ? (blocks - depth[i]) * BLOCK_TOKENS + COST * b->load[i]
				   : INFINITY;
	least = n > 0 ? smallest(score, n) : INFINITY;
	if (least == INFINITY)
		return -1;
	for (int i = 0; i < n; i++)
		served[i] = score[i] == least ? b->served[i] : INFINITY;
	least = smallest(served, n);
	for (int i = 0; i < n; i++)
		ties += served[i] == least;
	which = ties > 1 ? draw(b) % ties : 0;
	for (int i = 0; i < n; i++)
		if (served[i] == least && which-- == 0)
			return i;
	return -1;
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
	b->served[c.server] += c.work / b->server[c.server].weight;
	note_load(b, c.server);
	if (known)
		dt_prefix_insert(b->prefix, ask->hash, blocks, c.server, ask->now);
	return c;
}

void dt_balance_give(struct dt_balance *b, const struct dt_balance_choice *c, double answer)
{
	struct dt_balance_server *s = &b->server[c->server];

	s->running--;
	s->work = s->running > 0 ? s->work - c->work : 0;
	note_load(b, c->server);
	if (answer >= 0)
		b->answer += (answer - b->answer) / 64;
}
/* SPDX-License-Identifier: Apache-2.0 */
