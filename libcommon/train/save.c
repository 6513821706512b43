/* Checkpoints of a run: what they hold beside the pieces of pieces.c, and writing them (restore.c reads). */
#include "train/init.h"
#include "train/trainer.h"

#include "base/tmpfile.h"
#include "ckpt/ckpt.h"
#include "train/pieces.h"
#include "train/snapshot.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Of several data sets: the order in which they are mixed, and the cursor of each. */
static void put_mixture(const struct trainer *t, json_t *meta)
{
	json_t *data = json_object_get(meta, "data"), *list = json_array();

	for (int i = 0; i < dt_mixture_parts(t->source.data); i++)
		json_array_append_new(
			list, json_integer((json_int_t)dt_mixture_cursor(t->source.data, t->loop.cursor, i)));
	json_object_set_new(data, "mixture", json_string(dt_mixture_text(t->source.data)));
	json_object_set_new(data, "cursors", list);
}

/* Adds what identifies the data: the tokenizer, or the classes. */
static void put_data_meta(struct trainer *t, json_t *o)
{
	json_t *data = json_object_get(o, "data");

	if (dt_config_is_image(&t->config)) {
		json_object_set_new(data, "set_images", json_integer(t->source.images.info.images));
		json_object_set_new(o, "classes", images_classes(t));
		json_object_set_new(o, "pixels", images_pixels(t));
		return;
	}
	if (trainer_labels(t) && t->source.labelled.info.classes)
		json_object_set_new(o, "classes", labelled_classes(t));
	json_object_set_new(data, "set_tokens", json_integer((json_int_t)t->source.info.tokens));
	json_object_set_new(data, "tokenizer_hash", json_string(t->source.info.tokenizer_hash));
	json_object_set_new(o, "tokenizer",
			    json_pack("{s:s, s:s%}", "hash", t->source.info.tokenizer_hash, "text",
				      t->source.info.tokenizer_text, t->source.info.tokenizer_bytes));
	if (t->source.info.chat_template)
		json_object_set_new(json_object_get(o, "tokenizer"), "chat_template",
				    json_string(t->source.info.chat_template));
}

static json_t *make_meta(struct trainer *t)
{
	char layout[64], optim[16];
	json_t *o = json_pack("{s:I, s:s, s:{s:I, s:I, s:I}, s:{s:s, s:I}, s:{s:I}}", "step",
			      (json_int_t)t->loop.step, "layout",
			      dt_layout_format(&t->run.layout, layout, sizeof(layout)), "data", "cursor",
			      (json_int_t)t->loop.cursor, "seed", (json_int_t)t->run.data.seed, "seq",
			      (json_int_t)t->run.seq, "optimizer", "kind",
			      dt_opt_choice_name(DT_OPTIM_CHOICES, t->run.optim.kind, optim, sizeof(optim)),
			      "t", (json_int_t)t->loop.step, "train", "tokens", (json_int_t)t->loop.tokens);

	if (o) {
		put_data_meta(t, o);
		json_object_set_new(o, "model", dt_config_to_json(&t->config));
		json_object_set_new(o, "run_id", json_string(t->save.run_id));
		json_object_set_new(o, "run", dt_run_to_json(&t->run));
		if (t->source.data && dt_mixture_parts(t->source.data) > 1)
			put_mixture(t, o);
		if (t->base[0])
			json_object_set_new(
				o, init_base_key(t),
				json_pack("{s:s, s:s}", "model", t->run.model, "fingerprint", t->base));
	}
	if (o && t->loop.nskip)
		json_object_set_new(json_object_get(o, "data"), "skipped", skips_to_json(t));
	if (o && (t->spike.n || t->spike.bad))
		json_object_set_new(o, "spike", spike_to_json(&t->spike));
	if (o && t->run.rl.reward) /* not the command: a checkpoint may come from elsewhere */
		json_object_set_new(o, REWARDS_KEY, json_string("command"));
	if (o && t->run.momentum_correction)
		json_object_set_new(json_object_get(o, "optimizer"), "rate", json_real(t->optim.rate));
	if (o && t->run.loss_scale == 0)
		json_object_set_new(o, "loss_scale", optim_to_json(t));
	if (o && t->compressed.z)
		json_object_set_new(o, "error_scale", json_real(t->compressed.scale));
	return o;
}

