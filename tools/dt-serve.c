/* dt-serve: serves a checkpoint over OpenAI-compatible HTTP, or prompts in and completions out on a pipe. */
#include "base/launch.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/tmpfile.h"
#include "serve/api/batch.h"
#include "serve/http/server.h"
#include "tools/serve_options.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_BODY       (8 << 20) /* bytes */
#define READ_TIMEOUT   60	 /* seconds to send a request, or between two */
#define ANSWER_TIMEOUT 30	 /* seconds without reading after which a client is cut off */

static int run_batch(const struct serve_options *o, const struct dt_log *log)
{
	const struct dt_served_params *sp = &o->serve;
	const int64_t seqs = sp->seqs * (sp->layout.dp > 1 ? sp->layout.dp : 1);
	struct dt_batch_params p = {.fd = STDIN_FILENO,
				    .out = stdout,
				    .window = (int)(seqs + (sp->queue < seqs ? sp->queue : seqs)),
				    .unordered = o->unordered,
				    .skip_done = o->skip_done,
				    .model_name = o->name ? o->name : o->serve.ckpt,
				    .defaults = o->defaults,
				    .request_timeout = o->given_timeout ? o->timeout : 0,
				    .log = log};
	struct dt_served s = {0};
	struct dt_err err;
	int64_t failed = dt_served_open(&s, sp, &err);
	int status = DT_EXIT_OK;

	if (failed == 0) {
		dt_served_log(&s, sp);
		p.chat = s.has_chat ? &s.chat : NULL;
		failed = dt_batch_run(s.engine, &p, &err);
	}
	if (failed == -EPIPE) {
		status = DT_EXIT_FAILED; /* the reader has closed the pipe: no message */
	} else if (failed < 0) {
		dt_log_err(log, &err);
		status = DT_EXIT_FAILED;
	} else if (failed > 0) {
		dt_log_msg(log, "%lld line%s failed", (long long)failed, failed == 1 ? "" : "s");
		status = DT_EXIT_FAILED;
	}
	return dt_served_end(&s, sp) == 0 ? status : DT_EXIT_FAILED;
}

static int run_images(const struct serve_options *o, const struct dt_log *log)
{
	const struct dt_classify_batch p = {
		.in = stdin, .out = stdout, .window = o->serve.queue ? (int)o->serve.queue : 1, .log = log};
	struct dt_classify *c = NULL;
	struct dt_err err = {0};
	int64_t failed = dt_classify_load(&c, &o->images, log, &err);
	const double t0 = dt_now();

	if (failed == 0 && (failed = dt_classify_batch_run(c, &p, &err)) >= 0)
		dt_classify_tell(c, dt_now() - t0, log);
	if (failed < 0 && failed != -EPIPE)
		dt_log_err(log, &err);
	if (failed > 0)
		dt_log_msg(log, "%lld line%s failed", (long long)failed, failed == 1 ? "" : "s");
	dt_classify_close(c);
	return failed ? DT_EXIT_FAILED : DT_EXIT_OK;
}

static int run_http(const struct serve_options *o)
{
	const struct dt_server p = {.http = {.host = o->host,
					     .port = (int)o->port,
					     .tls_cert = o->tls_cert,
					     .tls_key = o->tls_key,
					     .model_name = o->name ? o->name : o->serve.ckpt,
					     .max_body = MAX_BODY,
					     .role = o->given_role ? DT_ROLE_BOTH + o->role : DT_ROLE_NONE,
					     .max_memory = o->http_mem,
					     .allow_origin = o->allow_origin,
					     .defaults = o->defaults,
					     .answer_timeout = ANSWER_TIMEOUT,
					     .max_connections = (int)(o->serve.seqs + o->serve.queue) + 256,
					     .read_timeout = READ_TIMEOUT,
					     .request_timeout = o->timeout},
				    .key_file = o->key_file,
				    .key = o->api_keys.v,
				    .nkeys = o->api_keys.n,
				    .files_dir = o->files_dir,
				    .files_size = o->files_size,
				    .out = stdout,
				    .images = o->classifies ? &o->images : NULL};
	int rc = dt_server_run(&p, &o->serve);

	if (rc == -EINTR)
		_exit(DT_EXIT_FAILED);
	return rc < 0 ? DT_EXIT_FAILED : DT_EXIT_OK;
}

