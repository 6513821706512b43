/*
 * Inference. A task is up to 64 query rows (tokens x the q heads of one key/value head) of one sequence,
 * against tiles of 64 keys at fixed positions: what a row computes does not depend on the rows beside it.
 * Where more heads than a task has rows share a key, or few tasks would leave threads idle (a latent's one
 * key), the heads are cut into shares. A task of few rows takes several key heads, so that it reads whole
 * rows of a cache and not a piece of each: memory gives them three times as fast.
 */
#include "kernels/cpu/attention.h"
#include "kernels/cpu/kv.h"

#include <math.h>

struct paged {
	const struct dt_tile *t;
	const struct dt_attn *p;
	const struct dt_paged *g;
	struct dt_tensor o, qkv, k, v;
	bool grouped;		/* kv.h */
	int64_t tokens, chunks; /* a task, and tasks for the longest sequence */
	int64_t shares, heads;	/* of the heads of a key, and heads of each: the last may have fewer */
	int64_t together;	/* key heads of a task of few rows */
};

static int64_t task_words(const struct dt_tile *t, const struct dt_attn *p)
{
	const int64_t pad = dt_attn_value_pad(p), words = dt_tile_words(t, p->head_dim);

	return DT_TILE * (2 * words + pad + 2 * DT_TILE) + dt_tile_depth(t) * pad;
}

/* Task i of all: the longest first. */
struct place {
	int seq;
	int64_t kv, kvs, share, first; /* kvs: key heads from kv on */
	int64_t tokens;		       /* none where the sequence is shorter than others */
};

/* The query rows of a task and key head kv: token by token, in each its share of the q heads of kv. */
static int64_t task_rows(const struct paged *a, struct dt_attn_row *row, const void **from, void **to,
			 const struct place *t, int64_t kv)
{
	const struct dt_attn *p = a->p;
	const int64_t group = p->heads / p->kv_heads, d = p->head_dim, v = dt_attn_value_dim(p);
	const int64_t count = a->g->q_start[t->seq + 1] - a->g->q_start[t->seq];
	const int64_t head = kv * group + t->share * a->heads,
		      end = dt_min64(head + a->heads, (kv + 1) * group);
	int64_t n = 0;

	for (int64_t i = t->first; i < t->first + t->tokens; i++)
		for (int64_t h = head; h < end; h++, n++) {
			const int64_t at = a->g->q_start[t->seq] + i, last = a->g->kv_len[t->seq] - count + i;
			const int64_t seen = p->window > 0 && last >= p->window ? last - p->window + 1 : 0;

			from[n] = dt_at(a->qkv, at * dt_cols(a->qkv) + h * d);
			to[n] = dt_at(a->o, at * p->heads * v + h * v);
			row[n] = (struct dt_attn_row){seen, last, -INFINITY, {0}};
		}
	return n;
}

/* A tile of keys as rows of the cache, of head kv and those behind it. */
struct rows {
	/* NULL for those before the first that a query sees, whose blocks may hold anything by now */
	const void *k[DT_TILE], *v[DT_TILE];
	int64_t n;
};

/* Keys from j on, as many of a tile as the sequence has; none before `first` is seen. */
static void find_rows(const struct paged *a, struct rows *r, int seq, int64_t kv, int64_t j, int64_t first)
{
	const int64_t width = dt_kv_row(a->p, a->k.dtype);
	const struct dt_tensor values = a->v.data ? a->v : a->k;
	const int64_t v = a->p->head_dim - dt_attn_value_dim(a->p); /* where a value begins in its row */

	r->n = dt_min64(DT_TILE, a->g->kv_len[seq] - j);
	for (int64_t i = 0; i < r->n; i++) {
		int64_t at;

		r->k[i] = r->v[i] = NULL;
		if (j + i < first)
			continue;
		at = dt_paged_row(a->g, seq, j + i) * width + kv * (width / a->p->kv_heads);
		r->k[i] = dt_at(a->k, at);
		r->v[i] = dt_at(values, at + v);
	}
}

/* Asks for `bytes` of the rows [from, to): no processor sees pieces of a row here and there coming. */
static void ask_rows(const void *const *row, int64_t from, int64_t to, int64_t bytes)
{
	for (int64_t i = from; i < to; i++)
		for (int64_t c = 0; row[i] && c < bytes; c += 64)
			dt_prefetch_ahead((const char *)row[i] + c);
}

/* What rows of int8 are multiplied by: the scale lies `at` bytes behind where a row begins. */
static void scales_of_rows(float to[DT_TILE], const void *const *row, int64_t n, int64_t at)
{
	memset(to, 0, DT_TILE * 4);
	for (int64_t i = 0; i < n; i++)
		if (row[i])
			memcpy(&to[i], (const char *)row[i] + at, 4);
}