static int begin(struct trainer *t, char dir[PATH_MAX], struct dt_err *err)
{
	char *tmp = NULL;
	int rc = 0;

	memset(dir, 0, PATH_MAX);
	if (t->info.rank == 0) {
		folder_lock_again(t);
		rc = dt_mkdir_p(t->run.save.dir, err);
		if (rc == 0)
			rc = dt_ckpt_begin(t->run.save.dir, t->loop.step, &tmp, err);
		if (rc == 0)
			snprintf(dir, PATH_MAX, "%s", tmp);
		free(tmp);
	}
	rc = trainer_agree(t, rc, err);
	return rc < 0 ? rc
		      : dt_broadcast(dt_mesh_comm(&t->mesh, DT_ON_ALL), dir, PATH_MAX, DT_U8, 0,
				     "checkpoint folder", err);
}

/*
 * A checkpoint being written. Each rank writes its shard, all ranks together gather the lists of pieces, then
 * rank 0 commits. Writing and committing run in a thread if saving is asynchronous.
 */
struct save_job {
	const struct dt_run_save *o;
	int rank, nrank;
	int64_t step;
	bool async, committing;
	char dir[PATH_MAX];
	struct dt_piece *piece;
	char *copy;  /* malloc'd host copy of pieces on a device */
	float *wide; /* malloc'd decoded values of states in blocks */
	int n;
	struct snapshot *snapshot; /* NULL: not asynchronous */
	dt_ckpt_fill fill;	   /* brings pieces that are not simply in memory; NULL: all are */
	void *fill_arg;
	json_t *meta, *list, **lists; /* list of this rank; lists of all ranks, on rank 0 */
	pthread_t thread;
	bool running;
	atomic_bool done;
	int rc;
	struct dt_err err;
};

static void job_free(struct save_job *j)
{
	for (int r = 0; j->lists && r < j->nrank; r++)
		json_decref(j->lists[r]);
	json_decref(j->list);
	json_decref(j->meta);
	free(j->lists);
	free(j->piece);
	snapshot_free(j->snapshot);
	free(j->copy);
	free(j->wide);
	free(j);
}

static void *job_write(void *arg)
{
	struct save_job *j = arg;

	j->rc = dt_ckpt_write_shard_from(j->dir, j->rank, j->piece, j->n, j->o->compress, j->fill,
					 j->fill_arg, &j->list, &j->err);
	if (j->snapshot)
		snapshot_end(j->snapshot);
	atomic_store(&j->done, true);
	return NULL;
}

/* Runs on rank 0. Success also if only an older checkpoint could not be removed; err says so. */
static void *job_commit(void *arg)
{
	struct save_job *j = arg;

	j->rc = dt_ckpt_commit(j->o->dir, j->step, j->meta, j->lists, j->nrank, 0, &j->err);
	if (j->rc == 0 && j->o->keep > 0 &&
	    dt_ckpt_prune(j->o->dir, j->step, (int)j->o->keep, j->o->keep_every, false, NULL, NULL, &j->err) <
		    0)
		dt_err_prefix(&j->err, "step %lld is saved, but an older checkpoint could not be removed",
			      (long long)j->step);
	atomic_store(&j->done, true);
	return NULL;
}

/* Runs the work in a thread if asynchronous, else directly. */
static void job_run(struct save_job *j, void *(*work)(void *))
{
	atomic_store(&j->done, false);
	j->running = j->async && pthread_create(&j->thread, NULL, work, j) == 0;
	if (!j->running)
		work(j);
}

