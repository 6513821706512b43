/*
 * --mirror: copies checkpoints elsewhere with a pair of commands, one at a time, always the newest. A copy
 * made of hard links, which pruning does not remove, is sent, fetched back into another folder and verified
 * against its manifest, and the manifest against the original. Then the folder "latest", with the
 * checkpoint's name in a file, is sent, so the mirror's latest checkpoint is complete. Meanwhile all files
 * are in SAVE.mirror. With the name goes a list of all checkpoints in the mirror; those that are too old are
 * then removed, and the next list omits them.
 */
#include "supervise/mirror.h"

#include "base/step_name.h"
#include "base/tmpfile.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <unistd.h>

static const char *const doing[] = {"nothing",	"fetching the list for", "sending", "fetching back",
				    "checking", "sending the name of",	 "removing"};

/* Hard-links the files of folder `from` into `to`. */
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

/* Starts the next part of the current checkpoint's transfer. */
static int next_part(struct sup *s)
{
	struct sup_mirror *m = &s->mirror;
	char name[DT_STEP_NAME], sent[PATH_MAX], back[PATH_MAX], from[PATH_MAX], latest[PATH_MAX];
	int rc;

	dt_step_name(name, m->step);
	if ((rc = sup_mirror_place(s, "send", name, sent, sizeof(sent))) < 0 ||
	    (rc = sup_mirror_place(s, "back", name, back, sizeof(back))) < 0 ||
	    (rc = sup_mirror_place(s, "name", "latest", latest, sizeof(latest))) < 0)
		return rc;
	switch (m->doing = m->doing == SUP_MIRROR_NOTHING && m->listed ? SUP_MIRROR_SEND : m->doing + 1) {
	case SUP_MIRROR_LIST:
		rc = sup_mirror_fresh(s, "name");
		return rc < 0 ? rc : sup_mirror_command(s, s->o->mirror_get, latest, "latest");
	case SUP_MIRROR_SEND:
		if (!m->listed)
			sup_mirror_listed(s, latest);
		snprintf(from, sizeof(from), "%s/%s", s->cmd.o.run.save.dir, name);
		dt_remove_tree(sent, NULL);
		if ((rc = sup_mirror_list_set(&m->list, m->step, false)) == 0)
			rc = link_files(from, sent);
		return rc < 0 ? rc : sup_mirror_command(s, s->o->mirror, sent, name);
	case SUP_MIRROR_BACK:
		rc = sup_mirror_fresh(s, "back");
		return rc < 0 ? rc : sup_mirror_command(s, s->o->mirror_get, back, name);
	case SUP_MIRROR_CHECK:
		return sup_mirror_check(s, back, sent);
	default:
		if ((rc = sup_mirror_list_set(&m->list, m->step, true)) == 0)
			rc = write_name(latest, name);
		if (rc == 0)
			rc = sup_mirror_list_write(&m->list, latest);
		return rc < 0 ? rc : sup_mirror_command(s, s->o->mirror, latest, "latest");
	}
}

/* Reports that the current operation on the checkpoint of this step has failed. */
static void tell(struct sup *s, int64_t step, int status)
{
	const char *what = doing[s->mirror.doing];

	dt_log_msg(s->log, "--mirror: %s step %lld failed (%s %d); the run continues", what, (long long)step,
		   status < 0 ? "errno" : "exit status", status < 0 ? -status : status);
	sup_event(s, "mirror-failed", "{s:I, s:s, s:i}", "mirror_step", (json_int_t)step, "at", what,
		  "status", status);
}

void sup_mirror_fail(struct sup *s, int status)
{
	tell(s, s->mirror.doing == SUP_MIRROR_REMOVE ? s->mirror.removing : s->mirror.step, status);
	sup_mirror_put_away(s);
}

void sup_mirror_listed(struct sup *s, const char *folder)
{
	const struct sup_mirror_list *left = &s->mirror.left;
	struct dt_err err = {0};

	if (sup_mirror_list_read(&s->mirror.list, folder, &err) < 0)
		dt_log_msg(s->log,
			   "--mirror: cannot read the list of checkpoints in the mirror (%s); they are kept",
			   err.msg);
	for (int i = 0; i < left->n; i++)
		if (sup_mirror_list_set(&s->mirror.list, left->v[i].step, false) < 0)
			dt_log_msg(
				s->log,
				"--mirror: out of memory for the upload that an earlier run left incomplete");
	s->mirror.listed = true;
}

/* Starts removing the next too old checkpoint of the mirror after step `after`. */
static void remove_next(struct sup *s, int64_t after)
{
	struct sup_mirror *m = &s->mirror;
	const struct dt_run_save *k = &s->cmd.o.run.save;
	char name[DT_STEP_NAME];
	int rc;

	m->doing = SUP_MIRROR_NOTHING;
	while (s->o->mirror_remove && !s->leave &&
	       (after = sup_mirror_list_old(&m->list, m->step, k->keep, k->keep_every, after)) >= 0) {
		m->doing = SUP_MIRROR_REMOVE;
		m->removing = after;
		dt_step_name(name, after);
		rc = sup_mirror_command(s, s->o->mirror_remove, NULL, name);
		if (rc == 0)
			return;
		tell(s, after, rc);
		m->doing = SUP_MIRROR_NOTHING;
	}
}

/* Handles the end of a removal; a failed one is retried after the next checkpoint. */
static void removed(struct sup *s, int status)
{
	struct sup_mirror *m = &s->mirror;

	if (status) {
		tell(s, m->removing, status);
	} else {
		sup_mirror_list_drop(&m->list, m->removing);
		sup_event(s, "mirror-removed", "{s:I}", "mirror_step", (json_int_t)m->removing);
	}
	remove_next(s, m->removing);
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
	} else if (!sup_mirror_ended(s, &status)) {
		return;
	} else if (m->doing == SUP_MIRROR_REMOVE) {
		removed(s, status);
		return;
	} else if (status) {
		sup_mirror_fail(s, status);
		return;
	} else if (m->doing == SUP_MIRROR_NAME) {
		sup_event(s, "mirrored", "{s:I}", "mirror_step", (json_int_t)m->step);
		sup_mirror_put_away(s);
		remove_next(s, -1);
		return;
	}
	rc = next_part(s);
	if (rc < 0)
		sup_mirror_fail(s, rc);
}
/* SPDX-License-Identifier: Apache-2.0 */
