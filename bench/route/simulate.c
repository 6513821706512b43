/*
 * Simulates the router's policies on a trace, in virtual time: the share of prompts found in the servers'
 * caches, time to first token, and balance. The choice is the router's own code (route/balance.h); the
 * servers are models: one prompt at a time at PREFILL tokens/s, answers beside it at one token per TPOT
 * seconds, a cache of CACHE tokens that drops the least recently used.
 *
 *   trace.py FILE | simulate SERVERS PREFILL TPOT CACHE [SPEED]
 *
 * "events" is the policy "cache" with evictions reported by the servers, DELAY seconds later; "oracle" is its
 * rule with the servers' true caches in place of what was sent to them; "seen" is the hit rate of a single
 * unlimited cache: the upper bound. One JSON line per policy.
 */
#include "base/opt.h"
#include "base/order.h"
#include "route/balance.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS	5 /* index after the policies */
#define ORACLE	6
#define DELAY	0.25
#define SERVERS 64

struct ask {
	double at;
	int block, input, output, n;
	uint64_t *hash; /* [n] hash of all tokens up to the end of each block */
};

static struct ask *ask_;
static int nasks;

/* ---- an LRU set of blocks, like the servers' caches ---- */

struct cache {
	struct dt_prefix *seen; /* one server's, number 0 */
	int number;
};

/* ---- events reported by the servers, in order of time ---- */

static struct event {
	double at;
	int server;
	bool stored;
	uint64_t hash;
} * told;
static size_t ntold, next_told, room_told;
static double clock_;

static void tell(int server, bool stored, uint64_t hash)
{
	if (ntold == room_told) {
		room_told = room_told ? 2 * room_told : 1 << 16;
		told = realloc(told, room_told * sizeof(*told));
		if (!told)
			exit(1);
	}
	told[ntold++] = (struct event){clock_ + DELAY, server, stored, hash};
}

static void on_dropped(void *arg, uint64_t hash)
{
	tell(((struct cache *)arg)->number, false, hash);
}

static void hear(struct dt_prefix *index, double now)
{
	for (; next_told < ntold && told[next_told].at <= now; next_told++) {
		const struct event *e = &told[next_told];

		if (e->stored)
			dt_prefix_store(index, e->hash, e->server, e->at);
		else
			dt_prefix_remove(index, e->hash, e->server);
	}
}

static double until[SERVERS]; /* when each server will finish its last prompt */
static struct {
	double at;
	struct dt_balance_choice choice;
} * ends; /* ends of answers: a heap would be faster, but traces are small */
static int nends;

static void finish(struct dt_balance *b, double now)
{
	for (int i = 0; i < nends;) {
		if (ends[i].at <= now) {
			dt_balance_give(b, &ends[i].choice, -1);
			ends[i] = ends[--nends];
		} else {
			i++;
		}
	}
}

static int cached(struct cache *c, const struct ask *a, double now)
{
	int depth[DT_PREFIX_SERVERS];

	return dt_prefix_match(c->seen, a->hash, a->n, now, depth);
}

/* The choice of policy "cache" with perfect knowledge. */
static struct dt_balance_choice oracle(struct dt_balance *b, struct cache *c, const struct ask *a, double now)
{
	struct dt_balance_choice best = {.server = -1};
	double least = INFINITY;

	for (int i = 0; i < b->n; i++) {
		int had = cached(&c[i], a, now);
		double miss = (a->n - had) * (double)a->block, score = miss + b->server[i].work;

		if (score < least || (score == least && b->served[i] < b->served[best.server])) {
			least = score;
			best = (struct dt_balance_choice){
				.server = i, .matched = had, .work = miss + b->answer};
		}
	}
	b->server[best.server].running++;
	b->server[best.server].work += best.work;
	b->served[best.server] += best.work;
	return best;
}

/* Adds n servers, each with an empty cache of `size` tokens. */
static void add_servers(struct dt_balance *b, struct cache *cache, int n, double size,
			struct dt_prefix *events)
{
	b->n = n;
	for (int i = 0; i < n; i++) {
		dt_balance_add(b, i, (uint64_t)i + 1, 1, 0);
		dt_balance_set_bit(b->candidate, i, true);
		cache[i].seen = dt_prefix_new((uint32_t)fmax(size / ask_[0].block, 1), 1e9);
		cache[i].number = i;
		if (events) {
			dt_prefix_watch(cache[i].seen, on_dropped, &cache[i]);
			dt_prefix_exact(events, i, true);
		}
		until[i] = 0;
	}
}

