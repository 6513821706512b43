#include "ckpt/source.h"
#include "nn/exec.h"
#include "nn/infer_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WARM_BYTES ((size_t)256 << 20)

#define TRY(call)                                                                                            \
	do {                                                                                                 \
		int rc_ = (call);                                                                            \
		if (rc_ < 0)                                                                                 \
			return dt_kernel_check(rc_, #call, err);                                             \
	} while (0)

static struct dt_infer_shape shape_of(const struct dt_infer *m)
{
	return (struct dt_infer_shape){.config = &m->config,
				       .compute = m->p.dtype,
				       .cache = m->p.cache,
				       .max_tokens = m->p.max_tokens,
				       .max_seqs = m->p.max_seqs,
				       .positions = m->positions,
				       .blocks = m->p.blocks,
				       .block_size = m->p.block_size};
}

/* Hands out the working set. */
static int carve(struct dt_infer *m, struct dt_err *err)
{
	void **to[DT_I_N] = {
		[DT_I_RESID] = &m->b.resid,
		[DT_I_RESID2] = &m->b.resid2,
		[DT_I_NORM] = &m->b.norm,
		[DT_I_DELTA] = &m->b.delta,
		[DT_I_QKV] = &m->b.qkv,
		[DT_I_ATTN] = &m->b.attn,
		[DT_I_UP] = &m->b.up,
		[DT_I_ACT] = &m->b.act,
		[DT_I_PICKED] = &m->b.picked,
		[DT_I_MEAN] = (void **)&m->b.mean,
		[DT_I_RSTD] = (void **)&m->b.rstd,
		[DT_I_COS] = (void **)&m->rope_cos,
		[DT_I_SIN] = (void **)&m->rope_sin,
		[DT_I_LOCAL_COS] = (void **)&m->local_cos,
		[DT_I_LOCAL_SIN] = (void **)&m->local_sin,
		[DT_I_WIDE] = (void **)&m->b.wide,
		[DT_I_SCORE] = (void **)&m->b.score,
		[DT_I_WEIGHT] = (void **)&m->b.weight,
		[DT_I_EXPERT_OUT] = (void **)&m->b.expert_out,
		[DT_I_EXPERT] = (void **)&m->b.expert,
		[DT_I_AT] = (void **)&m->b.at,
		[DT_I_FROM] = (void **)&m->b.from,
		[DT_I_FIRST] = (void **)&m->b.first,
	};
	const struct dt_infer_shape s = shape_of(m);
	uint64_t bytes[DT_I_N], at = 0;
	int rc = dt_infer_area(m, &m->work, dt_infer_work(&s, bytes), err);

	for (int i = 0; i < DT_I_N && rc == 0; i++) {
		*to[i] = m->work.base + at;
		at += bytes[i];
	}
	return rc;
}

static int64_t cache_cols(const struct dt_infer *m)
{
	const struct dt_attn a = {.kv_heads = m->config.kv_heads, .head_dim = m->config.head_dim};

	return dt_kv_row(&a, m->p.cache);
}

static size_t cache_row_bytes(const struct dt_infer *m)
{
	const struct dt_infer_shape s = shape_of(m);

	return dt_infer_cache_row(&s);
}

/*
 * Touches the blocks that the pool hands out first, so that no request waits for the kernel to find and clear
 * their pages: as much as the first prompts write. A kernel that cannot leaves them to be touched.
 */
static void warm(const struct dt_infer *m)
{
	const size_t slab = (size_t)m->p.blocks * (size_t)m->p.block_size * cache_row_bytes(m);
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), slabs = 2 * (size_t)m->config.layers;
	const size_t n = WARM_BYTES / slabs < slab ? WARM_BYTES / slabs : slab;

#pragma omp parallel for num_threads(m->dev->nthreads) schedule(dynamic)
	for (size_t i = 0; i < slabs; i++) {
		const size_t first = i * slab / page * page;

		madvise(m->cache.base + first, i * slab + n - first, MADV_POPULATE_WRITE);
	}
}

