/* Environments run by a program on a pipe. */
#include "rl/env_priv.h"

#include "base/json.h"
#include "base/progress.h"
#include "rl/child.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST_REPLY (16 << 20) /* bytes of a line */
#define MOST	   (1 << 16)  /* limit of agents, observed numbers, actions */

struct env_pipe {
	struct dt_child child;
	const char *command;
	double timeout;
	char *in;
	size_t n, cap;
};

static int gone(const struct env_pipe *p, const char *what, struct dt_err *err)
{
	return dt_err_set(err, -EIO, "the environment '%s' %s", p->command, what);
}

/* Waits until the pipe is ready, at most until `until`. */
static int wait_for(const struct env_pipe *p, short what, double until, struct dt_err *err)
{
	const double left = until - dt_now();
	struct pollfd f = {.fd = p->child.fd, .events = what};
	int rc = left > 0 ? poll(&f, 1, (int)fmin(left * 1e3 + 1, 1e9)) : 0;

	if (rc < 0 && errno != EINTR)
		return dt_err_sys(err, -errno, "cannot wait for '%s'", p->command);
	return rc == 0 ? gone(p, "did not answer within --env-timeout", err) : 0;
}

static int tell(struct env_pipe *p, const char *text, size_t n, double until, struct dt_err *err)
{
	size_t sent = 0;

	while (sent < n) {
		ssize_t k = send(p->child.fd, text + sent, n - sent, MSG_NOSIGNAL);
		int rc;

		if (k < 0 && errno != EAGAIN && errno != EINTR)
			return gone(p, "has ended", err);
		if (k >= 0)
			sent += (size_t)k;
		else if ((rc = wait_for(p, POLLOUT, until, err)) < 0)
			return rc;
	}
	return 0;
}

/* -EIO: not a JSON object; names NaN or Infinity, which Python's json.dumps writes although not JSON. */
static int no_object(const struct env_pipe *p, bool no_json, struct dt_err *err)
{
	static const char *const word[] = {"NaN", "Infinity"};

	for (size_t i = 0; i < sizeof(word) / sizeof(word[0]) && no_json; i++)
		if (memmem(p->in, p->n, word[i], strlen(word[i])))
			return dt_err_set(err, -EIO,
					  "the environment '%s' answered with %s, which is not a JSON number",
					  p->command, word[i]);
	return gone(p, "answered with a line that is not a JSON object", err);
}

/* Reads a line; the caller owns *ret. */
static int hear(struct env_pipe *p, double until, json_t **ret, struct dt_err *err)
{
	char *end;

	p->n = 0;
	for (;;) {
		ssize_t k;
		int rc;

		if (p->n + 4096 > p->cap) {
			char *more = p->cap < MOST_REPLY ? realloc(p->in, p->cap + 65536) : NULL;

			if (!more)
				return gone(p, "answered with a line that is too long", err);
			p->in = more;
			p->cap += 65536;
		}
		k = read(p->child.fd, p->in + p->n, p->cap - p->n);
		if (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR))
			return gone(p, "has ended", err);
		if (k < 0) {
			if ((rc = wait_for(p, POLLIN, until, err)) < 0)
				return rc;
			continue;
		}
		end = memchr(p->in + p->n, '\n', (size_t)k);
		p->n += (size_t)k;
		if (end)
			break;
	}
	if (end != p->in + p->n - 1)
		return gone(p, "answered with more than one line", err);
	*ret = json_loadb(p->in, p->n, 0, NULL);
	return json_is_object(*ret) ? 0 : no_object(p, !*ret, err);
}

/* Sends the question, which it takes ownership of, and reads the reply. */
static int ask(struct env_pipe *p, json_t *question, json_t **ret, struct dt_err *err)
{
	const double until = dt_now() + p->timeout;
	char *text = question ? json_dumps(question, JSON_COMPACT) : NULL;
	size_t n = text ? strlen(text) : 0;
	int rc;

	*ret = NULL;
	json_decref(question);
	if (!text)
		return dt_err_sys(err, -ENOMEM, "cannot ask '%s'", p->command);
	text[n++] = '\n'; /* replaces the terminating NUL */
	rc = tell(p, text, n, until, err);
	free(text);
	return rc == 0 ? hear(p, until, ret, err) : rc;
}

static int size_of(const struct env_pipe *p, const json_t *o, const char *key, int *ret, struct dt_err *err)
{
	const json_t *v = json_object_get(o, key);

	if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > MOST)
		return dt_err_set(err, -EINVAL,
				  "the environment '%s' must answer with an integer '%s' from 1 to %d",
				  p->command, key, MOST);
	*ret = (int)json_integer_value(v);
	return 0;
}

