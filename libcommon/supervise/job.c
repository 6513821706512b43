/*
 * The job's processes. Open MPI gives each rank its own process group, so processes of the job are found by
 * descent: this process adopts orphaned descendants (PR_SET_CHILD_SUBREAPER).
 */
#include "supervise/priv.h"

#include "base/tmpfile.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* In the child: sets up the job's environment. board: the board of the job that it joins; NULL: a new job. */
static void settle(const struct sup_job *j, const char *beat_env, const char *board)
{
	sigset_t none;
	int in = open("/dev/null", O_RDONLY);

	setpgid(0, 0); /* so that Ctrl-C only reaches the supervisor */
	if (in >= 0)
		dup2(in, 0);
	prctl(PR_SET_PDEATHSIG, SIGUSR1); /* if the supervisor dies, the job saves and ends */
	setenv(DT_BEAT_ENV, beat_env, 1);
	if (board)
		setenv(DT_JOIN_ENV, board, 1);
	else
		unsetenv(DT_JOIN_ENV);
	setenv("OMPI_MCA_orte_tmpdir_base", j->tmp, 1);
	/* after a rank's death the others are killed at once, unless a server must tell its clients */
	setenv("OMPI_MCA_odls_base_sigkill_timeout", j->serves ? "2" : "0", 0);
	if (j->elastic)
		setenv("OMPI_MCA_orte_enable_recovery", "1", 1);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static const char *tmp_root(void)
{
	const char *tmp = getenv("TMPDIR");

	return tmp && *tmp && strlen(tmp) < 40 ? tmp : "/tmp";
}

/* Starts one process of the job; returns its pid. */
static int spawn(const struct sup_job *j, char *const *argv, const char *beat_env, const char *board,
		 struct dt_err *err)
{
	int ends[2], code = 0;
	pid_t parent = getpid(), pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return dt_err_sys(err, -errno, "cannot start '%s'", argv[0]);
	pid = fork();
	if (pid == 0) {
		settle(j, beat_env, board);
		if (getppid() != parent)
			_exit(1);
		execvp(argv[0], argv);
		code = errno;
		(void)!write(ends[1], &code, sizeof(code));
		_exit(127);
	}
	close(ends[1]);
	if (pid > 0 && read(ends[0], &code, sizeof(code)) == sizeof(code))
		waitpid(pid, NULL, 0);
	else if (pid < 0)
		code = errno;
	close(ends[0]);
	return code ? dt_err_sys(err, -code, "cannot start '%s'", argv[0]) : pid;
}

int sup_job_start(struct sup_job *j, char *const *argv, const char *beat_env, struct dt_err *err)
{
	int rc;

	snprintf(j->tmp, sizeof(j->tmp), "%s/dt-run.%08x.XXXXXX", tmp_root(), j->key);
	if (!mkdtemp(j->tmp))
		return dt_err_sys(err, -errno, "cannot make '%s'", j->tmp);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	rc = spawn(j, argv, beat_env, NULL, err);
	if (rc < 0) {
		rmdir(j->tmp);
		return rc;
	}
	j->pid = rc;
	j->njoined = 0;
	j->running = true;
	return 0;
}

int sup_job_join(struct sup_job *j, char *const *argv, const char *beat_env, const char *board,
		 struct dt_err *err)
{
	int rc = j->njoined < SUP_JOINED ? spawn(j, argv, beat_env, board, err)
					 : dt_err_set(err, -ENOSPC, "%d processes have joined", SUP_JOINED);

	if (rc > 0)
		j->joined[j->njoined++] = rc;
	return rc;
}

void sup_job_signal(const struct sup_job *j, int sig)
{
	if (j->pid > 0)
		kill(j->pid, sig);
	for (int i = 0; i < j->njoined; i++)
		kill(j->joined[i], sig);
}

/* The parent of a process; 0: the process has ended. */
static pid_t parent_of(pid_t pid)
{
	char path[64], line[512], *p;
	FILE *f;
	int parent = 0;
	char state;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	if (f && fgets(line, sizeof(line), f) && (p = strrchr(line, ')')) &&
	    (sscanf(p + 1, " %c %d", &state, &parent) != 2 || state == 'Z'))
		parent = 0;
	if (f)
		fclose(f);
	return parent;
}

/* Whether pid descends from top, but neither is aside nor descends from it. */
static bool below(pid_t pid, pid_t top, pid_t aside)
{
	for (int depth = 0; pid > 1 && pid != aside && depth < 64; depth++) {
		pid = parent_of(pid);
		if (pid == top)
			return true;
	}
	return false;
}

/* Kills descendants of this process except aside and its own; returns how many there were. */
static int kill_below(int sig, pid_t aside)
{
	DIR *d = opendir("/proc");
	int n = 0;

	for (struct dirent *e; d && (e = readdir(d));) {
		pid_t pid = isdigit((unsigned char)e->d_name[0]) ? (pid_t)atoi(e->d_name) : 0;

		if (pid > 1 && pid != getpid() && below(pid, getpid(), aside))
			n += kill(pid, sig) == 0;
	}
	if (d)
		closedir(d);
	return n;
}

void sup_job_kill(struct sup_job *j)
{
	/* A killed process may have started another one meanwhile. */
	for (int i = 0; i < 100 && kill_below(SIGKILL, j->aside) > 0; i++) {
		usleep(20000);
		sup_job_reap(j);
	}
}

/* Whether pid is waited for by its number. */
static bool is_own(const struct sup_job *j, pid_t pid)
{
	for (int i = 0; i < j->njoined; i++)
		if (j->joined[i] == pid)
			return true;
	return pid == j->pid || pid == j->aside;
}

bool sup_job_reap(struct sup_job *j)
{
	bool ended = false;
	siginfo_t info = {0};
	int n = 0;

	/* Probes are waited for elsewhere. */
	if (j->running && j->pid && waitpid(j->pid, &j->status, WNOHANG) == j->pid)
		j->pid = 0;
	for (int i = 0; i < j->njoined; i++)
		if (waitpid(j->joined[i], NULL, WNOHANG) != j->joined[i])
			j->joined[n++] = j->joined[i];
	j->njoined = n;
	if (j->running && !j->pid && !n) {
		j->running = false;
		ended = true;
	}
	for (;;) { /* reaps adopted processes, which nobody else waits for */
		info.si_pid = 0;
		if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || !info.si_pid)
			return ended;
		if (is_own(j, info.si_pid) || getpgid(info.si_pid) == getpgrp())
			return ended;
		waitpid(info.si_pid, NULL, WNOHANG);
	}
}

