#include "serve/api/served_engine.h"

#include "base/progress.h"
#include "ckpt/adapter.h"
#include "nn/device.h"
#include "nn/labels.h"
#include "plan/inferplan.h"
#include "plan/stage.h"

#include <errno.h>
#include <string.h>

static bool is_first(const struct dt_served_params *p)
{
	struct dt_world_info i = {.local_rank = p->local_rank};

	if (p->world)
		dt_world_info(p->world, &i);
	return i.rank == 0;
}

static int32_t id_of(const struct dt_tokenizer *t, const char *text, int64_t id)
{
	size_t n;

	if (text)
		return dt_tokenizer_find(t, text, strlen(text));
	return id >= 0 && id < dt_tokenizer_vocab(t) && dt_tokenizer_piece(t, (int32_t)id, true, &n) && n
		       ? (int32_t)id
		       : -1;
}

/*
 * Sets the token that lm-evaluation-harness puts before a text without context (HFLM.prefix_token_id): the
 * tokenizer's bos token, even if encoding does not add it, else its eos token. If no file names either, the
 * ids of the model's configuration are used, as dt-shard-ckpt does when it writes a folder; they do not apply
 * to a tokenizer given by the user.
 */
static void name_prefix(struct dt_tokenizer *t, const struct dt_source *src, bool own)
{
	const struct dt_config *c = dt_source_config(src);
	const char *bos = dt_source_named(src, DT_NAMED_BOS), *eos = dt_source_named(src, DT_NAMED_EOS);
	const bool ids = own && !bos && !eos;
	int32_t prefix = id_of(t, bos, ids ? c->bos : -1);

	if (prefix < 0)
		prefix = dt_tokenizer_bos(t);
	if (prefix < 0)
		prefix = id_of(t, eos, ids ? c->eos : -1);
	if (prefix >= 0)
		dt_tokenizer_set_prefix(t, prefix);
}

int dt_served_tokenizer(const struct dt_source *src, const char *spec, struct dt_tokenizer **ret,
			struct dt_err *err)
{
	const char *path = dt_source_path(src), *note = dt_source_note(src);
	const int64_t vocab = dt_source_config(src)->vocab;
	size_t n = 0;
	const char *text = dt_source_tokenizer(src, &n);
	int rc;

	if (spec && !strcmp(spec, "byte")) {
		rc = dt_tokenizer_open("byte", ret, err);
	} else if (text) {
		rc = dt_tokenizer_from_text(text, n, ret, err);
	} else {
		dt_err_set(err, -ENOENT, "'%s' has no tokenizer%s%s", path, note ? ": " : "",
			   note ? note : "");
		dt_err_hint(
			err,
			"give --tokenizer, or train on a dataset built by dt-dataset, which includes one");
		return -ENOENT;
	}
	if (rc < 0)
		return dt_err_prefix(err, "'%s': tokenizer", path);
	if (dt_tokenizer_vocab(*ret) > vocab)
		return dt_err_set(
			err, -EINVAL,
			"'%s': the tokenizer has %d token ids, but the model's vocabulary size is %lld", path,
			dt_tokenizer_vocab(*ret), (long long)vocab);
	name_prefix(*ret, src, !spec);
	return 0;
}

/*
 * Sets the chat template: the one asked for, or the model's own, or one recognised by the tokenizer's tokens.
 */
static void set_chat(struct dt_served *s, const struct dt_served_params *p, const char *text)
{
	int kind = p->chat;

	if (kind < 0 && text)
		kind = dt_chat_recognise(text, s->tok);
	if (kind < 0)
		kind = dt_chat_recognise(NULL, s->tok);
	s->has_chat = kind >= 0;
	if (s->has_chat)
		dt_chat_init(&s->chat, (enum dt_chat_kind)kind, text, s->tok);
}

static int open_device(struct dt_served *s, const struct dt_served_params *p, struct dt_err *err)
{
	int threads = (int)p->threads, mine, rc;
	struct dt_world_info i = {0};

	if (p->world)
		dt_world_info(p->world, &i);
	if (p->world && !threads)
		threads = dt_world_threads(&i, &mine);
	rc = dt_nn_device_open(&s->dev, p->device, i.local_rank, threads, err);
	if (rc < 0)
		return rc;
	s->dev->batch_invariant = dt_dev_is_host(s->dev) || p->invariant; /* costs performance on a GPU */
	return 0;
}

