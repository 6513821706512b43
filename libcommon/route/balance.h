/*
 * Load balancing: chooses the server for a request. Pure functions, no sockets and no clock, so that a
 * simulation runs the same code. Load is counted from the choice to the last byte (dt_balance_take,
 * dt_balance_give). Ties go to the server that has served least, then to a random one.
 *
 *   cache  smallest miss + COST * load: prompt tokens that are not cached there, and work in progress
 *   hash   the prompt's prefix names the server (highest random weight) if its load is below 1.25 of the mean
 *   least  fewest running requests
 *   two    the less loaded of two random servers
 *   round  round robin
 *
 * With any policy, a session goes to the server given by highest random weight of its name: when a server is
 * removed, only its sessions move.
 */
#ifndef DT_ROUTE_BALANCE_H
#define DT_ROUTE_BALANCE_H

#include "route/prefix.h"

#include <stdbool.h>

#define DT_BALANCE_POLICIES "cache|hash|least|two|round"

#define DT_BALANCE_WORDS (DT_PREFIX_SERVERS / 64) /* words of a bit set of servers */

enum dt_balance_policy {
	DT_BALANCE_CACHE,
	DT_BALANCE_HASH,
	DT_BALANCE_LEAST,
	DT_BALANCE_TWO,
	DT_BALANCE_ROUND,
};

struct dt_balance {
	enum dt_balance_policy policy;
	struct dt_prefix *prefix; /* for DT_BALANCE_CACHE; else NULL */
	struct dt_balance_server {
		uint64_t name; /* hash of its address: the same after restarts and in all routers */
		double weight; /* relative share of the load, > 0 */
		int most;      /* max concurrent requests; 0: no limit */
		int running;   /* requests in progress */
		double work;   /* uncached prompt tokens and answer tokens in progress */
	} server[DT_PREFIX_SERVERS];
	/* Structure of arrays, because a choice reads these of all servers; sets have one bit a server. */
	double load[DT_PREFIX_SERVERS];	      /* work divided by weight */
	double served[DT_PREFIX_SERVERS];     /* total work so far, divided by weight */
	uint64_t full[DT_BALANCE_WORDS];      /* servers that have reached their limit of requests */
	uint64_t candidate[DT_BALANCE_WORDS]; /* set by the caller before each choice */
	int n;				      /* numbers in use; unused ones below n are never candidates */
	uint64_t random, turn;
	double answer; /* tokens of an answer, moving average */
};

struct dt_balance_ask {
	const uint64_t *hash; /* [n] prefix hashes of the prompt's blocks */
	int n;
	uint64_t session; /* hash of its name; 0: none */
	double now;	  /* seconds */
};

struct dt_balance_choice {
	int server;  /* -1: there is no candidate */
	int matched; /* blocks of the prompt that are probably cached there */
	double work; /* to be passed to dt_balance_give */
};

void dt_balance_init(struct dt_balance *b, enum dt_balance_policy policy, struct dt_prefix *prefix,
		     uint64_t seed);

static inline bool dt_balance_bit(const uint64_t *set, int i)
{
	return set[i / 64] >> i % 64 & 1;
}

static inline void dt_balance_set_bit(uint64_t *set, int i, bool on)
{
	const uint64_t bit = (uint64_t)1 << i % 64;

	set[i / 64] = on ? set[i / 64] | bit : set[i / 64] & ~bit;
}

/* The first member of the set with number >= from, or -1. */
static inline int dt_balance_next(const uint64_t *set, int from)
{
	uint64_t left = from < DT_PREFIX_SERVERS ? set[from / 64] >> from % 64 : 0;

	if (left)
		return from + __builtin_ctzll(left);
	for (int w = from / 64 + 1; w < DT_BALANCE_WORDS; w++)
		if (set[w])
			return w * 64 + __builtin_ctzll(set[w]);
	return -1;
}

/* Adds server i without load. */
void dt_balance_add(struct dt_balance *b, int i, uint64_t name, double weight, int most);
/* Changes weight and limit of server i. */
void dt_balance_change(struct dt_balance *b, int i, double weight, int most);
/* Chooses a server and adds the request to its load. */
struct dt_balance_choice dt_balance_take(struct dt_balance *b, const struct dt_balance_ask *ask);
/*
 * Removes the request from the load: its last byte has arrived or the attempt failed. answer: tokens, < 0:
 * unknown.
 */
void dt_balance_give(struct dt_balance *b, const struct dt_balance_choice *c, double answer);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