int env_pipe_open(struct env_pipe **ret, struct dt_env *e, const struct dt_env_spec *s, struct dt_err *err)
{
	struct env_pipe *p = calloc(1, sizeof(*p));
	json_t *o = NULL;
	int rc;

	if (!p)
		return dt_err_sys(err, -ENOMEM, "cannot start '%s'", s->command);
	*ret = p;
	p->command = s->command;
	p->timeout = s->timeout;
	rc = dt_child_start(&p->child, s->command, err);
	if (rc == 0)
		rc = ask(p,
			 json_pack("{s:{s:i, s:i, s:I}}", "open", "envs", s->n, "first", s->first, "seed",
				   (json_int_t)s->seed),
			 &o, err);
	if (rc == 0)
		rc = size_of(p, o, "agents", &e->agents, err);
	if (rc == 0)
		rc = size_of(p, o, "observation", &e->observation, err);
	if (rc == 0)
		rc = size_of(p, o, "actions", &e->actions, err);
	json_decref(o);
	return rc;
}

void env_pipe_close(struct env_pipe *p)
{
	if (!p)
		return;
	dt_child_stop(&p->child);
	free(p->in);
	free(p);
}

/* Reads n numbers of a list. */
static int numbers(const struct env_pipe *p, const json_t *list, const char *what, int n, float *ret,
		   struct dt_err *err)
{
	for (int i = 0; i < n; i++) {
		const json_t *v = json_array_get(list, (size_t)i);

		ret[i] = (float)json_number_value(v);
		if (!json_is_number(v) || !isfinite(ret[i]) || (int)json_array_size(list) != n)
			return dt_err_set(err, -EINVAL,
					  "the environment '%s' must answer with '%s' of %d finite numbers",
					  p->command, what, n);
	}
	return 0;
}

/* Reads the observations of the environments in which (NULL: all) into their rows of ret. */
static int observations(const struct env_pipe *p, const struct dt_env *e, const json_t *o, const bool *which,
			float *ret, struct dt_err *err)
{
	const json_t *list = json_object_get(o, "observations");
	size_t at = 0;
	int rc = 0;

	for (int i = 0; i < e->n && rc == 0; i++) {
		if (which && !which[i])
			continue;
		for (int a = 0; a < e->agents && rc == 0; a++)
			rc = numbers(p, json_array_get(list, at++), "observations", e->observation,
				     ret + (i * e->agents + a) * e->observation, err);
	}
	if (rc == 0 && json_array_size(list) != at)
		rc = dt_err_set(err, -EINVAL,
				"the environment '%s' answered with %zu rows of observations, not %zu",
				p->command, json_array_size(list), at);
	return rc;
}

static int flags(const struct env_pipe *p, const json_t *o, const char *key, bool needed, int n, bool *ret,
		 struct dt_err *err)
{
	const json_t *list = json_object_get(o, key);

	memset(ret, 0, (size_t)n * sizeof(*ret));
	if (!list && !needed)
		return 0;
	for (int i = 0; i < n; i++) {
		const json_t *v = json_array_get(list, (size_t)i);

		if (!json_is_boolean(v) || (int)json_array_size(list) != n)
			return dt_err_set(err, -EINVAL,
					  "the environment '%s' must answer with '%s' of %d booleans",
					  p->command, key, n);
		ret[i] = json_is_true(v);
	}
	return 0;
}

int env_pipe_reset(struct env_pipe *p, struct dt_env *e, const bool *which, struct dt_err *err)
{
	json_t *list = json_array(), *o = NULL;
	int rc;

	for (int i = 0; i < e->n; i++)
		if (which[i])
			json_array_append_new(list, json_integer(i));
	rc = ask(p, json_pack("{s:o}", "reset", list), &o, err);
	if (rc == 0)
		rc = observations(p, e, o, which, e->now, err);
	json_decref(o);
	return rc;
}

int env_pipe_step(struct env_pipe *p, struct dt_env *e, const int32_t *action, struct dt_err *err)
{
	json_t *list = json_array(), *o = NULL;
	float *reward = calloc((size_t)e->n, sizeof(*reward));
	int rc;

	for (int i = 0; i < e->n * e->agents; i++)
		json_array_append_new(list, json_integer(action[i]));
	rc = ask(p, json_pack("{s:o}", "step", list), &o, err);
	if (rc == 0 && !reward)
		rc = dt_err_sys(err, -ENOMEM, "cannot step environments");
	if (rc == 0)
		rc = observations(p, e, o, NULL, e->next, err);
	if (rc == 0)
		rc = numbers(p, json_object_get(o, "rewards"), "rewards", e->n, reward, err);
	if (rc == 0)
		rc = flags(p, o, "terminated", true, e->n, e->ended, err);
	if (rc == 0)
		rc = flags(p, o, "truncated", false, e->n, e->cut, err);
	for (int i = 0; i < e->n && rc == 0; i++) {
		e->reward[i] = (double)reward[i];
		e->cut[i] &= !e->ended[i];
	}
	free(reward);
	json_decref(o);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
