/* Runs the trials of a sweep, several at a time, rung by rung. One thread; a trial is a child process. */
#include "supervise/sweep.h"

#include "base/progress.h"
#include "base/units.h"
#include "supervise/sweep_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int make_folder(const char *path, struct dt_err *err)
{
	if (mkdir(path, 0777) < 0 && errno != EEXIST)
		return dt_err_sys(err, -errno, "cannot make '%s'", path);
	return 0;
}

/* In the child: becomes the trial. If the sweep is killed, the trial saves and ends. */
static void become(char *const *argv, const char *log, pid_t parent)
{
	const int in = open("/dev/null", O_RDONLY), out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0666);
	sigset_t none;

	setpgid(0, 0); /* so that Ctrl-C only reaches the sweep */
	if (in < 0 || out < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
		_exit(126);
	prctl(PR_SET_PDEATHSIG, SIGUSR1);
	/* concurrent trials must not be bound to the same cores */
	setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (getppid() == parent)
		execvp(argv[0], argv);
	dprintf(2, "cannot run '%s': %s\n", argv[0], strerror(errno));
	_exit(127);
}

static int begin_trial(struct sweep *s, struct sweep_trial *t, int rung, struct dt_err *err)
{
	struct sup_words w = sweep_command(s, t, rung);
	const pid_t parent = getpid();
	char path[PATH_MAX];
	int rc;

	snprintf(path, sizeof(path), "%s/%03d", s->o->dir, t->number);
	rc = make_folder(path, err);
	snprintf(path, sizeof(path), "%s/%03d/log", s->o->dir, t->number);
	if (rc == 0 && (t->pid = fork()) < 0)
		rc = dt_err_sys(err, -errno, "cannot start a trial");
	if (rc == 0 && t->pid == 0)
		become(w.v, path, parent);
	sup_words_free(&w);
	if (rc < 0)
		return rc;
	t->state = SWEEP_RUNS;
	t->rung = rung;
	t->began = dt_now();
	return 0;
}

static void tell(const struct sweep *s, const struct sweep_trial *t, int status)
{
	char name[512], took[32];

	sweep_name(s, t, name, sizeof(name));
	dt_format_duration(t->seconds, took, sizeof(took));
	if (status)
		dt_log_msg(s->o->log, "trial %d of %d, %s: exit status %d, see %s/%03d/log", t->number,
			   s->ntrials, name, status, s->o->dir, t->number);
	else if (isnan(t->score))
		dt_log_msg(s->o->log, "trial %d of %d, %s: no finite '%s' in its metrics", t->number,
			   s->ntrials, name, s->o->metric);
	else
		dt_log_msg(s->o->log, "trial %d of %d, %s: %s %.6g at step %lld, %s", t->number, s->ntrials,
			   name, s->o->metric, t->score, (long long)t->steps, took);
}

/* Reports a trial's message about its command line. */
static int usage_error(const struct sweep *s, const struct sweep_trial *t, struct dt_err *err)
{
	char path[PATH_MAX], line[512], first[512] = "see its log";
	FILE *f;

	snprintf(path, sizeof(path), "%s/%03d/log", s->o->dir, t->number);
	f = fopen(path, "re");
	if (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		memcpy(first, line, sizeof(line));
	}
	if (f)
		fclose(f);
	unlink(path); /* or it would be read again after a correction */
	return dt_err_set(err, -EINVAL, "trial %d: %s", t->number, first);
}

/* Reaps trials that have ended. Returns the number still running, or an error. */
static int reap(struct sweep *s, struct dt_err *err)
{
	int running = 0, rc = 0;

	for (int i = 0; i < s->ntrials && rc == 0; i++) {
		struct sweep_trial *t = &s->trial[i];
		int status;

		if (t->state != SWEEP_RUNS || !t->pid)
			continue;
		running++;
		if (waitpid(t->pid, &status, WNOHANG) != t->pid)
			continue;
		running--;
		t->pid = 0;
		t->seconds += dt_now() - t->began;
		status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
		if (status && s->stop) /* it was asked to end: a later call continues it */
			continue;
		if (status == DT_EXIT_USAGE) /* the other trials would fail too */
			return usage_error(s, t, err);
		rc = sweep_note(s, t, status, err);
		if (rc == 0)
			tell(s, t, status);
	}
	return rc < 0 ? rc : running;
}

static void end_trials(struct sweep *s, int sig)
{
	for (int i = 0; i < s->ntrials; i++)
		if (s->trial[i].pid > 0)
			kill(s->trial[i].pid, sig);
}

/* Waits for a child or a terminating signal. */
static void wait_event(struct sweep *s, const sigset_t *set)
{
	const int sig = sigtimedwait(set, NULL, &(struct timespec){.tv_sec = 1});

	if (sig <= 0 || sig == SIGCHLD)
		return;
	if (!s->stop)
		dt_log_msg(s->o->log, "stopping: trials save and exit; the same command continues the sweep");
	end_trials(s, s->stop ? SIGTERM : SIGUSR1); /* forwarded by mpirun */
	s->stop = true;
}

