/*
 * --mirror: checkpoints elsewhere, by a pair of commands. One checkpoint at a time, the newest: a copy made
 * of hard links, which no pruning takes away, is sent, fetched back into another folder, and checked there
 * against its manifest, and that against ours; then the folder "latest", with the checkpoint's name in a
 * file, is sent. So what the mirror calls its latest is whole. All of it lies in SAVE.mirror meanwhile.
 */
#include "supervise/state.h"

#include "base/progress.h"
#include "base/tmpfile.h"
#include "ckpt/ckpt.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const doing[] = {"nothing", "sending", "fetching back", "checking", "sending the name of"};

int sup_mirror_words(char *buf, size_t size, const char *command, const char *path, const char *name)
{
	size_t n = 0;

	for (const char *c = command; *c && n < size; c++) {
		const char *what = c[0] != '%' ? NULL : c[1] == 's' ? path : c[1] == 'n' ? name : NULL;

		if (!what) {
			buf[n++] = *c;
			continue;
		}
		c++;
		n += (size_t)snprintf(buf + n, size - n, "'");
		for (; *what && n < size;
		     what++) /* a quote ends the quoted, stands by itself, and begins it anew */
			n += (size_t)snprintf(buf + n, size - n, *what == '\'' ? "'\\''" : "%c", *what);
		if (n < size)
			n += (size_t)snprintf(buf + n, size - n, "'");
	}
	if (n >= size)
		return -ENAMETOOLONG;
	buf[n] = '\0';
	return 0;
}

/* SAVE.mirror/folder/name, as a path from the root. */
static int place(const struct sup *s, const char *folder, const char *name, char *ret, size_t n)
{
	char here[PATH_MAX] = "", save[PATH_MAX];
	size_t len;

	snprintf(save, sizeof(save), "%s", s->cmd.o.run.save.dir);
	for (len = strlen(save); len > 1 && save[len - 1] == '/'; len--)
		save[len - 1] = '\0';
	if (save[0] != '/' && !getcwd(here, sizeof(here)))
		return -errno;
	return snprintf(ret, n, "%s%s%s.mirror/%s/%s", here, here[0] ? "/" : "", save, folder, name) >= (int)n
		       ? -ENAMETOOLONG
		       : 0;
}

static void step_name(char buf[32], int64_t step)
{
	snprintf(buf, 32, "step-%08" PRId64, step);
}

static bool same_manifest(const char *a, const char *b)
{
	char path[PATH_MAX];
	json_t *v[2] = {NULL, NULL};
	bool same;

	for (int i = 0; i < 2; i++)
		if (snprintf(path, sizeof(path), "%s/manifest.json", i ? b : a) < (int)sizeof(path))
			v[i] = json_load_file(path, 0, NULL);
	same = v[0] && json_equal(v[0], v[1]);
	json_decref(v[0]);
	json_decref(v[1]);
	return same;
}

/* The checkpoint at path, which is to be the one at sent (NULL: any): 0 or 1. */
static int look_at(const char *path, const char *sent)
{
	struct dt_err err = {0};

	return dt_ckpt_verify(path, 1, NULL, NULL, NULL, &err) == 0 && (!sent || same_manifest(sent, path))
		       ? 0
		       : 1;
}

