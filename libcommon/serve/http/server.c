#include "serve/http/server.h"

#include "base/log.h"
#include "serve/http/tenants.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct server {
	const struct dt_server *p;
	const struct dt_log *log;
	struct dt_http *http;
	struct dt_tenants tenants;
	struct dt_served served;
	struct dt_classify *images;	/* set: served in place of a text model; NULL: none */
	struct dt_kvpeers_params peers; /* with the tenants' API keys */
	struct dt_store *store;		/* NULL: none */
	struct dt_batches *batches;	/* likewise */
};

void dt_server_block_signals(sigset_t *ret)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	if (ret)
		*ret = set;
}

static enum dt_engine_state state_of(const struct server *s)
{
	return s->images ? dt_classify_state(s->images) : dt_engine_state(s->served.engine);
}

/* Waits for a signal and returns it; 0: a rank was lost. */
static int wait_for_signal(const struct server *s, const struct dt_served_params *o, const sigset_t *set)
{
	const struct timespec tick = {.tv_nsec = 50000000};
	int sig = -1;

	if (!o->world)
		return sigwait(set, &sig) == 0 ? sig : 0;
	while (sig < 0 && state_of(s) != DT_ENGINE_FAILED)
		sig = sigtimedwait(set, NULL, &tick);
	return sig < 0 ? 0 : sig;
}

/* For a while /health reports which rank was lost; a signal ends that. */
static void linger(const sigset_t *set)
{
	(void)sigtimedwait(set, NULL, &(struct timespec){.tv_sec = DT_SERVER_LINGER - 1});
}

/*
 * Runs until a signal; then accepts no new work and returns when running work is done. -EIO: the engine has
 * failed.
 */
static int serve_until_signal(struct server *s, const struct dt_served_params *o, const sigset_t *set)
{
	const struct timespec tick = {.tv_nsec = 50000000};
	struct dt_engine *e = s->served.engine;
	int sig = wait_for_signal(s, o, set);

	dt_batches_stop(s->batches);
	if (sig) {
		if (s->images)
			dt_classify_drain(s->images);
		else
			dt_engine_drain(e);
		dt_log_msg(s->log, "%s: accepting no new requests; waiting for %d to finish", strsignal(sig),
			   dt_http_active(s->http));
	} else {
		linger(set);
	}
	while (dt_http_active(s->http) > 0 || (e && dt_engine_wait_idle(e, 0) > 0)) {
		if (sigtimedwait(set, NULL, &tick) > 0) {
			dt_log_msg(s->log, "second signal: exiting with unfinished requests");
			return -EINTR;
		}
	}
	return state_of(s) == DT_ENGINE_FAILED ? -EIO : 0;
}

static bool is_loopback(const char *url)
{
	url = strstr(url, "://") + 3;
	return !strncmp(url, "127.", 4) || !strncmp(url, "[::1]", 5);
}

/* Starts answering the batches of the store. */
static int go_on(struct server *s, struct dt_err *err)
{
	const struct dt_batches_params bp = {.engine = s->served.engine,
					     .model_name = s->p->http.model_name,
					     .chat = s->served.has_chat ? &s->served.chat : NULL,
					     .defaults = s->p->http.defaults,
					     .request_timeout = s->p->http.request_timeout,
					     .log = s->log};
	int rc = dt_batches_open(&s->batches, s->store, &bp, err);

	if (rc >= 0)
		dt_http_keep(s->http, s->store, s->batches);
	return rc;
}

/* Collects each tenant's first key, for requests to prefill servers. */
static int share_keys(struct server *s, struct dt_served_params *sp, struct dt_err *err)
{
	const struct dt_tenants *t = &s->tenants;
	const int n = t->file.ntenants;
	const char **key = calloc((size_t)n + 1, sizeof(*key));

	if (!key)
		return dt_err_sys(err, -ENOMEM, "cannot read keys");
	for (int i = t->file.nkeys - 1; i >= 0; i--)
		key[t->key[i].tenant] = t->key[i].key;
	s->peers = *sp->peers;
	s->peers.key = key;
	s->peers.nkeys = n;
	sp->peers = &s->peers;
	return 0;
}

