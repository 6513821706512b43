#include "ckpt/source.h"
#include "comm/comm.h"
#include "nn/card.h"
#include "nn/exec.h"
#include "nn/infer_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WARM_BYTES ((size_t)256 << 20)

/* Bytes of a block in one tensor of the cache. */
static size_t piece_bytes(const struct dt_infer *m)
{
	return (size_t)dt_infer_cache_piece(&m->config, m->ranks.layout.tp, m->p.cache, m->p.block_size);
}

/*
 * Touches the blocks that the pool hands out first, as many as the first prompts use, so that no request
 * waits for the kernel to allocate and clear their pages. Does nothing if the kernel cannot.
 */
static void warm(const struct dt_infer *m)
{
	const size_t slab = (size_t)m->p.blocks * piece_bytes(m);
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t slabs, n;

	if (!slab) /* of an encoder, or without attention */
		return;
	slabs = m->cache.bytes / slab;
	n = WARM_BYTES / slabs < slab ? WARM_BYTES / slabs : slab;
#pragma omp parallel for num_threads(m->dev->nthreads) schedule(dynamic)
	for (size_t i = 0; i < slabs; i++) {
		const size_t first = i * slab / page * page;

		madvise(m->cache.base + first, i * slab + n - first, MADV_POPULATE_WRITE);
	}
}

/* Lets the CPU allocate what the operations of any pass ask for, so that no request waits for it. */
static int reserve(struct dt_infer *m, const struct dt_serving *serving, struct dt_err *err)
{
	const struct dt_scratch_on on = dt_dev_scratch_on(m->dev);
	const int64_t pool = (int64_t)m->p.blocks * m->p.block_size;
	const struct dt_serving_limits most = {.seqs = m->p.max_seqs,
					       .keys = m->positions < pool ? m->positions : pool,
					       .all_keys = pool,
					       .cache = m->p.cache,
					       .format = m->format,
					       .others = m->others};
	int rc;

	dt_infer_scratch(serving, &m->plan.stage, &on, &most, &m->scratch);
	rc = dt_dev_scratch_reserve(m->dev, &m->scratch);
	return rc < 0 ? dt_err_sys(err, rc, "cannot allocate scratch memory of %llu bytes",
				   (unsigned long long)dt_infer_scratch_bytes(&m->scratch))
		      : 0;
}

static int open_parts(struct dt_infer *m, struct dt_source *src, struct dt_err *err)
{
	struct dt_exec *x = &m->x;
	const struct dt_serving serving = {.config = &m->config,
					   .compute = m->p.dtype,
					   .rows = m->p.max_tokens,
					   .outputs = m->p.max_seqs,
					   .adapters = m->p.adapters,
					   .layout = m->ranks.layout,
					   .at = m->ranks.at};
	int rc, last;

	m->config = dt_infer_config_of(dt_source_config(src));
	m->positions = m->p.max_len > 0 ? m->p.max_len : m->config.max_seq;
	rc = dt_memory_plan_serving(&serving, m->positions, &m->plan, err);
	if (rc < 0)
		return rc;
	dt_layout_stage(&m->ranks.layout, &m->config, m->ranks.at.pp, &m->first_layer, &last);
	*x = (struct dt_exec){.c = &m->config,
			      .stage = &m->plan.stage,
			      .plan = &m->plan,
			      .dev = m->dev,
			      .calls = dt_serve_calls,
			      .joins = dt_serve_joins,
			      .owner = m,
			      .tp = m->ranks.tp,
			      .dtype = m->p.dtype,
			      .positions = m->positions};
	if (m->p.adapters && !(m->parts = calloc((size_t)m->p.max_seqs, sizeof(*m->parts))))
		return dt_err_sys(err, -ENOMEM, "cannot load the model");
	rc = dt_infer_load(m, src, err);
	if (rc < 0)
		return dt_err_prefix(err, "'%s'", dt_source_path(src));
	if ((rc = dt_infer_area(m, &m->cache,
				dt_infer_cache(&m->config, &m->ranks.layout, m->ranks.at, m->p.cache,
					       m->p.blocks, m->p.block_size),
				err)) < 0 ||
	    (rc = dt_infer_area(m, &m->states,
				dt_infer_states(&m->config, &m->ranks.layout, m->ranks.at, m->p.states),
				err)) < 0 ||
	    (rc = dt_infer_area(m, &m->work, m->plan.arena_bytes, err)) < 0 ||
	    (rc = dt_infer_side_open(m, err)) < 0 || (rc = reserve(m, &serving, err)) < 0)
		return rc;
	if (m->ranks.world && dt_dev_is_host(m->dev))
		rc = dt_buffer_share(m->ranks.world, m->work.base, m->work.bytes, err);
	if (rc < 0 && rc != -ENOSPC) /* -ENOSPC: it is copied instead */
		return rc;
	x->base = m->work.base;
	if (dt_dev_is_host(m->dev))
		warm(m);
	rc = dt_exec_bind_rope(x);
	return rc < 0 ? dt_err_sys(err, rc, "cannot fill the tables of rotary angles") : 0;
}