/* The groups of the cache that hold a tile of keys; those from skip up to n are seen. */
struct groups {
	const void *k[DT_TILE / DT_KV_GROUP], *v[DT_TILE / DT_KV_GROUP];
	int64_t skip, n;
};

/* A task: its query rows, and what they work in; sizes in words. */
struct work {
	int seq;
	int64_t kv, kvs, n;  /* n rows of each of the key heads kv .. kv + kvs */
	int64_t first, last; /* the keys from the first to the last that any sees */
	int64_t words, depth, pad, q_row;
	const uint32_t *q;
	uint32_t *packed, *k, *v, *pw;
	float *o, *s;
	struct dt_attn_row *row; /* [DT_TILE] */
	struct groups here, next;
	struct rows rows, rows_next;
	struct dt_tile_bytes *bytes; /* of a cache of int8 in groups: queries, and weights in the room of k */
};

/* Whether n query rows of a key head are multiplied with rows of the cache where they are. */
static bool as_they_lie(const struct paged *a, int64_t n)
{
	const int64_t d = a->p->head_dim;

	return !a->grouped && a->t->across_rows && n <= DT_TILE_ROWS_FEW && d <= DT_TILE_ROWS_DIM &&
	       (a->k.dtype == DT_BF16 || a->k.dtype == DT_I8 || a->k.dtype == DT_F32) && d % 16 == 0 &&
	       d * dt_dtype_size(a->k.dtype) % 32 == 0 && dt_attn_value_dim(a->p) % 16 == 0;
}

enum { LINES = 2 * DT_TILE * DT_TILE_ROWS_DIM * 4 / 64 };

/*
 * `bytes` of share h of w->kvs of rows, by lines: `room` of them in line, for a product to ask for (NULL:
 * there are none); any others are asked for here. Where a row ends inside a line, the next one begins there.
 */
static const void *const *lines_of(const void *line[LINES], int64_t room, const struct work *w,
				   const void *const *row, int64_t rows, int64_t bytes, int64_t h)
{
	const int64_t each = bytes < 64 ? 1 : (bytes + 32) / 64;
	int64_t n = 0;

	for (int64_t i = h * rows / w->kvs; i < (h + 1) * rows / w->kvs; i++) {
		if (!row[i])
			continue;
		for (int64_t c = 0; c < each; c++)
			line[n + c] = (const char *)row[i] + 64 * c;
		n += each;
	}
	for (int64_t i = room; i < n; i++)
		dt_prefetch_ahead(line[i]);
	for (int64_t i = n; n && i < room; i++)
		line[i] = line[n - 1];
	return n ? line : NULL;
}

/*
 * A tile of rows of the cache where they are. Values are on their way during the keys, and the next keys
 * during the values.
 */
static void tile_as_it_lies(const struct paged *a, struct work *w, int64_t j)
{
	const struct rows *r = &w->rows, *next = &w->rows_next;
	const enum dt_dtype type = a->k.dtype;
	const int64_t d = a->p->head_dim, vd = dt_attn_value_dim(a->p), n = w->n, size = dt_dtype_size(type);
	const int64_t step = dt_kv_row(a->p, type) / a->p->kv_heads * size, wide = w->kvs * step,
		      keys = (r->n + 15) / 16 * 16;
	const void *line[LINES];
	float scale[DT_TILE];

	for (int64_t h = 0; h < w->kvs; h++) {
		float *s = w->s + h * n * DT_TILE;

		a->t->across_rows(s, DT_TILE, w->q + h * n * w->q_row, w->q_row, r->k, type, h * step, r->n,
				  n, d, lines_of(line, keys * d * size / 64, w, r->v, r->n, wide, h));
		if (type == DT_I8) {
			scales_of_rows(scale, r->k, r->n, h * step + d);
			dt_attn_weigh(s, n, scale);
			scales_of_rows(scale, r->v, r->n, h * step + vd);
		}
		dt_attn_softmax(a->t, NULL, s, w->o + h * n * w->pad, w->row + h * n, n, w->pad, j, a->p,
				type == DT_I8 ? scale : NULL);
	}
	for (int64_t h = 0; h < w->kvs; h++)
		a->t->down_rows(w->o + h * n * w->pad, w->pad, (uint32_t *)w->s + h * n * DT_TILE, DT_TILE,
				r->v, type, h * step, r->n, n, vd,
				lines_of(line, keys * vd * size / 64, w, next->k, next->n, wide, h));
}

