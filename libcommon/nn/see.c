#include "nn/see.h"

#include "ckpt/source.h"
#include "kernels/ops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct dt_see {
	struct dt_vision v;
	struct dt_infer *m;
	enum dt_dtype dtype;
	int64_t tokens, cols; /* patches of a tile, pixels of a patch */
	int32_t *ids, *pos;   /* [tokens] positions of patches; 0 */
	float *pixels;	      /* [tokens, cols] */
	uint16_t *narrow;     /* the same in bf16; NULL: dtype is f32 */
};

struct dt_infer_params dt_see_params(const struct dt_vision *v, enum dt_dtype dtype)
{
	const int tokens = (int)(v->patches * v->patches);

	return (struct dt_infer_params){.dtype = dtype,
					.cache = dtype,
					.weights = dtype == DT_F32 ? DT_FMT_F32 : DT_FMT_BF16,
					.max_tokens = tokens,
					.max_seqs = 1,
					.max_len = tokens,
					.blocks = 1,
					.block_size = 1,
					.embeds = true};
}

int dt_see_open(struct dt_see **ret, struct dt_dev *dev, struct dt_source *src, const struct dt_vision *v,
		enum dt_dtype dtype, struct dt_err *err)
{
	const struct dt_config *c = dt_source_config(src);
	const struct dt_infer_params p = dt_see_params(v, dtype);
	struct dt_see *s;
	int rc;

	if (!c->sees)
		return dt_err_set(err, -EINVAL, "'%s' is no tower of vision", dt_source_path(src));
	s = calloc(1, sizeof(*s));
	if (!s)
		return dt_err_sys(err, -ENOMEM, "cannot load a tower of vision");
	s->v = *v;
	s->dtype = dtype;
	s->tokens = p.max_tokens;
	s->cols = dt_tower_pixels(&c->tower);
	s->ids = calloc((size_t)s->tokens, sizeof(*s->ids));
	s->pos = calloc((size_t)s->tokens, sizeof(*s->pos));
	s->pixels = malloc((size_t)(s->tokens * s->cols) * sizeof(*s->pixels));
	if (dtype == DT_BF16)
		s->narrow = malloc((size_t)(s->tokens * s->cols) * sizeof(*s->narrow));
	rc = s->ids && s->pos && s->pixels && (s->narrow || dtype == DT_F32)
		     ? dt_infer_open(&s->m, dev, src, &p, err)
		     : dt_err_sys(err, -ENOMEM, "cannot load a tower of vision");
	if (rc < 0) {
		dt_see_close(s);
		return rc;
	}
	dt_vision_positions(v, c->tower.side / c->tower.patch, s->ids);
	*ret = s;
	return 0;
}

void dt_see_close(struct dt_see *s)
{
	if (!s)
		return;
	dt_infer_close(s->m);
	free(s->ids);
	free(s->pos);
	free(s->pixels);
	free(s->narrow);
	free(s);
}

int dt_see_pixels(struct dt_see *s, const float *pixels, void *rows, struct dt_err *err)
{
	const int32_t q_start[2] = {0, (int32_t)s->tokens};
	const struct dt_infer_batch b = {.nseq = 1,
					 .ntokens = (int)s->tokens,
					 .ids = s->ids,
					 .pos = s->pos,
					 .q_start = q_start,
					 .given = s->narrow ? (const void *)s->narrow : pixels,
					 .hidden = rows};

	for (int64_t i = 0; s->narrow && i < s->tokens * s->cols; i++)
		s->narrow[i] = dt_f32_to_bf16(pixels[i]);
	return dt_infer_forward(s->m, &b, NULL, err);
}

int dt_see_tile(struct dt_see *s, const uint8_t *tile, void *rows, struct dt_err *err)
{
	dt_vision_pixels(&s->v, dt_infer_config(s->m)->tower.patch, tile, s->pixels);
	return dt_see_pixels(s, s->pixels, rows, err);
}

size_t dt_see_bytes(const struct dt_see *s)
{
	return (size_t)(s->v.rows * dt_infer_config(s->m)->tower.out * dt_dtype_size(s->dtype));
}

const struct dt_scratch *dt_see_reserved(const struct dt_see *s)
{
	return dt_infer_reserved(s->m);
}

struct dt_infer_memory dt_see_memory(const struct dt_see *s)
{
	struct dt_infer_memory r = dt_infer_bytes(s->m);

	r.work +=
		(uint64_t)(s->tokens * s->cols) * (sizeof(*s->pixels) + (s->narrow ? sizeof(*s->narrow) : 0));
	return r;
}
/* SPDX-License-Identifier: Apache-2.0 */
