/* Error objects. */
#include "base/utf8.h"
#include "serve/api/priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

int dt_api_fail(struct dt_api_error *e, int status, const char *type, const char *code, const char *fmt, ...)
{
	va_list ap;

	*e = (struct dt_api_error){.status = status, .type = type, .code = code};
	va_start(ap, fmt);
	vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
	va_end(ap);
	return -EINVAL;
}

int dt_body_bad(struct dt_api_error *e, const char *param, const char *fmt, ...)
{
	va_list ap;

	dt_api_fail(e, 400, "invalid_request_error", NULL, "%s", "");
	snprintf(e->param, sizeof(e->param), "%s", param);
	va_start(ap, fmt);
	vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
	va_end(ap);
	return -EINVAL;
}

void dt_api_rename_key(struct dt_api_error *e, const char *from, const char *to)
{
	char quoted[64], rest[sizeof(e->msg)];
	char *at;

	if (!strcmp(e->param, from))
		snprintf(e->param, sizeof(e->param), "%s", to);
	snprintf(quoted, sizeof(quoted), "'%s'", from);
	at = strstr(e->msg, quoted);
	if (!at)
		return;
	snprintf(rest, sizeof(rest), "%s", at + strlen(quoted));
	snprintf(at, sizeof(e->msg) - (size_t)(at - e->msg), "'%s'%s", to, rest);
}

int dt_api_fail_length(struct dt_api_error *e, size_t prompt, int output, int context)
{
	dt_api_fail(e, 400, "invalid_request_error", "context_length_exceeded", DT_TOO_LONG, context, prompt,
		    output);
	e->prompt = prompt;
	return -EINVAL;
}

int dt_body_no_memory(struct dt_api_error *e)
{
	return dt_api_fail(e, 500, "server_error", NULL, "out of memory");
}

json_t *dt_api_error_json(const struct dt_api_error *e)
{
	size_t n;
	char *msg = dt_utf8_clean(e->msg, strlen(e->msg), &n);
	char *param = dt_utf8_clean(e->param, strlen(e->param), &n);
	json_t *v = json_pack("{s:{s:s?, s:s, s:s?, s:s?}}", "error", "message", msg, "type", e->type,
			      "param", param && param[0] ? param : NULL, "code", e->code);

	free(msg);
	free(param);
	return v;
}

int dt_api_fail_submit(struct dt_api_error *e, int rc, const struct dt_err *err, double retry_after)
{
	if (rc == -EAGAIN || rc == -ESHUTDOWN) {
		dt_api_fail(e, 503, "server_error", rc == -EAGAIN ? "queue_full" : "draining", "%s",
			    err->msg);
		e->retry_after = rc == -EAGAIN ? 1 : 10;
		return -EINVAL;
	}
	if (rc == -EDQUOT && retry_after == 0) /* a 429 would be retried for ever */
		return dt_api_fail(e, 400, "invalid_request_error", "request_over_quota", "%s", err->msg);
	if (rc == -EDQUOT) {
		dt_api_fail(e, 429, "rate_limit_error", "rate_limit_exceeded", "%s", err->msg);
		e->retry_after = (int)retry_after + 1;
		return -EINVAL;
	}
	if (rc == -ETIMEDOUT)
		return dt_api_fail(e, 503, "server_error", "adapter_timeout", "%s", err->msg);
	if (rc == -E2BIG)
		return dt_api_fail(e, 400, "invalid_request_error", "context_length_exceeded", "%s",
				   err->msg);
	return dt_api_fail(e, rc == -EINVAL ? 400 : 500,
			   rc == -EINVAL ? "invalid_request_error" : "server_error", NULL, "%s", err->msg);
}
/* SPDX-License-Identifier: Apache-2.0 */
