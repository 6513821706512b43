#include "kernels/cpu/attention.h"
#include "kernels/cpu/kv.h"
#include "kernels/int8.h"

#include <math.h>

/* A head as integers and their scale. NaN and Inf, whose bits are the largest, make the scale NaN. */
static DT_SIMD void quantize_head(int8_t *out, const void *in, enum dt_dtype type, int64_t d)
{
	float buf[DT_CHUNK], scale, inverse;
	uint32_t max = 0;

	for (int64_t c = 0; c < d; c += DT_CHUNK) {
		const int64_t n = dt_min64(DT_CHUNK, d - c);
		const uint32_t here =
			dt_largest(dt_load(buf, (const char *)in + c * dt_dtype_size(type), type, n), n);

		max = here > max ? here : max;
	}
	dt_int8_scale(max, &scale, &inverse);
	for (int64_t c = 0; c < d; c += DT_CHUNK) {
		const int64_t n = dt_min64(DT_CHUNK, d - c);
		const float *x = dt_load(buf, (const char *)in + c * dt_dtype_size(type), type, n);

#pragma omp simd
		for (int64_t i = 0; i < n; i++) {
			/* Adding 1.5 x 2^23 leaves the nearest integer in the low bits. */
			const float t = (inverse ? x[i] : 0) * inverse + 0x1.8p23f;
			uint32_t u;

			memcpy(&u, &t, 4);
			out[c + i] = (int8_t)(u - 0x4b400000u);
		}
	}
	memcpy(out + d, &scale, 4);
}

/* A key and a value into their group. */
static void write_group(const struct dt_attn *p, uint16_t *k, uint16_t *v, int64_t slot, const uint16_t *key,
			const uint16_t *value)
{
	const int64_t d = p->head_dim, i = slot % DT_KV_GROUP;

	for (int64_t h = 0; h < p->kv_heads; h++, key += d, value += d) {
		uint16_t *to = k + dt_kv_group(p, DT_BF16, slot, h) + 2 * i;

		for (int64_t j = 0; j < d; j += 2)
			memcpy(to + DT_KV_GROUP * j, key + j, 4);
		to = v + dt_kv_group(p, DT_BF16, slot, h) + i / 2 * 2 * d + i % 2;
		for (int64_t j = 0; j < d; j++)
			to[2 * j] = value[j];
	}
}

/* The same, of int8: bytes of a head as kv.h has them, and behind those of the group its scales. */
static void write_group_int8(const struct dt_attn *p, struct dt_tensor k, struct dt_tensor v, int64_t slot,
			     const char *key, const char *value, enum dt_dtype type)
{
	const int64_t d = p->head_dim, i = slot % DT_KV_GROUP;
	int8_t row[DT_KV_INT8_DIM + 4];

	for (int64_t h = 0; h < p->kv_heads; h++) {
		const int64_t at = dt_kv_group(p, DT_I8, slot, h), from = h * d * dt_dtype_size(type);
		uint8_t *to = dt_at(k, at);

		quantize_head(row, key + from, type, d);
		for (int64_t j = 0; j < d; j += 4) {
			uint32_t four;

			memcpy(&four, row + j, 4);
			four ^= 0x80808080u; /* 128 added to each */
			memcpy(to + DT_KV_GROUP * j + 4 * i, &four, 4);
		}
		memcpy(to + DT_KV_GROUP * d + 4 * i, row + d, 4);
		to = dt_at(v, at);
		quantize_head(row, value + from, type, d);
		for (int64_t j = 0; j < d; j++)
			to[i / 4 * 4 * d + 4 * j + i % 4] = (uint8_t)row[j];
		memcpy(to + DT_KV_GROUP * d + 4 * i, row + d, 4);
	}
}

/* The k or the v part of a row of qkv. */
static DT_SIMD void cache_row(const struct dt_attn *p, struct dt_tensor cache, int64_t to, struct dt_tensor x,
			      int64_t from)
{
	const int64_t d = p->head_dim, n = p->kv_heads * d;
	char *out = dt_at(cache, to);
	const char *in = dt_at(x, from);

	for (int64_t h = 0; cache.dtype == DT_I8 && h < p->kv_heads; h++)
		quantize_head((int8_t *)out + h * (d + 4), in + h * d * dt_dtype_size(x.dtype), x.dtype, d);
	if (cache.dtype == DT_I8)
		return;
	if (cache.dtype == x.dtype)
		memcpy(out, in, (size_t)(n * dt_dtype_size(x.dtype)));
	else
		dt_load((float *)out, in, x.dtype, n); /* a 16-bit row into an f32 cache */
}

int dt_cpu_kv_write(struct dt_dev *dev, struct dt_tensor kcache, struct dt_tensor vcache,
		    struct dt_tensor qkv, const struct dt_attn *p, const int64_t *slot)
{
	const int64_t rows = dt_rows(qkv), n = p->kv_heads * p->head_dim, q = p->heads * p->head_dim;
	const int64_t width = dt_kv_row(p, kcache.dtype);
	const bool grouped = dt_kv_grouped(p, kcache);
	const int parts = dt_kv_parts(p);

#pragma omp parallel for num_threads(dev->nthreads) if (rows * n > DT_SERIAL)
	for (int64_t i = 0; i < rows; i++) {
		const int64_t key = i * (q + parts * n) + q;

		if (slot[i] < 0)
			continue;
		if (grouped && kcache.dtype == DT_I8) {
			write_group_int8(p, kcache, vcache, slot[i], dt_at(qkv, key), dt_at(qkv, key + n),
					 qkv.dtype);
			continue;
		}
		if (grouped) {
			write_group(p, kcache.data, vcache.data, slot[i], dt_at(qkv, key),
				    dt_at(qkv, key + n));
			continue;
		}
		cache_row(p, kcache, slot[i] * width, qkv, key);
		if (parts == 2)
			cache_row(p, vcache, slot[i] * width, qkv, key + n);
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
