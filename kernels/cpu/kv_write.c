#include "kernels/cpu/attention.h"
#include "kernels/cpu/kv.h"
#include "kernels/cpu/team.h"
#include "kernels/int8.h"

#include <math.h>

/* Quantises a head to integers and a scale. NaN and Inf, whose bits are largest, make the scale NaN. */
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

/* Writes one key and one value into their group. */
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

/* The same for int8: bytes in kv.h's layout, then the scales of the group. */
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

/* Sixteen rows that fill a group: first key, first value, and the row stride in bytes. */
struct rows {
	const char *key, *value;
	int64_t step;
};

/* Prefetches row i of the next head after h. */
DT_INLINE void ask(const char *from, int64_t step, int64_t i, int64_t h, int64_t heads, int64_t head)
{
	dt_prefetch(from + i * step + (h + 1 < heads ? (h + 1) * head : DT_KV_GROUP * step), head);
}

/* out[w][16]: transposes word w of sixteen rows, step bytes apart; words is a multiple of 8. */
static DT_SIMD void turn_words(uint32_t *out, const char *from, int64_t step, int64_t words)
{
	_Alignas(64) uint32_t part[DT_KV_GROUP][64], across[64 * DT_TILE];

	for (int64_t first = 0; first < words; first += 64) {
		const int64_t n = dt_min64(64, words - first);

		for (int64_t i = 0; i < DT_KV_GROUP; i++)
			for (int64_t w = 0; w < n; w += 8) /* gcc makes a copy of n words rep movs, which
							    * starts slowly */
				memcpy(part[i] + w, from + i * step + 4 * (first + w), 32);
		dt_tile(DT_F32)->turn(across, part[0], n);
		for (int64_t w = 0; w < n; w++)
			memcpy(out + (first + w) * DT_KV_GROUP, across + w * DT_TILE, DT_KV_GROUP * 4);
	}
}

static DT_SIMD void pair_values(uint32_t *to, const uint16_t *a, const uint16_t *b, int64_t d)
{
#pragma omp simd
	for (int64_t j = 0; j < d; j++)
		to[j] = a[j] | (uint32_t)b[j] << 16;
}

/* Writes a whole group, one head at a time, so that lines stay in L1 until they are complete. */
static void fill_group(const struct dt_attn *p, uint16_t *k, uint16_t *v, int64_t slot, struct rows from)
{
	const int64_t d = p->head_dim;

	for (int64_t h = 0; h < p->kv_heads; h++) {
		const int64_t at = dt_kv_group(p, DT_BF16, slot, h);
		const char *value = from.value + 2 * h * d;

		for (int64_t i = 0; i < DT_KV_GROUP; i++)
			ask(from.key, from.step, i, h, p->kv_heads, 2 * d);
		turn_words((uint32_t *)(k + at), from.key + 2 * h * d, from.step, d / 2);
		for (int64_t i = 0; i < DT_KV_GROUP; i++)
			ask(from.value, from.step, i, h, p->kv_heads, 2 * d);
		for (int64_t i = 0; i < DT_KV_GROUP; i += 2)
			pair_values((uint32_t *)(v + at + i * d), (const uint16_t *)(value + i * from.step),
				    (const uint16_t *)(value + (i + 1) * from.step), d);
	}
}

static DT_SIMD void offset_words(uint32_t *x, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		x[i] ^= 0x80808080u; /* 128 added to each byte */
}

static DT_SIMD void four_values(uint32_t *to, const uint8_t *a, int64_t step, int64_t d)
{
	const uint8_t *b = a + step, *c = b + step, *e = c + step;

#pragma omp simd
	for (int64_t j = 0; j < d; j++)
		to[j] = a[j] | (uint32_t)b[j] << 8 | (uint32_t)c[j] << 16 | (uint32_t)e[j] << 24;
}

/* The same, of int8. */
static void fill_group_int8(const struct dt_attn *p, struct dt_tensor k, struct dt_tensor v, int64_t slot,
			    struct rows from, enum dt_dtype type)
{
	enum { STEP = DT_KV_INT8_DIM + 64 }; /* with a multiple of 64, rows would share a cache set */
	_Alignas(64) int8_t row[DT_KV_GROUP][STEP];
	const int64_t d = p->head_dim, head = d * dt_dtype_size(type);

