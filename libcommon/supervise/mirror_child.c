/* A mirror's local folders, and the child processes that run its commands, one at a time. */
#include "supervise/mirror.h"

#include "base/progress.h"
#include "base/shell.h"
#include "base/step_name.h"
#include "base/tmpfile.h"
#include "ckpt/ckpt.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

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
		n += dt_shell_word(what, true, buf + n, size - n);
	}
	if (n >= size)
		return -ENAMETOOLONG;
	buf[n] = '\0';
	return 0;
}

int sup_mirror_place(const struct sup *s, const char *folder, const char *name, char *ret, size_t n)
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

int sup_mirror_fresh(const struct sup *s, const char *folder)
{
	char path[PATH_MAX];
	int rc = sup_mirror_place(s, folder, ".", path, sizeof(path));

	if (rc < 0)
		return rc;
	path[strlen(path) - 2] = '\0';
	dt_remove_tree(path, NULL);
	return dt_mkdir_p(path, NULL);
}

void sup_mirror_put_away(struct sup *s)
{
	char path[PATH_MAX];

	s->mirror.doing = SUP_MIRROR_NOTHING;
	if (sup_mirror_place(s, "", "", path, sizeof(path)) < 0)
		return;
	path[strlen(path) - 2] = '\0'; /* "//" */
	dt_remove_tree(path, NULL);
}

int sup_mirror_left(const struct sup *s, struct sup_mirror_list *ret)
{
	char path[PATH_MAX];
	DIR *d;
	int rc = sup_mirror_place(s, "send", ".", path, sizeof(path));

	if (rc < 0)
		return rc;
	d = opendir(path);
	for (struct dirent *e; d && rc == 0 && (e = readdir(d));) {
		const int64_t step = dt_step_of(e->d_name);

		if (step >= 0)
			rc = sup_mirror_list_set(ret, step, false);
	}
	if (d)
		closedir(d);
	return rc;
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

/* Verifies the checkpoint at path, and that it equals the one at sent (NULL: any). Returns 0 or 1. */
static int look_at(const char *path, const char *sent)
{
	struct dt_err err = {0};

	return dt_ckpt_verify(path, 1, NULL, NULL, NULL, &err) == 0 && (!sent || same_manifest(sent, path))
		       ? 0
		       : 1;
}

/* Starts a child for a command or, with command NULL, to verify the checkpoint at path. */
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
		dup2(2, 1); /* standard output may be used for events */
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	if (m->pid > 0)
		setpgid(m->pid, m->pid); /* in parent and child, whichever runs first */
	s->job.aside = m->pid;
	return m->pid < 0 ? -errno : 0;
}

int sup_mirror_command(struct sup *s, const char *command, const char *path, const char *name)
{
	char text[4 * PATH_MAX];
	int rc = sup_mirror_words(text, sizeof(text), command, path, name);

	return rc < 0 ? rc : spawn(s, text, NULL, NULL);
}

int sup_mirror_check(struct sup *s, const char *path, const char *sent)
{
	return spawn(s, NULL, path, sent);
}

int sup_mirror_ended(struct sup *s, int *ret_status)
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

/* SPDX-License-Identifier: Apache-2.0 */
