/* Resumes a run from a checkpoint (save.c), or refuses one of another run. */
#include "train/buffers.h"
#include "train/init.h"
#include "train/trainer.h"

#include "base/step_name.h"
#include "ckpt/ckpt.h"
#include "train/pieces.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Checks that the checkpoint's model equals the one to be trained in all but its name. */
static int same_model(struct trainer *t, struct dt_ckpt *ck, struct dt_err *err)
{
	struct dt_config was;
	json_t *a, *b;
	const char *key;
	json_t *v;
	int rc = dt_config_from_json(json_object_get(dt_ckpt_meta(ck), "model"), &was, err);

	if (rc < 0)
		return dt_err_prefix(err, "checkpoint '%s'", dt_ckpt_path(ck));
	a = dt_config_to_json(&was);
	b = dt_config_to_json(&t->config);
	json_object_foreach(a, key, v)
	{
		const json_t *mine = json_object_get(b, key);
		char *x, *y;

		if (rc < 0 || !strcmp(key, "name") || json_equal(v, mine))
			continue;
		x = json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
		y = json_dumps(mine, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
		rc = dt_err_set(err, -EINVAL, "checkpoint '%s' is of another model: %s is %s, not %s of '%s'",
				dt_ckpt_path(ck), key, x ? x : "?", y ? y : "?", t->config.name);
		free(x);
		free(y);
	}
	json_decref(a);
	json_decref(b);
	return rc;
}

static bool accepts(const struct trainer *t, const char *option)
{
	const struct dt_strs *list = t->run.save.accept;

	for (int i = 0; list && i < list->n; i++)
		if (!strcmp(list->v[i], option))
			return true;
	return false;
}

/* Refuses frozen weights that are not those of the run's beginning, the fingerprint of which is `base`. */
static int other_base(const struct trainer *t, const struct dt_ckpt *ck, const char *base, struct dt_err *err)
{
	if (t->config.lora.rank) {
		dt_err_set(err, -EINVAL,
			   "the adapters of checkpoint '%s' were trained on another base than '%s'",
			   dt_ckpt_path(ck), t->run.model);
		if (t->init && init_is_drawn(base))
			dt_err_hint(err, "--init random: their base was drawn at random");
		return -EINVAL;
	}
	dt_err_set(err, -EINVAL, "the run of checkpoint '%s' has another reference model than '%s'",
		   dt_ckpt_path(ck), t->run.model);
	dt_err_hint(err, "--model: the weights that the run started from");
	return -EINVAL;
}

/* A command is not taken from a checkpoint; without it other rewards would be learned from. */
static int same_rewards(const struct trainer *t, const struct dt_ckpt *ck, struct dt_err *err)
{
	if (t->run.rl.reward || !json_object_get(dt_ckpt_meta(ck), REWARDS_KEY))
		return 0;
	dt_err_set(err, -EINVAL,
		   "the answers of the run of checkpoint '%s' were scored by a --reward command",
		   dt_ckpt_path(ck));
	dt_err_hint(err, "give --reward again: checkpoints do not store commands");
	return -EINVAL;
}

static int load_meta(struct trainer *t, struct dt_ckpt *ck, struct dt_err *err)
{
	const json_t *meta = dt_ckpt_meta(ck), *data = json_object_get(meta, "data");
	int64_t seq = 0, seed = 0, set = 0;
	const bool images = dt_config_is_image(&t->config);
	const int64_t mine = images ? t->source.images.info.images : t->source.info.tokens;
	const char *hash = "", *id = "", *mixture = "", *base = t->base;
	int rc = same_model(t, ck, err);

	if (rc == 0)
		rc = same_rewards(t, ck, err);
	if (rc == 0 && images)
		rc = images_load_meta(t, meta, dt_ckpt_path(ck), err);
	if (rc == 0 && trainer_labels(t))
		rc = labelled_load_meta(t, meta, dt_ckpt_path(ck), err);
	if (rc < 0)
		return rc;
	if ((rc = loop_from_json(t, meta, err)) < 0 || (rc = optim_from_json(t, meta, err)) < 0 ||
	    (rc = dt_json_int(data, "seq", true, 1, INT64_MAX, &seq, err)) < 0 ||
	    (rc = dt_json_int(data, "seed", true, 0, INT64_MAX, &seed, err)) < 0 ||
	    (rc = dt_json_int(data, images ? "set_images" : "set_tokens", false, 0, INT64_MAX, &set, err)) <
		    0 ||
	    (rc = dt_json_str(data, "tokenizer_hash", !images, &hash, err)) < 0 ||
	    (rc = dt_json_str(data, "mixture", false, &mixture, err)) < 0 ||
	    (rc = dt_json_str(meta, "run_id", false, &id, err)) < 0)
		return dt_err_prefix(err, "checkpoint '%s'", dt_ckpt_path(ck));
	snprintf(t->save.run_id, sizeof(t->save.run_id), "%s", id);
	if ((rc = spike_from_json(&t->spike, meta, (int)t->run.watch.window, err)) < 0 ||
	    (rc = skips_from_json(t, meta, err)) < 0)
		return dt_err_prefix(err, "checkpoint '%s'", dt_ckpt_path(ck));
	if (dt_json_str(json_object_get(meta, init_base_key(t)), "fingerprint", false, &base, err) >= 0 &&
	    strcmp(base, t->base))
		return other_base(t, ck, base, err);
	if (!images && strcmp(hash, t->source.info.tokenizer_hash))
		return dt_err_set(err, -EINVAL,
				  "checkpoint '%s' was trained with another tokenizer than that of '%s'",
				  dt_ckpt_path(ck), t->run.data.train);
	if (set && set != mine && !accepts(t, "data"))
		return dt_err_set(err, -EINVAL,
				  "checkpoint '%s' was trained on another data set, of %lld %s, than '%s' of "
				  "%lld; --accept-change data continues with this one",
				  dt_ckpt_path(ck), (long long)set, images ? "images" : "tokens",
				  t->run.data.train, (long long)mine);
	if (!images && strcmp(mixture, dt_mixture_text(t->source.data)) && !accepts(t, "data"))
		return dt_err_set(err, -EINVAL,
				  "checkpoint '%s' was trained on another mixture of data sets than '%s'; "
				  "--accept-change data continues with this one",
				  dt_ckpt_path(ck), t->run.data.train);
	/* If the manifest has the whole run, the options have been compared already. */
	if (!json_object_get(meta, "run") && (seq != t->run.seq || (uint64_t)seed != t->run.data.seed))
		return dt_err_set(err, -EINVAL,
				  "checkpoint '%s' was trained with --seq %lld --seed %lld: the data order "
				  "would change",
				  dt_ckpt_path(ck), (long long)seq, (long long)seed);
	return 0;
}

int trainer_take_words(struct trainer *t, const json_t *meta, struct dt_err *err)
{
	const char *id = "";
	int rc = loop_from_json(t, meta, err);

	if (rc == 0)
		rc = optim_from_json(t, meta, err);
	if (rc >= 0)
		rc = dt_json_str(meta, "run_id", false, &id, err);
	snprintf(t->save.run_id, sizeof(t->save.run_id), "%s", id);
	if (rc >= 0)
		rc = spike_from_json(&t->spike, meta, (int)t->run.watch.window, err);
	return rc < 0 ? rc : skips_from_json(t, meta, err);
}

static int load_all(struct trainer *t, struct dt_ckpt *ck, struct dt_err *err)
{
	int rc = load_meta(t, ck, err);

	if (rc == 0)
		rc = pieces_load(t, ck, err);
	if (rc == 0)
		rc = buffers_load(t, ck, err);
	return rc == 0 ? offload_settle(t, err) : rc;
}

/* Restores everything from an opened checkpoint, and closes it. */
static int restore(struct trainer *t, struct dt_ckpt *ck, struct dt_err *err)
{
	int rc;

	t->loop.held = -1;
	if (t->info.size == 1)
		dt_ckpt_read_once(ck);
	rc = trainer_agree(t, load_all(t, ck, err), err);
	if (rc == 0)
		rc = trainer_agree(t, store_publish(t, false, err), err);
	if (rc == 0)
		t->loop.held = t->loop.step;
	dt_ckpt_close(ck);
	return rc;
}

int trainer_restore(struct trainer *t, const char *path, struct dt_err *err)
{
	struct dt_ckpt *ck = NULL;
	int rc = trainer_agree(t, dt_ckpt_open(path, &ck, err), err);

	if (rc == 0)
		return restore(t, ck, err);
	if (ck)
		dt_ckpt_close(ck);
	return rc;
}

/*
 * If a checkpoint of --save is damaged on some rank, restores from the newest older intact one. rc: the error
 * of restoring step `at`; on the rank that found the damage err has its message.
 */
static int older(struct trainer *t, int rc, int64_t at, struct dt_err *err)
{
	struct dt_comm *all = dt_mesh_comm(&t->mesh, DT_ON_ALL);
	const char *dir = t->run.save.dir;
	char path[PATH_MAX], name[DT_STEP_NAME];
	struct dt_err why = *err;
	double found[2]; /* whether it is damaged; the step of the next older checkpoint */

	while (rc < 0) {
		found[0] = rc == -EBADMSG;
		found[1] = t->info.rank == 0 ? (double)dt_ckpt_newest(dir, at - 1) : -1;
		if (dt_all_reduce(all, found, NULL, 2, DT_F64, DT_MAX, "damaged checkpoints", err) < 0)
			return err->code;
		if (found[0] <= 0 || found[1] < 0)
			break;
		if (err->msg[0]) /* only the rank that found it has a message */
			dt_log_msg(t->log, "checkpoint of step %lld is damaged, using that of step %.0f: %s",
				   (long long)at, found[1], err->msg);
		t->agreed = false;
		at = (int64_t)found[1];
		dt_step_name(name, at);
		snprintf(path, sizeof(path), "%s/%s", dir, name);
		rc = trainer_restore(t, path, err);
	}
	if (rc < 0)
		*err = why;
	return rc;
}

int trainer_resume(struct trainer *t, struct dt_err *err)
{
	bool automatic = !strcmp(t->run.save.resume, "auto");
	struct dt_ckpt *ck = NULL;
	char path[PATH_MAX], name[DT_STEP_NAME];
	int64_t step;
	int rc = dt_ckpt_open(automatic ? t->run.save.dir : t->run.save.resume, &ck, err), missing;

	/* A new run starts only if no rank finds a checkpoint. */
	missing = automatic && rc == -ENOENT;
	rc = trainer_agree(t, missing ? 0 : rc, err);
	if (rc < 0 || missing) {
		if (ck)
			dt_ckpt_close(ck);
		return rc;
	}
	if (dt_ckpt_note(ck))
		dt_log_msg(&t->root_log, "%s", dt_ckpt_note(ck));
	snprintf(path, sizeof(path), "%s", dt_ckpt_path(ck));
	step = dt_ckpt_step(ck);
	rc = restore(t, ck, err);
	if (automatic && rc < 0)
		rc = older(t, rc, step, err);
	if (rc == 0 && t->loop.step != step) {
		dt_step_name(name, t->loop.step);
		snprintf(path, sizeof(path), "%s/%s", t->run.save.dir, name);
	}
	if (rc == 0)
		dt_log_msg(&t->root_log, "resumed from '%s' at step %lld", path, (long long)t->loop.step);
	return rc < 0 ? rc : 1;
}
/* SPDX-License-Identifier: Apache-2.0 */
