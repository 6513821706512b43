/*
 * The folder of --save belongs to one run. Another run's checkpoints are not mixed with it unless asked for,
 * and two jobs do not save there at the same time.
 */
#include "train/init.h"
#include "train/trainer.h"

#include "ckpt/ckpt.h"
#include "ckpt/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

int folder_check(struct trainer *t, struct dt_err *err)
{
	const struct dt_run_save *s = &t->run.save;
	const char *theirs, *ours = NULL;
	struct dt_ckpt *there, *from = NULL;
	int rc = 0;

	if (!s->dir || s->overwrite || (s->resume && !strcmp(s->resume, "auto")) ||
	    dt_ckpt_open(s->dir, &there, NULL) < 0)
		return 0;
	theirs = json_string_value(json_object_get(dt_ckpt_meta(there), "run_id"));
	if (s->resume && dt_ckpt_open(s->resume, &from, NULL) == 0)
		ours = json_string_value(json_object_get(dt_ckpt_meta(from), "run_id"));
	if (!s->resume || (theirs && (!ours || strcmp(theirs, ours)))) {
		rc = dt_err_set(err, -EEXIST, "'%s' holds the checkpoints of another run, the newest '%s'",
				s->dir, dt_ckpt_path(there));
		dt_err_hint(err, "--resume auto continues from it, --overwrite starts over");
	}
	if (from)
		dt_ckpt_close(from);
	dt_ckpt_close(there);
	return rc;
}

static int lock(struct trainer *t, struct dt_err *err)
{
	const char *dir = t->run.save.dir;
	int rc = 0;

	if (t->info.rank != 0)
		return 0;
	if (!t->save.run_id[0])
		rc = dt_ckpt_new_run_id(t->save.run_id, err);
	if (rc < 0 || !dir)
		return rc;
	/* In an elastic run, a lost rank 0 may still hold the lock: it may hang, or not have exited yet. */
	rc = dt_ckpt_lock(dir, dt_world_epoch(t->world).epoch >= 2, &t->save.lock, err);
	return rc == 0 && t->run.save.overwrite ? dt_ckpt_empty(dir, err) : rc;
}

int folder_open(struct trainer *t, struct dt_err *err)
{
	int rc = trainer_agree(t, lock(t, err), err);

	/* Every rank may become the first one of an elastic run. */
	return rc < 0 ? rc
		      : dt_broadcast(dt_mesh_comm(&t->mesh, DT_ON_ALL), t->save.run_id,
				     sizeof(t->save.run_id), DT_U8, 0, "name of the run", err);
}

void folder_lock_again(const struct trainer *t)
{
	if (t->save.lock > 0)
		(void)flock(t->save.lock, LOCK_EX | LOCK_NB);
}

void folder_release(struct trainer *t)
{
	if (t->save.lock > 0)
		close(t->save.lock);
	t->save.lock = 0;
}

/* ---- resuming from a checkpoint ---- */

/* Old manifests do not have the run: takes the optimizer from it. -EINVAL if another one was given. */
static int from_old(struct dt_run_options *o, const json_t *meta, const char *path, struct dt_err *err)
{
	const char *was = NULL;
	int kind, rc = dt_json_str(json_object_get(meta, "optimizer"), "kind", false, &was, err);

	if (rc <= 0 || !was)
		return rc < 0 ? rc : 0;
	kind = dt_opt_choice_index(DT_OPTIM_CHOICES, was);
	if (!dt_run_options_given(o, "optimizer") && kind >= 0)
		o->run.optim.kind = (enum dt_optim_kind)kind;
	if (kind == (int)o->run.optim.kind)
		return 0;
	dt_err_set(err, -EINVAL, "checkpoint '%s' was trained with --optimizer %s", path, was);
	dt_err_hint(err, "another optimizer cannot use its states");
	return -EINVAL;
}

/*
 * --resume names weights without a training state: a converted checkpoint, or another program's file. A new
 * run starts from them.
 */
static int from_weights(struct dt_run_options *o, const char *path, void (*tell)(void *arg, const char *text),
			void *arg, struct dt_err *err)
{
	enum dt_source_kind kind;
	char text[512];

	if (dt_source_guess(path, &kind, err) < 0)
		return dt_err_prefix(err, "--resume");
	if (o->run.model && strcmp(o->run.model, path)) {
		dt_err_set(err, -EINVAL, "--resume '%s' has weights, but no run to resume", path);
		dt_err_hint(err, "give it as --model, in place of '%s', to start from its weights",
			    o->run.model);
		return -EINVAL;
	}
	snprintf(text, sizeof(text), "'%s' has weights, but no run to resume: a new run starts from them",
		 path);
	tell(arg, text);
	o->run.model = path;
	o->run.init = DT_RUN_INIT_WEIGHTS;
	o->run.save.resume = NULL;
	return 0;
}

/* The model of a run without --model is its checkpoint, unless that has only adapters. */
static int model_of_checkpoint(struct dt_run_options *o, const struct dt_ckpt *ck, struct dt_err *err)
{
	static char *model; /* o points to it */
	const char *base =
		json_string_value(json_object_get(json_object_get(dt_ckpt_meta(ck), "base"), "model"));

	if (o->run.lora.rank && base) {
		dt_err_set(err, -ENOENT,
			   "checkpoint '%s' contains only adapters, not the model they were trained on",
			   dt_ckpt_path(ck));
		dt_err_hint(err, "--resume needs --model too: they were trained on '%s'", base);
		return -ENOENT;
	}
	free(model);
	o->run.model = model = strdup(dt_ckpt_path(ck));
	return 0;
}

int dt_train_continue(struct dt_run_options *o, void (*tell)(void *arg, const char *text), void *arg,
		      struct dt_err *err)
{
	static json_t *kept; /* o's strings point into it */
	bool automatic = o->run.save.resume && !strcmp(o->run.save.resume, "auto");
	const char *path = automatic ? o->run.save.dir : o->run.save.resume;
	struct dt_ckpt *ck;
	int rc;

	if (!path)
		return 0;
	rc = dt_ckpt_open(path, &ck, err);
	if (rc < 0 && automatic)
		return rc == -ENOENT ? 0 : rc;
	if (rc < 0)
		return init_holds_weights(path, true) ? from_weights(o, path, tell, arg, err) : rc;
	if (!json_object_get(json_object_get(dt_ckpt_meta(ck), "data"), "cursor") && !automatic) {
		dt_ckpt_close(ck);
		return from_weights(o, path, tell, arg, err);
	}
	json_decref(kept);
	kept = json_deep_copy(json_object_get(dt_ckpt_meta(ck), "run"));
	rc = kept ? dt_run_options_resume(o, kept, tell, arg, err)
		  : from_old(o, dt_ckpt_meta(ck), dt_ckpt_path(ck), err);
	if (rc == 0 && !o->run.model)
		rc = model_of_checkpoint(o, ck, err);
	dt_ckpt_close(ck);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
