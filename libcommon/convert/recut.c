/* Converts checkpoints to another layout. */
#include "convert/convert.h"

#include "ckpt/ckpt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int team_agree(void *arg, int rc, struct dt_err *err)
{
	return dt_comm_agree(arg, rc, NULL, err);
}

static int team_gather(void *arg, const char *text, size_t n, char **ret, size_t **ret_lens,
		       struct dt_err *err)
{
	return dt_gather_bytes(arg, text, n, ret, ret_lens, 0, "piece lists", err);
}

static int stream(struct dt_ckpt *src, const struct dt_ckpt_team *team, const struct dt_recut *r,
		  struct dt_convert_job *job, struct dt_err *err)
{
	if (team->size > 1)
		return dt_err_set(err, -EINVAL, "a tar stream can only be written by a single process");
	return dt_ckpt_reshard_tar(src, &r->layout, r->compress, r->workers, r->fd, job->progress, job->arg,
				   err);
}

/* `latest` of a folder names one run's newest checkpoint: another run's moves it. */
static int other_run(const struct dt_ckpt *src, const char *root, struct dt_err *err)
{
	const char *ours = json_string_value(json_object_get(dt_ckpt_meta(src), "run_id")), *theirs;
	struct dt_ckpt *there;
	int rc = 0;

	if (!ours || dt_ckpt_open(root, &there, NULL) < 0)
		return 0;
	theirs = json_string_value(json_object_get(dt_ckpt_meta(there), "run_id"));
	if (theirs && strcmp(theirs, ours)) {
		rc = dt_err_set(err, -EEXIST, "'%s' holds the checkpoints of another run, the newest '%s'",
				root, dt_ckpt_path(there));
		dt_err_hint(err, "name another folder");
	}
	dt_ckpt_close(there);
	return rc;
}

static int cut(struct dt_ckpt *src, const char *dst, const struct dt_ckpt_team *team,
	       const struct dt_recut *r, struct dt_convert_job *job, struct dt_err *err)
{
	char root[PATH_MAX], abs_src[PATH_MAX], abs_made[PATH_MAX];
	int rc = dt_ckpt_split_path(dst, dt_ckpt_step(src), root, job->made, sizeof(job->made), err);

	if (rc == -EEXIST && realpath(job->made, abs_made) && realpath(dt_ckpt_path(src), abs_src) &&
	    !strcmp(abs_made, abs_src))
		dt_err_hint(err, "it is the source itself");
	if (rc == 0)
		rc = other_run(src, root, err);
	if (team->size > 1)
		rc = team_agree(team->arg, rc, err);
	job->misused = rc == -EINVAL && err->msg[0];
	if (rc < 0)
		return rc;
	return dt_ckpt_reshard(src, &r->layout, root, r->compress, r->workers, team->size > 1 ? team : NULL,
			       job->progress, job->arg, err);
}

int dt_recut(struct dt_comm *all, int rank, int size, const char *src, const char *dst,
	     const struct dt_recut *r, struct dt_convert_job *job, struct dt_err *err)
{
	const struct dt_ckpt_team team = {rank, size, all, team_agree, team_gather};
	struct dt_ckpt *c;
	int opened = dt_ckpt_open(src, &c, err), rc = opened;

	if (size > 1)
		rc = team_agree(all, opened, err);
	if (rc == 0 && rank == 0 && dt_ckpt_note(c))
		job->note(job->arg, dt_ckpt_note(c));
	if (rc == 0)
		rc = strcmp(dst, "-") ? cut(c, dst, &team, r, job, err) : stream(c, &team, r, job, err);
	if (opened == 0)
		dt_ckpt_close(c);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