/* After a failure: ends the trials that still run and waits until they have saved. A signal kills them. */
static void drain(struct sweep *s, const sigset_t *set)
{
	struct dt_err more;
	int running;

	s->stop = true;
	end_trials(s, SIGUSR1);
	while ((running = reap(s, &more)) != 0) /* an error ends one trial; the first error is reported */
		if (running > 0)
			wait_event(s, set);
}

/* Runs this rung for every trial that takes part in it. */
static int run_rung(struct sweep *s, int rung, const sigset_t *set, struct dt_err *err)
{
	int running = 0, rc = 0;

	for (;;) {
		for (int i = 0; i < s->ntrials && running < s->jobs && rc == 0 && !s->stop; i++)
			if (s->trial[i].state == SWEEP_WAITS) {
				rc = begin_trial(s, &s->trial[i], rung, err);
				running += rc == 0;
			}
		if (rc < 0) {
			drain(s, set);
			return rc;
		}
		if (running == 0)
			return 0;
		wait_event(s, set);
		running = reap(s, err);
		if (running < 0) {
			drain(s, set);
			return running;
		}
	}
}

/* Promotes the best trials that ended rung k: one in `halve`, at least one. */
static void promote(struct sweep *s, int k)
{
	int64_t ended = 0, beyond = 0; /* promoted by an earlier call */

	for (int i = 0; i < s->ntrials; i++) {
		ended += s->trial[i].state == SWEEP_ENDED && s->trial[i].rung == k;
		beyond += s->trial[i].rung > k;
	}
	for (int64_t n = (ended + beyond + s->o->halve - 1) / s->o->halve - beyond; n > 0; n--) {
		struct sweep_trial *best = NULL;

		for (int i = 0; i < s->ntrials; i++) {
			struct sweep_trial *t = &s->trial[i];

			if (t->state == SWEEP_ENDED && t->rung == k && (!best || sweep_better(s, t, best)))
				best = t;
		}
		if (best)
			best->state = SWEEP_WAITS;
	}
}

static int run_all(struct sweep *s, struct dt_err *err)
{
	sigset_t set, before;
	int rc = 0;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, &before);
	for (int k = 0; k < s->rungs && rc == 0 && !s->stop; k++) {
		if (k)
			promote(s, k - 1);
		rc = run_rung(s, k, &set, err);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	return rc;
}

static void say_best(const struct sweep *s)
{
	const struct sweep_trial *best = NULL;
	char name[512];

	for (int i = 0; i < s->ntrials; i++)
		if (!isnan(s->trial[i].score) &&
		    (!best || s->trial[i].rung > best->rung ||
		     (s->trial[i].rung == best->rung && sweep_better(s, &s->trial[i], best))))
			best = &s->trial[i];
	if (best)
		dt_log_msg(s->o->log, "best: trial %d, %s; dt-board %s/* shows all trials", best->number,
			   sweep_name(s, best, name, sizeof(name)), s->o->dir);
}

/* The evaluation loss if the command evaluates; else the mean of several step losses, as they are noisy. */
static void choose_metric(struct dt_sweep *o)
{
	bool evaluates = false;

	for (int i = 0; o->argv[i]; i++)
		evaluates |= !strncmp(o->argv[i], "--eval-data", 11);
	if (!o->metric)
		o->metric = evaluates ? "eval_loss" : "loss";
	if (!o->last)
		o->last = strcmp(o->metric, "loss") ? 1 : 10;
}

int dt_sweep_run(const struct dt_sweep *o, FILE *out, struct dt_err *err)
{
	struct dt_sweep own = *o;
	struct sweep s = {.o = &own};
	int rc, status, good = 0;

	choose_metric(&own);
	rc = sweep_plan(&s, err);

	status = rc < 0 ? DT_EXIT_USAGE : DT_EXIT_FAILED;
	if (rc == 0)
		rc = make_folder(o->dir, err);
	if (rc == 0)
		rc = sweep_open(&s, err);
	if (rc == 0) {
		char steps[48] = "";

		if (!sweep_varies_steps(&s))
			snprintf(steps, sizeof(steps), " of %lld steps", (long long)s.steps);
		dt_log_msg(o->log, "%d trial%s%s, %d at a time%s", s.ntrials, s.ntrials == 1 ? "" : "s",
			   steps, s.jobs, s.rungs > 1 ? ", the best continue" : "");
		rc = run_all(&s, err);
		status = rc == -EINVAL ? DT_EXIT_USAGE : status;
	}
	for (int i = 0; i < s.ntrials; i++)
		good += !isnan(s.trial[i].score);
	if (rc == 0) {
		sweep_print(&s, out);
		if (!s.stop)
			say_best(&s);
		status = s.stop ? DT_EXIT_PREEMPTED : good ? DT_EXIT_OK : DT_EXIT_FAILED;
	}
	if (rc == 0 && status == DT_EXIT_FAILED)
		rc = dt_err_set(err, -ENODATA, "no trial has a value of '%s'", own.metric);
	if (rc < 0)
		dt_log_err(o->log, err);
	sweep_release(&s);
	return status;
}
/* SPDX-License-Identifier: Apache-2.0 */
