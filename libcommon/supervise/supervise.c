#include "supervise/state.h"

#include "base/progress.h"
#include "base/tmpfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define TICK_S	 0.1
#define SERVED_S 60 /* a server that ran this long counts as healthy */

static int catch_signals(void)
{
	static const int which[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++)
		sigaddset(&set, which[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* A job whose supervisor died ends by itself after a checkpoint, and holds the folder until then. */
static int wait_for_folder(struct sup *s, struct dt_err *err)
{
	double end = dt_now() + s->o->grace_s;
	char path[PATH_MAX];
	int fd, rc;

	if (s->cmd.serves)
		return 0;
	snprintf(path, sizeof(path), "%s/.lock", s->cmd.o.run.save.dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return 0;
	while ((rc = flock(fd, LOCK_EX | LOCK_NB)) < 0 && errno == EWOULDBLOCK && dt_now() < end && !s->stop)
		sup_watch(s, TICK_S);
	rc = rc < 0 && errno == EWOULDBLOCK
		     ? dt_err_set(err, -EBUSY, "another job is saving into '%s'", s->cmd.o.run.save.dir)
		     : 0;
	close(fd);
	return rc;
}

/* Waits until there are enough hosts, or the run is ended. */
static int wait_for_hosts(struct sup *s, struct dt_err *err)
{
	bool said = false;

	while (!s->stop) {
		double now = dt_now();
		int rc;

		if (!s->o->max_ranks ||
		    (s->hosts_known && sup_hosts_slots(&s->hosts, now) >= s->o->min_ranks))
			return 0;
		if (s->hosts_known && !said) {
			dt_log_msg(s->log, "waiting for hosts: %d slots, %d needed",
				   sup_hosts_slots(&s->hosts, now), s->o->min_ranks);
			sup_event(s, "wait-hosts", "{s:i}", "slots", sup_hosts_slots(&s->hosts, now));
			said = true;
		}
		rc = s->o->discover ? 0 : dt_err_set(err, -EAGAIN, "no host can be reached");
		if (rc < 0 && s->hosts_known)
			return rc;
		sup_watch(s, TICK_S);
	}
	return 0;
}

static void wait_seconds(struct sup *s, double seconds)
{
	for (double end = dt_now() + seconds; dt_now() < end && !s->stop;)
		sup_watch(s, TICK_S);
}

/* Decides after the end of a job: -1: start again; else an exit status. */
static int judge(struct sup *s, int status)
{
	if (status == DT_EXIT_OK)
		return DT_EXIT_OK;
	if (s->stop || (status == DT_EXIT_PREEMPTED && s->ending != SUP_RESIZE))
		return status == DT_EXIT_PREEMPTED || (s->ending == SUP_LEAVE && !s->forced)
			       ? DT_EXIT_PREEMPTED
			       : DT_EXIT_FAILED;
	if (s->ending == SUP_RESIZE && status == DT_EXIT_PREEMPTED)
		return -1;
	if (s->ending == SUP_RUNS && (status == DT_EXIT_USAGE || status == DT_EXIT_NO))
		return status; /* it would fail the same way again */
	if (s->cmd.serves && dt_now() - s->spawned > SERVED_S)
		s->idle = 0;
	if (s->idle >= s->o->tries) {
		if (s->cmd.serves)
			dt_log_msg(s->log, "giving up: none of %d starts lasted %d s", s->idle, SERVED_S);
		else
			dt_log_msg(s->log, "giving up: %d start%s without a new step after step %lld",
				   s->idle, s->idle == 1 ? "" : "s", (long long)(s->best < 0 ? 0 : s->best));
		sup_event(s, "crash-loop", "{s:i}", "starts", s->idle);
		return DT_EXIT_CRASH_LOOP;
	}
	return -1;
}

/* After the end of a job: cleans up, and handles its last messages. */
static int finish_start(struct sup *s)
{
	int status = sup_job_exit(&s->job), verdict;
	double now = dt_now();

	sup_job_kill(&s->job);
	sup_watch(s, 0);
	sup_job_clean(&s->job);
	if (s->job.elastic && (status == DT_EXIT_OK || sup_ranks_status(&s->ranks) >= 0)) {
		/* mpirun's status is 0 in elastic runs, whatever the ranks return */
		status = sup_ranks_status(&s->ranks) < 0 ? DT_EXIT_FAILED : sup_ranks_status(&s->ranks);
	}
	if (s->down <= 0)
		s->down = s->progress > 0 ? s->progress : s->trained > 0 ? s->trained : s->spawned;
	verdict = judge(s, status);
	sup_event(s, "end", "{s:i, s:i}", "start", s->start, "status", status);
	if (verdict < 0 && s->cmd.serves)
		dt_log_msg(s->log, "start %d exited with status %d: restarting the server", s->start, status);
	else if (verdict < 0 && s->ending != SUP_RESIZE)
		dt_log_msg(s->log, "start %d exited with status %d at step %lld: restarting the job",
			   s->start, status, (long long)s->last.step);
	if (verdict >= 0) /* the run ends: no recovery time */
		s->down = 0;
	if (verdict < 0 && s->ending != SUP_RESIZE)
		sup_check_hosts(s, now);
	if (verdict < 0 && s->discover.command &&
	    s->ending != SUP_RESIZE) { /* get the hosts again before the next start */
		s->hosts_known = false;
		s->discover.next = 0;
	}
	return verdict;
}

/* One start, from begin to end. -1: start again; else an exit status. */
static int one_start(struct sup *s, struct dt_err *err)
{
	int rc;

	s->next_files = 0; /* reads an existing kill file */
	sup_watch(s, 0);
	rc = wait_for_folder(s, err);
	if (rc == 0)
		rc = wait_for_hosts(s, err);
	if (rc == 0 && !s->stop)
		rc = sup_mirror_fetch(s, err);
	if (s->stop)
		return DT_EXIT_PREEMPTED;
	if (rc == 0)
		sup_job_clean_stale(&s->job);
	if (rc == 0)
		rc = sup_start(s, dt_now(), err);
	if (rc == -EAGAIN && s->o->discover) {
		wait_seconds(s, 1);
		return -1;
	}
	if (rc < 0) {
		dt_log_err(s->log, err);
		return rc == -ENOSPC ? DT_EXIT_NO : s->refused ? DT_EXIT_USAGE : DT_EXIT_FAILED;
	}
	s->idle++; /* reset by the next new step */
	while (s->job.running) {
		sup_watch(s, TICK_S);
		sup_job_reap(&s->job);
	}
	return finish_start(s);
}

static void close_books(struct sup *s, int status)
{
	char text[512];
	json_t *o;

	if (status != DT_EXIT_OK && status != DT_EXIT_PREEMPTED)
		sup_books_back(&s->books, s->saved < 0 ? 0 : s->saved);
	o = sup_books_json(&s->books, dt_now());
	if (!s->start || s->cmd.serves) { /* the books only cover steps */
		json_decref(o);
		return;
	}
	sup_books_text(&s->books, text, sizeof(text));
	dt_log_msg(s->log, "%s", text);
	if (o)
		json_object_set_new(o, "status", json_integer(status));
	if (o)
		json_object_set_new(o, "starts", json_integer(s->start));
	sup_event(s, "books", "O", o);
	json_decref(o);
}

/* A key for a folder, the same by any name, whether it exists or not; differs between users. */
static uint32_t key_of(const char *dir)
{
	char real[PATH_MAX], parent[PATH_MAX], *slash;
	uint32_t h = 2166136261u ^ (uint32_t)getuid(); /* FNV-1a */

	snprintf(parent, sizeof(parent), "%s%s", dir[0] == '/' ? "" : "./", dir);
	slash = strrchr(parent, '/');
	if (!realpath(dir, real)) {
		*slash = '\0';
		if (!realpath(*parent ? parent : "/", real))
			real[0] = '\0';
		snprintf(real + strlen(real), sizeof(real) - strlen(real), "/%s", slash + 1);
	}
	for (const char *c = real; *c; c++)
		h = (h ^ (unsigned char)*c) * 16777619u;
	return h;
}

/* A server has no folder: the key is of its command. */
static uint32_t key_of_words(char *const *argv)
{
	uint32_t h = key_of(".");

	for (; *argv; argv++)
		for (const char *c = *argv; *c; c++)
			h = (h ^ (unsigned char)*c) * 16777619u;
	return h;
}

static int begin(struct sup *s, struct dt_err *err)
{
	int rc = sup_command_read(&s->cmd, s->o->argv, err);

	if (rc == 0 && s->o->max_ranks && s->cmd.serves)
		rc = dt_err_set(err, -EINVAL,
				"--ranks is for dt-train alone: start dt-serve with its launcher");
	else if (rc == 0 && s->o->max_ranks && s->cmd.program)
		rc = dt_err_set(err, -EINVAL,
				"with --ranks the command must begin with dt-train, without a launcher");
	else if (rc == 0 && s->o->mirror && s->cmd.serves)
		rc = dt_err_set(err, -EINVAL, "--mirror is for checkpoints of dt-train, not for dt-serve");
	else if (rc == 0 && s->o->mirror_remove && s->cmd.o.run.save.keep <= 0)
		rc = dt_err_set(
			err, -EINVAL,
			"--mirror-remove needs --keep of dt-train: the number of checkpoints to keep");
	else if (rc == 0 && s->o->replace && (s->cmd.serves || !s->cmd.o.run.watch.elastic))
		rc = dt_err_set(err, -EINVAL, "--replace needs --elastic of dt-train");
	if (rc < 0)
		return rc;
	s->job.serves = s->cmd.serves;
	s->job.elastic = !s->cmd.serves && s->cmd.o.run.watch.elastic;
	s->job.key = s->cmd.serves ? key_of_words(s->o->argv) : key_of(s->cmd.o.run.save.dir);
	if (s->o->max_ranks && !s->o->discover) {
		char text[64];

		snprintf(text, sizeof(text), "localhost:%d", s->o->max_ranks);
		if ((rc = sup_hosts_parse(&s->hosts, text, err)) < 0)
			return rc;
		s->hosts_known = true;
	}
	if (s->o->events && strcmp(s->o->events, "-"))
		rc = dt_out_stream(s->o->events, true, &s->events, err);
	else if (s->o->events)
		s->events = stdout;
	if (rc == 0 && s->o->prometheus)
		rc = dt_out_check(s->o->prometheus, err);
	if (rc == 0)
		rc = sup_ranks_open(&s->ranks, err);
	s->signals = catch_signals();
	if (rc == 0 && s->signals < 0)
		rc = dt_err_sys(err, -errno, "cannot handle signals");
	return rc;
}

static void end(struct sup *s)
{
	sup_probe_close(&s->discover);
	sup_probe_close(&s->notice);
	sup_ranks_close(&s->ranks);
	sup_slow_reset(&s->slow);
	sup_command_release(&s->cmd);
	free(s->hosts.v);
	free(s->mirror.list.v);
	free(s->mirror.left.v);
	free(s->books.step);
	if (s->events && s->events != stdout)
		fclose(s->events);
	if (s->signals >= 0)
		close(s->signals);
}

int dt_supervise_run(const struct dt_supervise *o)
{
	struct sup s = {.o = o,
			.log = o->log,
			.ranks.fd = -1,
			.signals = -1,
			.best = -1,
			.saved = -1,
			.mirror = {.wanted = -1, .tried = -1},
			.books.began = dt_now(),
			.discover = {.command = o->discover, .every = o->discover_s},
			.notice = {.command = o->notice, .every = o->notice_s}};
	struct dt_err err = {0};
	int status = -1;

	if (begin(&s, &err) < 0) {
		dt_log_err(s.log, &err);
		end(&s);
		return err.code == -EINVAL ? DT_EXIT_USAGE : DT_EXIT_FAILED;
	}
	sup_notify("READY=1");
	while (status < 0) {
		if (s.idle > 1) /* 1, 2, 4 ... seconds, at most a minute */
			wait_seconds(&s, fmin(60, ldexp(1, s.idle - 2)));
		status = one_start(&s, &err);
	}
	sup_mirror_end(&s);
	sup_notify("STOPPING=1");
	close_books(&s, status);
	sup_page(&s, true);
	end(&s);
	return status;
}
/* SPDX-License-Identifier: Apache-2.0 */
