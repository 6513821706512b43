/* Returns to an earlier checkpoint: state, metrics, and removal of the checkpoints after it. */
#include "train/spike.h"
#include "train/trainer.h"

#include "base/step_name.h"
#include "base/tmpfile.h"
#include "ckpt/ckpt.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int remove_after(const char *root, int64_t keep, struct dt_err *err)
{
	DIR *d = opendir(root);
	char path[PATH_MAX], name[DT_STEP_NAME];
	int rc;

	if (!d) /* a resume would prefer the checkpoints that stay */
		return dt_err_sys(err, -errno, "cannot open '%s'", root);
	snprintf(path, sizeof(path), "%s/latest", root);
	dt_step_name(name, keep);
	rc = dt_symlink_replace(name, path, err);
	for (struct dirent *e; rc == 0 && (e = readdir(d));) {
		if (dt_step_of(e->d_name) <= keep)
			continue;
		snprintf(path, sizeof(path), "%s/%s", root, e->d_name);
		rc = dt_remove_tree(path, err);
	}
	closedir(d);
	return rc;
}

int rollback(struct trainer *t, int64_t back, struct dt_err *err)
{
	const char *root = t->run.save.dir;
	int64_t spiked = t->loop.step + 1, to = t->loop.cursor + t->run.global_batch, step = -1, from, times;
	char path[PATH_MAX], name[DT_STEP_NAME];
	int rc = trainer_drain(t, true, err);

	if (rc < 0)
		return rc;
	if (t->info.rank == 0 && root)
		step = dt_ckpt_newest(root, spiked - back);
	rc = dt_broadcast(dt_mesh_comm(&t->mesh, DT_ON_ALL), &step, 1, DT_I64, 0, "checkpoint to go back to",
			  err);
	if (rc < 0)
		return rc;
	if (step < 0)
		return 1;
	times = step == t->spike.back_to ? t->spike.back + 1 : 1;
	if (times > 3) {
		t->agreed = true;
		t->status = DT_EXIT_NO;
		return dt_err_set(t->info.rank ? NULL : err, -EDOM,
				  "step %lld: a spike again, after going back to step %lld three times",
				  (long long)spiked, (long long)step);
	}
	dt_step_name(name, step);
	snprintf(path, sizeof(path), "%s/%s", root, name);
	rc = trainer_restore(t, path, err);
	if (rc < 0)
		return rc;
	t->spike.back = times;
	t->spike.back_to = step;
	from = t->loop.cursor;
	/* The skipped range is on disk before newer checkpoints, which a resume would prefer, are removed. */
	rc = skips_add(t, from, to, 0, err);
	if (rc == 0)
		rc = trainer_agree(t, t->info.rank == 0 ? remove_after(root, step, err) : 0, err);
	if (rc == 0)
		rc = trainer_agree(t, metrics_rewind(t, spiked, from, to, err), err);
	t->save.newest = step;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