static void job_join(struct save_job *j)
{
	if (j->running)
		pthread_join(j->thread, NULL);
	j->running = false;
}

/* Gathers the piece lists of all ranks on rank 0. */
static int gather_lists(struct trainer *t, struct save_job *j, struct dt_err *err)
{
	char *text = json_dumps(j->list, JSON_COMPACT), *texts = NULL;
	size_t *lens = NULL, at = 0;
	int rc = trainer_agree(t, text ? 0 : dt_err_sys(err, -ENOMEM, "cannot write the checkpoint"), err);

	if (rc == 0)
		rc = dt_gather_bytes(dt_mesh_comm(&t->mesh, DT_ON_ALL), text, strlen(text), &texts, &lens, 0,
				     "checkpoint pieces", err);
	if (rc == 0 && j->rank == 0) {
		j->lists = calloc((size_t)j->nrank, sizeof(*j->lists));
		rc = j->lists ? 0 : dt_err_sys(err, -ENOMEM, "cannot commit the checkpoint");
		for (int r = 0; r < j->nrank && rc == 0; r++) {
			rc = dt_json_parse(texts + at, lens[r], "piece list", &j->lists[r], err);
			at += lens[r];
		}
	}
	free(text);
	free(texts);
	free(lens);
	return trainer_agree(t, rc, err);
}

/* Ends the job. A failure of all ranks alike may be forgiven (run.save.proceed). */
static int job_end(struct trainer *t, bool final, int rc, struct dt_err *err)
{
	struct save_job *j = t->save.job;
	bool forgive = rc < 0 && t->agreed && t->run.save.proceed && !final;

	job_join(j);
	if (rc < 0 && j->rank == 0 && j->dir[0])
		dt_remove_tree(j->dir, NULL);
	if (rc == 0 && j->err.code)
		dt_log_err(&t->root_log, &j->err);
	if (rc == 0)
		t->save.newest = j->step;
	if (forgive && err->msg[0])
		dt_log_msg(t->log, "step %lld is not saved, training goes on: %s", (long long)j->step,
			   err->msg);
	t->save.job = NULL;
	job_free(j);
	if (!forgive)
		return rc;
	t->agreed = false;
	err->msg[0] = '\0';
	return 0;
}

/* *ret: whether the threads of all ranks are done. */
static int all_done(struct trainer *t, bool *ret, struct dt_err *err)
{
	int32_t done = atomic_load(&t->save.job->done);
	int rc = dt_all_reduce(dt_mesh_comm(&t->mesh, DT_ON_ALL), &done, NULL, 1, DT_I32, DT_MIN,
			       "checkpoint progress", err);

	*ret = done;
	return rc;
}

static int drain(struct trainer *t, bool wait, bool final, struct dt_err *err)
{
	int rc = 0;

	while (t->save.job) {
		struct save_job *j = t->save.job;
		bool done = true;

		if (wait)
			job_join(j);
		else if ((rc = all_done(t, &done, err)) < 0)
			return rc;
		if (!done)
			return 0;
		job_join(j);
		if (j->rc < 0)
			*err = j->err;
		rc = trainer_agree(t, j->rc, err);
		if (rc == 0 && !j->committing)
			rc = gather_lists(t, j, err);
		if (rc < 0 || j->committing)
			return job_end(t, final, rc, err);
		j->committing = true;
		if (j->rank == 0)
			job_run(j, job_commit);
	}
	return 0;
}

int trainer_drain(struct trainer *t, bool wait, struct dt_err *err)
{
	return t->save.job ? drain(t, wait, false, err) : 0;
}

void trainer_drop_save(struct trainer *t)
{
	if (!t->save.job)
		return;
	job_join(t->save.job);
	memcpy(t->save.dropped, t->save.job->dir, sizeof(t->save.dropped));
	job_free(t->save.job);
	t->save.job = NULL;
}

