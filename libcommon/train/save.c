/*
 * Checkpoints of a run. Parameters and optimizer states are cut as the layout cuts them; what several
 * data-parallel ranks hold alike is written once, each rank an equal range of its flat buffer.
 */
#include "train/trainer.h"

#include "base/tmpfile.h"
#include "ckpt/ckpt.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {"model", "m", "v"};

static float *kind_data(struct trainer *t, int kind)
{
	return kind == 0 ? t->master : t->state[kind - 1];
}

static void box_of(struct trainer *t, const struct dt_local_param *lp, int kind, struct dt_piece *ret)
{
	const struct dt_param *p = &t->table.p[lp->index];

	*ret = (struct dt_piece){.dtype = DT_F32, .ndim = p->ndim, .data = kind_data(t, kind) + lp->flat};
	snprintf(ret->name, sizeof(ret->name), "%s/%s", kinds[kind], p->name);
	for (int d = 0; d < p->ndim; d++) {
		ret->global[d] = p->shape[d];
		ret->off[d] = lp->off[d];
		ret->shape[d] = lp->shape[d];
	}
}

/* The pieces this rank writes; *ret is malloc'd. */
static int my_pieces(struct trainer *t, struct dt_piece **ret, int *ret_n, struct dt_err *err)
{
	int64_t dp = t->layout.dp, lo = t->local.numel * t->mesh.at.dp / dp,
		hi = t->local.numel * (t->mesh.at.dp + 1) / dp;
	struct dt_piece *out = malloc(sizeof(*out) * (size_t)(t->local.n * 3 * (2 * DT_CKPT_MAX_DIM + 1)));
	int n = 0;

	if (!out)
		return dt_err_sys(err, -ENOMEM, "cannot list the checkpoint's pieces");
	for (int kind = 0; kind < 3; kind++) {
		if (!kind_data(t, kind))
			continue;
		for (int i = 0; i < t->local.n; i++) {
			const struct dt_local_param *lp = &t->local.p[i];
			int64_t first = lp->flat > lo ? lp->flat : lo,
				last = lp->flat + lp->numel < hi ? lp->flat + lp->numel : hi;
			struct dt_piece box;

			if (first >= last || (t->mesh.at.tp != 0 && t->table.p[lp->index].cut == DT_CUT_NONE))
				continue;
			box_of(t, lp, kind, &box);
			n += dt_pieces_of_range(&box, first - lp->flat, last - first, out + n);
		}
	}
	*ret = out;
	*ret_n = n;
	return 0;
}

static json_t *make_meta(struct trainer *t)
{
	static const char *const optims[] = {"sgd", "momentum", "rmsprop", "adagrad", "adam", "adamw"};
	char layout[64];
	json_t *o =
		json_pack("{s:I, s:s, s:{s:I, s:I, s:I, s:s}, s:{s:s, s:I}, s:{s:I}, s:{s:s, s:s%}}", "step",
			  (json_int_t)t->step, "layout", dt_layout_format(&t->layout, layout, sizeof(layout)),
			  "data", "cursor", (json_int_t)t->cursor, "seed", (json_int_t)t->o->seed, "seq",
			  (json_int_t)t->o->seq, "tokenizer_hash", t->data_info.tokenizer_hash, "optimizer",
			  "kind", optims[t->o->optim.kind], "t", (json_int_t)t->step, "train", "tokens",
			  (json_int_t)t->tokens, "tokenizer", "hash", t->data_info.tokenizer_hash, "text",
			  t->data_info.tokenizer_text, t->data_info.tokenizer_bytes);

	if (o)
		json_object_set_new(o, "model", dt_config_to_json(&t->config));
	return o;
}

static int begin(struct trainer *t, char dir[PATH_MAX], struct dt_err *err)
{
	char *tmp = NULL;
	int rc = 0;

	memset(dir, 0, PATH_MAX);
	if (t->info.rank == 0) {
		rc = dt_mkdir_p(t->o->save, err);
		if (rc == 0)
			rc = dt_ckpt_begin(t->o->save, t->step, &tmp, err);
		if (rc == 0)
			snprintf(dir, PATH_MAX, "%s", tmp);
		free(tmp);
	}
	rc = trainer_agree(t, rc, err);
	return rc < 0 ? rc : dt_broadcast(t->mesh.world, dir, PATH_MAX, DT_U8, 0, "checkpoint folder", err);
}

/* On rank 0: the piece lists of all ranks, joined, committed. */
static int commit(struct trainer *t, const char *texts, const size_t *lens, struct dt_err *err)
{
	int n = t->info.size, rc = 0;
	json_t **lists = calloc((size_t)n, sizeof(*lists)), *meta = make_meta(t);
	size_t at = 0;

	if (!lists || !meta)
		rc = dt_err_sys(err, -ENOMEM, "cannot commit the checkpoint");
	for (int r = 0; r < n && rc == 0; r++) {
		rc = dt_json_parse(texts + at, lens[r], "piece list", &lists[r], err);
		at += lens[r];
	}
	if (rc == 0)
		rc = dt_ckpt_commit(t->o->save, t->step, meta, lists, n, (int)t->o->keep, err);
	for (int r = 0; lists && r < n; r++)
		json_decref(lists[r]);
	free(lists);
	json_decref(meta);
	return rc;
}

