#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void vset(struct dt_err *err, int code, const char *fmt, va_list ap)
{
	err->code = code;
	err->hint[0] = '\0';
	vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
}

int dt_err_set(struct dt_err *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return code;
	va_start(ap, fmt);
	vset(err, code, fmt, ap);
	va_end(ap);
	return code;
}

int dt_err_sys(struct dt_err *err, int code, const char *fmt, ...)
{
	char reason[128];
	va_list ap;
	size_t n;

	if (!err)
		return code;
	va_start(ap, fmt);
	vset(err, code, fmt, ap);
	va_end(ap);
	snprintf(reason, sizeof(reason), ": %s", strerror(-code));
	n = strlen(err->msg);
	if (n > sizeof(err->msg) - 1 - strlen(reason)) /* a long subject must not displace the reason */
		n = sizeof(err->msg) - 1 - strlen(reason);
	strcpy(err->msg + n, reason);
	return code;
}

int dt_err_prefix(struct dt_err *err, const char *fmt, ...)
{
	char old[sizeof(err->msg)], head[256];
	size_t room, n;
	va_list ap;

	if (!err)
		return -1;
	memcpy(old, err->msg, sizeof(old));
	va_start(ap, fmt);
	vsnprintf(head, sizeof(head), fmt, ap);
	va_end(ap);
	/* The end of a message, its reason, matters most: the beginning of one that is too long is cut. */
	room = sizeof(err->msg) - strlen(head) - 3;
	n = strlen(old);
	snprintf(err->msg, sizeof(err->msg), "%s: %.*s", head, (int)room, n > room ? old + (n - room) : old);
	return err->code;
}

void dt_err_hint(struct dt_err *err, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return;
	va_start(ap, fmt);
	vsnprintf(err->hint, sizeof(err->hint), fmt, ap);
	va_end(ap);
}
/* SPDX-License-Identifier: Apache-2.0 */
