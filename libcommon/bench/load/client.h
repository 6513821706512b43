/*
 * A client of an OpenAI-compatible server under load: sends a workload's requests when they are due (open
 * loop) or as fast as so many users get answers (closed loop), streams the answers and notes the moments.
 *
 * Moments are counted from when a request was due, not from when it was sent, so that a server that holds up
 * the client cannot hide it (no coordinated omission). One thread, over libcurl.
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
	DT_LOAD_OK,	 /* the whole stream came, to its end */
	DT_LOAD_REFUSED, /* an HTTP status that is not 200 */
	DT_LOAD_BROKEN,	 /* no connection, an error in the stream, or an end too early */
	DT_LOAD_TIMEOUT,
	DT_LOAD_CUT, /* by this side, as wanted */
};

struct dt_load_result {
	enum dt_load_outcome outcome;
	int status;		      /* HTTP, 0: none */
	double due, sent, first, end; /* seconds from the start of the run; first < 0: no text came */
	int input, output, cached;    /* tokens, as the server counts them */
	float *gap;		      /* [ngap] seconds between pieces of text */
	int ngap, cap_gap;
};

enum dt_load_prompt {
	DT_LOAD_TOKENS, /* lists of ids, exactly as long as wanted */
	DT_LOAD_TEXT,	/* words; the server counts the tokens */
	DT_LOAD_CHAT,	/* messages of words */
	DT_LOAD_IMAGES, /* no prompt: an image to be classified, to /v1/classify */
};

struct dt_load_image {
	char *data;
	size_t n;
};

struct dt_load_target {
	const char *url;	/* "http://127.0.0.1:8000", from dt_load_url */
	const char *model;	/* NULL: the server's first */
	const char *const *key; /* [nkey] request i carries key i % nkey */
	int nkey;
	enum dt_load_prompt prompt;
	uint64_t seed;
	double temperature;
	/* filled by dt_load_probe, freed by dt_load_target_release */
	char *name;
	int32_t *id; /* [nid] what prompts are made of, with DT_LOAD_TOKENS */
	int nid;
	struct dt_load_image *image; /* [nimage] request i is image i % nimage, with DT_LOAD_IMAGES */
	int nimage;
};

struct dt_load_run_params {
	int users;	    /* closed loop of so many; 0: open loop */
	double think;	    /* seconds between an answer and the next turn, or the user's next request */
	double timeout;	    /* of one request */
	double storm;	    /* every so many seconds ... */
	double storm_share; /* ... this share of what is under way is cut; storm 0: never */
	const volatile sig_atomic_t *stop; /* set: nothing more is sent, what is under way is cut */
	void (*progress)(void *arg, int done);
	void *arg;
};

struct dt_load_errors { /* the first of each kind */
	struct dt_load_error {
		int status, n;
		char what[200];
	} kind[8];
	int n;
};

/*
 * The address of a server as people write it, "http://host:port", the same with / or /v1 behind it, or a bare
 * "host:port", as the first of these. *ret is the caller's to free. -EINVAL: it is none of them.
 */
int dt_load_url(const char *given, char **ret, struct dt_err *err);

/* Reads the files, of 64 MiB at most. -ENOENT ..., -EINVAL: one is empty. */
int dt_load_read_images(struct dt_load_target *t, const struct dt_strs *files, struct dt_err *err);

/* Asks the server what it serves and, for DT_LOAD_TOKENS, how it splits words. -ECONNREFUSED ... */
int dt_load_probe(struct dt_load_target *t, struct dt_err *err);
void dt_load_target_release(struct dt_load_target *t);

/* ret [load->n], zeroed by the caller, who frees the gaps; *ret_s: how long the whole run took. */
int dt_load_run(const struct dt_load_target *t, const struct dt_load *load,
		const struct dt_load_run_params *p, struct dt_load_result *ret, struct dt_load_errors *errors,
		double *ret_s, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