/* A table of angles, made by the host. */
static int put_angles(struct dt_infer *m, void (*make)(const struct dt_config *, int64_t, float *, float *),
		      float *cos, float *sin, struct dt_err *err)
{
	size_t n = (size_t)(m->positions * m->config.head_dim / 2);
	float *both = malloc(2 * n * sizeof(*both));
	int rc;

	if (!both)
		return dt_err_sys(err, -ENOMEM, "table of rotary angles");
	make(&m->config, m->positions, both, both + n);
	rc = dt_infer_put(m, cos, both, n * sizeof(*both), err);
	if (rc == 0)
		rc = dt_infer_put(m, sin, both + n, n * sizeof(*both), err);
	free(both);
	return rc;
}

static int open_parts(struct dt_infer *m, struct dt_source *src, struct dt_err *err)
{
	struct dt_infer_shape s;
	int rc;

	m->config = *dt_source_config(src);
	m->positions = m->p.max_len > 0 ? m->p.max_len : m->config.max_seq;
	dt_local_dims(&m->config, 1, 0, &m->dims);
	rc = dt_infer_load(m, src, err);
	if (rc < 0)
		return dt_err_prefix(err, "'%s'", dt_source_path(src));
	s = shape_of(m);
	if ((rc = dt_infer_area(m, &m->cache, dt_infer_cache(&s), err)) < 0 || (rc = carve(m, err)) < 0 ||
	    (rc = dt_infer_side_open(m, err)) < 0)
		return rc;
	if (dt_dev_is_host(m->dev))
		warm(m);
	if (m->config.pos == DT_POS_ROPE)
		rc = put_angles(m, dt_rope_table, m->rope_cos, m->rope_sin, err);
	if (rc == 0 && m->config.pos == DT_POS_ROPE && m->config.rope_local_theta > 0)
		rc = put_angles(m, dt_rope_local_table, m->local_cos, m->local_sin, err);
	return rc;
}

static int check(const struct dt_infer_params *p, const struct dt_config *c, struct dt_err *err)
{
	int rc = dt_config_servable(c, err);

	if (rc < 0)
		return rc;
	if (c->experts > DT_MOE_MOST)
		return dt_err_set(err, -ENOTSUP, "%lld experts are more than %d", (long long)c->experts,
				  DT_MOE_MOST);
	if (p->max_tokens < 1 || p->max_seqs < 1 || p->blocks < 1 || p->block_size < 1)
		return dt_err_set(err, -EINVAL,
				  "the KV pool and the batch need at least one block and one token");
	if (p->max_len > c->max_seq)
		return dt_err_set(err, -EINVAL, "%d tokens are more than the model's %lld positions",
				  p->max_len, (long long)c->max_seq);
	if (p->cache != p->dtype && p->cache != DT_F32 && p->cache != DT_I8)
		return dt_err_set(err, -ENOTSUP, "a cache of %s does not go with activations of %s",
				  dt_dtype_name(p->cache), dt_dtype_name(p->dtype));
	if (p->weights == DT_FMT_F32 && p->dtype != DT_F32)
		return dt_err_set(err, -ENOTSUP, "weights of f32 do not go with activations of %s",
				  dt_dtype_name(p->dtype));
	return 0;
}

int dt_infer_open(struct dt_infer **ret, struct dt_dev *dev, struct dt_source *src,
		  const struct dt_infer_params *p, struct dt_err *err)
{
	struct dt_infer *m;
	int rc = check(p, dt_source_config(src), err);

	if (rc < 0)
		return rc;
	m = calloc(1, sizeof(*m));
	if (!m)
		return dt_err_sys(err, -ENOMEM, "cannot load the model");
	m->p = *p;
	m->dev = dev;
	rc = open_parts(m, src, err);
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
	dt_infer_side_release(m);
	dt_infer_unload(m);
	dt_infer_area_release(m, &m->cache);
	dt_infer_area_release(m, &m->work);
	free(m);
}

const struct dt_config *dt_infer_config(const struct dt_infer *m)
{
	return &m->config;
}

struct dt_infer_memory dt_infer_bytes(const struct dt_infer *m)
{
	return (struct dt_infer_memory){.weights = m->weights.bytes + m->packed_bytes,
					.cache = m->cache.bytes,
					.work = m->work.bytes,
					.scratch = dt_dev_scratch_bytes(m->dev) + m->side.bytes +
						   m->side.out_bytes + m->set_bytes};
}