/* A tile of rows of the cache, rearranged for many rows of a task. */
static void tile_of_rows(const struct paged *a, struct work *w, int64_t j)
{
	const struct rows *r = &w->rows;
	const enum dt_dtype type = a->k.dtype;
	const int64_t d = a->p->head_dim, vd = dt_attn_value_dim(a->p);
	const bool scaled = type == DT_I8; /* and so are values */
	float scale[DT_TILE];

	ask_rows(r->k, 0, r->n, d * dt_dtype_size(type));
	ask_rows(r->v, 0, r->n, d * dt_dtype_size(type));
	dt_tile_pack_lanes(a->t, w->k, r->k, type, r->n, d);
	a->t->mul(w->s, DT_TILE, w->q, w->q_row, 1, w->k, DT_TILE, w->n, (r->n + 15) / 16 * 16, w->words,
		  false);
	if (scaled) {
		scales_of_rows(scale, r->k, r->n, d);
		dt_attn_weigh(w->s, w->n, scale);
		scales_of_rows(scale, r->v, r->n, vd);
	}
	dt_attn_softmax(a->t, w->pw, w->s, w->o, w->row, w->n, w->pad, j, a->p, scaled ? scale : NULL);
	dt_tile_pack_depth(a->t, w->v, r->v, type, r->n, vd);
	a->t->mul(w->o, w->pad, w->pw, w->depth, 1, w->v, w->pad, w->n, w->pad, dt_tile_words(a->t, r->n),
		  true);
}

/* The values of a group's last key, whose neighbour is not written yet: the pair with zeros. */
static const uint32_t *last_pair(uint32_t *buf, const uint32_t *pair, int64_t d)
{
	for (int64_t i = 0; i < d; i++)
		buf[i] = pair[i] & 0xffff;
	return buf;
}

/* Keys from j on, as many of a tile as the sequence has; none before `first` is seen. */
static void find_groups(const struct paged *a, struct groups *g, int seq, int64_t kv, int64_t j,
			int64_t first)
{
	const int64_t keys = dt_min64(DT_TILE, a->g->kv_len[seq] - j);

	g->skip = first > j ? (first - j) / DT_KV_GROUP : 0;
	g->n = dt_ceil_div(keys, DT_KV_GROUP);
	for (int64_t i = g->skip; i < g->n; i++) {
		const int64_t at =
			dt_kv_group(a->p, a->k.dtype, dt_paged_row(a->g, seq, j + i * DT_KV_GROUP), kv);

		g->k[i] = dt_at(a->k, at);
		g->v[i] = dt_at(a->v, at);
	}
	for (int64_t i = 0; i < DT_TILE / DT_KV_GROUP; i++) /* any others: softmax leaves them out */
		if (i < g->skip || i >= g->n) {
			g->k[i] = g->k[g->skip];
			g->v[i] = g->v[g->skip];
		}
}

/* Keys [j, j + keys) from groups of the cache, as they lie; those of the next tile are asked for. */
static void tile_of_groups(const struct paged *a, struct work *w, int64_t j, int64_t keys)
{
	const struct groups *g = &w->here;
	const int64_t d = a->p->head_dim, pairs = keys / 2;

	a->t->mul_across(w->s, DT_TILE, w->q, w->q_row, (const uint32_t *const *)g->k,
			 (const uint32_t *const *)w->next.k, w->n, w->words);
	dt_attn_softmax(a->t, w->pw, w->s, w->o, w->row, w->n, w->pad, j, a->p, NULL);
	a->t->mul_down(w->o, d, w->pw, w->depth, (const uint32_t *const *)g->v,
		       (const uint32_t *const *)w->next.v, w->n, d, g->skip * DT_KV_GROUP / 2, pairs);
	if (keys % 2)
		a->t->mul(w->o, d, w->pw + pairs, w->depth, 1,
			  last_pair(w->v, (const uint32_t *)g->v[pairs / 8] + pairs % 8 * d, d), d, w->n, d,
			  1, true);
}

/* The scales of a tile's keys or values, 0 for those that none sees: theirs may be anything. */
static void scales_of(float to[DT_TILE], const struct work *w, const void *const *group, int64_t d, int64_t j,
		      int64_t keys)
{
	for (int64_t g = 0; g < DT_TILE / DT_KV_GROUP; g++)
		memcpy(to + g * DT_KV_GROUP, (const char *)group[g] + DT_KV_GROUP * d, DT_KV_GROUP * 4);
	for (int64_t i = 0; i < DT_TILE; i++)
		if (j + i < w->first || i >= keys)
			to[i] = 0;
}

