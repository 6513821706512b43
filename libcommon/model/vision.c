/* Settings of transformers' image processors of Idefics3 and SmolVLM. */
#include "model/vision.h"

#include <errno.h>

/* {"longest_edge": N} under a key; unchanged without it. */
static int read_edge(const json_t *o, const char *key, int64_t *ret, struct dt_err *err)
{
	const json_t *v = json_object_get(o, key);
	int rc;

	if (!v || json_is_null(v))
		return 0;
	if (!json_is_object(v) || !json_object_get(v, "longest_edge"))
		return dt_err_set(err, -ENOTSUP, "'%s' without 'longest_edge' is not supported", key);
	rc = dt_json_int(v, "longest_edge", true, 1, 1 << 14, ret, err);
	return rc < 0 ? (dt_err_prefix(err, "'%s'", key), rc) : 0;
}

/* Three numbers, or one for all channels. */
static int read_three(const json_t *o, const char *key, float ret[3], struct dt_err *err)
{
	const json_t *v = json_object_get(o, key);

	if (!v || json_is_null(v))
		return 0;
	for (int i = 0; i < 3; i++) {
		const json_t *x = json_is_array(v) ? json_array_get(v, (size_t)i) : v;

		if (!json_is_number(x) || (json_is_array(v) && json_array_size(v) != 3))
			return dt_err_set(err, -EINVAL, "'%s' is not a number or a list of three", key);
		ret[i] = (float)json_number_value(x);
	}
	return 0;
}

static int read_pixels(const json_t *o, struct dt_vision *v, struct dt_err *err)
{
	bool rescales = true, normalizes = true;
	double scale = 1.0 / 255;
	int rc;

	if ((rc = dt_json_bool(o, "do_rescale", false, &rescales, err)) < 0 ||
	    (rc = dt_json_bool(o, "do_normalize", false, &normalizes, err)) < 0 ||
	    (rc = dt_json_real(o, "rescale_factor", false, &scale, err)) < 0 ||
	    (rc = read_three(o, "image_mean", v->mean, err)) < 0 ||
	    (rc = read_three(o, "image_std", v->deviation, err)) < 0)
		return rc;
	v->scale = rescales ? (float)scale : 1;
	for (int i = 0; i < 3; i++) {
		v->mean[i] = normalizes ? v->mean[i] : 0;
		v->deviation[i] = normalizes ? v->deviation[i] : 1;
		if (!(v->deviation[i] > 0))
			return dt_err_set(err, -EINVAL, "'image_std' has a number that is not above 0");
	}
	return 0;
}

static int read_sizes(const json_t *o, struct dt_vision *v, struct dt_err *err)
{
	int64_t filter = DT_VISION_LANCZOS;
	bool resizes = true;
	int rc;

	v->split = true;
	v->longest = 4 * 364;
	v->tile = 364;
	if ((rc = dt_json_bool(o, "do_resize", false, &resizes, err)) < 0 ||
	    (rc = dt_json_bool(o, "do_image_splitting", false, &v->split, err)) < 0 ||
	    (rc = dt_json_int(o, "resample", false, 0, 5, &filter, err)) < 0 ||
	    (rc = read_edge(o, "size", &v->longest, err)) < 0 ||
	    (rc = read_edge(o, "max_image_size", &v->tile, err)) < 0)
		return rc;
	if (filter < DT_VISION_LANCZOS || filter > DT_VISION_BICUBIC)
		return dt_err_set(err, -ENOTSUP,
				  "'resample' of %lld is not supported: 1 (Lanczos), 2 (bilinear) and 3 "
				  "(bicubic) are",
				  (long long)filter);
	v->filter = (int)filter;
	if (!resizes)
		v->longest = 0;
	return 0;
}

int dt_vision_from_hf(const json_t *images, const json_t *processor, const struct dt_config *c,
		      struct dt_vision *ret, struct dt_err *err)
{
	const json_t *o = images ? images : json_object_get(processor, "image_processor");
	struct dt_vision v = {
		.mean = {0.5f, 0.5f, 0.5f}, .deviation = {0.5f, 0.5f, 0.5f}, .join = c->tower.join};
	int64_t rows;
	int rc;

	if ((rc = read_sizes(o, &v, err)) < 0 || (rc = read_pixels(o, &v, err)) < 0)
		return rc;
	v.patches = v.tile / c->tower.patch;
	if (v.patches < 1 || v.patches % v.join)
		return dt_err_set(
			err, -EINVAL,
			"tiles of %lld pixels have %lld patches a side, which cannot be joined by %lld",
			(long long)v.tile, (long long)v.patches, (long long)v.join);
	v.rows = rows = (v.patches / v.join) * (v.patches / v.join);
	if ((rc = dt_json_int(processor, "image_seq_len", false, 1, 1 << 24, &rows, err)) < 0)
		return rc;
	if (rows != v.rows)
		return dt_err_set(err, -EINVAL,
				  "'image_seq_len' is %lld, but a tile of %lld pixels becomes %lld rows",
				  (long long)rows, (long long)v.tile, (long long)v.rows);
	*ret = v;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
