/* A mirror before the first start, which fetches its newest checkpoint, and after the last, which waits. */
#include "supervise/mirror.h"

#include "base/progress.h"
#include "base/step_name.h"
#include "base/tmpfile.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void sup_mirror_end(struct sup *s)
{
	struct sup_mirror *m = &s->mirror;

	while (s->o->mirror && !s->leave && (m->doing || m->wanted > m->tried))
		sup_watch(s, 0.1);
	if (m->pid > 0) {
		kill(-m->pid, SIGKILL);
		waitpid(m->pid, NULL, 0);
		sup_mirror_fail(s, 128 + SIGKILL);
	}
}

/* Waits for the child; returns its exit status, or a negative errno. */
static int to_the_end(struct sup *s, int rc)
{
	int status = 0;

	while (rc == 0 && !sup_mirror_ended(s, &status)) {
		if (s->stop)
			kill(-s->mirror.pid, SIGKILL);
		sup_watch(s, 0.1);
	}
	return rc < 0 ? rc : status;
}

/* Reads the name in the file "latest" of a folder. 1; 0: no file; -EINVAL: not a checkpoint's name. */
static int read_name(const char *folder, char name[DT_STEP_NAME])
{
	char path[PATH_MAX];
	FILE *f;
	int rc;

	snprintf(path, sizeof(path), "%s/latest", folder);
	f = fopen(path, "re");
	if (!f)
		return errno == ENOENT ? 0 : -errno;
	rc = fscanf(f, "%31s", name) == 1 && dt_step_of(name) >= 0 ? 1 : -EINVAL;
	fclose(f);
	return rc;
}

/* Moves the fetched and verified checkpoint into the run's folder as its newest. */
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
	char latest[PATH_MAX], back[PATH_MAX], name[DT_STEP_NAME];
	int rc = sup_mirror_place(s, "name", "latest", latest, sizeof(latest));

	if (rc == 0)
		rc = sup_mirror_fresh(s, "name");
	rc = to_the_end(s, rc < 0 ? rc : sup_mirror_command(s, s->o->mirror_get, latest, "latest"));
	if (rc) {
		dt_err_set(err, -EIO,
			   "--mirror-get failed (%s %d): cannot tell whether the mirror has a checkpoint",
			   rc < 0 ? "errno" : "exit status", rc < 0 ? -rc : rc);
		dt_err_hint(err, "for an empty mirror the command must exit with 0 and create nothing");
		return -EIO;
	}
	sup_mirror_listed(s, latest);
	rc = read_name(latest, name);
	if (rc <= 0)
		return rc < 0 ? dt_err_sys(err, rc, "--mirror-get: cannot read 'latest' of the mirror") : 0;
	if ((rc = sup_mirror_place(s, "back", name, back, sizeof(back))) == 0)
		rc = sup_mirror_fresh(s, "back");
	rc = to_the_end(s, rc < 0 ? rc : sup_mirror_command(s, s->o->mirror_get, back, name));
	if (rc)
		return dt_err_set(err, -EIO, "--mirror-get: cannot download '%s' (%s %d)", name,
				  rc < 0 ? "errno" : "exit status", rc < 0 ? -rc : rc);
	if (to_the_end(s, sup_mirror_check(s, back, NULL)))
		return dt_err_set(err, -EIO, "--mirror-get: the downloaded '%s' is not a complete checkpoint",
				  name);
	rc = move_in(s, back, name);
	if (rc < 0)
		return dt_err_sys(err, rc, "cannot move '%s' into '%s'", name, s->cmd.o.run.save.dir);
	dt_log_msg(s->log, "downloaded '%s' from the mirror", name);
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
	if (rc == 0 && (rc = sup_mirror_left(s, &m->left)) < 0)
		dt_err_sys(err, rc, "cannot list uploads that an earlier run left incomplete");
	if (rc == 0 && step < 0) {
		m->fetching = true;
		rc = fetch(s, err);
		m->fetching = false;
		sup_mirror_put_away(s);
		if (rc == 0)
			rc = sup_command_refresh(&s->cmd, &m->tried, err);
	} else {
		m->wanted = step; /* of an earlier start: the mirror may lack it */
	}
	m->asked = rc == 0;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
