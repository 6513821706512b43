/*
 * Writes a checkpoint in another layout. First the pieces of every rank are listed from the parameter table
 * (reshard_cut.c), then each shard is written with its elements read from the source one piece at a time.
 */
#include "ckpt/reshard.h"
#include "ckpt/workers.h"

#include "base/step_name.h"
#include "base/tmpfile.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct worker {
	struct reshard *r;
	void *buf;
	size_t buf_bytes;
};

/* Counts bytes done. Returns an error if another worker has failed. */
static int advance(struct reshard *r, uint64_t bytes, struct dt_err *err)
{
	int rc;

	pthread_mutex_lock(&r->lock);
	r->done += bytes;
	rc = r->failed;
	if (rc == 0 && r->progress && !r->progress(r->arg, r->done, r->total))
		rc = dt_err_sys(err, -ECANCELED, "cannot reshard '%s'", r->src->path);
	pthread_mutex_unlock(&r->lock);
	return rc;
}

static int fill(void *arg, const struct dt_piece *p, const void **ret, struct dt_err *err)
{
	struct worker *w = arg;
	struct dt_ckpt *src = w->r->src;
	size_t bytes = reshard_piece_bytes(p);
	int rc;

	if (bytes > w->buf_bytes) {
		free(w->buf);
		w->buf_bytes = 0;
		w->buf = malloc(bytes);
		if (!w->buf)
			return dt_err_sys(err, -ENOMEM, "cannot read '%s'", p->name);
		w->buf_bytes = bytes;
	}
	rc = dt_ckpt_read(src, dt_ckpt_find(src, p->name), p->off, p->shape, p->dtype, w->buf, err);
	*ret = w->buf;
	return rc < 0 ? rc : advance(w->r, bytes, err);
}

/* Writes shards, one rank after another, until all are written. */
static void *work(void *arg)
{
	struct worker w = {.r = arg};
	struct reshard *r = arg;

	for (;;) {
		struct dt_err err = {0};
		int i, rc;

		pthread_mutex_lock(&r->lock);
		i = r->failed || r->next >= dt_layout_world(r->l) ? -1 : r->next;
		r->next += r->parts;
		pthread_mutex_unlock(&r->lock);
		if (i < 0)
			break;
		rc = dt_ckpt_write_shard_from(r->tmp, i, r->rank[i].v, r->rank[i].n, r->compress, fill, &w,
					      &r->lists[i], &err);
		if (rc == 0)
			continue;
		pthread_mutex_lock(&r->lock);
		if (r->failed == 0) {
			r->failed = rc;
			r->err = err;
		}
		pthread_mutex_unlock(&r->lock);
	}
	free(w.buf);
	return NULL;
}

static int write_shards(struct reshard *r, int workers, struct dt_err *err)
{
	const int shards = dt_layout_world(r->l);

	ck_workers_run(workers < shards ? workers : shards, work, r);
	if (r->failed && err)
		*err = r->err;
	return r->failed;
}

static int prepare(struct reshard *r, struct dt_err *err)
{
	const json_t *model = json_object_get(r->src->m.meta, "model");
	const int tp = r->l->tp, ep = r->l->ep, n = r->l->pp * ep * tp;
	int rc;

	if (!json_is_object(model))
		return dt_err_set(err, -EINVAL, "'%s' does not record which model it belongs to",
				  r->src->path);
	rc = dt_config_from_json(model, &r->config, err);
	if (rc == 0)
		rc = dt_model_params(&r->config, &r->params, err);
	if (rc < 0)
		return rc;
	r->local = calloc((size_t)n, sizeof(*r->local));
	r->rank = calloc((size_t)dt_layout_world(r->l), sizeof(*r->rank));
	if (!r->local || !r->rank)
		return dt_err_sys(err, -ENOMEM, "cannot reshard '%s'", r->src->path);
	for (int i = 0; i < n && rc == 0; i++) {
		const int d = i / tp % ep; /* a rank of dp x cp with these experts */
		const struct dt_coords at = {
			.pp = i / tp / ep, .dp = d / r->l->cp, .tp = i % tp, .cp = d % r->l->cp};

		rc = dt_local_build(&r->params, &r->config, r->l, at, &r->local[i], err);
	}
	return rc;
}

static int agree(const struct reshard *r, int rc, struct dt_err *err)
{
	return r->team ? r->team->agree(r->team->arg, rc, err) : rc;
}