/* ---- the pass ---- */

static struct dt_tensor rows_of(const struct dt_infer *m, const struct dt_infer_batch *b, void *data,
				int64_t cols)
{
	return dt_t2(data, m->p.dtype, b->ntokens, cols);
}

static int linear(const struct dt_infer *m, struct dt_tensor y, struct dt_tensor x,
		  const struct dt_infer_linear *w)
{
	if (w->packed)
		return m->dev->ops->packed_matmul(m->dev, y, x, w->packed, w->bias);
	return m->dev->ops->matmul(m->dev, y, x, false, w->w, true, w->bias, false);
}

/* y = the gated activation of x w^T; up holds both halves where they cannot be done at once. */
static int gated(const struct dt_infer *m, struct dt_tensor y, struct dt_tensor up, struct dt_tensor x,
		 const struct dt_infer_linear *w)
{
	const enum dt_act_fn f = (enum dt_act_fn)m->config.act;
	int rc = w->packed ? m->dev->ops->packed_gated(m->dev, y, x, w->packed, w->bias, f) : -ENOTSUP;

	if (rc != -ENOTSUP)
		return rc;
	rc = linear(m, up, x, w);
	return rc < 0 ? rc : m->dev->ops->gated_forward(m->dev, y, up, f);
}

/* y = norm(x + delta), the sum into sum; delta DT_NONE: of x, and no sum. */
static int norm(const struct dt_infer *m, struct dt_tensor y, struct dt_tensor sum, struct dt_tensor x,
		struct dt_tensor delta, struct dt_tensor w, struct dt_tensor bias)
{
	const struct dt_ops *o = m->dev->ops;
	struct dt_tensor mean = dt_t1(m->b.mean, DT_F32, x.dim[0]), rstd = dt_t1(m->b.rstd, DT_F32, x.dim[0]);
	float eps = (float)m->config.norm_eps;

	if (!delta.data)
		sum = DT_NONE;
	if (m->config.norm == DT_NORM_LAYER)
		return o->layernorm_forward(m->dev, y, mean, rstd, sum, x, delta, w, bias, eps);
	return o->rmsnorm_forward(m->dev, y, rstd, sum, x, delta, w, false, eps);
}

/* x = rows of the embedding (Gemma scales them), and of the positions where the model learned them. */
static int embed(struct dt_infer *m, const struct dt_infer_batch *b, struct dt_err *err)
{
	struct dt_tensor x = rows_of(m, b, m->b.resid, m->config.hidden),
			 y = rows_of(m, b, m->b.norm, m->config.hidden);
	float scale = m->config.embed_scaled ? (float)sqrt((double)m->config.hidden) : 1;
	const int32_t *ids = dt_infer_there(m, b->ids), *pos = dt_infer_there(m, b->pos);

	TRY(m->dev->ops->packed_embed(m->dev, x, m->embed.packed, ids, scale));
	if (m->pos.data) {
		TRY(m->dev->ops->embedding_forward(m->dev, y, pos, NULL, m->pos, DT_NONE, 0));
		TRY(m->dev->ops->add(m->dev, x, x, y));
	}
	return 0;
}

/* RMSNorm over each head of q and of k (Qwen3). */
static int norm_heads(const struct dt_infer *m, const struct dt_infer_batch *b,
		      const struct dt_infer_layer *l, struct dt_err *err)
{
	const struct dt_config *c = &m->config;
	const struct dt_heads part[2] = {{0, c->heads, c->head_dim}, {c->heads, c->kv_heads, c->head_dim}};
	const struct dt_tensor w[2] = {l->q_norm, l->k_norm}, qkv = rows_of(m, b, m->b.qkv, m->dims.qkv);

	for (int i = 0; i < 2; i++)
		TRY(m->dev->ops->heads_norm_forward(m->dev, qkv, DT_NONE, DT_NONE, qkv, w[i], false,
						    (float)c->norm_eps, &part[i]));
	return 0;
}

