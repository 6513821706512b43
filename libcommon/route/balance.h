/*
 * Which server takes a request. Pure: no sockets, no clock of its own, so that a simulation runs the same
 * code. Load is counted from the choice to the last byte (dt_balance_take, dt_balance_give); ties go to who
 * served least, then by chance.
 *
 *   cache  smallest miss + COST * load: tokens of the prompt that the server has not seen, and work under way
 *   hash   the prompt's beginning names the server (highest random weight) below 1.25 of the mean load
 *   least  fewest requests under way
 *   two    the less loaded of two by chance
 *   round  in turn
 *
 * A session's server is the one its name gives by highest random weight, whatever the policy: when a server
 * goes, only its sessions move.
 */
#ifndef DT_ROUTE_BALANCE_H
#define DT_ROUTE_BALANCE_H

#include "route/prefix.h"

#include <stdbool.h>

#define DT_BALANCE_POLICIES "cache|hash|least|two|round"

#define DT_BALANCE_WORDS (DT_PREFIX_SERVERS / 64) /* of a set of servers */

enum dt_balance_policy {
	DT_BALANCE_CACHE,
	DT_BALANCE_HASH,
	DT_BALANCE_LEAST,
	DT_BALANCE_TWO,
	DT_BALANCE_ROUND,
};

struct dt_balance {
	enum dt_balance_policy policy;
	struct dt_prefix *prefix; /* of DT_BALANCE_CACHE; else NULL */
	struct dt_balance_server {
		uint64_t name; /* hash of its address: the same over restarts and replicas */
		double weight; /* of its share, > 0 */
		int most;      /* requests at once; 0: any number */
		int running;   /* requests */
		double work;   /* tokens of prompts that were not cached, and of answers, under way */
	} server[DT_PREFIX_SERVERS];
	/* A choice looks at all servers: what it reads of each lies close together, sets are a bit each. */
	double load[DT_PREFIX_SERVERS];	      /* work over weight */
	double served[DT_PREFIX_SERVERS];     /* work over all time, over weight */
	uint64_t full[DT_BALANCE_WORDS];      /* as many requests as it may have */
	uint64_t candidate[DT_BALANCE_WORDS]; /* set by the caller before each choice */
	int n;				      /* numbers in use, holes among them not candidates */
	uint64_t random, turn;
	double answer; /* tokens of an answer, a moving mean */
};

struct dt_balance_ask {
	const uint64_t *hash; /* [n] of the prompt's blocks */
	int n;
	uint64_t session; /* hash of its name; 0: none */
	double now;	  /* seconds */
};

struct dt_balance_choice {
	int server;  /* -1: there is no candidate */
	int matched; /* blocks of the prompt it is believed to have */
	double work; /* to be given back */
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

/* The first of the set from number `from` on, or -1. */
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

/* Server i begins with nothing under way. */
void dt_balance_add(struct dt_balance *b, int i, uint64_t name, double weight, int most);
/* It goes on with other numbers. */
void dt_balance_change(struct dt_balance *b, int i, double weight, int most);
/* Chooses and takes. */
struct dt_balance_choice dt_balance_take(struct dt_balance *b, const struct dt_balance_ask *ask);
/* The last byte has come, or the attempt has failed. answer: tokens, < 0: not known. */
void dt_balance_give(struct dt_balance *b, const struct dt_balance_choice *c, double answer);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
