/* Reads values of GGUF keys. */
#include "model/gguf.h"

#include <errno.h>
#include <string.h>

unsigned dt_gguf_type_bytes(uint32_t type)
{
	static const unsigned char bytes[DT_GGUF_TYPE_N] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

	return bytes[type];
}

const struct dt_gguf_kv *dt_gguf_find(const struct dt_gguf *g, const char *key)
{
	size_t n = strlen(key);

	for (int i = 0; i < g->nkv; i++)
		if (g->kv[i].key_n == n && !memcmp(g->kv[i].key, key, n))
			return &g->kv[i];
	return NULL;
}

static bool is_int(enum dt_gguf_type t)
{
	return t <= DT_GGUF_I32 || t == DT_GGUF_U64 || t == DT_GGUF_I64;
}

int64_t dt_gguf_int_at(const struct dt_gguf_kv *kv, uint64_t i)
{
	const unsigned n = dt_gguf_type_bytes(kv->type), bits = 8 * n;
	uint64_t u = 0;

	memcpy(&u, kv->data + i * n, n);
	if ((kv->type == DT_GGUF_I8 || kv->type == DT_GGUF_I16 || kv->type == DT_GGUF_I32) && u >> (bits - 1))
		u |= ~UINT64_C(0) << bits;
	if (kv->type == DT_GGUF_U64 && u > INT64_MAX)
		return INT64_MAX;
	return (int64_t)u;
}

double dt_gguf_real_at(const struct dt_gguf_kv *kv, uint64_t i)
{
	double d;
	float f;

	if (kv->type == DT_GGUF_F64) {
		memcpy(&d, kv->data + 8 * i, 8);
		return d;
	}
	if (kv->type != DT_GGUF_F32)
		return (double)dt_gguf_int_at(kv, i);
	memcpy(&f, kv->data + 4 * i, 4);
	return (double)f;
}

static int missing(const char *key, bool required, struct dt_err *err)
{
	return required ? dt_err_set(err, -EINVAL, "key '%s' is missing", key) : 0;
}

int dt_gguf_int(const struct dt_gguf *g, const char *key, bool required, int64_t min, int64_t max,
		int64_t *ret, struct dt_err *err)
{
	const struct dt_gguf_kv *kv = dt_gguf_find(g, key);
	int64_t v;

	if (!kv)
		return missing(key, required, err);
	if (!is_int(kv->type) || kv->n < 1)
		return dt_err_set(err, -EINVAL, "key '%s' is not a whole number", key);
	v = dt_gguf_int_at(kv, 0);
	for (uint64_t i = 1; i < kv->n; i++)
		if (dt_gguf_int_at(kv, i) != v)
			return dt_err_set(err, -ENOTSUP,
					  "key '%s' differing from layer to layer is not supported", key);
	if (v < min || v > max)
		return dt_err_set(err, -EINVAL, "key '%s' is %lld, not %lld to %lld", key, (long long)v,
				  (long long)min, (long long)max);
	*ret = v;
	return 1;
}

int dt_gguf_real(const struct dt_gguf *g, const char *key, bool required, double *ret, struct dt_err *err)
{
	const struct dt_gguf_kv *kv = dt_gguf_find(g, key);

	if (!kv)
		return missing(key, required, err);
	if (kv->array || (kv->type != DT_GGUF_F32 && kv->type != DT_GGUF_F64))
		return dt_err_set(err, -EINVAL, "key '%s' is not a real number", key);
	*ret = dt_gguf_real_at(kv, 0);
	return 1;
}

int dt_gguf_bool(const struct dt_gguf *g, const char *key, bool *ret, struct dt_err *err)
{
	const struct dt_gguf_kv *kv = dt_gguf_find(g, key);

	if (!kv)
		return 0;
	if (kv->array || kv->type != DT_GGUF_BOOL)
		return dt_err_set(err, -EINVAL, "key '%s' is not true or false", key);
	*ret = kv->data[0] != 0;
	return 1;
}

void dt_gguf_next_string(const unsigned char **at, const char **ret, size_t *ret_n)
{
	uint64_t n;

	memcpy(&n, *at, 8);
	*ret = (const char *)*at + 8;
	*ret_n = (size_t)n;
	*at += 8 + n;
}

int dt_gguf_str(const struct dt_gguf *g, const char *key, bool required, const char **ret, size_t *ret_n,
		struct dt_err *err)
{
	const struct dt_gguf_kv *kv = dt_gguf_find(g, key);
	const unsigned char *at;

	if (!kv)
		return missing(key, required, err);
	if (kv->array || kv->type != DT_GGUF_STRING)
		return dt_err_set(err, -EINVAL, "key '%s' is not text", key);
	at = kv->data;
	dt_gguf_next_string(&at, ret, ret_n);
	return 1;
}
/* SPDX-License-Identifier: Apache-2.0 */