static int attention(struct dt_infer *m, const struct dt_infer_batch *b, int l, struct dt_err *err)
{
	const struct dt_ops *o = m->dev->ops;
	const struct dt_config *c = &m->config;
	const struct dt_infer_layer *layer = &m->layer[l];
	int64_t slots = (int64_t)m->p.blocks * m->p.block_size, cols = cache_cols(m);
	char *at = m->cache.base + (size_t)(2 * l) * (size_t)slots * cache_row_bytes(m);
	struct dt_tensor k = dt_t3(at, m->p.cache, m->p.blocks, m->p.block_size, cols),
			 v = dt_t3(at + (size_t)slots * cache_row_bytes(m), m->p.cache, m->p.blocks,
				   m->p.block_size, cols);
	struct dt_tensor qkv = rows_of(m, b, m->b.qkv, m->dims.qkv);
	bool local = c->rope_local_theta > 0 && dt_layer_window(c, l) > 0;
	struct dt_rope rope = {.rot_heads = c->heads + c->kv_heads,
			       .head_dim = c->head_dim,
			       .rot_dim = c->head_dim,
			       .pairing = (enum dt_rope_pairing)c->rope_pairing,
			       .cos = local ? m->local_cos : m->rope_cos,
			       .sin = local ? m->local_sin : m->rope_sin,
			       .positions = m->positions};
	struct dt_attn a = {.heads = c->heads,
			    .kv_heads = c->kv_heads,
			    .head_dim = c->head_dim,
			    .window = dt_layer_window(c, l),
			    .scale = (float)dt_score_scale(c)};
	struct dt_paged paged = {.nseq = b->nseq,
				 .q_start = b->q_start,
				 .kv_len = b->kv_len,
				 .block_table = b->block_table,
				 .max_blocks = b->max_blocks,
				 .block_size = m->p.block_size,
				 .longest = m->side.keys};

	TRY(linear(m, qkv, rows_of(m, b, m->b.norm, c->hidden), &layer->qkv));
	if (c->qk_norm && norm_heads(m, b, layer, err) < 0)
		return -EIO;
	if (c->pos == DT_POS_ROPE)
		TRY(o->rope(m->dev, qkv, &rope, dt_infer_there(m, b->pos), false));
	TRY(o->kv_write(m->dev, k, v, qkv, &a, b->slot));
	TRY(o->attention_paged(m->dev, rows_of(m, b, m->b.attn, c->heads * c->head_dim), qkv, k, v, &a,
			       &paged));
	TRY(linear(m, rows_of(m, b, m->b.delta, c->hidden), rows_of(m, b, m->b.attn, c->heads * c->head_dim),
		   &layer->o));
	return 0;
}

static int mlp(struct dt_infer *m, const struct dt_infer_batch *b, int l, struct dt_err *err)
{
	const struct dt_config *c = &m->config;
	struct dt_tensor up = rows_of(m, b, m->b.up, (c->gated ? 2 : 1) * c->ffn),
			 act = rows_of(m, b, m->b.act, c->ffn);

	if (dt_layer_has_experts(c, l))
		return dt_infer_experts(m, &m->layer[l], b->ntokens, err);
	if (c->gated) {
		TRY(gated(m, act, up, rows_of(m, b, m->b.norm, c->hidden), &m->layer[l].up));
	} else {
		TRY(linear(m, up, rows_of(m, b, m->b.norm, c->hidden), &m->layer[l].up));
		TRY(m->dev->ops->act_forward(m->dev, act, up, (enum dt_act_fn)c->act));
	}
	TRY(linear(m, rows_of(m, b, m->b.delta, c->hidden), act, &m->layer[l].down));
	return 0;
}

/* In f32 and row by row, so that it does not matter how a prompt was cut. */
static int pool_rows(const struct dt_infer *m, const struct dt_infer_batch *b, int seq, float *sum)
{
	int64_t n = m->config.hidden, first = b->q_start[seq], rows = b->q_start[seq + 1] - first;
	size_t e = (size_t)dt_dtype_size(m->p.dtype), bytes = (size_t)(rows * n) * e;
	char *copy = NULL;
	const void *x = (const char *)m->b.norm + (size_t)(first * n) * e;
	int rc = 0;

	if (!dt_dev_is_host(m->dev)) {
		copy = malloc(bytes);
		rc = copy ? dt_dev_copy(m->dev, copy, x, bytes) : -ENOMEM;
		if (rc == 0)
			rc = dt_dev_sync(m->dev);
		x = copy;
	}
	for (int64_t t = 0; t < rows && rc == 0; t++)
		for (int64_t i = 0; i < n; i++)
			sum[i] += m->p.dtype == DT_F32 ? ((const float *)x)[t * n + i]
						       : dt_bf16_to_f32(((const uint16_t *)x)[t * n + i]);
	free(copy);
	return rc;
}