/* Agrees on an error over all ranks; in one process returns rc. */
static int agree(const struct dt_served *s, int rc, struct dt_err *err)
{
	struct dt_comm *all = dt_mesh_comm(&s->mesh, DT_ON_ALL);

	return all ? dt_comm_agree(all, rc, NULL, err) : rc;
}

/* Sets this rank's coordinates and communicators. */
static int join(struct dt_served *s, const struct dt_served_params *p, struct dt_err *err)
{
	struct dt_layout l = {.dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1};
	struct dt_world_info i;
	int rc;

	s->cut.layout = l;
	if (!p->world)
		return 0;
	dt_world_info(p->world, &i);
	l.tp = i.size;
	if (p->layout.dp)
		l = p->layout;
	rc = dt_mesh_init(&s->mesh, p->world, &l, err);
	if (rc < 0 && i.rank > 0) /* rank 0 reports it */
		dt_err_set(err, rc, "%s", "");
	if (rc == 0 && l.tp > 1)
		rc = dt_mesh_need(&s->mesh, DT_ON_TP, err);
	if (rc == 0 && l.pp > 1)
		rc = dt_mesh_need(&s->mesh, DT_ON_PP, err);
	if (rc == 0 && l.pp > 1)
		rc = dt_mesh_need(&s->mesh, DT_ON_STAGE, err);
	if (rc == 0 && l.cp > 1)
		rc = dt_mesh_need(&s->mesh, DT_ON_CP, err);
	if (rc == 0 && l.ep > 1)
		rc = dt_mesh_need(&s->mesh, DT_ON_EP, err);
	s->cut = (struct dt_infer_ranks){.layout = l,
					 .at = s->mesh.at,
					 .tp = dt_mesh_comm(&s->mesh, DT_ON_TP),
					 .pp = dt_mesh_comm(&s->mesh, DT_ON_PP),
					 .cp = dt_mesh_comm(&s->mesh, DT_ON_CP),
					 .ep = dt_mesh_comm(&s->mesh, DT_ON_EP),
					 .world = p->world};
	return rc;
}

/* Minimum of the number of blocks over all ranks. */
static int agree_blocks(struct dt_served *s, int64_t *blocks, struct dt_err *err)
{
	struct dt_comm *all = dt_mesh_comm(&s->mesh, DT_ON_ALL);
	int rc = agree(s, *blocks < 0 ? (int)*blocks : 0, err);

	if (rc == 0 && all)
		rc = dt_all_reduce(all, blocks, NULL, 1, DT_I64, DT_MIN, "blocks of the cache", err);
	return rc;
}

/* Whether the first token's state stands for a text: it is also what classes are of. */
static bool pools_first(const struct dt_served_params *p, const struct dt_config *c)
{
	const int pooling = p->pooling ? p->pooling : (int)c->pooling;

	return c->encoder && (c->head == DT_ENCODER_CLASSES || pooling == DT_POOLING_CLS);
}

/*
 * Opens the model and what drafts, the draft model or the module, with caches of the same blocks; returns the
 * number of blocks.
 */
static int64_t open_models(struct dt_served *s, const struct dt_served_params *p, int64_t len,
			   struct dt_err *err)
{
	struct dt_infer_params ip = {.dtype = p->fp32 ? DT_F32 : DT_BF16,
				     .cache = p->cache,
				     .weights = p->weights,
				     .max_tokens = (int)p->tokens,
				     .max_len = (int)len,
				     .max_seqs = (int)p->seqs,
				     .block_size =
					     (int)dt_infer_block(dt_source_config(s->src), p->block, len),
				     .ranks = p->world ? &s->cut : NULL,
				     .adapters = p->lora_rank,
				     .as_trained = p->as_trained,
				     .embeds = p->embeds,
				     .pools_first = pools_first(p, dt_source_config(s->src)),
				     .disk_dir = p->weights_disk,
				     .disk_memory = p->weights_memory,
				     .name = p->kv_dir != NULL};
	struct dt_source *module = NULL;
	int64_t blocks = p->mtp ? dt_source_open_module(p->ckpt, &module, err) : 0;
	int rc;

