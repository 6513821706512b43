#include "base/log.h"

#include <stdarg.h>

/* One write a line, so that the lines of several ranks on one terminal do not mix. */
static void vlog(const struct dt_log *log, const char *fmt, va_list ap)
{
	char line[1024];
	int n;

	if (!log || !log->f)
		return;
	if (log->rank >= 0)
		n = snprintf(line, sizeof(line), "%s: rank %d: ", log->name, log->rank);
	else
		n = snprintf(line, sizeof(line), "%s: ", log->name);
	vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
	fprintf(log->f, "%s\n", line);
	fflush(log->f);
}

void dt_log_msg(const struct dt_log *log, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vlog(log, fmt, ap);
	va_end(ap);
}

void dt_log_debug(const struct dt_log *log, const char *fmt, ...)
{
	va_list ap;

	if (!log || !log->verbose)
		return;
	va_start(ap, fmt);
	vlog(log, fmt, ap);
	va_end(ap);
}

void dt_log_err(const struct dt_log *log, const struct dt_err *err)
{
	dt_log_msg(log, "%s", err->msg);
	if (err->hint[0])
		dt_log_msg(log, "%s", err->hint);
}