int trainer_save(struct trainer *t, struct dt_err *err)
{
	char dir[PATH_MAX], *text = NULL, *texts = NULL;
	struct dt_piece *pieces = NULL;
	size_t *lens = NULL;
	json_t *list = NULL;
	int n = 0, rc = begin(t, dir, err);

	if (rc < 0)
		return rc;
	rc = my_pieces(t, &pieces, &n, err);
	if (rc == 0)
		rc = dt_ckpt_write_shard(dir, t->info.rank, pieces, n, t->o->compress, &list, err);
	if (rc == 0) {
		text = json_dumps(list, JSON_COMPACT);
		if (!text)
			rc = dt_err_sys(err, -ENOMEM, "cannot write the checkpoint");
	}
	rc = trainer_agree(t, rc, err);
	if (rc == 0)
		rc = dt_gather_bytes(t->mesh.world, text, strlen(text), &texts, &lens, 0, "checkpoint pieces",
				     err);
	if (rc == 0 && t->info.rank == 0)
		rc = commit(t, texts, lens, err);
	rc = trainer_agree(t, rc, err);
	json_decref(list);
	free(text);
	free(texts);
	free(lens);
	free(pieces);
	return rc;
}

static int load_kind(struct trainer *t, struct dt_ckpt *ck, int kind, struct dt_err *err)
{
	for (int i = 0; i < t->local.n; i++) {
		const struct dt_local_param *lp = &t->local.p[i];
		struct dt_ckpt_tensor have;
		struct dt_piece box;
		int at, rc;

		box_of(t, lp, kind, &box);
		at = dt_ckpt_find(ck, box.name);
		if (at < 0)
			return dt_err_set(err, -ENOENT, "checkpoint '%s' has no tensor '%s'",
					  dt_ckpt_path(ck), box.name);
		dt_ckpt_tensor(ck, at, &have);
		if (have.ndim != box.ndim ||
		    memcmp(have.shape, box.global, sizeof(int64_t) * (size_t)box.ndim))
			return dt_err_set(err, -EINVAL,
					  "checkpoint '%s': '%s' has another shape than model '%s'",
					  dt_ckpt_path(ck), box.name, t->config.name);
		rc = dt_ckpt_read(ck, at, box.off, box.shape, DT_F32, (float *)box.data, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int load_meta(struct trainer *t, struct dt_ckpt *ck, struct dt_err *err)
{
	const json_t *meta = dt_ckpt_meta(ck), *data = json_object_get(meta, "data");
	const json_t *train = json_object_get(meta, "train");
	int64_t seq = 0, seed = 0;
	const char *hash = "";
	int rc;

	if ((rc = dt_json_int(meta, "step", true, 0, INT64_MAX, &t->step, err)) < 0 ||
	    (rc = dt_json_int(data, "cursor", true, 0, INT64_MAX, &t->cursor, err)) < 0 ||
	    (rc = dt_json_int(data, "seq", true, 1, INT64_MAX, &seq, err)) < 0 ||
	    (rc = dt_json_int(data, "seed", true, 0, INT64_MAX, &seed, err)) < 0 ||
	    (rc = dt_json_str(data, "tokenizer_hash", true, &hash, err)) < 0 ||
	    (rc = dt_json_int(train, "tokens", false, 0, INT64_MAX, &t->tokens, err)) < 0)
		return dt_err_prefix(err, "checkpoint '%s'", dt_ckpt_path(ck));
	if (strcmp(hash, t->data_info.tokenizer_hash))
		return dt_err_set(err, -EINVAL,
				  "checkpoint '%s' was trained with another tokenizer than that of '%s'",
				  dt_ckpt_path(ck), t->o->data);
	if (seq != t->o->seq || (uint64_t)seed != t->o->seed)
		return dt_err_set(err, -EINVAL,
				  "checkpoint '%s' was trained with --seq %lld --seed %lld: the data order "
				  "would change",
				  dt_ckpt_path(ck), (long long)seq, (long long)seed);
	return 0;
}

static int load_all(struct trainer *t, struct dt_ckpt *ck, struct dt_err *err)
{
	int rc = load_meta(t, ck, err);

	for (int kind = 0; kind < 3 && rc == 0; kind++)
		if (kind_data(t, kind))
			rc = load_kind(t, ck, kind, err);
	if (rc == 0 && t->master != t->weights)
		rc = dt_kernel_check(t->dev->ops->convert(t->dev,
							  dt_t1(t->weights, t->o->compute, t->local.numel),
							  dt_t1(t->master, DT_F32, t->local.numel)),
				     "->convert(", err);
	return rc;
}

int trainer_resume(struct trainer *t, struct dt_err *err)
{
	bool automatic = !strcmp(t->o->resume, "auto");
	struct dt_ckpt *ck = NULL;
	int rc = dt_ckpt_open(automatic ? t->o->save : t->o->resume, &ck, err), missing;

	/* Nothing to resume from is an answer only if every rank finds nothing. */
	missing = automatic && rc == -ENOENT;
	rc = trainer_agree(t, missing ? 0 : rc, err);
	if (rc < 0 || missing) {
		if (ck)
			dt_ckpt_close(ck);
		return rc;
	}
	rc = trainer_agree(t, load_all(t, ck, err), err);
	if (rc == 0)
		dt_log_msg(&t->root_log, "resumed from '%s' at step %lld", dt_ckpt_path(ck),
			   (long long)t->step);
	dt_ckpt_close(ck);
	return rc < 0 ? rc : 1;
}
