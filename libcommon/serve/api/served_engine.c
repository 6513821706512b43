/* Opens the engine of a server: its model over one or several ranks, adapters, disk cache, peers. */
#include "serve/api/served_engine.h"

#include "nn/labels.h"
#include "plan/inferplan.h"

#include <errno.h>
#include <string.h>

static int copy_block(void *m, int replica, int32_t from, int32_t to)
{
	return dt_infer_copy_block(m, from, to);
}

static int copy_state(void *m, int32_t from, int32_t to)
{
	return dt_infer_copy_state(m, from, to);
}

static int forward(void *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err)
{
	return dt_infer_forward(m, b, logits, err);
}

static int classes(const void *labels, const float *pooled, float *ret)
{
	return dt_labels_of(labels, pooled, ret);
}

static int read_block(void *m, int32_t block, void *to)
{
	return dt_infer_read_block(m, block, to);
}

static int write_block(void *m, int32_t block, const void *from)
{
	return dt_infer_write_block(m, block, from);
}

static void weights_read(void *m, struct dt_weights_read *ret)
{
	struct dt_infer_disk_facts f = {0};

	dt_infer_disk_told(m, &f);
	*ret = (struct dt_weights_read){f.read_bytes, f.wait_s, f.hits, f.misses};
}

static void weights_read_of_part(void *ranks, struct dt_weights_read *ret)
{
	weights_read(dt_serve_ranks_part(ranks), ret);
}

struct dt_engine_model dt_served_model(struct dt_infer *m, const struct dt_tokenizer *tok,
				       const struct dt_config *c)
{
	struct dt_infer_disk_facts disk;
	struct dt_engine_model r = {.m = m,
				    .forward = forward,
				    .copy_block = copy_block,
				    .copy_state = c->ssm_heads ? copy_state : NULL,
				    .read_block = read_block,
				    .write_block = write_block,
				    .block_bytes = dt_infer_block_bytes(m),
				    .weights_read = dt_infer_disk_told(m, &disk) ? weights_read : NULL,
				    .draws = true,
				    .vocab = (int)c->vocab,
				    .hidden = (int)c->hidden,
				    .encoder = c->encoder,
				    .types = c->token_types > 1,
				    /* as RoBERTas have it; in GGUF their positions begin at 0 too */
				    .seps = c->pos_first || c->token_types < 2 ? 2 : 1};
	int32_t eot = dt_tokenizer_eot(tok);

	if (eot >= 0)
		r.eos[r.neos++] = eot;
	if (c->eos >= 0 && c->eos < c->vocab && c->eos != eot)
		r.eos[r.neos++] = (int32_t)c->eos;
	return r;
}

static uint64_t cache_name(const struct dt_served *s)
{
	return s->ranks ? dt_serve_ranks_cache_name(s->ranks) : dt_infer_cache_name(s->model);
}

/* Identifies the model in blocks exchanged with other servers, independent of the layout. */
static int model_name(struct dt_served *s, uint64_t *ret, struct dt_err *err)
{
	char print[DT_FINGERPRINT];
	int rc = dt_source_fingerprint(s->src, print, err);

	if (rc == 0)
		*ret = dt_infer_model_name(s->model, print);
	return rc;
}

/* Opens the folder of cache blocks, under the name of this cache. */
static int open_disk(struct dt_served *s, const struct dt_served_params *p, const struct dt_config *c,
		     struct dt_err *err)
{
	static const struct dt_log silent = {0};
	struct dt_kvdisk_params kp = {.dir = p->kv_dir,
				      .size = p->kv_dir_size,
				      .name = cache_name(s),
				      .block_bytes = s->ranks ? dt_serve_ranks_block_bytes(s->ranks)
							      : dt_infer_block_bytes(s->model),
				      .block_size = (int)p->block,
				      .log = p->log ? p->log : &silent};
	json_t *about = json_pack("{s:s,s:s,s:s,s:I,s:I}", "model", dt_source_path(s->src), "activations",
				  p->fp32 ? "fp32" : "bf16", "cache", dt_dtype_name(p->cache), "block_size",
				  (json_int_t)p->block, "layers", (json_int_t)c->layers);
	char *text = about ? json_dumps(about, JSON_COMPACT) : NULL;
	int rc;