/* The same of int8, by sums of bytes. */
static void tile_of_bytes(const struct paged *a, struct work *w, int64_t j, int64_t keys)
{
	const struct groups *g = &w->here;
	const int64_t d = a->p->head_dim;
	float scale[DT_TILE];

	scales_of(scale, w, g->k, d, j, keys);
	dt_tile_int8_across(w->s, &w->bytes[0], g->k, w->next.k, scale, w->n, d / 4);
	scales_of(scale, w, g->v, d, j, keys);
	dt_attn_softmax(dt_tile(DT_F32), NULL, w->s, w->o, w->row, w->n, w->pad, j, a->p, scale);
	dt_tile_bytes_of_weights(&w->bytes[1], w->s, w->n);
	dt_tile_int8_down(w->o, w->pad, &w->bytes[1], g->v, w->next.v, w->n, d);
}

static struct place place_of(const struct paged *a, int64_t i)
{
	const int64_t kvs = a->p->kv_heads * a->shares;
	struct place p = {(int)(i / kvs % a->g->nseq), i % kvs / a->shares, 1, i % a->shares, 0, 0};
	const int64_t count = a->g->q_start[p.seq + 1] - a->g->q_start[p.seq];

	p.first = (a->chunks - 1 - i / kvs / a->g->nseq) * a->tokens;
	p.tokens = dt_min64(a->tokens, count - p.first);
	if (a->shares == 1 && count > 0 && as_they_lie(a, count * a->heads)) {
		const int64_t together = dt_min64(a->together, DT_TILE / (count * a->heads));

		p.kvs = dt_min64(together, a->p->kv_heads - p.kv);
		p.tokens = p.kv % together ? 0 : p.tokens;
	}
	return p;
}

/* The first key that the first row of a task sees. */
static int64_t first_key(const struct paged *a, const struct place *p)
{
	const int64_t count = a->g->q_start[p->seq + 1] - a->g->q_start[p->seq];
	const int64_t last = a->g->kv_len[p->seq] - count + p->first, window = a->p->window;

	return window > 0 && last >= window ? last - window + 1 : 0;
}

/* The tile behind the one at j, or the first of the next task. */
static void look_ahead(const struct paged *a, struct work *w, int64_t j, const struct place *next)
{
	const bool more = j + DT_TILE <= w->last, other = !more && next && next->tokens > 0;
	const int seq = other ? next->seq : w->seq;
	const int64_t first = other ? first_key(a, next) : w->first, kv = other ? next->kv : w->kv,
		      at = other ? first / DT_TILE * DT_TILE : j + DT_TILE;

	if (!a->grouped)
		w->rows_next.n = 0;
	else if (!more && !other)
		w->next = w->here;
	if (!more && !other)
		return;
	if (a->grouped)
		find_groups(a, &w->next, seq, kv, at, first);
	else
		find_rows(a, &w->rows_next, seq, kv, at, first);
}

/* The queries as bytes, in the room of packed ones and of keys, which lie packed already. */
static void bytes_of(const struct paged *a, struct work *w, const void *const *from)
{
	const int64_t words = a->p->head_dim / 4;
	const int parts = a->qkv.dtype == DT_F32 ? 3 : 2;

	w->bytes[0].parts = w->bytes[1].parts = parts;
	for (int i = 0; i < parts; i++) {
		w->bytes[0].part[i] = w->packed + i * DT_TILE * words;
		w->bytes[1].part[i] = w->packed + parts * DT_TILE * words + i * DT_TILE * DT_TILE / 4;
	}
	dt_tile_bytes_of(&w->bytes[0], from, a->qkv.dtype, w->n, a->p->head_dim);
}

