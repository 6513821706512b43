/*
 * Bodies of requests that are accepted or refused. The test defines `parse` before it includes this, which
 * returns -1 and sets e where a body is refused.
 */
#ifndef SERVE_PARSE_H
#define SERVE_PARSE_H

static struct dt_completion good(const char *body)
{
	struct dt_completion c;
	struct dt_api_error e;

	if (parse(body, &c, &e) < 0)
		fail_msg("%s: %s", body, e.msg);
	return c;
}

static void refused(const char *body, const char *msg)
{
	struct dt_completion c;
	struct dt_api_error e;

	if (parse(body, &c, &e) == 0)
		fail_msg("%s is accepted", body);
	assert_int_equal(e.status, 400);
	if (!strstr(e.msg, msg))
		fail_msg("%s: %s", body, e.msg);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
