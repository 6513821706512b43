#include "rl/reward.h"

#include "base/progress.h"
#include "rl/child.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_REPLY 65536 /* bytes of a line */

struct worker {
	struct dt_child child;
	struct dt_group *group;
	struct dt_answer *answer; /* being judged; NULL: idle */
	bool again;		  /* second attempt */
	double deadline;
	char *out; /* the line to send */
	size_t nout, sent;
	char in[MOST_REPLY];
	size_t nin;
};

struct dt_reward {
	struct dt_reward_opts o;
	char *command;
	struct worker *worker; /* [o.workers] */
	int failures;	       /* consecutive failures */
};

static int start(struct dt_reward *r, struct worker *w, struct dt_err *err)
{
	w->nin = 0;
	return dt_child_start(&w->child, r->command, err);
}

static void stop(struct worker *w)
{
	dt_child_stop(&w->child);
}

/* Sends an answer to a worker to be judged. */
static int give(struct dt_reward *r, struct worker *w, struct dt_group *g, struct dt_answer *a,
		struct dt_err *err)
{
	json_t *o = json_pack("{s:s, s:s, s:s}", "prompt", g->prompt, "answer", a->text, "finish", a->finish);
	char *text, stray;

	if (o && g->item)
		json_object_set(o, "item", g->item);
	text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	free(w->out);
	w->out = text;
	if (!text)
		return dt_err_sys(err, -ENOMEM, "cannot ask the reward");
	w->nout = strlen(text);
	w->out[w->nout++] = '\n'; /* replaces the terminating NUL */
	w->sent = 0;
	w->nin = 0;
	w->group = g;
	w->answer = a;
	w->deadline = dt_now() + r->o.timeout;
	/* Output before the request would be taken for the answer's reward. */
	if (w->child.pid && recv(w->child.fd, &stray, 1, MSG_PEEK | MSG_DONTWAIT) >= 0)
		stop(w);
	return w->child.pid ? 0 : start(r, w, err);
}

/* Retries the worker's answer once; after that it stays without a reward. */
static int failed(struct dt_reward *r, struct worker *w, const char *why, struct dt_err *err)
{
	stop(w);
	if (++r->failures >= DT_REWARD_MOST_FAILURES)
		return dt_err_set(err, -EIO,
				  "the reward command '%s' failed %d times in a row; last reason: %s",
				  r->command, r->failures, why);
	if (!w->again) {
		w->again = true;
		return give(r, w, w->group, w->answer, err);
	}
	w->answer->reward = (double)NAN;
	w->answer->fail = why;
	w->answer = NULL;
	return 0;
}

/* Parses a number, or {"reward": number}. */
static bool read_reward(const char *line, size_t n, double *ret)
{
	json_t *o = json_loadb(line, n, JSON_DECODE_ANY, NULL);
	const json_t *v = json_is_object(o) ? json_object_get(o, "reward") : o;
	const bool ok = json_is_number(v) && isfinite(json_number_value(v));

	if (ok)
		*ret = json_number_value(v);
	json_decref(o);
	return ok;
}

static int receive(struct dt_reward *r, struct worker *w, struct dt_err *err)
{
	ssize_t n = read(w->child.fd, w->in + w->nin, sizeof(w->in) - w->nin);
	const char *end;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0)
		return failed(r, w, "it ended", err);
	w->nin += (size_t)n;
	end = memchr(w->in, '\n', w->nin);
	if (!end && w->nin < sizeof(w->in))
		return 0;
	if (!end || !read_reward(w->in, (size_t)(end - w->in), &w->answer->reward))
		return failed(r, w, "its line is not a number", err);
	if ((size_t)(end - w->in) + 1 != w->nin || w->sent < w->nout)
		return failed(r, w, "it wrote more than one line for an answer", err);
	w->answer->fail = NULL;
	w->answer = NULL;
	r->failures = 0;
	return 0;
}