/* next: the task this thread does then, NULL where it does not know. */
static void task(const struct paged *a, uint32_t *buf, const struct place *at, const struct place *next)
{
	const struct dt_attn *p = a->p;
	struct dt_attn_row row[DT_TILE];
	struct dt_tile_bytes bytes[2];
	struct work w;
	int64_t all = 0; /* rows */
	const void *from[DT_TILE];
	void *to[DT_TILE];

	w.seq = at->seq;
	w.kv = at->kv;
	w.kvs = at->kvs;
	w.n = 0;
	w.words = w.q_row = dt_tile_words(a->t, p->head_dim);
	w.depth = dt_tile_depth(a->t);
	w.pad = dt_attn_value_pad(p);
	w.row = row;
	w.bytes = bytes;
	w.packed = buf;
	w.k = w.packed + DT_TILE * w.words;
	w.v = w.k + DT_TILE * w.words;
	w.o = (float *)(w.v + w.depth * w.pad);
	w.s = w.o + DT_TILE * w.pad;
	w.pw = (uint32_t *)w.s + (a->t->pairs ? DT_TILE * DT_TILE : 0);
	for (int64_t h = 0; h < w.kvs; h++, all += w.n)
		w.n = task_rows(a, row + all, from + all, to + all, at, w.kv + h);
	w.first = row[0].first;
	w.last = row[w.n - 1].last;
	w.q = w.packed;
	if (a->grouped && a->k.dtype == DT_I8) {
		bytes_of(a, &w, from);
	} else if (a->grouped && at->tokens == 1 &&
		   a->qkv.dtype == DT_BF16) { /* as they lie, one head after another */
		w.q = from[0];
	} else {
		dt_tile_pack_rows(a->t, w.packed, from, a->qkv.dtype, all, p->head_dim);
	}
	memset(w.o, 0, (size_t)(all * w.pad) * 4);
	if (a->grouped)
		find_groups(a, &w.here, w.seq, w.kv, w.first / DT_TILE * DT_TILE, w.first);
	else
		find_rows(a, &w.rows, w.seq, w.kv, w.first / DT_TILE * DT_TILE, w.first);
	for (int64_t j = w.first / DT_TILE * DT_TILE; j <= w.last; j += DT_TILE) {
		const int64_t keys = dt_min64(DT_TILE, a->g->kv_len[w.seq] - j);

		look_ahead(a, &w, j, next);
		if (as_they_lie(a, w.n))
			tile_as_it_lies(a, &w, j);
		else if (!a->grouped)
			tile_of_rows(a, &w, j);
		else if (a->k.dtype == DT_I8)
			tile_of_bytes(a, &w, j, keys);
		else
			tile_of_groups(a, &w, j, keys);
		if (a->grouped)
			w.here = w.next;
		else
			w.rows = w.rows_next;
	}
	dt_attn_finish(a->t, to, a->o.dtype, w.o, row, all, dt_attn_value_dim(p), w.pad);
}

/* Heads of one key cut into tasks: no more of them than a tile has rows, and a task for each thread. */
static void share_heads(struct paged *a, int threads)
{
	const int64_t group = a->p->heads / a->p->kv_heads,
		      rows = a->g->q_start[a->g->nseq] - a->g->q_start[0];

	a->shares = dt_ceil_div(group, DT_TILE);
	if (rows * a->p->kv_heads * a->shares < threads)
		a->shares = dt_min64(group, dt_ceil_div(threads, rows * a->p->kv_heads));
	a->heads = dt_ceil_div(group, a->shares);
	a->shares = dt_ceil_div(group, a->heads);
}

/* Key heads of a task of few rows: all of them, where that leaves no thread without a task. */
static int64_t heads_together(const struct paged *a, int threads)
{
	const int64_t parts = a->g->nseq >= 4 * threads || a->g->nseq % threads == 0 ? 1 : threads;

	return dt_ceil_div(a->p->kv_heads, parts);
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
			  0,
			  0,
			  1,
			  p->heads / p->kv_heads,
			  1};
	int64_t words, most = 0, tasks, run;
	uint32_t *buf;

	if (p->value_dim)
		share_heads(&a, dev->nthreads);
	a.tokens = DT_TILE / a.heads;
	a.together = heads_together(&a, dev->nthreads);
	for (int i = 0; i < g->nseq; i++)
		most = g->q_start[i + 1] - g->q_start[i] > most ? g->q_start[i + 1] - g->q_start[i] : most;
	words = task_words(a.t, p);
	buf = dt_cpu_scratch(dev, (size_t)(dev->nthreads * words) * 4);
	if (!buf)
		return -ENOMEM;
	a.chunks = dt_ceil_div(most, a.tokens);
	tasks = a.chunks * p->kv_heads * a.shares * g->nseq;
	/* Short ones in a row, so that the keys of one are on their way during another. */
	run = a.chunks == 1 ? dt_ceil_div(tasks, 4 * dev->nthreads) : 1;
#pragma omp parallel for num_threads(dev->nthreads) schedule(dynamic)
	for (int64_t first = 0; first < tasks; first += run) {
		const int64_t last = dt_min64(tasks, first + run);
		struct place at = place_of(&a, first), next;

		for (int64_t i = first; i < last; i++, at = next) {
			next = place_of(&a, i + 1 < last ? i + 1 : i);
			if (at.tokens > 0)
				task(&a, buf + omp_get_thread_num() * words, &at,
				     i + 1 < last ? &next : NULL);
		}
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
