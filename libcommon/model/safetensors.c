#include "model/safetensors.h"

#include "kernels/quant_formats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_HEAD (100000000u) /* the format's own limit */

static const struct {
	const char *name;
	int bytes, format;
} types[] = {
	{"F32", 4, DT_FMT_F32}, {"F16", 2, DT_FMT_F16}, {"BF16", 2, DT_FMT_BF16}, {"F64", 8, -1},
	{"I64", 8, -1},		{"I32", 4, -1},		{"I16", 2, -1},		  {"I8", 1, -1},
	{"U64", 8, -1},		{"U32", 4, -1},		{"U16", 2, -1},		  {"U8", 1, -1},
	{"BOOL", 1, -1},	{"F8_E4M3", 1, -1},	{"F8_E5M2", 1, -1},
};
#define NTYPES (sizeof(types) / sizeof(types[0]))

const char *dt_safetensors_dtype(int f)
{
	for (size_t i = 0; i < NTYPES; i++)
		if (types[i].format == f && f >= 0)
			return types[i].name;
	return NULL;
}

static int read_shape(const json_t *a, struct dt_safetensor *t, int64_t *bytes, struct dt_err *err)
{
	size_t n = json_array_size(a);

	if (!json_is_array(a) || n > sizeof(t->shape) / sizeof(t->shape[0]))
		return dt_err_set(err, -EBADMSG, "'shape' is not a list of at most 8 sizes");
	for (size_t d = 0; d < n; d++) {
		const json_t *v = json_array_get(a, d);

		if (!json_is_integer(v) || json_integer_value(v) < 0 ||
		    __builtin_mul_overflow(*bytes, (int64_t)json_integer_value(v), bytes))
			return dt_err_set(err, -EBADMSG, "'shape' has something other than sizes");
		t->shape[d] = json_integer_value(v);
	}
	t->ndim = (int)n;
	return 0;
}

static int read_tensor(const json_t *o, uint64_t data_at, uint64_t end, struct dt_safetensor *t,
		       struct dt_err *err)
{
	const json_t *place = json_object_get(o, "data_offsets");
	int64_t bytes = 1, from, to;
	size_t i = 0;
	int rc;

	if (dt_json_str(o, "dtype", true, &t->dtype, err) < 0)
		return -EBADMSG;
	while (i < NTYPES && strcmp(types[i].name, t->dtype))
		i++;
	if (i == NTYPES)
		return dt_err_set(err, -ENOTSUP, "unknown type '%.20s'", t->dtype);
	t->format = types[i].format;
	bytes = types[i].bytes;
	rc = read_shape(json_object_get(o, "shape"), t, &bytes, err);
	if (rc < 0)
		return rc;
	if (json_array_size(place) != 2 || !json_is_integer(json_array_get(place, 0)) ||
	    !json_is_integer(json_array_get(place, 1)))
		return dt_err_set(err, -EBADMSG, "'data_offsets' is not a pair of numbers");
	from = json_integer_value(json_array_get(place, 0));
	to = json_integer_value(json_array_get(place, 1));
	if (from < 0 || to < from || (uint64_t)to > end - data_at)
		return dt_err_set(err, -EBADMSG,
				  "it reaches past the end of the file, which is cut off or damaged");
	if (to - from != bytes)
		return dt_err_set(err, -EBADMSG, "its shape takes %lld bytes and its place has %lld",
				  (long long)bytes, (long long)(to - from));
	t->at = data_at + (uint64_t)from;
	t->bytes = (uint64_t)bytes;
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct dt_safetensor *x = a, *y = b;

	if (x->at != y->at)
		return x->at < y->at ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* empty tensors first */
}

static int read_all(struct dt_safetensors *s, uint64_t data_at, uint64_t end, struct dt_err *err)
{
	uint64_t at = data_at;
	const char *key;
	json_t *v;

	s->t = calloc(json_object_size(s->head) + 1, sizeof(*s->t));
	if (!s->t)
		return dt_err_sys(err, -ENOMEM, "cannot read its header");
	json_object_foreach(s->head, key, v)
	{
		int rc;

		if (!strcmp(key, "__metadata__"))
			continue;
		s->t[s->n].name = key;
		rc = read_tensor(v, data_at, end, &s->t[s->n++], err);
		if (rc < 0) {
			dt_err_prefix(err, "tensor '%.80s'", key);
			return rc;
		}
	}
	qsort(s->t, (size_t)s->n, sizeof(*s->t), by_place);
	for (int i = 0; i < s->n; i++) {
		if (s->t[i].at != at)
			return dt_err_set(err, -EBADMSG, "tensor '%.80s' %s", s->t[i].name,
					  s->t[i].at < at ? "overlaps the previous one"
							  : "leaves a gap before it");
		at += s->t[i].bytes;
	}
	if (at != end)
		return dt_err_set(err, -EBADMSG, "%llu bytes after the last tensor",
				  (unsigned long long)(end - at));
	return 0;
}

int dt_safetensors_parse(const void *file, size_t bytes, const char *name, struct dt_safetensors *ret,
			 struct dt_err *err)
{
	struct dt_safetensors s = {0};
	uint64_t head = 0;
	int rc;

	if (bytes >= 8)
		memcpy(&head, file, 8);
	if (head < 2 || head > MAX_HEAD || head > bytes - 8)
		return dt_err_set(err, -EBADMSG, "'%s' is not a safetensors file, or cut off", name);
	rc = dt_json_parse((const char *)file + 8, (size_t)head, name, &s.head, err);
	if (rc < 0)
		rc = -EBADMSG;
	else if (!json_is_object(s.head))
		rc = dt_err_set(err, -EBADMSG, "'%s': its header is not a JSON object", name);
	else if ((rc = read_all(&s, 8 + head, bytes, err)) < 0)
		dt_err_prefix(err, "'%s'", name);
	if (rc < 0) {
		if (err)
			err->code = rc;
		dt_safetensors_release(&s);
		return rc;
	}
	*ret = s;
	return 0;
}

void dt_safetensors_release(struct dt_safetensors *s)
{
	json_decref(s->head);
	free(s->t);
	memset(s, 0, sizeof(*s));
}
/* SPDX-License-Identifier: Apache-2.0 */
