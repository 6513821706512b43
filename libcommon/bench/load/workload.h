/*
 * A workload: a list of requests with due time, prompt and answer lengths and shared prefixes, generated from
 * a random process or a trace of a real service, the same for the same seed. Nothing is sent here.
 */
#ifndef DT_LOAD_WORKLOAD_H
#define DT_LOAD_WORKLOAD_H

#include "base/err.h"

#include <stdint.h>

struct dt_load_item {
	double at_s;	      /* due time in seconds; < 0: due when the turn before it has been answered */
	int input, output;    /* tokens */
	int turn;	      /* index in its conversation, from 0; a conversation is consecutive items */
	int prefix;	      /* which shared prefix; -1: none */
	int prefix_len;	      /* its length in tokens */
	double cut_s;	      /* the client hangs up this long after sending; < 0: never */
	const int64_t *block; /* [nblock] names of the prompt's blocks; equal names have equal tokens */
	int nblock, block_len;
};

struct dt_load {
	struct dt_load_item *item;
	int n, cap;
	int64_t *names; /* storage of the items' block arrays */
	int64_t nnames, cap_names;
};

enum dt_arrival {
	DT_ARRIVE_POISSON, /* exponential gaps */
	DT_ARRIVE_CONSTANT,
	DT_ARRIVE_BURST, /* groups of `burst` at once; the groups are Poisson */
};

struct dt_load_shape {
	uint64_t seed;
	int requests;
	enum dt_arrival arrival;
	double rate, ramp; /* requests per second at the start and at the end; rate 0: all due at once */
	int burst;
	int input, output; /* mean tokens */
	double spread;	   /* uniform within +- spread of the mean; 0 to 1 */
	int prefix, prefixes;
	int turns;	 /* requests per conversation; arrivals are those of conversations */
	double cut;	 /* share of requests that the client cuts */
	double cut_span; /* cut within this many seconds of sending, uniformly distributed */
};

/* -EINVAL, -ENOMEM. */
int dt_load_make(struct dt_load *l, const struct dt_load_shape *s, struct dt_err *err);

struct dt_trace_params {
	int most;	      /* maximum number of requests; 0: all */
	double speed;	      /* factor by which times are compressed */
	double scale;	      /* factor for prompt and answer lengths */
	int clip;	      /* longer prompts and answers are truncated to this; 0: no limit */
	double cut, cut_span; /* as above */
	uint64_t seed;
};

/*
 * Reads a trace, plain or gzip: CSV of the Azure LLM inference traces (TIMESTAMP, ContextTokens,
 * GeneratedTokens) or of BurstGPT (Timestamp in seconds, Request tokens, Response tokens), JSON Lines of
 * Mooncake (timestamp in milliseconds, input_length, output_length, hash_ids of blocks of 512 tokens) or with
 * arrival_time_ns, input_toks, output_toks. Requests without an answer in the trace are left out. Sorted by
 * time, the first at 0. -EINVAL with the line's number.
 */
int dt_load_read_trace(struct dt_load *l, const char *path, const struct dt_trace_params *p,
		       struct dt_err *err);

void dt_load_release(struct dt_load *l);

/* For both sources: appends an item (-ENOMEM); chooses which requests are cut. */
int dt_load_add(struct dt_load *l, const struct dt_load_item *it);
void dt_load_choose_cut(struct dt_load *l, uint64_t seed, double share, double span);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