	kp.about = text ? text : "{}";
	rc = dt_kvdisk_open(&s->disk, &kp, err);
	free(text);
	json_decref(about);
	return rc < 0 ? dt_err_prefix(err, "--kv-disk") : 0;
}

int served_steps_under_way(const struct dt_served *s, const struct dt_served_params *p)
{
	const int pp = s->cut.layout.pp;

	return p->draft || p->draft_model || p->trace ? 1 : p->seqs < pp ? (int)p->seqs : pp;
}

/* Sets the engine's callbacks to those of a model over several ranks. */
static void over_ranks(struct dt_served *s, const struct dt_served_params *p, struct dt_engine_model *m)
{
	m->m = s->ranks;
	m->forward = dt_serve_ranks_forward;
	m->depth = served_steps_under_way(s, p);
	m->begin = dt_serve_ranks_begin;
	m->take = dt_serve_ranks_take;
	m->copy_block = dt_serve_ranks_copy_block;
	m->draws = s->cut.layout.dp == 1; /* with replicas, logits come from other ranks */
	m->read_block = dt_serve_ranks_read_block;
	m->write_block = dt_serve_ranks_write_block;
	m->block_bytes = dt_serve_ranks_block_bytes(s->ranks);
	m->beat = dt_serve_ranks_beat;
	m->ready = dt_serve_ranks_ready;
	m->weights_read = m->weights_read ? weights_read_of_part : NULL;
	m->beat_s = p->beat_s;
}

int served_open_engine(struct dt_served *s, const struct dt_served_params *p, const struct dt_config *c,
		       int64_t len, int64_t blocks, struct dt_err *err)
{
	struct dt_engine_params ep = {.model = dt_served_model(s->model, s->tok, c),
				      .tok = s->tok,
				      .max_seqs = (int)s->seqs * s->cut.layout.dp,
				      .max_tokens = (int)p->tokens * s->cut.layout.dp,
				      .replicas = s->cut.layout.dp,
				      .dev = s->dev,
				      .max_len = (int)len,
				      .blocks = (int)blocks,
				      .block_size = (int)dt_infer_block(c, p->block, len),
				      .window = (int)dt_config_span(c),
				      .queue = (int)p->queue,
				      .share_prefixes = p->share && !c->ssm_heads,
				      .draft = (int)p->draft,
				      .adapters = s->adapters,
				      .tenant = p->tenant,
				      .ntenants = p->ntenants,
				      .kv_host = p->kv_host,
				      .kv_always = p->kv_always,
				      .stuck_after = p->stuck_after,
				      .held = true};

	if (s->labels) {
		ep.model.labels = (int)c->labels;
		ep.model.label = dt_labels_names(s->labels);
		ep.model.label_loss = c->label_loss;
		ep.model.classes = classes;
		ep.model.judge = s->labels;
	}
	if (s->tower)
		served_use_tower(s, p, c, &ep);
	if (p->kv_dir && open_disk(s, p, c, err) < 0)
		return err->code;
	ep.kv_disk = s->disk;
	if (p->named && model_name(s, &ep.cache_name, err) < 0)
		return err->code;
	if (s->drafter) {
		int64_t span = dt_config_span(dt_infer_config(s->drafter));

		ep.drafter = ep.model;
		ep.drafter.m = s->drafter;
		ep.follows = p->mtp ? served_hidden_bytes(s, p) : 0;
		ep.window = ep.window && span ? (int)(span > ep.window ? span : ep.window) : 0;
	}
	if (s->ranks)
		over_ranks(s, p, &ep.model);
	if (p->peers) {
		s->peers = *p->peers;
		s->peers.name = ep.cache_name;
		s->peers.block_bytes = ep.model.block_bytes;
		s->peers.block_size = ep.block_size;
		ep.peers = &s->peers;
	}
	if (p->trace) {
		s->trace.f = fopen(p->trace, "we");
		if (!s->trace.f)
			return dt_err_sys(err, -errno, "cannot write '%s'", p->trace);
		ep.trace = &s->trace;
	}
	return dt_engine_open(&s->engine, &ep, err);
}

