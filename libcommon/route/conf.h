/*
 * Configuration of a router: one JSON object (dt-route.1, CONFIGURATION), read at the start and on SIGHUP.
 * Everything has a default; unknown keys are refused by name.
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
		char host[256]; /* as it goes into Host, with the port */
		struct sockaddr_storage addr;
		socklen_t addrlen;
		const char *key; /* bearer key it asks for; NULL: the client's, where we ask for none */
		double weight;
		bool drained; /* takes nothing new */
		const char **model;
		int nmodels; /* 0: the server is asked */
		int most;    /* requests under way; 0: no limit. Beside what a choice reads of a server */
	} * server;
	int nservers;
	struct dt_route_watched { /* a name of servers, which may get other addresses */
		char host[256], port[8];
		bool each;    /* each address is a server */
		uint64_t sum; /* dt_route_conf_sum */
	} * watched;
	int nwatched, neach;
	double resolve;	       /* seconds until they are looked up again; 0: never */
	struct dt_route_name { /* what clients call a model */
		const char *name;
		struct dt_route_target {
			const char *model;
			double weight;
		} * to;
		int nto;
		const char *shadow; /* a model that gets copies; NULL: none */
		double shadow_share;
	} * name;
	int nnames;
	struct dt_keyfile keys; /* none: nobody is asked */
	int retries;		/* of one request */
	double retry_budget;	/* of all requests */
	double backoff;		/* seconds before a retry where no other server is left; times 1.5 each */
	double connect_timeout, first_byte_timeout, request_timeout, idle_timeout;
	double health_interval, health_timeout;
	int fall, rise; /* probes in a row that take a server out, and bring it back */
	int circuit_failures, circuit_successes;
	double circuit_window, circuit_open;
	int queue; /* requests that may wait for a server with room */
	double queue_timeout;
	double hedge; /* seconds until a request without a stream goes to a second server; 0: never */
	double head_timeout, body_timeout;	   /* of a client */
	int scale_least, scale_most, scale_spares; /* scale.h */
	double scale_requests, scale_band, scale_up_after, scale_down_after, scale_zero_after;
	double scale_hold;	  /* seconds that a request waits for a first server, and a start may take */
	char *on_scale;		  /* command that starts and stops servers; NULL: none */
	int connections;	  /* of clients */
	int64_t max_body, memory; /* bytes of one body, and of all bodies and answers held */
	int index_blocks;	  /* of the prefix index */
	double index_age;
	int prefill_least;	/* tokens of a prompt from which on another server computes it */
	double events_interval; /* seconds between questions for events; 0: none */
	char *books;		/* file of accounts; NULL: none */
	json_t *text;		/* strings above point into it */
};

struct dt_route_args {	  /* from the command line; they go before what the file says */
	const char *file; /* NULL: none */
	int policy;	  /* -1: not given */
	const char *const *url;
	int nurls;
	const char *key_file, *books, *on_scale;
	const char *const *key;
	int nkeys;
};

/* -EINVAL with what is wrong and where. Names of hosts are resolved. */
int dt_route_conf_read(struct dt_route_conf *c, const struct dt_route_args *args, struct dt_err *err);
/* Of the addresses, whatever their order; 1: there are none. */
struct addrinfo;
uint64_t dt_route_conf_sum(const struct addrinfo *list);
void dt_route_conf_release(struct dt_route_conf *c);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
