/* A whole server process: keys, files, the model, HTTP; runs until a signal. */
#ifndef DT_SERVE_SERVER_H
#define DT_SERVE_SERVER_H

#include "serve/api/served.h"
#include "serve/http/http.h"

#include <signal.h>

#define DT_SERVER_LINGER 5 /* seconds for which a server that lost a rank still answers with that error */

struct dt_server {
	struct dt_http_params http; /* its keys are set from the members below */
	const char *key_file;	    /* as for dt_tenants_open; NULL: none */
	const char *const *key;	    /* [nkeys], each a tenant without limits */
	int nkeys;
	const char *files_dir;			 /* for files and batches; NULL: none */
	uint64_t files_size;			 /* max bytes of them */
	FILE *out;				 /* receives the address, one line, when ready */
	const struct dt_classify_params *images; /* set: serves an image classifier; NULL: serves text */
};

/*
 * Blocks SIGTERM, SIGINT and SIGUSR1, which end a server, in this thread and those that it starts later, so
 * that only dt_server_run receives them. SIGUSR1 is one of them because mpirun forwards it to the ranks,
 * while it kills them when it gets one of the others itself. Ignores SIGPIPE. *ret: the set; ret may be NULL.
 */
void dt_server_block_signals(sigset_t *ret);

/*
 * Listens, loads the model and answers until a signal; then accepts no new work and returns when all running
 * work is done. Failures are logged to o->log. -EINTR: there was a second signal. Threads still run then and
 * use all of p and o: the process must end at once.
 */
int dt_server_run(const struct dt_server *p, const struct dt_served_params *o);
/* The same on ranks other than 0: follows until rank 0 ends. */
int dt_server_follow(const struct dt_served_params *o, const struct dt_classify_params *images);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
