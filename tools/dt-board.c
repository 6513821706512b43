/* dt-board: serves a web page over running and finished runs. */
#include "base/http.h"
#include "base/opt.h"
#include "base/program.h"
#include "base/tmpfile.h"
#include "board/board.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	const char *host, *key;
	int64_t port;
} a;

static const char *const examples[] = {
	"dt-board run",
	"dt-board --port 0 runs/*",
	NULL,
};

static const struct dt_opt opts[] = {
	{"port", 0, DT_OPT_INT, &a.port, "PORT", "TCP port to listen on; 0: any free port", .min = 0,
	 .max = 65535, .def = "6008"},
	{"host", 0, DT_OPT_STR, &a.host, "ADDRESS",
	 "address to listen on; any but a loopback address needs --key", .def = "127.0.0.1"},
	{"key", 0, DT_OPT_STR, &a.key, "WORD", "answer only requests with ?key=WORD"},
	DT_OPT_END,
};

static const struct dt_program prog = {
	.name = "dt-board",
	.summary = "show runs in a web page: loss, step time breakdown, ranks, memory, events",
	.operands = "DIR|FILE ...",
	.examples = examples,
	.opts = opts,
};

/* Serves until interrupted. */
static int serve(struct dt_board *b, struct dt_err *err)
{
	struct dt_board_http_params p = {.host = a.host, .key = a.key, .port = (int)a.port};
	struct dt_board_http *h;
	char *key = a.key ? dt_http_escape(a.key) : NULL;
	const char *url;
	sigset_t ends;
	int sig, rc;

	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	rc = dt_board_http_open(&h, b, &p, &url, err);
	if (rc == 0)
		printf("%s/%s%s\n", url, key ? "?key=" : "", key ? key : "");
	free(key);
	if (rc < 0)
		return rc;
	if (fflush(stdout) == EOF)
		rc = dt_err_sys(err, -errno, "cannot write to standard output");
	if (b->left_out)
		dt_program_say(&prog, "%d more runs are not shown", b->left_out);
	dt_program_say(&prog, "showing %d run%s; stop with Ctrl-C", b->n, b->n == 1 ? "" : "s");
	if (rc == 0)
		sigwait(&ends, &sig);
	dt_board_http_close(h);
	return rc;
}

int main(int argc, char **argv)
{
	struct dt_err err = {0};
	struct dt_board b;
	int status, n = dt_opt_main(&prog, argc, argv, stdout, stderr, &status), rc;

	if (n < 0)
		return status;
	if (!n)
		return dt_opt_usage_error(&prog, stderr, "no run given: name folders or metrics files");
	if (a.key && !*a.key) /* of a variable that is not set: everybody could read these runs */
		return dt_opt_usage_error(&prog, stderr, "--key is empty");
	rc = dt_board_open(&b, argv + 1, n, (size_t)4 << 20, &err);
	if (rc == 0) {
		rc = serve(&b, &err);
		dt_board_close(&b);
	}
	if (rc == -ENOKEY)
		return dt_opt_usage_of(&prog, stderr, NULL, &err);
	if (rc == 0)
		rc = dt_close_stdout(&err);
	return rc < 0 ? dt_program_fail(&prog, &err) : DT_EXIT_OK;
}
/* SPDX-License-Identifier: Apache-2.0 */
