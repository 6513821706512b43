/* A server as one process: keys, files, the model, HTTP; until a signal ends it. */
#ifndef DT_SERVE_SERVER_H
#define DT_SERVE_SERVER_H

#include "serve/api/served.h"
#include "serve/http/http.h"

#include <signal.h>

#define DT_SERVER_LINGER 5 /* seconds for which a server that has lost a rank says so */

struct dt_server {
	struct dt_http_params http; /* its keys come from here: */
	const char *key_file;	    /* as dt_tenants_open's; NULL: none */
	const char *const *key;	    /* [nkeys], of tenants without limits */
	int nkeys;
	const char *files_dir;			 /* of files and batches; NULL: there are none */
	uint64_t files_size;			 /* bytes of all of them */
	FILE *out;				 /* the address, a line, once requests are answered */
	const struct dt_classify_params *images; /* a classifier of images is served; NULL: of text */
};

/*
 * Blocks SIGTERM, SIGINT and SIGUSR1, which end a server, in this thread and those that it starts from here
 * on; they come to dt_server_run alone. mpirun passes SIGUSR1 on to the ranks, and ends them where it gets
 * another itself. Ignores SIGPIPE. ret: the set; may be NULL.
 */
void dt_server_block_signals(sigset_t *ret);

/*
 * Listens, loads the model and answers until a signal; then takes no new work and returns when all that runs
 * is done. Failures are written to o->log. -EINTR: a second signal. Threads still run then and use all of p
 * and o: the process must end at once.
 */
int dt_server_run(const struct dt_server *p, const struct dt_served_params *o);
/* On each of several ranks but the first, until that one ends. Likewise. */
int dt_server_follow(const struct dt_served_params *o, const struct dt_classify_params *images);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