/* Opens what only rank 0 has. It listens first, so that /health answers while the model is loaded. */
static int listen_first(struct server *s, struct dt_served_params *sp, struct dt_err *err)
{
	const struct dt_server *p = s->p;
	struct dt_http_params hp = p->http;
	int rc = 0;

	if (p->key_file || p->nkeys > 0)
		rc = dt_tenants_open(&s->tenants, p->key_file, p->key, p->nkeys, err);
	if (rc >= 0 && sp->peers)
		rc = share_keys(s, sp, err);
	hp.keys = s->tenants.key;
	hp.nkeys = s->tenants.file.nkeys;
	sp->tenant = s->tenants.tenant;
	sp->ntenants = s->tenants.file.ntenants;
	if (rc >= 0 && p->files_dir)
		rc = dt_store_open(&s->store, p->files_dir, p->files_size, err);
	return rc < 0 ? rc : dt_http_open(&s->http, &hp, err);
}

static int start(struct server *s, const struct dt_served_params *o, struct dt_err *err)
{
	struct dt_served_params sp = *o;
	int rc = listen_first(s, &sp, err);

	if (rc < 0 && o->world) { /* the other ranks wait for this one to open its part */
		dt_log_err(s->log, err);
		dt_world_abort(o->world, DT_EXIT_FAILED);
	}
	if (rc >= 0 && s->p->images)
		return dt_classify_load(&s->images, s->p->images, s->log, err);
	if (rc >= 0)
		rc = dt_served_open(&s->served, &sp, err);
	if (rc >= 0) {
		const struct dt_api_model m = {.engine = dt_engine_params(s->served.engine),
					       .name = s->p->http.model_name,
					       .defaults = s->p->http.defaults};

		dt_served_log(&s->served, &sp);
		rc = dt_api_try_defaults(&m, err);
	}
	if (rc >= 0 && s->store)
		rc = go_on(s, err);
	return rc;
}

/* Starts answering requests, and prints the address. */
static int open_doors(struct server *s, struct dt_err *err)
{
	const char *url = dt_http_url(s->http);

	if (s->images)
		dt_http_serve_images(s->http, s->images);
	else
		dt_http_serve(s->http, s->served.engine, s->served.has_chat ? &s->served.chat : NULL);
	if (s->tenants.file.nkeys == 0 && !is_loopback(url))
		dt_log_msg(s->log, "anyone who can reach %s may use it: consider --api-key-file", url);
	if (dt_http_connections(s->http) < s->p->http.max_connections)
		dt_log_msg(s->log,
			   "at most %d connections, not %d: the limit of open files is too low (ulimit -Hn)",
			   dt_http_connections(s->http), s->p->http.max_connections);
	dt_log_msg(s->log, "serving '%s' on %s", s->p->http.model_name, url);
	fprintf(s->p->out, "%s\n", url);
	return fflush(s->p->out) == EOF ? dt_err_sys(err, -errno, "cannot write to standard output") : 0;
}

int dt_server_run(const struct dt_server *p, const struct dt_served_params *o)
{
	struct server s = {.p = p, .log = o->log};
	struct dt_err err;
	sigset_t set;
	int rc;

	dt_server_block_signals(&set);
	rc = start(&s, o, &err);
	if (rc >= 0)
		rc = open_doors(&s, &err);
	if (rc < 0)
		dt_log_err(s.log, &err);
	else if ((rc = serve_until_signal(&s, o, &set)) == -EINTR)
		return rc;
	dt_http_close(s.http);
	dt_batches_close(s.batches);
	dt_store_close(s.store);
	dt_classify_close(s.images);
	if (dt_served_end(&s.served, o) < 0)
		rc = -EIO;
	free((void *)s.peers.key);
	dt_tenants_release(&s.tenants);
	return rc;
}

int dt_server_follow(const struct dt_served_params *o, const struct dt_classify_params *images)
{
	struct dt_served s = {0};
	struct dt_classify *c = NULL;
	struct dt_err err = {0};
	int rc;

	dt_server_block_signals(NULL);
	rc = images ? dt_classify_open(&c, images, &err) : dt_served_open(&s, o, &err);
	if (rc == 0 && (rc = c ? dt_classify_follow(c, &err) : dt_served_follow(&s, &err)) < 0) {
		dt_log_err(o->log, &err);
		dt_world_abort(o->world, DT_EXIT_FAILED);
	}
	if (rc < 0 && err.msg[0])
		dt_log_err(o->log, &err);
	dt_classify_close(c);
	dt_served_close(&s);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