static int transmit(struct dt_reward *r, struct worker *w, struct dt_err *err)
{
	ssize_t n = send(w->child.fd, w->out + w->sent, w->nout - w->sent, MSG_NOSIGNAL);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n < 0)
		return failed(r, w, "it ended", err);
	w->sent += (size_t)n;
	return 0;
}

/* Waits until a busy worker is ready, and serves all that are. */
static int serve_workers(struct dt_reward *r, struct dt_err *err)
{
	struct pollfd *p = calloc((size_t)r->o.workers, sizeof(*p));
	double next = INFINITY;
	int rc = p ? 0 : dt_err_sys(err, -ENOMEM, "cannot wait for the reward");

	for (int i = 0; i < r->o.workers && rc == 0; i++) {
		struct worker *w = &r->worker[i];

		p[i].fd = w->answer ? w->child.fd : -1;
		p[i].events = (short)(POLLIN | (w->sent < w->nout ? POLLOUT : 0));
		next = w->answer ? fmin(next, w->deadline) : next;
	}
	if (rc == 0 &&
	    poll(p, (nfds_t)r->o.workers, (int)(1e3 * fmax(0, fmin(next - dt_now(), 3600))) + 1) < 0 &&
	    errno != EINTR)
		rc = dt_err_sys(err, -errno, "cannot wait for the reward");
	for (int i = 0; i < r->o.workers && rc == 0; i++) {
		struct worker *w = &r->worker[i];

		if (!w->answer)
			continue;
		if (p[i].revents & (POLLIN | POLLHUP | POLLERR))
			rc = receive(r, w, err);
		else if (p[i].revents & POLLOUT)
			rc = transmit(r, w, err);
		else if (dt_now() > w->deadline)
			rc = failed(r, w, "it took too long", err);
	}
	free(p);
	return rc;
}

static int score_by_command(struct dt_reward *r, struct dt_group *g, int64_t n, struct dt_err *err)
{
	int64_t group = 0;
	int answer = 0, busy = 0, rc = 0;

	while (rc == 0 && (group < n || busy > 0)) {
		for (int i = 0; i < r->o.workers && group < n && rc == 0; i++) {
			if (r->worker[i].answer)
				continue;
			r->worker[i].again = false;
			rc = give(r, &r->worker[i], &g[group], &g[group].answer[answer], err);
			if (++answer == g[group].n) {
				group++;
				answer = 0;
			}
		}
		if (rc == 0)
			rc = serve_workers(r, err);
		busy = 0;
		for (int i = 0; i < r->o.workers; i++)
			busy += r->worker[i].answer != NULL;
	}
	for (int i = 0; i < r->o.workers; i++) /* after a failure */
		r->worker[i].answer = NULL;
	return rc;
}

int dt_reward_score(struct dt_reward *r, struct dt_group *g, int64_t n, struct dt_err *err)
{
	int rc = 0;

	if (r->command)
		return score_by_command(r, g, n, err);
	for (int64_t i = 0; i < n; i++)
		for (int k = 0; k < g[i].n && rc == 0; k++)
			rc = dt_rl_task_score(&r->o.task, g[i].prompt, g[i].answer[k].text,
					      &g[i].answer[k].reward, err);
	return rc;
}

int dt_reward_open(const struct dt_reward_opts *o, struct dt_reward **ret, struct dt_err *err)
{
	struct dt_reward *r = calloc(1, sizeof(*r));

	if (r)
		r->o = *o;
	if (r && o->command) {
		r->command = strdup(o->command);
		r->worker = calloc((size_t)o->workers, sizeof(*r->worker));
	}
	if (!r || (o->command && (!r->command || !r->worker))) {
		dt_reward_close(r);
		return dt_err_sys(err, -ENOMEM, "cannot open the reward");
	}
	*ret = r;
	return 0;
}

void dt_reward_close(struct dt_reward *r)
{
	for (int i = 0; r && r->worker && i < r->o.workers; i++) {
		stop(&r->worker[i]);
		free(r->worker[i].out);
	}
	if (r) {
		free(r->worker);
		free(r->command);
	}
	free(r);
}
/* SPDX-License-Identifier: Apache-2.0 */