int sup_job_exit(const struct sup_job *j)
{
	return WIFSIGNALED(j->status) ? 128 + WTERMSIG(j->status) : WEXITSTATUS(j->status);
}

static void clean_shm(uint32_t number)
{
	DIR *d = number ? opendir("/dev/shm") : NULL;
	char part[32], path[PATH_MAX];

	snprintf(part, sizeof(part), ".%x.", number);
	for (struct dirent *e; d && (e = readdir(d));) {
		snprintf(path, sizeof(path), "/dev/shm/%s", e->d_name);
		if (!strncmp(e->d_name, "vader_segment.", 14) && strstr(e->d_name, part))
			unlink(path);
	}
	if (d)
		closedir(d);
}

void sup_job_note(const struct sup_job *j, uint32_t number)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/job.%u", j->tmp, number);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
}

static void clean_folder(const char *path)
{
	DIR *d = opendir(path);
	unsigned number;

	for (struct dirent *e; d && (e = readdir(d));)
		if (sscanf(e->d_name, "job.%u", &number) == 1)
			clean_shm(number);
	if (d)
		closedir(d);
	dt_remove_tree(path, NULL);
}

void sup_job_clean(struct sup_job *j)
{
	if (j->tmp[0])
		clean_folder(j->tmp);
	j->tmp[0] = '\0';
}

void sup_job_clean_stale(const struct sup_job *j)
{
	DIR *d = opendir(tmp_root());
	char name[32], path[PATH_MAX];

	snprintf(name, sizeof(name), "dt-run.%08x.", j->key);
	for (struct dirent *e; d && (e = readdir(d));) {
		snprintf(path, sizeof(path), "%s/%s", tmp_root(), e->d_name);
		if (strncmp(e->d_name, name, strlen(name)))
			continue;
		/*
		 * The launcher may be ending and removing files there too: one of the two then fails and
		 * leaves the rest.
		 */
		for (int tries = 0; tries < 100 && access(path, F_OK) == 0; tries++) {
			if (tries)
				nanosleep(&(struct timespec){0, 50000000}, NULL);
			clean_folder(path);
		}
	}
	if (d)
		closedir(d);
}

/* ---- probes ---- */

static void probe_start(struct sup_probe *p, double now)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
		return;
	p->pid = fork();
	if (p->pid == 0) {
		sigset_t none;

		fcntl(ends[1], F_SETFL, 0);
		dup2(ends[1], 1);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		execl("/bin/sh", "sh", "-c", p->command, (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	p->fd = ends[0];
	p->began = now;
	p->n = 0;
	if (p->pid < 0)
		close(p->fd);
}

static void probe_read(struct sup_probe *p)
{
	char part[4096];
	ssize_t n;

	while ((n = read(p->fd, part, sizeof(part))) > 0 && p->n < 1 << 20) {
		char *grown = realloc(p->text, p->n + (size_t)n + 1);

		if (!grown)
			return;
		p->text = grown;
		memcpy(p->text + p->n, part, (size_t)n);
		p->n += (size_t)n;
		p->text[p->n] = '\0';
	}
}

int sup_probe_step(struct sup_probe *p, double now, int *ret_status)
{
	int status;

	if (!p->command)
		return 0;
	if (p->pid <= 0) {
		if (now >= p->next) {
			probe_start(p, now);
			p->next = now + p->every;
		}
		return 0;
	}
	probe_read(p);
	if (now - p->began > 30) /* kills a hanging probe; it runs again later */
		kill(p->pid, SIGKILL);
	if (waitpid(p->pid, &status, WNOHANG) != p->pid)
		return 0;
	probe_read(p);
	close(p->fd);
	p->pid = 0;
	p->next = now + p->every;
	if (!p->text)
		p->text = strdup("");
	if (!p->n && p->text)
		p->text[0] = '\0';
	*ret_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
	return p->text ? 1 : 0;
}

void sup_probe_close(struct sup_probe *p)
{
	if (p->pid > 0) {
		kill(p->pid, SIGKILL);
		waitpid(p->pid, NULL, 0);
		close(p->fd);
	}
	p->pid = 0;
	free(p->text);
	p->text = NULL;
}
/* SPDX-License-Identifier: Apache-2.0 */