static void simulate(int policy, int n, double prefill, double tpot, double size, double speed)
{
	struct dt_prefix *index = dt_prefix_new(1 << 18, 1e9);
	struct dt_balance b;
	struct cache cache[SERVERS];
	double *ttft = calloc((size_t)nasks, sizeof(*ttft)), work[SERVERS] = {0}, hit = 0, all = 0, most = 0,
	       sum = 0;
	char name[16] = "oracle";

	dt_balance_init(&b,
			policy == ORACLE   ? DT_BALANCE_LEAST
			: policy == EVENTS ? DT_BALANCE_CACHE
					   : (enum dt_balance_policy)policy,
			policy == DT_BALANCE_CACHE || policy == EVENTS ? index : NULL, 7);
	ntold = next_told = 0;
	nends = 0;
	add_servers(&b, cache, n, size, policy == EVENTS ? index : NULL);
	for (int i = 0; i < nasks; i++) {
		const struct ask *a = &ask_[i];
		double now = a->at / speed, miss;
		struct dt_balance_ask q = {.hash = a->hash, .n = a->n, .now = now};
		struct dt_balance_choice c;
		int s, had;

		clock_ = now;
		finish(&b, now);
		if (policy == EVENTS)
			hear(index, now);
		c = policy == ORACLE ? oracle(&b, cache, a, now) : dt_balance_take(&b, &q);
		s = c.server;
		had = cached(&cache[s], a, now);
		dt_prefix_insert(cache[s].seen, a->hash, a->n, 0, now);
		for (int k = 0; policy == EVENTS && k < a->n; k++)
			tell(s, true, a->hash[k]);
		miss = fmax(a->input - (double)had * a->block, 1);
		until[s] = fmax(until[s], now) + miss / prefill;
		ttft[i] = until[s] - now;
		work[s] += miss + a->output;
		hit += (double)had * a->block;
		all += a->input;
		ends[nends].at = until[s] + a->output * tpot;
		ends[nends++].choice = c;
	}
	qsort(ttft, (size_t)nasks, sizeof(*ttft), dt_order_f64);
	for (int i = 0; i < n; i++) {
		most = fmax(most, work[i]);
		sum += work[i] / n;
		dt_prefix_free(cache[i].seen);
	}
	if (policy == EVENTS)
		strcpy(name, "events");
	if (policy < EVENTS)
		dt_opt_choice_name(DT_BALANCE_POLICIES, policy, name, sizeof(name));
	printf("{\"policy\":\"%s\",\"servers\":%d,\"hit_rate\":%.4f,\"ttft_p50_s\":%.4f,\"ttft_p99_s\":%.3f,"
	       "\"max_over_mean_work\":%.3f}\n",
	       name, n, hit / all, ttft[nasks / 2], ttft[nasks * 99 / 100], most / sum);
	dt_prefix_free(index);
	free(ttft);
}

static double seen_before(void)
{
	struct dt_prefix *p = dt_prefix_new(1 << 22, 1e12);
	double hit = 0, all = 0;
	int depth[DT_PREFIX_SERVERS];

	for (int i = 0; i < nasks; i++) {
		hit += (double)dt_prefix_match(p, ask_[i].hash, ask_[i].n, 0, depth) * ask_[i].block;
		dt_prefix_insert(p, ask_[i].hash, ask_[i].n, 0, 0);
		all += ask_[i].input;
	}
	dt_prefix_free(p);
	return hit / all;
}

static int read_trace(void)
{
	char *line = NULL;
	size_t cap = 0;

	while (getline(&line, &cap, stdin) > 0) {
		struct ask *a;
		char *at = line;
		uint64_t h = 1;

		ask_ = realloc(ask_, ((size_t)nasks + 1) * sizeof(*ask_));
		if (!ask_)
			return -1;
		a = &ask_[nasks++];
		*a = (struct ask){.at = strtod(at, &at)};
		a->block = (int)strtol(at, &at, 10);
		a->input = (int)strtol(at, &at, 10);
		a->output = (int)strtol(at, &at, 10);
		a->hash = calloc(strlen(at) / 2 + 1, sizeof(*a->hash));
		while (a->hash && *(at += strspn(at, " \n"))) {
			uint64_t v = strtoull(at, &at, 10);

			h = dt_prefix_hash(h, &v, sizeof(v));
			if (a->n * a->block < a->input)
				a->hash[a->n++] = h;
		}
		a->n = a->n < a->input / a->block ? a->n : a->input / a->block; /* whole blocks */
	}
	free(line);
	ends = calloc((size_t)nasks + 1, sizeof(*ends));
	return nasks > 0 && ends ? 0 : -1;
}

int main(int argc, char **argv)
{
	if (argc < 5 || atoi(argv[1]) < 1 || atoi(argv[1]) > SERVERS) {
		fprintf(stderr, "usage: trace.py FILE | route-simulate SERVERS PREFILL TPOT CACHE [SPEED]\n");
		return 2;
	}
	if (read_trace() < 0) {
		fprintf(stderr, "route-simulate: no trace on standard input\n");
		return 1;
	}
	printf("{\"requests\":%d,\"seen\":%.4f}\n", nasks, seen_before());
	for (int p = 0; p <= ORACLE; p++)
		simulate(p, atoi(argv[1]), atof(argv[2]), atof(argv[3]), atof(argv[4]),
			 argc > 5 ? atof(argv[5]) : 1);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