/* Rank 0 creates the folder; all ranks get its name. */
static int begin(struct reshard *r, const char *root, struct dt_err *err)
{
	char name[DT_STEP_NAME], *tmp = NULL;
	int rc = 0;

	dt_step_name(name, r->src->m.step);
	if ((size_t)snprintf(r->tmp, sizeof(r->tmp), "%s/%s.tmp", root, name) >= sizeof(r->tmp))
		rc = dt_err_sys(err, -ENAMETOOLONG, "cannot write '%s'", root);
	r->made = access(root, F_OK) < 0;
	if (rc == 0 && r->part == 0)
		rc = dt_ckpt_begin(root, r->src->m.step, &tmp, err);
	free(tmp);
	return agree(r, rc, err);
}

/* Takes the lists of shards that other processes wrote: one array of lists per process, in shard order. */
static int take_lists(struct reshard *r, const char *texts, const size_t *lens, struct dt_err *err)
{
	int rc = 0;

	for (int p = 0; p < r->parts && rc == 0; texts += lens[p++]) {
		json_t *theirs = NULL;

		rc = p == r->part ? 0 : dt_json_parse(texts, lens[p], "piece lists", &theirs, err);
		for (int i = p, k = 0; theirs && i < dt_layout_world(r->l); i += r->parts)
			r->lists[i] = json_incref(json_array_get(theirs, (size_t)k++));
		json_decref(theirs);
	}
	return rc;
}

static int gather_lists(struct reshard *r, struct dt_err *err)
{
	json_t *mine = json_array();
	char *text, *texts = NULL;
	size_t *lens = NULL;
	int rc;

	for (int i = r->part; i < dt_layout_world(r->l); i += r->parts)
		json_array_append(mine, r->lists[i]);
	text = json_dumps(mine, JSON_COMPACT);
	rc = agree(r, text ? 0 : dt_err_sys(err, -ENOMEM, "cannot reshard '%s'", r->src->path), err);
	if (rc == 0)
		rc = r->team->gather(r->team->arg, text, strlen(text), &texts, &lens, err);
	if (rc == 0 && r->part == 0)
		rc = take_lists(r, texts, lens, err);
	json_decref(mine);
	free(text);
	free(texts);
	free(lens);
	return agree(r, rc, err);
}

static int commit(struct reshard *r, const char *root, struct dt_err *err)
{
	json_t *meta = json_deep_copy(r->src->m.meta);
	char layout[64];
	int rc;

	if (!meta)
		return dt_err_sys(err, -ENOMEM, "cannot reshard '%s'", r->src->path);
	json_object_del(meta, "format");
	json_object_del(meta, "version");
	json_object_set_new(meta, "layout", json_string(dt_layout_format(r->l, layout, sizeof(layout))));
	rc = dt_ckpt_commit(root, r->src->m.step, meta, r->lists, dt_layout_world(r->l), 0, err);
	json_decref(meta);
	return rc;
}

static int write_out(struct reshard *r, const char *root, int workers, struct dt_err *err)
{
	int world = dt_layout_world(r->l), rc;

	r->lists = calloc((size_t)world, sizeof(*r->lists));
	rc = agree(r, r->lists ? 0 : dt_err_sys(err, -ENOMEM, "cannot reshard '%s'", r->src->path), err);
	if (rc == 0)
		rc = begin(r, root, err);
	if (rc == 0)
		rc = agree(r, write_shards(r, workers, err), err);
	if (rc == 0 && r->team)
		rc = gather_lists(r, err);
	if (rc == 0)
		rc = agree(r, r->part == 0 ? commit(r, root, err) : 0, err);
	if (rc < 0 && r->part == 0 && r->tmp[0])
		dt_ckpt_discard(root, r->tmp, r->made);
	for (int i = 0; r->lists && i < world; i++)
		json_decref(r->lists[i]);
	free(r->lists);
	return rc;
}

int dt_ckpt_reshard(struct dt_ckpt *src, const struct dt_layout *layout, const char *root, bool compress,
		    int workers, const struct dt_ckpt_team *team,
		    bool (*progress)(void *arg, uint64_t done, uint64_t total), void *arg, struct dt_err *err)
{
	struct reshard r = {.src = src,
			    .l = layout,
			    .compress = compress,
			    .team = team,
			    .part = team ? team->rank : 0,
			    .parts = team ? team->size : 1,
			    .progress = progress,
			    .arg = arg};
	int rc = prepare(&r, err);

	pthread_mutex_init(&r.lock, NULL);
	r.next = r.part;
	if (rc == 0)
		rc = reshard_cut(&r, err);
	rc = agree(&r, rc, err);
	if (rc == 0)
		rc = write_out(&r, root, workers, err);
	for (int i = 0; r.local && i < layout->pp * layout->ep * layout->tp; i++)
		dt_local_release(&r.local[i]);
	for (int i = 0; r.rank && i < dt_layout_world(layout); i++)
		free(r.rank[i].v);
	dt_params_release(&r.params);
	free(r.local);
	free(r.rank);
	pthread_mutex_destroy(&r.lock);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
