#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

#define LINE_BYTES 1024

/*
 * Prints control characters as \xNN, so that text from clients and files cannot end a line or move the
 * cursor.
 */
static void put_line(FILE *f, const char *line)
{
	char text[4 * LINE_BYTES + 2];
	size_t n = 0;

	for (; *line; line++) {
		unsigned char c = (unsigned char)*line;

		if (c < 0x20 || c == 0x7f)
			n += (size_t)sprintf(text + n, "\\x%02x", c);
		else
			text[n++] = *line;
	}
	text[n++] = '\n';
	fwrite(text, 1, n, f);
}

/* Writes each line with one call, so that lines of several ranks on one terminal do not mix. */
static void vlog(const struct dt_log *log, const char *fmt, va_list ap)
{
	char line[LINE_BYTES];
	int n;

	if (!log || !log->f)
		return;
	if (log->rank >= 0)
		n = snprintf(line, sizeof(line), "%s: rank %d: ", log->name, log->rank);
	else
		n = snprintf(line, sizeof(line), "%s: ", log->name);
	vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
	if (log->drawn && *log->drawn) {
		fputs("\r\033[K", log->f);
		*log->drawn = false;
	}
	put_line(log->f, line);
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
/* SPDX-License-Identifier: Apache-2.0 */