	if (blocks == 0)
		blocks = served_cache_blocks(s, p, len, module ? dt_source_config(module) : NULL, err);
	rc = agree_blocks(s, &blocks, err);
	if (rc < 0) {
		dt_source_close(module);
		return rc;
	}
	ip.blocks = (int)blocks;
	ip.states = (int)s->seqs;
	rc = agree(s, dt_infer_open(&s->model, s->dev, s->src, &ip, err), err);
	if (rc == 0)
		rc = dt_labels_open(s->src, &s->labels, err);
	if (rc == 0)
		rc = served_open_tower(s, p, err);
	if (rc == 0)
		rc = dt_infer_reach(s->model, err);
	if (rc == 0 && p->world)
		rc = dt_serve_ranks_open(&s->ranks, s->model, &s->mesh, served_steps_under_way(s, p), &ip,
					 err);
	ip.adapters = 0;
	ip.ranks = NULL; /* the draft model runs on rank 0 alone */
	ip.disk_memory = 0;
	if (rc == 0 && (p->draft_model || module) && is_first(p))
		rc = served_open_drafter(s, p, module, &ip, err);
	dt_source_close(module);
	dt_dev_rest(s->dev); /* from now on the engine's thread uses it */
	return rc < 0 ? rc : blocks;
}

/*
 * Refuses features that need access to cache contents: replicas have their own caches, of which rank 0 knows
 * only block numbers.
 */
static int check_replicas(const struct dt_served *s, const struct dt_served_params *p, struct dt_err *err)
{
	const char *what = p->draft_model ? "--draft-model"
			   : p->kv_host	  ? "--kv-host"
			   : p->kv_dir	  ? "--kv-disk"
			   : p->trace	  ? "--trace"
			   : p->named	  ? "--role"
					  : NULL;

	if (s->cut.layout.dp > DT_REPLICAS_MAX)
		return dt_err_set(err, -ENOTSUP, "dp%d exceeds the limit of %d replicas", s->cut.layout.dp,
				  DT_REPLICAS_MAX);
	if (s->cut.layout.dp == 1 || !what)
		return 0;
	return dt_err_set(err, -ENOTSUP, "%s cannot be combined with replicas (dp%d)", what,
			  s->cut.layout.dp);
}

/* An encoder reads a text at once, and keeps nothing of it. */
static int check_encoder(const struct dt_served_params *p, const struct dt_config *c, struct dt_err *err)
{
	const int64_t len = p->len ? p->len : c->max_seq;
	const char *what = p->draft_model || p->draft || p->mtp ? "drafts"
			   : p->kv_host || p->kv_dir		? "--kv-host and --kv-disk"
			   : p->named				? "--role"
			   : p->trace				? "--trace"
			   : p->merged				? "--merge-lora"
								: NULL;

	if (what)
		return dt_err_set(err, -ENOTSUP, "'%s' is an encoder, which is not served with %s", c->name,
				  what);
	if (p->tokens >= len)
		return 0;
	dt_err_set(
		err, -EINVAL,
		"an encoder computes a text in one step: --max-num-batched-tokens %lld is below the length "
		"of %lld",
		(long long)p->tokens, (long long)len);
	dt_err_hint(err, "raise it, or lower --max-model-len");
	return -EINVAL;
}

/* A state cannot go back to where it was some tokens ago, and is not that of another's prefix. */
static int check_ssm(const struct dt_served_params *p, const struct dt_config *c, struct dt_err *err)
{
	const char *what = p->draft_model || p->draft || p->mtp ? "drafts"
			   : p->kv_host || p->kv_dir		? "--kv-host and --kv-disk"
			   : p->named				? "--role"
			   : p->trace				? "--trace"
			   : p->lora_rank || p->merged		? "adapters"
								: NULL;

	return what ? dt_err_set(err, -ENOTSUP, "'%s' has layers of Mamba-2, which are not served with %s",
				 c->name, what)
		    : 0;
}

/*
 * Finds what each rank can determine alone: the source, the length of sequences, the tokenizer, the device.
 */
