/*
 * Autoscaling: applies the policy of scale.h to the router's load, decides which servers shall run, and has
 * on_scale start and stop them. A server that shall stop first gets no new requests, and is stopped when its
 * requests are done. Servers drained by an administrator are left alone.
 */
#include "base/progress.h"
#include "route/priv.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define AGAIN 5. /* seconds before a failed command is repeated */
#define NVARS 6	 /* environment variables of the command */

extern char **environ;

static bool is_ours(const struct dt_route_server *s)
{
	return s && !s->gone && !s->drained && s->role != DT_ROUTE_PREFILLS;
}

int dt_route_servers_up(const struct dt_router *r)
{
	int n = 0;

	for (int i = 0; i < r->balance.n; i++)
		n += is_ours(r->server[i]) && r->server[i]->up;
	return n;
}

int dt_route_load(const struct dt_router *r)
{
	int n = r->nqueue;

	for (int i = 0; i < r->balance.n; i++)
		n += r->server[i] && r->server[i]->role != DT_ROUTE_PREFILLS ? r->balance.server[i].running
									     : 0;
	return n;
}

bool dt_route_may_start(const struct dt_router *r)
{
	return r->conf.scale_most > 0 && (r->conf.on_scale || r->conf.neach > 0);
}

/* ---- selection of servers ---- */

/*
 * Whether a is preferred to b for running: one that is up, then one that is starting, then the one with more
 * requests.
 */
static bool rather(const struct dt_router *r, int a, int b)
{
	const struct dt_route_server *s = r->server[a], *t = r->server[b];
	bool up = s->up && s->asked != DT_ASKED_STOP, other = t->up && t->asked != DT_ASKED_STOP;

	if (up != other)
		return up;
	if ((s->asked == DT_ASKED_START) != (t->asked == DT_ASKED_START))
		return s->asked == DT_ASKED_START;
	return r->balance.server[a].running > r->balance.server[b].running;
}

/* Turns one more server on or off. false: there is none. */
static bool turn(struct dt_router *r, bool off)
{
	int at = -1;

	for (int i = 0; i < r->balance.n; i++)
		if (is_ours(r->server[i]) && r->server[i]->off != off &&
		    (at < 0 || (off ? !rather(r, i, at) : rather(r, i, at))))
			at = i;
	if (at < 0)
		return false;
	r->server[at]->off = off;
	dt_route_server_changed(r->server[at]);
	return true;
}

static void assign(struct dt_router *r, int wanted)
{
	int on = 0;

	for (int i = 0; i < r->balance.n; i++)
		on += is_ours(r->server[i]) && !r->server[i]->off;
	while (on < wanted && turn(r, false))
		on++;
	while (on > wanted && turn(r, true))
		on--;
}

/* ---- the command ---- */

struct lists {
	char *start, *stop; /* URLs separated by spaces; freed by the caller */
	bool any;
};

static char *joined(char *list, const char *url)
{
	char *more = NULL;

	if (asprintf(&more, "%s%s%s", list ? list : "", list ? " " : "", url) < 0)
		return list;
	free(list);
	return more;
}

/* Servers whose state must change and that were not asked to recently. */
static struct lists due(struct dt_router *r, double now, bool mark)
{
	struct lists l = {0};

	for (int i = 0; i < r->balance.n; i++) {
		struct dt_route_server *s = r->server[i];
		bool start = is_ours(s) && !s->off && !s->up;
		bool stop = is_ours(s) && s->off && s->up && r->balance.server[i].running == 0;

		if ((!start && !stop) || now < s->ask_again)
			continue;
		l.any = true;
		if (!mark)
			continue;
		s->asked = start ? DT_ASKED_START : DT_ASKED_STOP;
		dt_route_server_changed(s);
		s->ask_again = now + r->conf.scale_hold;
		s->next_probe = now; /* probed often until it has started or stopped */
		s->bad = 0;
		if (start)
			l.start = joined(l.start, s->conf.url);
		else
			l.stop = joined(l.stop, s->conf.url);
	}
	return l;
}

/* The environment, with our variables in place of any DT_SCALE_ ones. */
static char **environment(char *const own[NVARS])
{
	size_t n = 0, k = 0;
	char **env;

	while (environ[n])
		n++;
	env = calloc(n + NVARS + 1, sizeof(*env));
	for (; env && k < NVARS; k++)
		env[k] = own[k];
	for (size_t i = 0; env && i < n; i++)
		if (strncmp(environ[i], "DT_SCALE_", 9))
			env[k++] = environ[i];
	return env;
}

static int spawn(const char *command, char *const own[NVARS], pid_t *ret)
{
	char *argv[] = {"sh", "-c", (char *)command, NULL}, **env = environment(own);
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, plain;
	int rc;

	if (!env)
		return -ENOMEM;
	sigemptyset(&none);
	sigemptyset(&plain);
	sigaddset(&plain, SIGPIPE);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr,
				 POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &plain);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, 0, "/dev/null", 0, 0);
	posix_spawn_file_actions_adddup2(&files, 2, 1); /* standard output is reserved for the URL */
	rc = posix_spawn(ret, "/bin/sh", &files, &attr, argv, env);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	free(env);
	return -rc;
}

