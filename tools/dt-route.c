/* dt-route: routes requests of the OpenAI API to several servers. */
#include "base/log.h"
#include "base/opt.h"
#include "base/tmpfile.h"
#include "route/router.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct {
	const char *host, *config, *key_file, *books, *on_scale;
	struct dt_strs keys;
	int64_t port;
	int policy;
	bool given_policy;
} opt;

static const struct dt_opt opts[] = {
	{"policy", 0, DT_OPT_CHOICE, &opt.policy, DT_BALANCE_POLICIES, "load balancing policy",
	 .given = &opt.given_policy, .def = "cache"},
	{"config", 0, DT_OPT_STR, &opt.config, "FILE",
	 "configuration file, JSON: servers, model names, limits; read again on SIGHUP",
	 .complete = DT_COMPLETE_FILE},
	{"books", 0, DT_OPT_STR, &opt.books, "FILE",
	 "accounting file: one JSON line is appended for every request", .complete = DT_COMPLETE_FILE},
	{"on-scale", 0, DT_OPT_STR, &opt.on_scale, "COMMAND",
	 "command that starts and stops the servers listed in DT_SCALE_START and DT_SCALE_STOP"},
	{"host", 0, DT_OPT_STR, &opt.host, "ADDRESS", "address to listen on", .def = "127.0.0.1"},
	{"port", 0, DT_OPT_INT, &opt.port, "N", "port to listen on, 0 for any free one", .min = 0,
	 .max = 65535, .def = "8080"},
	{"api-key", 0, DT_OPT_STRS, &opt.keys, "KEY",
	 "API key that every route except /health then requires; may be given several times"},
	{"api-key-file", 0, DT_OPT_STR, &opt.key_file, "FILE",
	 "file with API keys, tenants and limits, one per line; every route except /health then requires a "
	 "key",
	 .complete = DT_COMPLETE_FILE},
	DT_OPT_END};
static const char *const examples[] = {"dt-route http://10.0.0.1:8000 http://10.0.0.2:8000",
				       "dt-route --config route.json --books books.jsonl",
				       "dt-route check route.json && kill -HUP \"$(pidof dt-route)\"", NULL};
static const struct dt_program prog = {
	.name = "dt-route",
	.summary = "reverse proxy and load balancer for servers of the OpenAI API",
	.operands = "[check FILE | URL...]",
	.examples = examples,
	.opts = opts};
static struct dt_log out;

static int check(struct dt_route_args *args, const char *path)
{
	struct dt_route_conf c;
	struct dt_err err;
	int rc;

	args->file = path;
	rc = dt_route_conf_read(&c, args, &err);
	if (rc == 0 && c.books && (rc = dt_out_check(c.books, &err)) < 0) /* the router would not start */
		dt_route_conf_release(&c);
	if (rc < 0) {
		dt_log_err(&out, &err);
		return DT_EXIT_NO;
	}
	printf("%s: %d server%s, %d name%s, %d key%s\n", path, c.nservers, c.nservers == 1 ? "" : "s",
	       c.nnames, c.nnames == 1 ? "" : "s", c.keys.nkeys, c.keys.nkeys == 1 ? "" : "s");
	dt_route_conf_release(&c);
	return DT_EXIT_OK;
}

static int run(const struct dt_route_args *args, char **argv)
{
	const struct dt_route_params p = {
		.host = opt.host, .port = (int)opt.port, .args = *args, .log = &out, .argv = argv};
	struct dt_router *r = NULL;
	struct dt_err err;
	int rc = dt_route_open(&r, &p, &err);

	if (rc == 0) {
		dt_log_msg(&out, "routing on %s", dt_route_url(r));
		printf("%s\n", dt_route_url(r));
		if (fflush(stdout) == EOF)
			rc = dt_err_sys(&err, -errno, "cannot write to standard output");
	}
	if (rc == 0)
		rc = dt_route_run(r, &err);
	if (rc < 0)
		dt_log_err(&out, &err);
	if (r)
		dt_route_close(r);
	return rc < 0 ? DT_EXIT_FAILED : DT_EXIT_OK;
}

int main(int argc, char **argv)
{
	struct dt_route_args args = {0};
	char **kept = calloc((size_t)argc + 1, sizeof(*kept)); /* for a successor process */
	struct dt_err err;
	int status, n;

	out = (struct dt_log){.f = stderr, .name = "dt-route", .rank = -1};
	if (!kept)
		return DT_EXIT_FAILED;
	memcpy(kept, argv, (size_t)argc * sizeof(*kept));
	n = dt_opt_main(&prog, argc, argv, stdout, stderr, &status);
	args.file = opt.config;
	args.policy = opt.given_policy ? opt.policy : -1;
	args.url = (const char *const *)argv + 1;
	args.nurls = n;
	args.key_file = opt.key_file;
	args.books = opt.books;
	args.on_scale = opt.on_scale;
	args.key = opt.keys.v;
	args.nkeys = opt.keys.n;
	if (n >= 1 && !strcmp(argv[1], "check")) {
		args.nurls = 0;
		status = n == 2 && !opt.config ? check(&args, argv[2])
					       : dt_opt_usage_error(&prog, stderr, "check takes one file");
	} else if (n == 0 && !opt.config) {
		status = dt_opt_usage_error(&prog, stderr, "a server's URL or --config is required");
	} else if (n >= 0 && dt_route_args_check(&args, &err) < 0) {
		status = dt_opt_usage_of(&prog, stderr, NULL, &err);
	} else if (n >= 0) {
		status = run(&args, kept);
	}
	if (dt_close_stdout(&err) < 0) {
		if (err.code != -EPIPE && status == DT_EXIT_OK)
			dt_log_err(&out, &err);
		status = DT_EXIT_FAILED;
	}
	free(kept);
	return status;
}
/* SPDX-License-Identifier: Apache-2.0 */