static int describe(struct dt_served *s, const struct dt_served_params *p, int64_t *len, struct dt_err *err)
{
	const char *file = p->tokenizer && strcmp(p->tokenizer, "byte") ? p->tokenizer : NULL;
	const struct dt_config *c;
	int rc = dt_source_open(p->ckpt, DT_SOURCE_AUTO, file, &s->src, err);

	if (rc == 0 && p->merged)
		rc = dt_source_adapt(&s->src, p->merged, p->any_base, err);
	if (rc < 0)
		return rc;
	c = dt_source_config(s->src);
	rc = check_replicas(s, p, err);
	if (rc == 0 && p->pooling && !c->encoder)
		rc = dt_err_set(err, -EINVAL, "--pooling is for encoders, which '%s' is not", c->name);
	if (rc == 0)
		rc = c->encoder && p->embeds ? check_encoder(p, c, err) : dt_config_servable(c, err);
	if (rc == 0 && c->ssm_heads)
		rc = check_ssm(p, c, err);
	if (rc == 0 && c->tower.hidden)
		rc = served_check_tower(p, c, err);
	if (rc == 0)
		rc = dt_serving_check(c, &s->cut.layout, err);
	if (rc == 0 && is_first(p))
		rc = dt_served_tokenizer(s->src, p->tokenizer, &s->tok, err);
	if (rc < 0)
		return rc;
	*len = p->len ? p->len : c->max_seq;
	if (*len > dt_config_positions(c))
		return dt_err_set(err, -EINVAL,
				  "a length of %lld tokens exceeds the model's context length of %lld",
				  (long long)*len, (long long)dt_config_positions(c));
	rc = open_device(s, p, err);
	return rc < 0 ? rc : served_check_module(s, p, err);
}

int dt_served_open(struct dt_served *s, const struct dt_served_params *p, struct dt_err *err)
{
	double t0 = dt_now();
	struct dt_config c;
	int64_t blocks, len = 0;
	int rc = join(s, p, err);

	if (rc < 0 || (rc = agree(s, describe(s, p, &len, err), err)) < 0)
		return rc;
	c = *dt_source_config(s->src);
	blocks = open_models(s, p, len, err);
	rc = blocks < 0 ? (int)blocks : 0;
	if (rc == 0 && is_first(p)) {
		set_chat(s, p, dt_source_chat_template(s->src));
		if (p->lora_rank)
			rc = served_open_adapters(s, p, err);
		if (rc == 0)
			rc = served_open_engine(s, p, &c, len, blocks, err);
	}
	dt_source_close(s->src);
	s->src = NULL;
	rc = agree(s, rc, err);
	if (rc < 0)
		return rc;
	s->memory = dt_infer_bytes(s->model);
	s->memory.weights += dt_infer_labels(&c);
	if (p->mtp)
		served_add_module(s, p);
	if (s->tower)
		served_add_tower(s);
	s->cache_tokens = dt_config_attends(&c) ? blocks * p->block * s->cut.layout.dp : 0;
	s->seconds = dt_now() - t0;
	if (!s->engine)
		return 0;
	dt_engine_begin(s->engine); /* this thread sends no more messages */
	s->logits_bytes =
		DT_INFER_LOGITS_ROWS((uint64_t)s->seqs * (uint64_t)s->cut.layout.dp) * (uint64_t)c.vocab * 4;
	served_tell_memory(s);
	return 0;
}

int dt_served_follow(struct dt_served *s, struct dt_err *err)
{
	return dt_serve_ranks_follow(s->ranks, err);
}

int dt_served_close(struct dt_served *s)
{
	int rc = 0;

	dt_engine_close(s->engine);
	dt_adapters_close(s->adapters);
	if (s->engine && s->ranks && !dt_world_broken(s->cut.world))
		(void)dt_serve_ranks_end(s->ranks, NULL); /* if it fails, the others notice by themselves */
	dt_kvdisk_close(s->disk);
	dt_serve_ranks_close(s->ranks);
	if (s->trace.f && ((fclose(s->trace.f) == EOF) | s->trace.failed))
		rc = -EIO;
	dt_infer_close(s->model);
	dt_infer_close(s->drafter);
	served_close_tower(s);
	dt_labels_close(s->labels);
	dt_tokenizer_close(s->tok);
	dt_source_close(s->src);
	dt_dev_close(s->dev);
	if (s->cut.world && !dt_world_broken(s->cut.world))
		dt_mesh_release(&s->mesh);
	*s = (struct dt_served){0};
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