int dt_infer_copy_block(struct dt_infer *m, int32_t from, int32_t to)
{
	size_t block = (size_t)m->p.block_size * cache_row_bytes(m), all = (size_t)m->p.blocks * block;

	return dt_dev_copy_rows(m->dev, m->cache.base + (size_t)to * block, all,
				m->cache.base + (size_t)from * block, all, block, 2 * m->config.layers);
}

/* The logits of the rows that are wanted, and the tokens that are drawn from them. */
static int head(struct dt_infer *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err)
{
	const struct dt_config *c = &m->config;
	size_t row = (size_t)(c->hidden * dt_dtype_size(m->p.dtype));
	char *x = m->b.norm;
	int all = 0;

	for (int i = 0; b->pool && i < b->nseq; i++)
		if (b->pool[i])
			TRY(pool_rows(m, b, i, b->pool[i]));
	if (b->nwant == 0)
		return 0;
	while (all < b->nwant && b->want[all] == all)
		all++;
	if (all < b->nwant) {
		x = m->b.picked;
		for (int i = 0; i < b->nwant; i++)
			TRY(dt_dev_copy(m->dev, x + (size_t)i * row,
					(char *)m->b.norm + (size_t)b->want[i] * row, row));
	}
	TRY(linear(m, dt_t2(logits, DT_F32, b->nwant, c->vocab), dt_t2(x, m->p.dtype, b->nwant, c->hidden),
		   &m->head));
	if (b->draw)
		TRY(m->dev->ops->sample(m->dev, b->drawn, dt_t2(logits, DT_F32, b->nwant, c->vocab), b->draw,
					b->edit, b->nedits));
	return 0;
}

int dt_infer_pass(struct dt_infer *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err)
{
	int64_t c = m->config.hidden;
	struct dt_tensor resid = rows_of(m, b, m->b.resid, c), resid2 = rows_of(m, b, m->b.resid2, c);
	struct dt_tensor y = rows_of(m, b, m->b.norm, c), delta = rows_of(m, b, m->b.delta, c);
	int rc;

	rc = embed(m, b, err);
	for (int l = 0; l < m->config.layers && rc == 0; l++) {
		const struct dt_infer_layer *w = &m->layer[l];

		/* x = x + attention(norm(x)); the first layer has nothing to add yet */
		TRY(norm(m, y, resid, l ? resid2 : resid, l ? delta : DT_NONE, w->norm1, w->norm1_b));
		rc = attention(m, b, l, err);
		if (rc < 0)
			return rc;
		if (w->post_attn.data) /* Gemma: what is added is normalised too */
			TRY(norm(m, delta, DT_NONE, delta, DT_NONE, w->post_attn, DT_NONE));
		/* x = x + mlp(norm(x)) */
		TRY(norm(m, y, resid2, resid, delta, w->norm2, w->norm2_b));
		rc = mlp(m, b, l, err);
		if (rc == 0 && w->post_mlp.data)
			TRY(norm(m, delta, DT_NONE, delta, DT_NONE, w->post_mlp, DT_NONE));
	}
	if (rc < 0)
		return rc;
	TRY(norm(m, y, resid, resid2, delta, m->norm, m->norm_b));
	return head(m, b, logits, err);
}

int dt_infer_forward(struct dt_infer *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err)
{
	if (b->ntokens < 1 || b->ntokens > m->p.max_tokens || b->nwant > m->p.max_seqs)
		return dt_err_set(err, -EINVAL, "a batch of %d tokens and %d outputs exceeds %d and %d",
				  b->ntokens, b->nwant, m->p.max_tokens, m->p.max_seqs);
	if (!dt_dev_is_host(m->dev))
		return dt_infer_side_forward(m, b, logits, err);
	return dt_infer_pass(m, b, logits, err);
}
