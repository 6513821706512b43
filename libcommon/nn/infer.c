#include "nn/infer.h"

#include "base/arena.h"
#include "ckpt/ckpt.h"
#include "nn/transformer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct dt_infer {
	struct dt_config config;
	struct dt_params table;
	struct dt_local local;
	struct dt_model model;
	struct dt_infer_params p;
	struct dt_dev *dev;
	struct dt_arena weights, cache, work;
	struct dt_pass pass;
	void *act[DT_ACT_N]; /* one working set for every layer */
	void *picked;	     /* final norm rows whose logits are wanted [max_seqs, hidden] */
	float *rope;
};

/* model/NAME of every parameter, whole, into the flat buffer. */
static int load_weights(struct dt_infer *m, struct dt_ckpt *ck, struct dt_err *err)
{
	for (int i = 0; i < m->local.n; i++) {
		const struct dt_local_param *lp = &m->local.p[i];
		const struct dt_param *p = &m->table.p[lp->index];
		struct dt_ckpt_tensor t;
		char name[80];
		int at, rc;

		snprintf(name, sizeof(name), "model/%s", p->name);
		at = dt_ckpt_find(ck, name);
		if (at < 0)
			return dt_err_set(err, -ENOENT, "checkpoint '%s' has no tensor '%s'",
					  dt_ckpt_path(ck), name);
		dt_ckpt_tensor(ck, at, &t);
		if (t.ndim != p->ndim || t.shape[0] != p->shape[0] ||
		    (p->ndim == 2 && t.shape[1] != p->shape[1]))
			return dt_err_set(err, -EINVAL,
					  "checkpoint '%s': tensor '%s' has another shape than the model",
					  dt_ckpt_path(ck), name);
		rc = dt_ckpt_read(ck, at, lp->off, lp->shape, m->p.dtype,
				  m->weights.base + lp->flat * dt_dtype_size(m->p.dtype), err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Hands out the working set; called twice, first to measure. */
static size_t carve(struct dt_infer *m, char *base)
{
	struct dt_activation act[DT_ACT_N];
	size_t at = 0, e = (size_t)dt_dtype_size(m->p.dtype);
	int64_t rows = m->p.max_tokens, c = m->config.hidden;
	struct {
		void **to;
		size_t bytes;
	} fixed[] = {
		{&m->pass.delta, (size_t)(rows * c) * e},
		{&m->pass.final_norm, (size_t)(rows * c) * e},
		{&m->pass.final_resid, (size_t)(rows * c) * e},
		{(void **)&m->pass.final_mean, (size_t)rows * 4},
		{(void **)&m->pass.final_rstd, (size_t)rows * 4},
		{&m->picked, (size_t)(m->p.max_seqs * c) * e},
		{(void **)&m->rope, (size_t)(m->config.max_seq * m->config.head_dim) * 4},
	};

	dt_activations(&m->config, &m->model.d, m->p.dtype, act);
	for (int i = 0; i < DT_ACT_N; i++) {
		m->act[i] = base ? base + at : NULL;
		at += dt_align_up((uint64_t)(rows * act[i].per_token * dt_dtype_size(act[i].dtype)));
	}
	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
		*fixed[i].to = base ? base + at : NULL;
		at += dt_align_up(fixed[i].bytes);
	}
	return at;
}

static size_t cache_row_bytes(const struct dt_infer *m)
{
	return (size_t)(m->model.d.kv_heads * m->config.head_dim * dt_dtype_size(m->p.dtype));
}

static int open_parts(struct dt_infer *m, struct dt_ckpt *ck, struct dt_err *err)
{
	struct dt_layout one = {.dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1};
	struct dt_coords at = {0};
	void **units;
	int rc = dt_config_from_json(json_object_get(dt_ckpt_meta(ck), "model"), &m->config, err);

	if (rc < 0)
		return dt_err_prefix(err, "checkpoint '%s'", dt_ckpt_path(ck));
	rc = dt_model_params(&m->config, &m->table, err);
	if (rc < 0)
		return rc;
	rc = dt_local_build(&m->table, &m->config, &one, at, &m->local, err);
	if (rc < 0)
		return rc;
	rc = dt_arena_init(&m->weights, (size_t)m->local.numel * (size_t)dt_dtype_size(m->p.dtype), err);
	if (rc < 0)
		return rc;
	rc = load_weights(m, ck, err);
	if (rc < 0)
		return rc;
	units = dt_flat_units(&m->local, m->weights.base, m->p.dtype);
	if (!units)
		return dt_err_sys(err, -ENOMEM, "cannot load the model");
	rc = dt_model_bind(&m->model, &m->config, &m->table, &m->local, &one, at, NULL, m->dev, m->p.dtype,
			   units, NULL, err);
	free(units);
	if (rc < 0)
		return rc;
	rc = dt_arena_init(&m->cache,
			   2 * (size_t)m->config.layers * (size_t)m->p.blocks * (size_t)m->p.block_size *
				   cache_row_bytes(m),
			   err);
	if (rc < 0)
		return rc;
	rc = dt_arena_init(&m->work, carve(m, NULL), err);
	if (rc < 0)
		return rc;
	carve(m, m->work.base);
	if (m->config.pos == DT_POS_ROPE) {
		int64_t half = m->config.max_seq * m->config.head_dim / 2;

		dt_rope_table(&m->config, m->config.max_seq, m->rope, m->rope + half);
		m->model.rope_cos = m->rope;
		m->model.rope_sin = m->rope + half;
		m->model.rope_positions = m->config.max_seq;
	}
	m->pass.act = calloc((size_t)m->config.layers, sizeof(*m->pass.act));
	if (!m->pass.act)
		return dt_err_sys(err, -ENOMEM, "cannot load the model");
	for (int64_t l = 0; l < m->config.layers; l++)
		memcpy(m->pass.act[l], m->act, sizeof(m->act));
	return 0;
}

int dt_infer_open(struct dt_infer **ret, struct dt_dev *dev, struct dt_ckpt *ck,
		  const struct dt_infer_params *p, struct dt_err *err)
{
	struct dt_infer *m;
	int rc;

	if (p->max_tokens < 1 || p->max_seqs < 1 || p->blocks < 1 || p->block_size < 1)
		return dt_err_set(err, -EINVAL,
				  "the KV pool and the batch need at least one block and one token");
	m = calloc(1, sizeof(*m));
	if (!m)
		return dt_err_sys(err, -ENOMEM, "cannot load the model");
	m->p = *p;
	m->dev = dev;
	rc = open_parts(m, ck, err);
	if (rc < 0) {
		dt_infer_close(m);
		return rc;
	}
	*ret = m;
	return 0;
}

void dt_infer_close(struct dt_infer *m)
{
	if (!m)
		return;
	free(m->pass.act);
	dt_model_release(&m->model);
	dt_arena_release(&m->weights);
	dt_arena_release(&m->cache);
	dt_arena_release(&m->work);
	dt_local_release(&m->local);
	dt_params_release(&m->table);
	free(m);
}

const struct dt_config *dt_infer_config(const struct dt_infer *m)
{
	return &m->config;
}

void dt_infer_bytes(const struct dt_infer *m, uint64_t *weights, uint64_t *cache, uint64_t *work)
{
	*weights = m->weights.bytes;
	*cache = m->cache.bytes;
	*work = m->work.bytes + dt_dev_scratch_bytes(m->dev);
}

static struct dt_kv kv_of(const struct dt_infer *m, int l, const struct dt_infer_batch *b,
			  const struct dt_paged *paged)
{
	int64_t rows = (int64_t)m->p.blocks * m->p.block_size,
		cols = m->model.d.kv_heads * m->config.head_dim;
	char *k = m->cache.base + (size_t)(2 * l) * (size_t)rows * cache_row_bytes(m);

	return (struct dt_kv){.k = dt_t2(k, m->p.dtype, rows, cols),
			      .v = dt_t2(k + (size_t)rows * cache_row_bytes(m), m->p.dtype, rows, cols),
			      .slot = b->slot,
			      .paged = paged};
}

void dt_infer_copy_block(struct dt_infer *m, int32_t from, int32_t to)
{
	size_t block = (size_t)m->p.block_size * cache_row_bytes(m), all = (size_t)m->p.blocks * block;

	for (size_t i = 0; i < 2 * (size_t)m->config.layers; i++)
		memcpy(m->cache.base + i * all + (size_t)to * block,
		       m->cache.base + i * all + (size_t)from * block, block);
}

/* In f32 and row by row, so that it does not matter how a prompt was cut. */
static void pool_rows(const struct dt_infer *m, const struct dt_infer_batch *b, int seq, float *sum)
{
	int64_t n = m->config.hidden;

	for (int t = b->q_start[seq]; t < b->q_start[seq + 1]; t++)
		for (int64_t i = 0; i < n; i++)
			sum[i] += m->p.dtype == DT_F32
					  ? ((const float *)m->pass.final_norm)[t * n + i]
					  : dt_bf16_to_f32(((const uint16_t *)m->pass.final_norm)[t * n + i]);
}

int dt_infer_forward(struct dt_infer *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err)
{
	struct dt_paged paged = {.nseq = b->nseq,
				 .q_start = b->q_start,
				 .kv_len = b->kv_len,
				 .block_table = b->block_table,
				 .max_blocks = b->max_blocks,
				 .block_size = m->p.block_size};
	struct dt_pass *p = &m->pass;
	size_t row = (size_t)(m->config.hidden * dt_dtype_size(m->p.dtype));
	const void *x, *delta = NULL;
	int rc;

	if (b->ntokens < 1 || b->ntokens > m->p.max_tokens || b->nwant > m->p.max_seqs)
		return dt_err_set(err, -EINVAL, "a batch of %d tokens and %d outputs exceeds %d and %d",
				  b->ntokens, b->nwant, m->p.max_tokens, m->p.max_seqs);
	p->rows = b->ntokens;
	p->ids = (int32_t *)b->ids;
	p->pos = (int32_t *)b->pos;
	rc = dt_embed_forward(&m->model, p, p->act[0][DT_A_RESID], err);
	x = p->act[0][DT_A_RESID];
	for (int l = 0; l < m->config.layers && rc == 0; l++) {
		struct dt_kv kv = kv_of(m, l, b, &paged);

		rc = dt_layer_forward(&m->model, p, l, x, delta, &kv, false, err);
		x = p->act[l][DT_A_RESID2];
		delta = p->delta;
	}
	if (rc == 0)
		rc = dt_final_norm(&m->model, p, x, delta, err);
	if (rc < 0)
		return rc;
	for (int i = 0; b->pool && i < b->nseq; i++)
		if (b->pool[i])
			pool_rows(m, b, i, b->pool[i]);
	if (b->nwant == 0)
		return 0;
	for (int i = 0; i < b->nwant; i++)
		memcpy((char *)m->picked + (size_t)i * row, (char *)p->final_norm + (size_t)b->want[i] * row,
		       row);
	return dt_kernel_check(m->dev->ops->matmul(m->dev, dt_t2(logits, DT_F32, b->nwant, m->model.d.vocab),
						   dt_t2(m->picked, m->p.dtype, b->nwant, m->config.hidden),
						   false, m->model.final.w[DT_W_HEAD], true, DT_NONE, false),
			       "->matmul(head", err);
}
