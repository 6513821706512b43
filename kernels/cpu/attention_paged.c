/*
 * Inference. A task is up to 64 query rows (tokens x the q heads of one key/value head) of one sequence,
 * against tiles of 64 keys at fixed positions: what a row computes does not depend on the rows beside it.
 */
#include "kernels/cpu/attention.h"

#include <math.h>

struct paged {
	const struct dt_tile *t;
	const struct dt_attn *p;
	const struct dt_paged *g;
	struct dt_tensor o, qkv, k, v;
	int64_t tokens; /* a task */
};

/* What keys and values of a cache of int8 are multiplied by. */
struct scales {
	float k[DT_TILE], v[DT_TILE];
};

static int64_t task_words(const struct dt_tile *t, const struct dt_attn *p)
{
	const int64_t pad = dt_attn_pad(p), words = dt_tile_words(t, p->head_dim);

	return DT_TILE * (2 * words + pad + 2 * DT_TILE) + dt_tile_depth(t) * pad;
}

/* The query rows of a task: token by token, in each the q heads of kv. */
static int64_t task_rows(const struct paged *a, struct dt_attn_row *row, const void **from, void **to,
			 int seq, int64_t kv, int64_t first, int64_t tokens)
{
	const struct dt_attn *p = a->p;
	const int64_t group = p->heads / p->kv_heads, d = p->head_dim;
	const int64_t count = a->g->q_start[seq + 1] - a->g->q_start[seq];
	int64_t n = 0;

	for (int64_t i = first; i < first + tokens; i++)
		for (int64_t h = kv * group; h < (kv + 1) * group; h++, n++) {
			const int64_t at = a->g->q_start[seq] + i, last = a->g->kv_len[seq] - count + i;
			const int64_t seen = p->window > 0 && last >= p->window ? last - p->window + 1 : 0;

			from[n] = dt_at(a->qkv, at * dt_cols(a->qkv) + h * d);
			to[n] = dt_at(a->o, at * p->heads * d + h * d);
			row[n] = (struct dt_attn_row){seen, last, -INFINITY, {0}};
		}
	return n;
}

/*
 * Where the keys [j, j + n) of a sequence and their values lie; NULL for those before the first that a row
 * sees, whose blocks may hold anything by now.
 */
static void key_rows(const struct paged *a, int seq, int64_t kv, int64_t j, int64_t n, int64_t first,
		     const void **krow, const void **vrow, struct scales *s)
{
	const int64_t d = a->p->head_dim, width = dt_kv_row(a->p, a->k.dtype);

	memset(s, 0, sizeof *s);
	for (int64_t i = 0; i < n; i++) {
		int64_t at;

		krow[i] = vrow[i] = NULL;
		if (j + i < first)
			continue;
		at = dt_paged_row(a->g, seq, j + i) * width + kv * (width / a->p->kv_heads);
		krow[i] = dt_at(a->k, at);
		vrow[i] = dt_at(a->v, at);
		/* Pieces of a row here and there: the processor does not see them coming. */
		for (int64_t c = 0; c < d * dt_dtype_size(a->k.dtype); c += 64) {
			__builtin_prefetch((const char *)krow[i] + c);
			__builtin_prefetch((const char *)vrow[i] + c);
		}
		if (a->k.dtype == DT_I8) {
			memcpy(&s->k[i], (const char *)krow[i] + d, 4);
			memcpy(&s->v[i], (const char *)vrow[i] + d, 4);
		}
	}
}

static void task(const struct paged *a, uint32_t *buf, int seq, int64_t kv, int64_t first, int64_t tokens)
{
	const struct dt_attn *p = a->p;
	const int64_t d = p->head_dim, pad = dt_attn_pad(p), words = dt_tile_words(a->t, d);
	const int64_t depth = dt_tile_depth(a->t);
	uint32_t *q = buf, *kp = q + DT_TILE * words, *vp = kp + DT_TILE * words, *pw;
	float *o = (float *)(vp + depth * pad), *s = o + DT_TILE * pad;
	struct dt_attn_row row[DT_TILE];
	const void *from[DT_TILE];
	void *to[DT_TILE];
	const int64_t n = task_rows(a, row, from, to, seq, kv, first, tokens), last = row[n - 1].last;
	const bool scaled = a->k.dtype == DT_I8;
	struct scales scale;

	pw = (uint32_t *)s + (a->t->pairs ? DT_TILE * DT_TILE : 0);
	dt_tile_pack_rows(a->t, q, from, a->qkv.dtype, n, d);
	memset(o, 0, (size_t)(n * pad) * 4);
	for (int64_t j = row[0].first / DT_TILE * DT_TILE; j <= last; j += DT_TILE) {
		const int64_t keys = dt_min64(DT_TILE, a->g->kv_len[seq] - j);
		const void *krow[DT_TILE], *vrow[DT_TILE];

		key_rows(a, seq, kv, j, keys, row[0].first, krow, vrow, &scale);
		dt_tile_pack_lanes(a->t, kp, krow, a->k.dtype, keys, d);
		a->t->mul(s, DT_TILE, q, words, 1, kp, DT_TILE, n, (keys + 15) / 16 * 16, words, false);
		if (scaled)
			dt_attn_weigh(s, n, scale.k);
		dt_attn_softmax(a->t, pw, s, o, row, n, pad, j, p->scale, scaled ? scale.v : NULL);
		dt_tile_pack_depth(a->t, vp, vrow, a->v.dtype, keys, d);
		a->t->mul(o, pad, pw, depth, 1, vp, pad, n, pad, dt_tile_words(a->t, keys), true);
	}
	dt_attn_finish(to, a->o.dtype, o, row, n, d, pad);
}

