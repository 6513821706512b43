/* KV cache blocks outside the cache: their bytes, and a key for the model they belong to. */
#include "model/config.h"
#include "nn/infer_priv.h"

#include <string.h>

#include <jansson.h>

/* Each tensor of the cache has one piece of a block; the tensors are contiguous. */
struct pieces {
	size_t bytes, step; /* of one piece; distance to the block's next piece */
	int64_t n;
};

static struct pieces pieces_of(const struct dt_infer *m)
{
	struct pieces r = {.bytes = (size_t)dt_infer_cache_piece(&m->config, m->ranks.layout.tp, m->p.cache,
								 m->p.block_size)};

	r.step = (size_t)m->p.blocks * r.bytes;
	r.n = r.step ? (int64_t)(m->cache.bytes / r.step) : 0;
	return r;
}

size_t dt_infer_block_bytes(const struct dt_infer *m)
{
	const struct pieces r = pieces_of(m);

	return r.bytes * (size_t)r.n;
}

int dt_infer_read_block(struct dt_infer *m, int32_t block, void *to)
{
	const struct pieces r = pieces_of(m);
	int rc = dt_dev_copy_rows(m->dev, to, r.bytes, m->cache.base + (size_t)block * r.bytes, r.step,
				  r.bytes, r.n);

	return rc < 0 ? rc : dt_dev_sync(m->dev);
}

int dt_infer_write_block(struct dt_infer *m, int32_t block, const void *from)
{
	const struct pieces r = pieces_of(m);
	int rc = dt_dev_copy_rows(m->dev, m->cache.base + (size_t)block * r.bytes, r.step, from, r.bytes,
				  r.bytes, r.n);

	return rc < 0 ? rc : dt_dev_sync(m->dev);
}

static uint64_t add_text(uint64_t h, const char *s)
{
	for (; s && *s; s++)
		h = dt_infer_mix(h, (unsigned char)*s);
	return dt_infer_mix(h, 256);
}

/* Hashes everything that is equal on all ranks into h. */
static uint64_t add_model(uint64_t h, const struct dt_infer *m)
{
	const uint64_t numbers[] = {m->p.dtype, m->p.cache, (uint64_t)m->p.block_size, m->p.as_trained,
				    m->dev->batch_invariant};
	json_t *config = dt_config_to_json(&m->config);
	char *text = json_dumps(config, JSON_SORT_KEYS | JSON_COMPACT | JSON_REAL_PRECISION(17));

	h = add_text(add_text(add_text(h, text), dt_dev_isa(m->dev)), DT_VERSION);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		h = dt_infer_mix(h, numbers[i]);
	free(text);
	json_decref(config);
	return h;
}

uint64_t dt_infer_cache_name(const struct dt_infer *m)
{
	const struct pieces r = pieces_of(m);
	const uint64_t numbers[] = {r.bytes,
				    (uint64_t)r.n,
				    (uint64_t)m->ranks.layout.tp,
				    (uint64_t)m->ranks.layout.pp,
				    (uint64_t)m->ranks.at.tp,
				    (uint64_t)m->ranks.at.pp};
	uint64_t h = add_model(m->sum, m);

	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		h = dt_infer_mix(h, numbers[i]);
	return h;
}

uint64_t dt_infer_model_name(const struct dt_infer *m, const char *weights)
{
	const struct dt_block_form f = dt_infer_block_form(m);

	return dt_infer_mix(dt_infer_mix(add_model(add_text(1, weights), m), (uint64_t)(m->p.weights + 1)),
			    (uint64_t)f.outer);
}

struct dt_block_form dt_infer_block_form(const struct dt_infer *m)
{
	const struct dt_config *c = &m->config;
	const bool latent = c->kv_rank > 0;
	struct dt_block_form f = {.pieces = latent ? 1 : 2, .heads = latent ? 1 : (int)c->kv_heads};
	const int group = dt_dev_kv_group(m->dev, m->p.cache, c->head_dim, latent, m->p.block_size);

	f.outer = m->p.block_size / group;
	f.inner = (size_t)dt_infer_cache_piece(c, 1, m->p.cache, 1) / (size_t)f.heads * (size_t)group;
	return f;
}
/* SPDX-License-Identifier: Apache-2.0 */
