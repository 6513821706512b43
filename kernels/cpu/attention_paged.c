/*
 * Inference. A task is up to 64 query rows (tokens x the q heads of one key/value head) of one sequence,
 * against tiles of 64 keys at fixed positions: what a row computes does not depend on the rows beside it.
 */
#include "kernels/cpu/attention.h"
#include "kernels/cpu/kv.h"

#include <math.h>

struct paged {
	const struct dt_tile *t;
	const struct dt_attn *p;
	const struct dt_paged *g;
	struct dt_tensor o, qkv, k, v;
	bool grouped;	/* kv.h */
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

/* A task: its query rows, and what they work in; sizes in words. */
struct work {
	int seq;
	int64_t kv, n, first; /* rows, and the first key that any sees */
	int64_t words, depth, pad;
	uint32_t *q, *k, *v, *pw;
	float *o, *s;
	struct dt_attn_row row[DT_TILE];
};

/* Keys [j, j + keys) from rows of the cache, rearranged. */
static void tile_of_rows(const struct paged *a, struct work *w, int64_t j, int64_t keys)
{
	const int64_t d = a->p->head_dim;
	const bool scaled = a->k.dtype == DT_I8;
	const void *krow[DT_TILE], *vrow[DT_TILE];
	struct scales scale;

	key_rows(a, w->seq, w->kv, j, keys, w->first, krow, vrow, &scale);
	dt_tile_pack_lanes(a->t, w->k, krow, a->k.dtype, keys, d);
	a->t->mul(w->s, DT_TILE, w->q, w->words, 1, w->k, DT_TILE, w->n, (keys + 15) / 16 * 16, w->words,
		  false);
	if (scaled)
		dt_attn_weigh(w->s, w->n, scale.k);
	dt_attn_softmax(a->t, w->pw, w->s, w->o, w->row, w->n, w->pad, j, a->p->scale,
			scaled ? scale.v : NULL);
	dt_tile_pack_depth(a->t, w->v, vrow, a->v.dtype, keys, d);
	a->t->mul(w->o, w->pad, w->pw, w->depth, 1, w->v, w->pad, w->n, w->pad, dt_tile_words(a->t, keys),
		  true);
}

/* The values of a group's last key, whose neighbour is not written yet: the pair with zeros. */
static const uint32_t *last_pair(uint32_t *buf, const uint32_t *pair, int64_t d)
{
	for (int64_t i = 0; i < d; i++)
		buf[i] = pair[i] & 0xffff;
	return buf;
}

/* Keys [j, j + keys) from groups of the cache, as they lie. */
static void tile_of_groups(const struct paged *a, struct work *w, int64_t j, int64_t keys)
{
	const int64_t d = a->p->head_dim, skip = w->first > j ? (w->first - j) / DT_KV_GROUP : 0;
	const int64_t groups = dt_ceil_div(keys, DT_KV_GROUP);
	const uint32_t *k[DT_TILE / DT_KV_GROUP], *v[DT_TILE / DT_KV_GROUP];

	for (int64_t i = skip; i < groups; i++) {
		const int64_t slot = dt_paged_row(a->g, w->seq, j + i * DT_KV_GROUP);
		const int64_t at = dt_kv_group(a->p, slot, w->kv);

		k[i] = dt_at(a->k, at);
		v[i] = dt_at(a->v, at);
		for (int64_t c = 0; c < DT_KV_GROUP * d / 2; c += 16)
			__builtin_prefetch(v[i] + c);
	}
	for (int64_t i = 0; i < DT_TILE / DT_KV_GROUP; i++) /* any others: softmax leaves them out */
		if (i < skip || i >= groups)
			k[i] = k[skip];
	a->t->mul_groups(w->s, DT_TILE, w->q, w->words, k, w->n, w->words);
	dt_attn_softmax(a->t, w->pw, w->s, w->o, w->row, w->n, w->pad, j, a->p->scale, NULL);
	for (int64_t i = skip; i < groups; i++) {
		const int64_t n = dt_min64(DT_KV_GROUP, keys - i * DT_KV_GROUP), pairs = n / 2;
		const uint32_t *p = w->pw + i * DT_KV_GROUP / 2;

		a->t->mul(w->o, d, p, w->depth, 1, v[i], d, w->n, d, pairs, true);
		if (n % 2)
			a->t->mul(w->o, d, p + pairs, w->depth, 1, last_pair(w->v, v[i] + pairs * d, d), d,
				  w->n, d, 1, true);
	}
}

static void task(const struct paged *a, uint32_t *buf, int seq, int64_t kv, int64_t first, int64_t tokens)
{
	const struct dt_attn *p = a->p;
	struct work w = {.seq = seq,
			 .kv = kv,
			 .words = dt_tile_words(a->t, p->head_dim),
			 .depth = dt_tile_depth(a->t),
			 .pad = dt_attn_pad(p)};
	const void *from[DT_TILE];
	void *to[DT_TILE];
	int64_t last;

	w.q = buf;
	w.k = w.q + DT_TILE * w.words;
	w.v = w.k + DT_TILE * w.words;
	w.o = (float *)(w.v + w.depth * w.pad);
	w.s = w.o + DT_TILE * w.pad;
	w.pw = (uint32_t *)w.s + (a->t->pairs ? DT_TILE * DT_TILE : 0);
	w.n = task_rows(a, w.row, from, to, seq, kv, first, tokens);
	w.first = w.row[0].first;
	last = w.row[w.n - 1].last;
	dt_tile_pack_rows(a->t, w.q, from, a->qkv.dtype, w.n, p->head_dim);
	memset(w.o, 0, (size_t)(w.n * w.pad) * 4);
	for (int64_t j = w.first / DT_TILE * DT_TILE; j <= last; j += DT_TILE)
		(a->grouped ? tile_of_groups : tile_of_rows)(a, &w, j,
							     dt_min64(DT_TILE, a->g->kv_len[seq] - j));
	dt_attn_finish(to, a->o.dtype, w.o, w.row, w.n, p->head_dim, w.pad);
}

int dt_cpu_attention_paged(struct dt_dev *dev, struct dt_tensor o, struct dt_tensor qkv,
			   struct dt_tensor kcache, struct dt_tensor vcache, const struct dt_attn *p,
			   const struct dt_paged *g)
{
	struct paged a = {dt_tile(kcache.dtype == DT_I8 ? qkv.dtype : kcache.dtype),
			  p,
			  g,
			  o,
			  qkv,
			  kcache,
			  vcache,
			  dt_kv_grouped(p, kcache),
			  0};
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