/* A child for a command, or, command NULL, for a look at the checkpoint at path. */
static int spawn(struct sup *s, const char *command, const char *path, const char *sent)
{
	struct sup_mirror *m = &s->mirror;

	m->began = dt_now();
	m->pid = fork();
	if (m->pid == 0) {
		sigset_t none;

		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		if (!command)
			_exit(look_at(path, sent));
		dup2(2, 1); /* standard output may be the events' */
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	if (m->pid > 0)
		setpgid(m->pid, m->pid); /* whichever is first */
	s->job.aside = m->pid;
	return m->pid < 0 ? -errno : 0;
}

static int run_command(struct sup *s, const char *command, const char *path, const char *name)
{
	char text[4 * PATH_MAX];
	int rc = sup_mirror_words(text, sizeof(text), command, path, name);

	return rc < 0 ? rc : spawn(s, text, NULL, NULL);
}

/* The files of a folder under other names. */
static int link_files(const char *from, const char *to)
{
	char a[PATH_MAX], b[PATH_MAX];
	DIR *d = opendir(from);
	int rc = d ? dt_mkdir_p(to, NULL) : -errno;

	for (struct dirent *e; rc == 0 && (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		if (snprintf(a, sizeof(a), "%s/%s", from, e->d_name) >= (int)sizeof(a) ||
		    snprintf(b, sizeof(b), "%s/%s", to, e->d_name) >= (int)sizeof(b))
			rc = -ENAMETOOLONG;
		else if (link(a, b) < 0)
			rc = -errno;
	}
	if (d)
		closedir(d);
	return rc;
}

static int write_name(const char *folder, const char *name)
{
	char path[PATH_MAX];
	struct dt_tmpfile f;
	int rc = dt_mkdir_p(folder, NULL);

	snprintf(path, sizeof(path), "%s/latest", folder);
	if (rc == 0)
		rc = dt_tmpfile_open(&f, path, NULL);
	if (rc < 0)
		return rc;
	fprintf(f.f, "%s\n", name);
	return dt_tmpfile_commit(&f, NULL);
}

/* SAVE.mirror/folder, with nothing in it. */
static int fresh_folder(const struct sup *s, const char *folder)
{
	char path[PATH_MAX];
	int rc = place(s, folder, ".", path, sizeof(path));

	if (rc < 0)
		return rc;
	path[strlen(path) - 2] = '\0';
	dt_remove_tree(path, NULL);
	return dt_mkdir_p(path, NULL);
}

/* Begins the next part of what is done with the checkpoint under way. */
static int next_part(struct sup *s)
{
	struct sup_mirror *m = &s->mirror;
	char name[32], sent[PATH_MAX], back[PATH_MAX], from[PATH_MAX], latest[PATH_MAX];
	int rc;

	step_name(name, m->step);
	if ((rc = place(s, "send", name, sent, sizeof(sent))) < 0 ||
	    (rc = place(s, "back", name, back, sizeof(back))) < 0 ||
	    (rc = place(s, "name", "latest", latest, sizeof(latest))) < 0)
		return rc;
	switch (++m->doing) {
	case SUP_MIRROR_SEND:
		snprintf(from, sizeof(from), "%s/%s", s->cmd.o.run.save.dir, name);
		dt_remove_tree(sent, NULL);
		rc = link_files(from, sent);
		return rc < 0 ? rc : run_command(s, s->o->mirror, sent, name);
	case SUP_MIRROR_BACK:
		rc = fresh_folder(s, "back");
		return rc < 0 ? rc : run_command(s, s->o->mirror_get, back, name);
	case SUP_MIRROR_CHECK:
		return spawn(s, NULL, back, sent);
	default:
		rc = write_name(latest, name);
		return rc < 0 ? rc : run_command(s, s->o->mirror, latest, "latest");
	}
}

static void put_away(struct sup *s)
{
	char path[PATH_MAX];

	s->mirror.doing = SUP_MIRROR_NOTHING;
	if (place(s, "", "", path, sizeof(path)) < 0)
		return;
	path[strlen(path) - 2] = '\0'; /* "//" */
	dt_remove_tree(path, NULL);
}

static void fail(struct sup *s, int status)
{
	struct sup_mirror *m = &s->mirror;

	dt_log_msg(s->log, "--mirror: %s step %lld has failed (%s %d): the run goes on without",
		   doing[m->doing], (long long)m->step, status < 0 ? "errno" : "exit status",
		   status < 0 ? -status : status);
	sup_event(s, "mirror-failed", "{s:I, s:s, s:i}", "mirror_step", (json_int_t)m->step, "at",
		  doing[m->doing], "status", status);
	put_away(s);
}

/* 1: the child has ended, *ret_status is its exit status; 0: not yet. */
static int child_ended(struct sup *s, int *ret_status)
{
	struct sup_mirror *m = &s->mirror;
	int status;

	if (dt_now() - m->began > s->o->mirror_s)
		kill(-m->pid, SIGKILL);
	if (waitpid(m->pid, &status, WNOHANG) != m->pid)
		return 0;
	m->pid = s->job.aside = 0;
	*ret_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	return 1;
}

void sup_mirror_step(struct sup *s)
{
	struct sup_mirror *m = &s->mirror;
	int status = 0, rc;

	if (!s->o->mirror || m->fetching)
		return;
	if (m->doing == SUP_MIRROR_NOTHING) {
		if (m->wanted <= m->tried)
			return;
		m->step = m->tried = m->wanted;
	} else if (!child_ended(s, &status)) {
		return;
	} else if (status) {
		fail(s, status);
		return;
	} else if (m->doing == SUP_MIRROR_NAME) {
		sup_event(s, "mirrored", "{s:I}", "mirror_step", (json_int_t)m->step);
		put_away(s);
		return;
	}
	rc = next_part(s);
	if (rc < 0)
		fail(s, rc);
}

void sup_mirror_end(struct sup *s)
{
	struct sup_mirror *m = &s->mirror;

	while (s->o->mirror && !s->leave && (m->doing || m->wanted > m->tried))
		sup_watch(s, 0.1);
	if (m->pid > 0) {
		kill(-m->pid, SIGKILL);
		waitpid(m->pid, NULL, 0);
		fail(s, 128 + SIGKILL);
	}
}

/* Runs the child to its end; its exit status, or a negative errno. */
static int to_the_end(struct sup *s, int rc)
{
	int status = 0;

	while (rc == 0 && !child_ended(s, &status)) {
		if (s->stop)
			kill(-s->mirror.pid, SIGKILL);
		sup_watch(s, 0.1);
	}
	return rc < 0 ? rc : status;
}

/* The name in the file "latest" of a folder: 1, or 0: there is none. -EINVAL: it is no checkpoint's. */
static int read_name(const char *folder, char name[32])
{
	char path[PATH_MAX], again[32];
	long long step;
	FILE *f;
	int rc;

	snprintf(path, sizeof(path), "%s/latest", folder);
	f = fopen(path, "re");
	if (!f)
		return errno == ENOENT ? 0 : -errno;
	rc = fscanf(f, "step-%lld", &step) == 1 && step >= 0 ? 1 : -EINVAL;
	fclose(f);
	step_name(again, rc == 1 ? step : 0);
	snprintf(name, 32, "%s", again);
	return rc;
}

/* The checkpoint that was fetched and checked becomes the newest of the run. */
static int move_in(struct sup *s, const char *back, const char *name)
{
	char to[PATH_MAX], latest[PATH_MAX];
	const char *save = s->cmd.o.run.save.dir;
	int rc = dt_mkdir_p(save, NULL);

	snprintf(to, sizeof(to), "%s/%s", save, name);
	snprintf(latest, sizeof(latest), "%s/latest", save);
	if (rc == 0 && rename(back, to) < 0)
		rc = -errno;
	if (rc == 0)
		rc = dt_symlink_replace(name, latest, NULL);
	return rc == 0 ? dt_fsync_dir(save, NULL) : rc;
}

static int fetch(struct sup *s, struct dt_err *err)
{
	char latest[PATH_MAX], back[PATH_MAX], name[32];
	int rc = place(s, "name", "latest", latest, sizeof(latest));

	if (rc == 0)
		rc = fresh_folder(s, "name");
	rc = to_the_end(s, rc < 0 ? rc : run_command(s, s->o->mirror_get, latest, "latest"));
	if (rc) {
		dt_err_set(err, -EIO,
			   "--mirror-get: whether the mirror has a checkpoint is not known (%s %d)",
			   rc < 0 ? "errno" : "exit status", rc < 0 ? -rc : rc);
		dt_err_hint(err,
			    "of a mirror with nothing in it the command exits with 0, and brings nothing");
		return -EIO;
	}
	rc = read_name(latest, name);
	if (rc <= 0)
		return rc < 0 ? dt_err_sys(err, rc, "--mirror-get: 'latest' of the mirror") : 0;
	if ((rc = place(s, "back", name, back, sizeof(back))) == 0)
		rc = fresh_folder(s, "back");
	rc = to_the_end(s, rc < 0 ? rc : run_command(s, s->o->mirror_get, back, name));
	if (rc)
		return dt_err_set(err, -EIO, "--mirror-get: '%s' cannot be fetched (%s %d)", name,
				  rc < 0 ? "errno" : "exit status", rc < 0 ? -rc : rc);
	if (to_the_end(s, spawn(s, NULL, back, NULL)))
		return dt_err_set(err, -EIO, "--mirror-get: what came as '%s' is no whole checkpoint", name);
	rc = move_in(s, back, name);
	if (rc < 0)
		return dt_err_sys(err, rc, "cannot put '%s' into '%s'", name, s->cmd.o.run.save.dir);
	dt_log_msg(s->log, "'%s' is fetched from the mirror", name);
	sup_event(s, "fetched", "{s:s}", "name", name);
	return 0;
}

int sup_mirror_fetch(struct sup *s, struct dt_err *err)
{
	struct sup_mirror *m = &s->mirror;
	int64_t step;
	int rc;

	if (!s->o->mirror || m->asked)
		return 0;
	rc = sup_command_refresh(&s->cmd, &step, err);
	if (rc == 0 && step < 0) {
		m->fetching = true;
		rc = fetch(s, err);
		m->fetching = false;
		put_away(s);
		if (rc == 0)
			rc = sup_command_refresh(&s->cmd, &m->tried, err);
	} else {
		m->wanted = step; /* of an earlier start: whether the mirror has it is not known */
	}
	m->asked = rc == 0;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