/* Serves as a single process, or as one of the ranks that a launcher started. */
static int serve(struct serve_options *o, struct dt_log *log)
{
	const struct dt_world_opts wo = {.timeout_s = o->comm_timeout, .linger_s = DT_SERVER_LINGER};
	struct dt_world_info info;
	struct dt_world *world;
	struct dt_err err;
	int status;

	if (!o->batch)
		dt_server_block_signals(NULL); /* before MPI starts threads, so that they inherit the mask */
	if (dt_world_open(&world, &wo, log, &err) < 0) {
		dt_log_err(log, &err);
		return DT_EXIT_FAILED;
	}
	dt_world_info(world, &info);
	o->serve.log = o->peers.log = log;
	if (info.size > 1 || (o->layout && dt_layout_world(&o->serve.layout) > 1)) {
		log->rank = info.size > 1 ? info.rank : -1;
		o->serve.world = world;
		o->serve.beat_s = o->comm_timeout < 4 ? o->comm_timeout / 4 : 1;
	}
	o->images.world = o->serve.world;
	o->images.beat_s = o->serve.beat_s;
	if (info.rank > 0)
		status = dt_server_follow(&o->serve, o->classifies ? &o->images : NULL) < 0 ? DT_EXIT_FAILED
											    : DT_EXIT_OK;
	else if (o->batch)
		status = o->classifies ? run_images(o, log) : run_batch(o, log);
	else
		status = run_http(o);
	if (dt_world_broken(world)) /* the failure has been reported already */
		dt_world_abort(world, status ? status : DT_EXIT_FAILED);
	dt_world_finalize(world);
	return status;
}

/* Replays a trace of scheduling decisions; the answer is "no" if they differ. */
static int run_replay(const char *path, const struct dt_log *log)
{
	struct dt_replay r;
	struct dt_err err;
	json_t *v;
	int rc = dt_schedtrace_replay(path, &r, &err);

	if (rc == 0) {
		v = json_pack("{s:i,s:I,s:I,s:I,s:I,s:I,s:I}", "schema", 1, "requests",
			      (json_int_t)r.requests, "steps", (json_int_t)r.steps, "tokens",
			      (json_int_t)r.tokens, "preemptions", (json_int_t)r.preemptions, "cached_tokens",
			      (json_int_t)r.prefix_hits, "different_steps", (json_int_t)r.different);
		rc = dt_json_write_line(stdout, v, &err);
		json_decref(v);
	}
	if (rc < 0) {
		dt_log_err(log, &err);
		return DT_EXIT_FAILED;
	}
	if (r.different > 0)
		dt_log_msg(log, "step %lld is the first that is planned differently",
			   (long long)r.first_different);
	return r.different > 0 ? DT_EXIT_NO : DT_EXIT_OK;
}

/* n operands, the first in argv[1]. */
static int run(int n, char **argv, struct dt_log *log)
{
	struct serve_options *o = &serve_options;
	struct dt_err err;

	if (o->replay && (n > 0 || o->serve.ckpt || o->serve.trace || o->batch))
		return dt_opt_usage_error(&serve_program, stderr,
					  "--replay takes no checkpoint, --trace or --batch");
	if (o->replay)
		return run_replay(o->replay, log);
	if (n > 1 || (n == 1) == (o->serve.ckpt != NULL))
		return dt_opt_usage_error(&serve_program, stderr, "exactly one checkpoint is required");
	if (n == 1)
		o->serve.ckpt = argv[1];
	if (serve_options_settle(o, &err) < 0)
		return dt_opt_usage_of(&serve_program, stderr, NULL, &err);
	if (!o->print_program)
		return serve(o, log);
	if (!dt_launch_speaks())
		return DT_EXIT_OK;
	if (dt_served_print_program(&o->serve, stdout, &err) == 0)
		return DT_EXIT_OK;
	dt_log_err(log, &err);
	return DT_EXIT_FAILED;
}

int main(int argc, char **argv)
{
	struct dt_log log = {.f = stderr, .name = "dt-serve", .rank = -1};
	struct dt_err err;
	int status, n;

	dt_dev_spin_less(argv);
	n = dt_opt_main(&serve_program, argc, argv, stdout, stderr, &status);
	if (n >= 0)
		status = run(n, argv, &log);
	json_decref(serve_options.defaults);
	if (dt_close_stdout(&err) < 0) {
		if (err.code != -EPIPE && status == DT_EXIT_OK) /* otherwise the error has been printed */
			dt_log_err(&log, &err);
		status = DT_EXIT_FAILED;
	}
	return status;
}
/* SPDX-License-Identifier: Apache-2.0 */
