/*
 * Load generator for OpenAI-compatible servers: sends a workload's requests when they are due (open loop) or
 * as fast as a number of users get answers (closed loop), and records when the streamed answers arrive.
 *
 * Latencies count from when a request was due, not from when it was sent, so that a server that stalls the
 * client cannot hide it (no coordinated omission). One thread, over libcurl.
 */
#ifndef DT_LOAD_CLIENT_H
#define DT_LOAD_CLIENT_H

#include "base/opt.h"
#include "bench/load/workload.h"

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

enum dt_load_outcome {
	DT_LOAD_UNSENT,
	DT_LOAD_OK,	 /* the stream was complete */
	DT_LOAD_REFUSED, /* an HTTP status other than 200 */
	DT_LOAD_BROKEN,	 /* no connection, an error in the stream, or a truncated stream */
	DT_LOAD_TIMEOUT,
	DT_LOAD_CUT, /* cut by the client on purpose */
};

struct dt_load_result {
	enum dt_load_outcome outcome;
	int status;		      /* HTTP status; 0: none */
	double due, sent, first, end; /* seconds since the start of the run; first < 0: no text arrived */
	int input, output, cached;    /* tokens, as counted by the server */
	bool uncounted;		      /* the server sent no usage: the number of tokens is unknown */
	float *gap;		      /* [ngap] seconds between pieces of text */
	int ngap, cap_gap;
};

enum dt_load_prompt {
	DT_LOAD_TOKENS, /* lists of token ids, exactly as long as requested */
	DT_LOAD_TEXT,	/* words; the server counts the tokens */
	DT_LOAD_CHAT,	/* messages of words */
	DT_LOAD_IMAGES, /* no prompt: images for /v1/classify */
};

struct dt_load_image {
	char *data;
	size_t n;
};

/* Time in which a server is asked again that cannot answer yet, in seconds. */
#define DT_LOAD_AGAIN_S 30.0
/* Whether an answer with this status means: later. 429 and 5xx: busy, or still loading its model. */
static inline bool dt_load_later(long status)
{
	return status == 429 || status >= 500;
}

struct dt_load_target {
	const char *url;	/* "http://127.0.0.1:8000", from dt_load_url */
	const char *model;	/* NULL: the server's first model */
	const char *const *key; /* [nkey] request i uses key i % nkey */
	int nkey;
	enum dt_load_prompt prompt;
	uint64_t seed;
	double temperature;
	double patience; /* seconds that dt_load_probe waits for an answer: at least 1, at most 30 of them */
	/* filled by dt_load_probe, freed by dt_load_target_release */
	char *name;
	int32_t *id; /* [nid] token ids for prompts, with DT_LOAD_TOKENS */
	int nid;
	struct dt_load_image *image; /* [nimage] request i sends image i % nimage, with DT_LOAD_IMAGES */
	int nimage;
};

struct dt_load_run_params {
	int users;	    /* closed loop with this many users; 0: open loop */
	double think;	    /* seconds between an answer and the next turn, or the user's next request */
	double timeout;	    /* seconds per request */
	double storm;	    /* every `storm` seconds ... */
	double storm_share; /* ... this share of the requests in flight is cut; storm 0: never */
	const volatile sig_atomic_t *stop; /* once set, nothing more is sent and requests in flight are cut */
	void (*progress)(void *arg, int done);
	void *arg;
};

struct dt_load_errors { /* first message of each kind */
	struct dt_load_error {
		int status, n;
		char what[200];
	} kind[8];
	int n;
};

/*
 * Normalises a server address: "http://host:port", the same with a trailing / or /v1, or a bare "host:port",
 * to the first form. The caller frees *ret. -EINVAL: none of these.
 */
int dt_load_url(const char *given, char **ret, struct dt_err *err);

/* Reads the files, at most 64 MiB each. -ENOENT and other errors of open; -EINVAL: a file is empty. */
int dt_load_read_images(struct dt_load_target *t, const struct dt_strs *files, struct dt_err *err);

/* Asks the server for its models and, for DT_LOAD_TOKENS, for its tokenization. -ECONNREFUSED and the
 * like. */
int dt_load_probe(struct dt_load_target *t, struct dt_err *err);
void dt_load_target_release(struct dt_load_target *t);

/* ret [load->n] must be zeroed; the caller frees the gaps. *ret_s: duration of the whole run. */
int dt_load_run(const struct dt_load_target *t, const struct dt_load *load,
		const struct dt_load_run_params *p, struct dt_load_result *ret, struct dt_load_errors *errors,
		double *ret_s, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
