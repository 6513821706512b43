/*
 * Configuration of a router: one JSON object (dt-route.1, CONFIGURATION), read at start and on SIGHUP. Every
 * key has a default; unknown keys are refused by name.
 */
#ifndef DT_ROUTE_CONF_H
#define DT_ROUTE_CONF_H

#include "base/err.h"
#include "base/keyfile.h"
#include "route/balance.h"

#include <jansson.h>
#include <sys/socket.h>

struct dt_route_conf {
	enum dt_balance_policy policy;
	struct dt_route_server_conf {
		char *url;	/* "http://10.0.0.1:8000" */
		char host[256]; /* value of the Host header, with the port */
		struct sockaddr_storage addr;
		socklen_t addrlen;
		const char *key; /* bearer key for this server; NULL: the client's, if we require none */
		double weight;
		bool drained; /* gets no new requests */
		const char **model;
		int nmodels; /* 0: the server is asked for its models */
		int most;    /* max concurrent requests; 0: no limit */
	} * server;
	int nservers;
	struct dt_route_watched { /* a host name whose addresses may change */
		char host[256], port[8];
		bool each;    /* each address is a server */
		uint64_t sum; /* dt_route_conf_sum */
	} * watched;
	int nwatched, neach;
	double resolve;	       /* seconds between lookups; 0: never */
	struct dt_route_name { /* a model name of clients */
		const char *name;
		struct dt_route_target {
			const char *model;
			double weight;
		} * to;
		int nto;
		const char *shadow; /* model that gets copies of requests; NULL: none */
		double shadow_share;
	} * name;
	int nnames;
	struct dt_keyfile keys; /* no keys: no key is required */
	int retries;		/* max retries of one request */
	double retry_budget;	/* retries as a share of all requests */
	double backoff;		/* seconds before a retry if no other server is left; times 1.5 each */
	double connect_timeout, first_byte_timeout, between_bytes_timeout, request_timeout, idle_timeout;
	double health_interval, health_timeout;
	int fall, rise; /* consecutive probes that mark a server as down, or up again */
	int circuit_failures, circuit_successes;
	double circuit_window, circuit_open;
	int queue; /* max requests that may wait for a server */
	double queue_timeout;
	double hedge; /* seconds until a non-streamed request goes to a second server too; 0: never */
	double head_timeout, body_timeout;	   /* seconds for a client to send the head and the body */
	int scale_least, scale_most, scale_spares; /* see scale.h */
	double scale_requests, scale_band, scale_up_after, scale_down_after, scale_zero_after;
	double scale_hold;	  /* seconds that a request waits for a first server, and that a start may
				   * take */
	char *on_scale;		  /* command that starts and stops servers; NULL: none */
	int connections;	  /* max client connections */
	int64_t max_body, memory; /* bytes of one body, and of all bodies and answers in memory */
	int index_blocks;	  /* blocks of the prefix index */
	double index_age;
	int prefill_least;	/* prompts of at least this many uncached tokens are computed by a prefill
				 * server */
	double events_interval; /* seconds between requests for cache events; 0: none */
	char *books;		/* accounting file; NULL: none */
	json_t *text;		/* owns the strings above */
};

struct dt_route_args {	  /* from the command line; overrides the file */
	const char *file; /* NULL: none */
	int policy;	  /* -1: not given */
	const char *const *url;
	int nurls;
	const char *key_file, *books, *on_scale;
	const char *const *key;
	int nkeys;
};

/* Checks how URLs and keys are spelt, without resolving host names. -EINVAL. */
int dt_route_args_check(const struct dt_route_args *args, struct dt_err *err);
/* Reads the configuration and resolves host names. -EINVAL: the message says what is wrong and where. */
int dt_route_conf_read(struct dt_route_conf *c, const struct dt_route_args *args, struct dt_err *err);
/* Hash of the addresses, independent of their order; 1: there are none. */
struct addrinfo;
uint64_t dt_route_conf_sum(const struct addrinfo *list);
void dt_route_conf_release(struct dt_route_conf *c);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
