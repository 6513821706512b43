#include "ckpt/source_bnb.h"

#include "base/json.h"

#include <errno.h>
#include <string.h>

static struct src_stored *part(const struct dt_source *s, const struct src_stored *q, size_t base,
			       const char *end)
{
	char name[DT_NAMES_MAX + 64];

	snprintf(name, sizeof(name), "%.*s.weight.%s", (int)base, q->name, end);
	return src_find(s, name);
}

bool src_bnb_is(const struct dt_source *s, const struct src_stored *q, size_t base)
{
	return part(s, q, base, "absmax") || part(s, q, base, "quant_map");
}

static int bad(const struct dt_source *s, const struct src_stored *q, const char *what, struct dt_err *err)
{
	return dt_err_set(err, -EBADMSG, "'%s': %s of quantised tensor '%s'", s->path, what, q->name);
}

static int64_t count(const struct src_stored *t)
{
	int64_t n = 1;

	for (int d = 0; d < t->ndim; d++)
		n *= t->shape[d];
	return n;
}

static bool is(const struct src_stored *t, const char *type, int64_t n)
{
	return t && !strcmp(t->type, type) && count(t) == n;
}

static int read_state(const struct dt_source *s, const struct src_stored *q, const json_t *o,
		      struct src_bnb *b, struct dt_err *err)
{
	const char *dtype = json_string_value(json_object_get(o, "dtype")),
		   *nested = json_string_value(json_object_get(o, "nested_dtype"));
	const json_t *shape = json_object_get(o, "shape"), *offset = json_object_get(o, "nested_offset");
	bool f16 = dtype && !strcmp(dtype, "float16"), f32 = dtype && !strcmp(dtype, "float32");

	if (dt_json_int(o, "blocksize", true, 2, 1 << 20, &b->block, err) < 0 ||
	    dt_json_int(o, "nested_blocksize", false, 2, 1 << 20, &b->group, err) < 0)
		return dt_err_prefix(err, "'%s': quant_state of '%s'", s->path, q->name);
	if (!f16 && !f32 && (!dtype || strcmp(dtype, "bfloat16")))
		return bad(s, q, "an unsupported dtype", err);
	if (nested && strcmp(nested, "float32"))
		return bad(s, q, "nested scales that are not float32", err);
	b->format = f16 ? DT_FMT_F16 : f32 ? DT_FMT_F32 : DT_FMT_BF16;
	b->offset = (float)json_number_value(offset);
	b->rows = json_integer_value(json_array_get(shape, 0));
	b->cols = json_integer_value(json_array_get(shape, 1));
	if (json_array_size(shape) != 2 || b->rows < 1 || b->cols < 1 || b->rows > INT32_MAX ||
	    b->cols > INT32_MAX || b->rows * b->cols % 2 || !is(q, "U8", b->rows * b->cols / 2) ||
	    (b->group > 0) != (offset != NULL))
		return bad(s, q, "sizes that do not fit together", err);
	return 0;
}

int src_bnb_take(const struct dt_source *s, const struct src_stored *q, size_t base, struct src_bnb *ret,
		 struct src_stored *used[SRC_BNB_PARTS], struct dt_err *err)
{
	struct src_stored *nf4 = part(s, q, base, "quant_state.bitsandbytes__nf4"),
			  *state = nf4 ? nf4 : part(s, q, base, "quant_state.bitsandbytes__fp4"),
			  *absmax = part(s, q, base, "absmax"), *map = part(s, q, base, "quant_map"),
			  *groups = part(s, q, base, "nested_absmax"),
			  *code = part(s, q, base, "nested_quant_map");
	struct src_bnb b = {.q = q->data};
	int64_t blocks;
	json_t *o;
	int rc;

	if (!state || strcmp(state->type, "U8"))
		return bad(s, q, "no quant_state", err);
	o = json_loadb((const char *)state->data, (size_t)count(state), 0, NULL);
	rc = o ? read_state(s, q, o, &b, err) : bad(s, q, "a quant_state that is not JSON", err);
	json_decref(o);
	if (rc < 0)
		return rc;
	blocks = (b.rows * b.cols + b.block - 1) / b.block;
	if (!is(map, "F32", 16) || !is(absmax, b.group ? "U8" : "F32", blocks))
		return bad(s, q, "scales that do not fit the blocks", err);
	if (b.group && (!is(code, "F32", 256) || !is(groups, "F32", (blocks + b.group - 1) / b.group)))
		return bad(s, q, "nested scales that do not fit the blocks", err);
	memcpy(b.map, map->data, sizeof(b.map));
	if (b.group)
		memcpy(b.code, code->data, sizeof(b.code));
	b.scales = absmax->data;
	b.groups = b.group ? groups->data : NULL;
	*ret = b;
	used[0] = state;
	used[1] = absmax;
	used[2] = map;
	used[3] = groups;
	used[4] = code;
	return 0;
}

static float number(const uint8_t *p, int64_t i)
{
	float x;

	memcpy(&x, p + 4 * i, sizeof(x));
	return x;
}

void src_bnb_fill(const struct src_bnb *b, uint8_t *data)
{
	const int64_t n = b->rows * b->cols;
	float x[256];

	for (int64_t at = 0; at < n; at += 256) {
		const int64_t w = n - at < 256 ? n - at : 256;

		for (int64_t i = 0; i < w; i++) {
			const int64_t e = at + i, k = e / b->block;
			/* Rounded before the offset is added, as bitsandbytes does. */
			const float own = b->group ? b->code[b->scales[k]] * number(b->groups, k / b->group)
						   : 0,
				    scale = b->group ? own + b->offset : number(b->scales, k);

			x[i] = b->map[e % 2 ? b->q[e / 2] & 15 : b->q[e / 2] >> 4] * scale;
		}
		dt_quantize(b->format, x, w, data + at * dt_format_info(b->format)->bytes);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
