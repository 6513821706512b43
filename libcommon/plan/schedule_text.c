/* Schedules as text: a line for each stage, of actions like F3, B0.1 and W2; comments begin with '#'. */
#include "plan/schedule.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

void dt_schedule_print(const struct dt_schedule *s, FILE *f)
{
	for (int i = 0; i < s->pp; i++)
		for (int k = s->start[i]; k < s->start[i + 1]; k++) {
			const struct dt_action *a = &s->a[k];

			fprintf(f, "%c%d", a->op, a->mb);
			if (a->chunk)
				fprintf(f, ".%d", a->chunk);
			fputc(k + 1 == s->start[i + 1] ? '\n' : ' ', f);
		}
}

/* A number above INT_MAX is INT_MAX, which no schedule has. */
static int number(const char *p, char **end)
{
	const long n = strtol(p, end, 10);

	return n > INT_MAX ? INT_MAX : (int)n;
}

static int read_action(const char **at, struct dt_action *ret)
{
	const char *p = *at;
	char *end;

	ret->op = *p++;
	if (!strchr("FBW", ret->op) || !isdigit((unsigned char)*p))
		return -EINVAL;
	ret->mb = number(p, &end);
	ret->chunk = 0;
	if (*end == '.' && isdigit((unsigned char)end[1]))
		ret->chunk = number(end + 1, &end);
	*at = end;
	return !*end || isspace((unsigned char)*end) ? 0 : -EINVAL;
}

/* Whether weight gradients are actions of their own; comments do not count. */
static bool has_split(const char *p)
{
	for (; *p && *p != 'W'; p++)
		if (*p == '#' && !*(p += strcspn(p, "\n")))
			return false;
	return *p == 'W';
}

int dt_schedule_read(const char *text, const char *name, int pp, int chunks, int mbs, struct dt_schedule *ret,
		     struct dt_err *err)
{
	bool split = has_split(text);
	int stage = 0, line = 1, n = 0, per = mbs * chunks * (split ? 3 : 2),
	    rc = dt_schedule_alloc(ret, pp, chunks, mbs, split, -1, err);

	if (rc < 0)
		return rc;
	for (const char *p = text; *p && rc == 0;) {
		if (*p == '\n') {
			if (n > 0 && n != per)
				rc = dt_err_set(err, -EINVAL, "%s: line %d: stage %d has %d actions, not %d",
						name, line, stage, n, per);
			stage += n > 0;
			n = 0;
			line++;
			p++;
		} else if (isspace((unsigned char)*p)) {
			p++;
		} else if (*p == '#') {
			p += strcspn(p, "\n");
		} else if (stage >= pp || n >= per) {
			rc = dt_err_set(err, -EINVAL, "%s: line %d: more actions than %d stages of %d", name,
					line, pp, per);
		} else if (read_action(&p, &ret->a[ret->start[stage] + n++]) < 0) {
			rc = dt_err_set(err, -EINVAL,
					"%s: line %d: an action is F, B or W and a microbatch, like F3", name,
					line);
		}
	}
	if (rc == 0 && stage + (n > 0) != pp)
		rc = dt_err_set(err, -EINVAL, "%s: %d stages, not %d", name, stage + (n > 0), pp);
	if (rc == 0)
		rc = dt_schedule_check(ret, err);
	if (rc < 0)
		dt_schedule_release(ret);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
