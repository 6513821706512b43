/* The runs of `dt-train verify`: processes, and what a signal does to them. */
#include "train/verify_run.h"

#include "base/json.h"
#include "base/signals.h"
#include "plan/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static _Atomic pid_t running;	  /* the run, which a signal ends; 0: none */
static volatile sig_atomic_t got; /* the signal */

static void on_signal(int sig)
{
	pid_t pid = running;

	got = sig;
	if (pid > 0)
		kill(pid, SIGTERM);
}

void dt_train_verify_catch(void)
{
	static const int which[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction hangup;
	const bool nohup = sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler == SIG_IGN;

	dt_signals_catch(which, sizeof(which) / sizeof(which[0]) - nohup, on_signal);
}

/* Sets Open MPI's variables for small machines and containers, unless the user has set them. */
static void mpi_environment(void)
{
	setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);
	setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);
	if (geteuid() == 0) {
		setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
		setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
	}
}

/* In the child: runs this program under mpirun, with its output in files of dir. Does not return. */
static void run_child(const struct dt_verify_opts *o, const struct dt_verify_run *r, int ranks,
		      const char *dir)
{
	char self[PATH_MAX] = {0}, n[16], batch[24], save[PATH_MAX], metrics[PATH_MAX], log[PATH_MAX],
	     error[PATH_MAX];
	char *argv[256];
	int argc = 0, fd;

	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		_exit(127);
	snprintf(n, sizeof(n), "%d", ranks);
	snprintf(save, sizeof(save), "%s/%s", dir, r->name);
	snprintf(metrics, sizeof(metrics), "%s/%s.jsonl", dir, r->name);
	snprintf(log, sizeof(log), "%s/%s.log", dir, r->name);
	snprintf(error, sizeof(error), "%s/%s.error", dir, r->name);
	snprintf(batch, sizeof(batch), "%lld", (long long)o->batch);
	fd = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
		_exit(127);
	if (ranks > 1) {
		mpi_environment();
		argv[argc++] = "mpirun";
		argv[argc++] = "-np";
		argv[argc++] = n;
	}
	argv[argc++] = self;
	for (int i = 0; o->args[i] && argc < 238; i++)
		argv[argc++] = o->args[i];
	if (o->batch) {
		argv[argc++] = "--global-batch";
		argv[argc++] = batch;
	}
	argv[argc++] = "--layout";
	argv[argc++] = (char *)r->layout;
	argv[argc++] = "--save";
	argv[argc++] = save;
	argv[argc++] = "--save-grads";
	argv[argc++] = "--metrics";
	argv[argc++] = metrics;
	argv[argc++] = "--error-file";
	argv[argc++] = error;
	argv[argc++] = "--no-mfu";
	argv[argc] = NULL;
	execvp(argv[0], argv);
	dprintf(STDERR_FILENO, "dt-train: cannot start %s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

/* Takes the failure from the child's --error-file; without that file err only says that it failed. */
static int child_error(const char *dir, const struct dt_verify_run *r, struct dt_err *err)
{
	const char *message = NULL, *hint = NULL;
	char path[PATH_MAX];
	json_t *o = NULL;

	snprintf(path, sizeof(path), "%s/%s.error", dir, r->name);
	if (dt_json_load(path, 1 << 16, &o, NULL) == 0) {
		dt_json_str(o, "message", true, &message, NULL);
		dt_json_str(o, "hint", true, &hint, NULL);
	}
	dt_err_set(err, -ECHILD, "layout '%s': the run failed%s%s", r->layout, message ? ": " : "",
		   message ? message : "");
	if (hint && hint[0])
		dt_err_hint(err, "%s", hint);
	json_decref(o);
	return -ECHILD;
}

/* Waits without releasing the process id, which on_signal may use until `running` is 0. */
static int wait_for(pid_t pid, int *ret_status, struct dt_err *err)
{
	siginfo_t info;
	int rc;

	running = pid;
	if (got)
		kill(pid, SIGTERM);
	do
		rc = waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
	while (rc < 0 && errno == EINTR);
	running = 0;
	while (waitpid(pid, ret_status, 0) < 0)
		if (errno != EINTR)
			return dt_err_sys(err, -errno, "cannot wait for a run");
	return 0;
}

int dt_train_verify_run(const struct dt_verify_opts *o, const struct dt_verify_run *r, const char *dir,
			struct dt_err *err)
{
	struct dt_layout l;
	pid_t pid, parent = getpid();
	int status = 0, rc = dt_layout_parse(r->layout, &l, err);

	if (rc < 0)
		return rc;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG,
		      SIGTERM); /* kept by execvp: the run ends, also if this program is killed */
		if (getppid() == parent)
			run_child(o, r, dt_layout_world(&l), dir);
		_exit(127);
	}
	if (pid < 0)
		return dt_err_sys(err, -errno, "cannot start a run");
	rc = wait_for(pid, &status, err);
	if (got)
		return dt_err_set(err, -EINTR, "stopped by a signal: %s", strsignal(got));
	if (rc < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
		return rc;
	return child_error(dir, r, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