/* The command has failed: servers that it was asked for are asked for again soon. */
static void again(struct dt_router *r, double now)
{
	r->stats.scale_errors++;
	for (int i = 0; i < r->balance.n; i++)
		if (r->server[i] && r->server[i]->asked != DT_ASKED_NOTHING)
			r->server[i]->ask_again = fmin(r->server[i]->ask_again, now + AGAIN);
}

static void run_command(struct dt_router *r, double now)
{
	struct lists l = due(r, now, true);
	char *own[NVARS] = {0};
	bool made = asprintf(&own[0], "DT_SCALE_WANTED=%d", r->scale.wanted) > 0 &&
		    asprintf(&own[1], "DT_SCALE_UP=%d", dt_route_servers_up(r)) > 0 &&
		    asprintf(&own[2], "DT_SCALE_WAITING=%d", r->nqueue) > 0 &&
		    asprintf(&own[3], "DT_SCALE_RUNNING=%d", dt_route_load(r) - r->nqueue) > 0 &&
		    asprintf(&own[4], "DT_SCALE_START=%s", l.start ? l.start : "") > 0 &&
		    asprintf(&own[5], "DT_SCALE_STOP=%s", l.stop ? l.stop : "") > 0;
	int rc = made ? spawn(r->conf.on_scale, own, &r->command) : -ENOMEM;

	if (rc < 0) {
		r->command = 0;
		dt_log_msg(r->p.log, "cannot run '%s': %s; trying again in %g s", r->conf.on_scale,
			   strerror(-rc), AGAIN);
		again(r, now);
	} else {
		r->stats.scale_commands++;
		dt_log_msg(r->p.log, "%d server%s wanted;%s%s%s%s", r->scale.wanted,
			   r->scale.wanted == 1 ? " is" : "s are", l.start ? " to start: " : "",
			   l.start ? l.start : "", l.stop ? " to stop: " : "", l.stop ? l.stop : "");
	}
	for (int i = 0; i < NVARS; i++)
		free(own[i]);
	free(l.start);
	free(l.stop);
}

static void reap_command(struct dt_router *r, double now)
{
	int status = 0;

	if (r->command <= 0 || waitpid(r->command, &status, WNOHANG) != r->command)
		return;
	r->command = 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return;
	dt_log_msg(r->p.log, "on_scale failed with %s %d; running it again in %g s",
		   WIFEXITED(status) ? "exit status" : "signal",
		   WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status), AGAIN);
	again(r, now);
}

/* ---- periodic work ---- */

/*
 * Takes a server back that was asked to stop, is wanted again and stayed up; without a command, takes all
 * back.
 */
static void refresh(struct dt_route_server *s, double now)
{
	if (!s->r->conf.on_scale)
		s->off = false;
	if (s->asked == DT_ASKED_STOP && !s->off && now >= s->ask_again)
		s->asked = DT_ASKED_NOTHING;
	dt_route_server_changed(s);
}

static struct dt_scale_rule rule_of(const struct dt_router *r)
{
	const struct dt_route_conf *c = &r->conf;

	return (struct dt_scale_rule){.least = c->scale_least,
				      .most = c->scale_most,
				      .spares = c->scale_spares,
				      .requests = c->scale_requests,
				      .band = c->scale_band,
				      .up_after = c->scale_up_after,
				      .down_after = c->scale_down_after,
				      .zero_after = c->scale_zero_after};
}

void dt_route_scale_seen(struct dt_route_server *s)
{
	s->asked = DT_ASKED_NOTHING;
	s->ask_again = 0;
	dt_route_server_changed(s);
}

void dt_route_scale_tick(struct dt_router *r, double now)
{
	struct dt_scale_rule rule = rule_of(r);
	int up = dt_route_servers_up(r), wanted = r->scale.wanted;

	r->none_up = up == 0;
	r->empty = up == 0 ? now : r->empty;
	reap_command(r, now);
	if (!r->scaling) {
		r->scaling = true;
		dt_scale_init(&r->scale, &rule, up, now);
		wanted = r->scale.wanted;
	}
	dt_scale_step(&r->scale, &rule, dt_route_load(r), now);
	r->stats.scaled_up += r->scale.wanted > wanted;
	r->stats.scaled_down += r->scale.wanted < wanted;
	for (int i = 0; i < r->balance.n; i++)
		if (r->server[i])
			refresh(r->server[i], now);
	if (!r->conf.on_scale || r->draining)
		return;
	assign(r, r->scale.wanted);
	if (r->command <= 0 && due(r, now, false).any)
		run_command(r, now);
}
/* SPDX-License-Identifier: Apache-2.0 */