/* Copies all pieces on a device to the host, where they are written from in any case. */
static int bring_all(struct trainer *t, struct save_job *j, struct dt_err *err)
{
	size_t all = 0, at = 0;
	int rc = 0;

	for (int i = 0; i < j->n; i++)
		all += offload_has(t, j->piece[i].data) ? 0 : piece_bytes(&j->piece[i]);
	j->copy = malloc(all ? all : 1);
	if (!j->copy)
		return dt_err_sys(err, -ENOMEM, "cannot copy a checkpoint of %zu bytes from the device", all);
	for (int i = 0; i < j->n && rc == 0; i++) {
		size_t n = piece_bytes(&j->piece[i]);

		if (offload_has(t, j->piece[i].data)) /* offload_fill reads it, a part at a time */
			continue;
		if (!arena_has(t, j->piece[i].data))
			memcpy(j->copy + at, j->piece[i].data, n);
		else
			rc = device_get(t, j->copy + at, j->piece[i].data, n, err);
		j->piece[i].data = j->copy + at;
		at += n;
	}
	return rc;
}

/* Parameters and states may be written in place until the next update; gradients must be copied first. */
static int take_snapshot(struct trainer *t, struct save_job *j, struct dt_err *err)
{
	const struct dt_buf *b = dt_memory_find(&t->plan, DT_B_SNAPSHOT, -1);
	int rc = snapshot_new(j->piece, j->n, b ? t->arena.base + b->offset : NULL, b ? b->bytes : 0,
			      &j->snapshot, err);

	for (int i = 0; i < j->n && rc == 0; i++)
		if (!strncmp(j->piece[i].name, "grad/", 5) || compressed_changes(&j->piece[i]))
			snapshot_now(j->snapshot, i);
	j->fill = snapshot_fill;
	j->fill_arg = j->snapshot;
	return rc;
}

void trainer_before_update(struct trainer *t)
{
	if (t->save.job && t->save.job->snapshot)
		snapshot_take(t->save.job->snapshot);
}

int trainer_save(struct trainer *t, bool final, struct dt_err *err)
{
	struct save_job *j;
	int rc = drain(t, true, false, err);

	if (rc < 0)
		return rc;
	j = calloc(1, sizeof(*j));
	rc = trainer_agree(t, j ? 0 : dt_err_sys(err, -ENOMEM, "cannot save"), err);
	if (rc < 0) {
		free(j);
		return rc;
	}
	*j = (struct save_job){.o = &t->run.save,
			       .rank = t->info.rank,
			       .nrank = t->info.size,
			       .step = t->loop.step,
			       .async = t->run.save.async && !final};
	t->save.job = j;
	rc = begin(t, j->dir, err);
	if (rc == 0) {
		rc = inject_save(t, err);
		if (rc == 0 && t->run.save.grads)
			rc = grads_unscale(t, err);
		if (rc == 0)
			rc = pieces_mine(t, &j->piece, &j->n, &j->wide, err);
		if (rc == 0 && j->rank == 0 && !(j->meta = make_meta(t)))
			rc = dt_err_sys(err, -ENOMEM, "cannot save");
		if (rc == 0 && !dt_dev_is_host(t->dev))
			rc = bring_all(t, j, err);
		else if (rc == 0 && j->async)
			rc = take_snapshot(t, j, err);
		if (rc == 0 && t->offload.tiles.n) {
			j->fill = offload_fill;
			j->fill_arg = t;
		}
		rc = trainer_agree(t, rc, err);
	}
	if (rc < 0)
		return job_end(t, final, rc, err);
	job_run(j, job_write);
	offload_settle(t, NULL); /* tiles read ahead */
	return j->async ? 0 : drain(t, true, final, err);
}

char *trainer_words(struct trainer *t)
{
	json_t *meta = make_meta(t);
	char *text = meta ? json_dumps(meta, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;

	json_decref(meta);
	return text;
}
/* SPDX-License-Identifier: Apache-2.0 */