int dt_cpu_attention_paged(struct dt_dev *dev, struct dt_tensor o, struct dt_tensor qkv,
			   struct dt_tensor kcache, struct dt_tensor vcache, const struct dt_attn *p,
			   const struct dt_paged *g)
{
	struct paged a = {
		dt_tile(kcache.dtype == DT_I8 ? qkv.dtype : kcache.dtype), p, g, o, qkv, kcache, vcache, 0};
	int64_t words, most = 0, chunks;
	uint32_t *buf;
	int r;

	if (g->nseq < 1)
		return 0;
	r = dt_paged_check(o, qkv, kcache, vcache, p, g, DT_TILE);
	if (r < 0)
		return r;
	a.tokens = DT_TILE / (p->heads / p->kv_heads);
	for (int i = 0; i < g->nseq; i++)
		most = g->q_start[i + 1] - g->q_start[i] > most ? g->q_start[i + 1] - g->q_start[i] : most;
	words = task_words(a.t, p);
	buf = dt_cpu_scratch(dev, (size_t)(dev->nthreads * words) * 4);
	if (!buf)
		return -ENOMEM;
	chunks = dt_ceil_div(most, a.tokens);
#pragma omp parallel for num_threads(dev->nthreads) schedule(dynamic)
	for (int64_t i = 0; i < chunks * p->kv_heads * g->nseq; i++) {
		const int seq = (int)(i / p->kv_heads % g->nseq);
		const int64_t first =
			(chunks - 1 - i / p->kv_heads / g->nseq) * a.tokens; /* the longest first */
		const int64_t left = g->q_start[seq + 1] - g->q_start[seq] - first;

		if (left > 0)
			task(&a, buf + omp_get_thread_num() * words, seq, i % p->kv_heads, first,
			     dt_min64(a.tokens, left));
	}
	return 0;
}

/* A head as integers and their scale. NaN and Inf, whose bits are the largest, make the scale NaN. */
static DT_SIMD void quantize_head(int8_t *out, const void *in, enum dt_dtype type, int64_t d)
{
	float buf[DT_CHUNK], scale, inverse;
	uint32_t max = 0;

	for (int64_t c = 0; c < d; c += DT_CHUNK) {
		const int64_t n = dt_min64(DT_CHUNK, d - c);
		const float *x = dt_load(buf, (const char *)in + c * dt_dtype_size(type), type, n);

#pragma omp simd reduction(max : max)
		for (int64_t i = 0; i < n; i++) {
			uint32_t u;

			memcpy(&u, &x[i], 4);
			u &= 0x7fffffffu;
			max = u > max ? u : max;
		}
	}
	memcpy(&scale, &max, 4);
	inverse = max < 0x0d800000u || max >= 0x7f800000u ? 0 : 127.f / scale; /* below 2^-100: zero */
	scale = max < 0x0d800000u ? 0 : max >= 0x7f800000u ? NAN : scale / 127.f;
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

/* The k or the v part of a row of qkv. */
static DT_SIMD void copy_row(const struct dt_attn *p, struct dt_tensor cache, int64_t to, struct dt_tensor x,
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

	if (!dt_is_compute(qkv.dtype) ||
	    (kcache.dtype != qkv.dtype && kcache.dtype != DT_F32 && kcache.dtype != DT_I8) ||
	    vcache.dtype != kcache.dtype || dt_cols(kcache) != width || dt_cols(vcache) != width ||
	    dt_rows(vcache) != dt_rows(kcache) || dt_cols(qkv) != q + 2 * n)
		return -EINVAL;
	for (int64_t i = 0; i < rows; i++)
		if (slot[i] < -1 || slot[i] >= dt_rows(kcache))
			return -EINVAL;
#pragma omp parallel for num_threads(dev->nthreads) if (rows * n > DT_SERIAL)
	for (int64_t i = 0; i < rows; i++) {
		if (slot[i] < 0)
			continue;
		copy_row(p, kcache, slot[i] * width, qkv, i * (q + 2 * n) + q);
		copy_row(p, vcache, slot[i] * width, qkv, i * (q + 2 * n) + q + n);
	}
	return 0;
}
