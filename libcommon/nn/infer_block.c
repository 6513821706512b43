/* Blocks of the cache apart from it: their bytes, and what these stand for. */
#include "model/config.h"
#include "nn/infer_priv.h"

#include <string.h>

#include <jansson.h>

/* Every tensor of the cache has one piece of a block, and the tensors follow each other. */
struct pieces {
	size_t bytes, step; /* of one piece; from it to the block's next */
	int64_t n;
};

static struct pieces pieces_of(const struct dt_infer *m)
{
	const size_t row = (size_t)dt_infer_cache_row(&m->config, m->ranks.layout.tp, m->p.cache);
	struct pieces r = {.bytes = (size_t)m->p.block_size * row};

	r.step = (size_t)m->p.blocks * r.bytes;
	r.n = (int64_t)(m->cache.bytes / r.step);
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

uint64_t dt_infer_cache_name(const struct dt_infer *m)
{
	const struct pieces r = pieces_of(m);
	const uint64_t numbers[] = {m->p.dtype,
				    m->p.cache,
				    (uint64_t)m->p.block_size,
				    r.bytes,
				    (uint64_t)r.n,
				    (uint64_t)m->ranks.layout.tp,
				    (uint64_t)m->ranks.layout.pp,
				    (uint64_t)m->ranks.at.tp,
				    (uint64_t)m->ranks.at.pp,
				    m->p.as_trained,
				    m->dev->batch_invariant};
	json_t *config = dt_config_to_json(&m->config);
	char *text = json_dumps(config, JSON_SORT_KEYS | JSON_COMPACT | JSON_REAL_PRECISION(17));
	uint64_t h = add_text(add_text(add_text(m->sum, text), dt_dev_isa(m->dev)), DT_VERSION);

	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		h = dt_infer_mix(h, numbers[i]);
	free(text);
	json_decref(config);
	return h;
}
/* SPDX-License-Identifier: Apache-2.0 */