	for (int64_t h = 0; h < p->kv_heads; h++) {
		uint8_t *to = dt_at(k, dt_kv_group(p, DT_I8, slot, h));

		for (int64_t i = 0; i < DT_KV_GROUP; i++) {
			ask(from.key, from.step, i, h, p->kv_heads, head);
			quantize_head(row[i], from.key + i * from.step + h * head, type, d);
			memcpy(to + DT_KV_GROUP * d + 4 * i, row[i] + d, 4);
		}
		turn_words((uint32_t *)to, (const char *)row, STEP, d / 4);
		offset_words((uint32_t *)to, DT_KV_GROUP / 4 * d);
		to = dt_at(v, dt_kv_group(p, DT_I8, slot, h));
		for (int64_t i = 0; i < DT_KV_GROUP; i++) {
			ask(from.value, from.step, i, h, p->kv_heads, head);
			quantize_head(row[i], from.value + i * from.step + h * head, type, d);
			memcpy(to + DT_KV_GROUP * d + 4 * i, row[i] + d, 4);
		}
		for (int64_t i = 0; i < DT_KV_GROUP; i += 4)
			four_values((uint32_t *)(to + i * d), (const uint8_t *)row[i], STEP, d);
	}
}

/* Whether the first of n rows goes to the first slot of a group and the next ones to the following slots. */
static bool fills_group(const int64_t *slot, int64_t n)
{
	if (n < DT_KV_GROUP || *slot < 0 || *slot % DT_KV_GROUP)
		return false;
	for (int64_t i = 1; i < DT_KV_GROUP; i++)
		if (slot[i] != *slot + i)
			return false;
	return true;
}

/* Writes rows first .. last of qkv, by whole groups where they fill them. */
static void write_groups(struct dt_tensor kcache, struct dt_tensor vcache, struct dt_tensor qkv,
			 const struct dt_attn *p, const int64_t *slot, int64_t first, int64_t last)
{
	const int64_t n = p->kv_heads * p->head_dim, width = dt_cols(qkv), key = p->heads * p->head_dim;
	const bool int8 = kcache.dtype == DT_I8;

	for (int64_t i = first; i < last; i++) {
		const struct rows from = {dt_at(qkv, i * width + key), dt_at(qkv, i * width + key + n),
					  width * dt_dtype_size(qkv.dtype)};

		if (slot[i] < 0)
			continue;
		if (fills_group(slot + i, last - i)) {
			if (int8)
				fill_group_int8(p, kcache, vcache, slot[i], from, qkv.dtype);
			else
				fill_group(p, kcache.data, vcache.data, slot[i], from);
			i += DT_KV_GROUP - 1;
		} else if (int8) {
			write_group_int8(p, kcache, vcache, slot[i], from.key, from.value, qkv.dtype);
		} else {
			write_group(p, kcache.data, vcache.data, slot[i], (const uint16_t *)from.key,
				    (const uint16_t *)from.value);
		}
	}
}

/* Copies the k or v part of a row of qkv to the cache. */
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

struct writing {
	struct dt_tensor kcache, vcache, qkv;
	const struct dt_attn *p;
	const int64_t *slot;
};

/* Rows by whole groups where they fill them. */
static void write_some_groups(void *arg, int t, int64_t first, int64_t last)
{
	const struct writing *a = arg;

	(void)t;
	write_groups(a->kcache, a->vcache, a->qkv, a->p, a->slot, first, last);
}

static void write_some_rows(void *arg, int t, int64_t first, int64_t last)
{
	const struct writing *a = arg;
	const int64_t wide = a->p->kv_heads * a->p->head_dim, width = dt_kv_row(a->p, a->kcache.dtype),
		      q = a->p->heads * a->p->head_dim;
	const int parts = dt_kv_parts(a->p);

	(void)t;
	for (int64_t i = first; i < last; i++) {
		const int64_t key = i * (q + parts * wide) + q;

		if (a->slot[i] < 0)
			continue;
		cache_row(a->p, a->kcache, a->slot[i] * width, a->qkv, key);
		if (parts == 2)
			cache_row(a->p, a->vcache, a->slot[i] * width, a->qkv, key + wide);
	}
}

int dt_cpu_kv_write(struct dt_dev *dev, struct dt_tensor kcache, struct dt_tensor vcache,
		    struct dt_tensor qkv, const struct dt_attn *p, const int64_t *slot)
{
	const bool grouped = dt_kv_grouped(p, kcache);
	/* In a group one row touches a cache line per pair of its key, which takes eight times as long. */
	const int64_t each = p->kv_heads * p->head_dim * (grouped ? 8 : 1);

	dt_cpu_rows(dev, dt_rows(qkv), each, grouped ? write_some_groups : write_some_rows,
		    &(struct writing){kcache, vcache, qkv, p, slot});
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
