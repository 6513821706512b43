#include "base/program.h"

#include "base/tmpfile.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

int dt_program_fail(const struct dt_program *p, const struct dt_err *err)
{
	if (err->code != -EPIPE && err->msg[0])
		fprintf(stderr, "%s: %s%s%s\n", p->name, err->msg, err->hint[0] ? "; " : "", err->hint);
	return DT_EXIT_FAILED;
}

void dt_program_say(const struct dt_program *p, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s: ", p->name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

int dt_program_check_stdout(struct dt_err *err)
{
	return ferror(stdout) ? dt_err_sys(err, errno ? -errno : -EIO, "cannot write to standard output") : 0;
}

static int run(const struct dt_program *p, int n, char **argv)
{
	const struct dt_command *c = p->commands;

	while (strcmp(c->name, argv[1])) /* dt_opt_main has checked that it exists */
		c++;
	n--;
	if (n < c->min || (c->max >= 0 && n > c->max))
		return dt_opt_usage_error(p, stderr, "'%s' takes %s, not %d operand%s", c->name,
					  *c->operands ? c->operands : "no operands", n, n == 1 ? "" : "s");
	return c->run(n, argv + 2);
}

int dt_program_main(const struct dt_program *p, int argc, char **argv)
{
	struct dt_err err = {0};
	int status, n = dt_opt_main(p, argc, argv, stdout, stderr, &status);

	if (n >= 0)
		status = run(p, n, argv);
	if (dt_close_stdout(&err) < 0 && status != DT_EXIT_FAILED) /* else an error was already printed */
		status = n < 0 ? DT_EXIT_FAILED : dt_program_fail(p, &err);
	return status;
}
/* SPDX-License-Identifier: Apache-2.0 */