/* Whether some matrix is stored in a block format: its fingerprint is not that of the original numbers. */
static bool in_blocks(const struct dt_source *src)
{
	const struct dt_params *t = dt_source_params(src);

	for (int i = 0; i < t->n; i++)
		if (dt_format_info(dt_source_format(src, i))->dtype < 0)
			return true;
	return false;
}

int dt_served_lora(const char *text, char ret_name[DT_LORA_NAME], const char **ret_path, struct dt_err *err)
{
	const char *eq = strchr(text, '=');

	if (!eq || eq == text || !eq[1])
		return dt_err_set(err, -EINVAL, "--lora '%s' is not NAME=PATH", text);
	if (eq - text >= DT_LORA_NAME)
		return dt_err_set(err, -EINVAL, "--lora: a name has at most %d bytes", DT_LORA_NAME - 1);
	snprintf(ret_name, DT_LORA_NAME, "%.*s", (int)(eq - text), text);
	*ret_path = eq + 1;
	return 0;
}

/* Adds an adapter given as NAME=PATH. */
static int add_adapter(struct dt_adapters *a, const char *text, struct dt_err *err)
{
	char name[DT_LORA_NAME];
	const char *path;
	int rc = dt_served_lora(text, name, &path, err);

	if (rc < 0)
		return rc;
	rc = dt_adapters_add(a, name, path, false, false, err);
	return rc < 0 ? dt_err_prefix(err, "--lora %s", name) : 0;
}

int served_open_adapters(struct dt_served *s, const struct dt_served_params *p, struct dt_err *err)
{
	struct dt_adapters_params ap = {.model = s->model,
					.tok = s->tok,
					.name = p->name ? p->name : p->ckpt,
					.dir = p->lora_dir,
					.resident = (int)p->lora_resident,
					.quota = p->lora_quota};
	char print[DT_FINGERPRINT];
	int rc = 0;

	if (!p->any_base && !in_blocks(s->src)) {
		rc = dt_source_fingerprint(s->src, print, err);
		if (rc == 0)
			snprintf(ap.base, sizeof(ap.base), "%s", print);
	}
	if (rc == 0)
		rc = dt_adapters_open(&s->adapters, &ap, err);
	for (int i = 0; p->lora && i < p->lora->n && rc == 0; i++)
		rc = add_adapter(s->adapters, p->lora->v[i], err);
	return rc;
}

/* The draft model computes on the same device, whose scratch is enough for both. */
void served_tell_memory(const struct dt_served *s)
{
	const bool host = dt_dev_is_host(s->dev);
	struct dt_scratch scratch = *dt_infer_reserved(s->model);

	if (s->tower)
		served_tower_scratch(s, &scratch);
	for (int b = 0; s->drafter && b < DT_SCRATCH_N; b++)
		dt_scratch_raise(&scratch, (enum dt_scratch_buffer)b,
				 dt_infer_reserved(s->drafter)->bytes[b]);
	dt_metrics_memory(dt_engine_metrics(s->engine),
			  (uint64_t[]){s->memory.weights, s->memory.cache, s->memory.work, s->logits_bytes,
				       dt_infer_scratch_bytes(&scratch)},
			  host ? s->dev->nthreads : 0);
}
/* SPDX-License-Identifier: Apache-2.0 */