static int check_encoder(const struct dt_infer_params *p, const struct dt_config *c, const struct dt_dev *dev,
			 struct dt_err *err)
{
	const char *what = p->ranks		  ? "over several ranks"
			   : !dt_dev_is_host(dev) ? "on a GPU"
			   : p->adapters	  ? "with adapters"
			   : p->disk_memory	  ? "with weights on disk"
						  : NULL;

	return what ? dt_err_set(err, -ENOTSUP, "'%s' is an encoder, which is not served %s", c->name, what)
		    : 0;
}

static int check_ssm(const struct dt_infer_params *p, const struct dt_config *c, struct dt_err *err)
{
	const char *what = p->adapters ? "with adapters" : p->disk_memory ? "with weights on disk" : NULL;

	if (what)
		return dt_err_set(err, -ENOTSUP, "'%s' has layers of Mamba-2, which are not served %s",
				  c->name, what);
	return p->states > 0 ? 0
			     : dt_err_set(err, -EINVAL,
					  "'%s' needs room for the states of at least one sequence", c->name);
}

static int check(const struct dt_infer_params *p, const struct dt_config *c, const struct dt_dev *dev,
		 struct dt_err *err)
{
	int rc = c->encoder && p->embeds ? check_encoder(p, c, dev, err) : dt_config_servable(c, err);

	if (rc == 0 && c->ssm_heads)
		rc = check_ssm(p, c, err);
	if (rc == 0 && p->ranks)
		rc = dt_serving_check(c, &p->ranks->layout, err);
	if (rc < 0)
		return rc;
	if (c->experts > DT_MOE_MOST)
		return dt_err_set(err, -ENOTSUP, "%lld experts: at most %d are supported",
				  (long long)c->experts, DT_MOE_MOST);
	if (p->max_tokens < 1 || p->max_seqs < 1 || p->blocks < 1 || p->block_size < 1)
		return dt_err_set(err, -EINVAL,
				  "the KV pool and the batch need at least one block and one token");
	if (p->disk_memory && !p->disk_dir && dt_dev_is_host(dev))
		return dt_err_set(err, -EINVAL,
				  "weights that exceed --weights-memory need a folder: --weights-disk");
	if (p->max_len > dt_config_positions(c))
		return dt_err_set(err, -EINVAL, "%d tokens are more than the model's %lld positions",
				  p->max_len, (long long)dt_config_positions(c));
	if (p->cache != p->dtype && p->cache != DT_F32 && p->cache != DT_I8)
		return dt_err_set(err, -ENOTSUP, "a KV cache of %s cannot be combined with activations of %s",
				  dt_dtype_name(p->cache), dt_dtype_name(p->dtype));
	if (p->weights == DT_FMT_F32 && p->dtype != DT_F32)
		return dt_err_set(err, -ENOTSUP, "weights of f32 cannot be combined with activations of %s",
				  dt_dtype_name(p->dtype));
	return 0;
}

int dt_infer_open(struct dt_infer **ret, struct dt_dev *dev, struct dt_source *src,
		  const struct dt_infer_params *p, struct dt_err *err)
{
	struct dt_infer *m;
	int rc = check(p, dt_source_config(src), dev, err);

	if (rc < 0)
		return rc;
	m = calloc(1, sizeof(*m));
	if (!m)
		return dt_err_sys(err, -ENOMEM, "cannot load the model");
	m->p = *p;
	m->ranks = p->ranks
			   ? *p->ranks
			   : (struct dt_infer_ranks){.layout = {.dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1}};
	m->p.ranks = p->ranks ? &m->ranks : NULL;
	m->dev = dev;
	dev->steps = true;
	rc = open_parts(m, src, err);
	if (rc == 0)
		rc = dt_infer_parts_open(m, err);
	if (rc == 0)
		rc = dt_infer_narrow_open(m, err);
	if (rc == 0 && p->adapters && p->ranks)
		rc = dt_infer_gone_open(m, err);
	if (rc < 0) {
		dt_infer_close(m);
		return rc;
	}
	*ret = m;
	return 0;
}

int dt_infer_reach(struct dt_infer *m, struct dt_err *err)
{
	struct dt_comm_device d;
	int rc;

	if (!m->ranks.world || dt_dev_is_host(m->dev))
		return 0;
	d = dt_card_device(m->dev, &m->side.card, m->work.base, m->work.bytes);
	rc = dt_world_device(m->ranks.world, &d, &m->side.staged, err);
	m->side.reached = rc == 0;
	return rc;
}

const char *dt_infer_staged(const struct dt_infer *m)
{
	return m->side.staged;
}

void dt_infer_close(struct dt_infer *m)
{
	const char *staged;

	if (!m)
		return;
	if (m->side.reached && !dt_world_broken(m->ranks.world))
		dt_world_device(m->ranks.world, NULL, &staged, NULL);
	dt_infer_side_release(m);
	dt_infer_weights_release(m);
	dt_infer_area_release(m, &m->cache);
	dt_infer_area_release(m, &m->states);
	if (m->ranks.world && m->work.base && dt_dev_is_host(m->dev))
		dt_buffer_unshare(m->ranks.world, m->work.base, m->work.bytes);
	dt_infer_area_release(m, &m->work);
	dt_memory_plan_release(&m->plan);
	dt_infer_parts_release(m);
	dt_infer_narrow_release(m);
	dt_infer_gone_close(m);
	free(m->parts);
	free(m);
}

const struct dt_config *dt_infer_config(const struct dt_infer *m)
{
	return &m->config;
}

struct dt_infer_memory dt_infer_bytes(const struct dt_infer *m)
{
	return (struct dt_infer_memory){.weights = m->weights.bytes + m->packed_bytes,
					.cache = m->cache.bytes + m->states.bytes,
					.work = m->work.bytes,
					.scratch = dt_dev_is_host(m->dev)
							   ? dt_infer_scratch_bytes(&m->scratch)
							   : dt_dev_scratch_bytes(m->dev) + m->side.bytes +
								     m->side.out_bytes + m->set_bytes};
}

const struct dt_scratch *dt_infer_reserved(const struct dt_infer *m)
{
	return &m->scratch;
}

/* ---- the pass ---- */

int dt_infer_copy_block(struct dt_infer *m, int32_t from, int32_t to)
{
	size_t block = piece_bytes(m), all = (size_t)m->p.blocks * block;

	if (!all) /* of an encoder, or without attention */
		return 0;
	return dt_dev_copy_rows(m->dev, m->cache.base + (size_t)to * block, all,
				m->cache.base + (size_t)from * block, all, block,
				(int64_t)(m->cache.bytes / all));
}

int dt_infer_copy_state(struct dt_infer *m, int32_t from, int32_t to)
{
	const int64_t layers = dt_config_ssm_layers(&m->config, 0, m->config.layers);
	const size_t all = m->states.bytes / (size_t)layers, each = all / (size_t)m->p.states;

	return dt_dev_copy_rows(m->dev, m->states.base + (size_t)to * each, all,
				m->states.base + (size_t)from * each, all, each, layers);
}

static int check_batch(const struct dt_infer *m, const struct dt_infer_batch *b, struct dt_err *err)
{
	if (b->ntokens < (m->ranks.ep ? 0 : 1) || b->ntokens > m->p.max_tokens || b->nwant > m->p.max_seqs)
		return dt_err_set(err, -EINVAL, "a batch of %d tokens and %d outputs exceeds %d and %d",
				  b->ntokens, b->nwant, m->p.max_tokens, m->p.max_seqs);
	if ((m->config.module || m->config.sees) != (b->given != NULL))
		return dt_err_set(
			err, -EINVAL,
			"a module for a further token reads hidden states, a tower pixels, others none");
	if (m->config.sees && b->ntokens % (int)dt_tower_joined(&m->config.tower))
		return dt_err_set(err, -EINVAL, "%d patches cannot be joined by %d", b->ntokens,
				  (int)dt_tower_joined(&m->config.tower));
	if ((b->hidden || b->given || b->nseen) && (m->p.ranks || !dt_dev_is_host(m->dev)))
		return dt_err_set(err, -ENOTSUP,
				  "final hidden states and rows of images are read on the CPU with one rank "
				  "only");
	return 0;
}

int dt_infer_stage(struct dt_infer *m, const struct dt_infer_batch *b, float *made, struct dt_err *err)
{
	int rc = check_batch(m, b, err);

	return rc < 0 ? rc : dt_infer_in_parts(m, b, dt_infer_has_logits(m) ? made : NULL, err);
}

/* All stages of a pass, in parts. */
static int all_stages(struct dt_infer *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err)
{
	const size_t n = (size_t)b->nwant * (size_t)m->config.vocab;
	float *made = dt_infer_has_logits(m) ? malloc((n + 1) * sizeof(*made)) : NULL;
	int rc = made || !dt_infer_has_logits(m) ? 0 : dt_err_sys(err, -ENOMEM, "cannot compute a step");

	if (rc == 0)
		rc = dt_infer_in_parts(m, b, made, err);
	if (rc == 0)
		rc = dt_infer_finish(m, b, made, logits, err);
	free(made);
	return rc;
}

/* All rows in one pass; with ep, together with the other ranks' rows. */
static int whole(struct dt_infer *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err)
{
	struct dt_infer_batch p = *b;

	dt_infer_count_rows(m, b, 0, 1, &p);
	return dt_infer_run(m, &p, logits, err);
}

int dt_infer_forward(struct dt_infer *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err)
{
	int rc = check_batch(m, b, err);

	if (rc < 0)
		return rc;
	return m->ranks.pp   ? all_stages(m, b, logits, err)
	       : m->ranks.cp ? dt_infer_cut_rows(m, b, logits, err)
			     : whole(m, b, logits, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
