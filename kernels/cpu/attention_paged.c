/*
 * Paged attention for inference. A task is up to 64 query rows (tokens x the q heads of one key/value head)
 * of one sequence, against tiles of 64 keys at fixed positions: a row's result does not depend on the other
 * rows. If more q heads share a key than a task has rows, or few tasks would leave threads idle (latent
 * attention has one key head), the q heads are split into shares. A task of few rows handles several key
 * heads, so that it reads whole cache rows instead of a piece of each: three times the memory bandwidth. If
 * all tokens of a sequence are one task, each span of its keys can be a task of its own (paged.h).
 */
#include "kernels/cpu/paged.h"
#include "kernels/cpu/soon.h"
#include "kernels/cpu/team.h"

/*
 * The query rows of a task for key head kv: by token, and within it the task's share of kv's q heads. of: the
 * q head of each.
 */
static int64_t task_rows(const struct dt_paged_run *a, struct dt_attn_row *row, const void **from, void **to,
			 int64_t *of, const struct dt_paged_place *t, int64_t kv)
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
			row[n] = (struct dt_attn_row){.first = seen, .last = last};
			of[n] = h;
		}
	return n;
}

/* Restricts a task to the keys of one span. */
static void take_span(struct dt_paged_place *p, int64_t span)
{
	const int64_t begins = p->from / DT_PAGED_SPAN + span;

	p->span = span;
	p->from = span ? begins * DT_PAGED_SPAN : p->from;
	p->end = dt_min64(p->end, (begins + 1) * DT_PAGED_SPAN);
	if (p->from >= p->end)
		p->tokens = 0;
}

/* Task i of all: longest first, spans in order. */
static struct dt_paged_place place_of(const struct dt_paged_run *a, int64_t i)
{
	const int64_t kvs = a->p->kv_heads * a->shares, row = i / kvs / a->g->nseq;
	struct dt_paged_place p = {.seq = (int)(i / kvs % a->g->nseq),
				   .kv = i % kvs / a->shares,
				   .kvs = 1,
				   .share = i % a->shares,
				   .first = (a->chunks - 1 - row % a->chunks) * a->tokens};
	const int64_t count = a->g->q_start[p.seq + 1] - a->g->q_start[p.seq];

	p.tokens = dt_min64(a->tokens, count - p.first);
	if (p.tokens <= 0)
		return p;
	if (a->shares == 1 && count * a->heads <= DT_TILE_ROWS_FEW &&
	    (a->grouped || dt_paged_as_they_lie(a, count * a->heads))) {
		const int64_t together = dt_min64(a->together, DT_TILE / (count * a->heads));

		p.kvs = dt_min64(together, a->p->kv_heads - p.kv);
		p.tokens = p.kv % together ? 0 : p.tokens;
	}
	dt_paged_keys(a, p.seq, p.first, p.tokens, &p.from, &p.end);
	p.spans = dt_paged_spans(p.from, p.end);
	if (a->spans > 1)
		take_span(&p, row / a->chunks);
	return p;
}

/* Finds the tile after the one at j, or the first of the next task, to prefetch it. */
static void look_ahead(const struct dt_paged_run *a, struct dt_paged_work *w, int64_t j,
		       const struct dt_paged_place *at, const struct dt_paged_place *next)
{
	if (j + DT_TILE < at->end)
		dt_paged_find(a, w->next, w->seq, w->kv, j + DT_TILE, w->first);
	else if (next)
		dt_paged_find(a, w->next, next->seq, next->kv, next->from / DT_TILE * DT_TILE, next->from);
	else if (a->grouped)
		*w->next = *w->here;
	else
		w->next->rows.n = 0;
}

/* Accumulates keys [from, end) of one span. w->here must already be their first tile. */
static void sum_up(const struct dt_paged_run *a, struct dt_paged_work *w, int64_t from, int64_t end,
		   const struct dt_paged_place *at, const struct dt_paged_place *next)
{
	for (int64_t j = from / DT_TILE * DT_TILE; j < end; j += DT_TILE) {
		union dt_paged_keys *seen = w->here;

		look_ahead(a, w, j, at, next);
		dt_paged_tile(a, w, j);
		w->here = w->next;
		w->next = seen;
	}
}

/* Lays out a task's working memory from buf on. */
static void lay(const struct dt_paged_run *a, struct dt_paged_work *w, uint32_t *buf,
		const struct dt_paged_place *at)
{
	w->seq = at->seq;
	w->kv = at->kv;
	w->kvs = at->kvs;
	w->n = 0;
	w->words = w->q_row = dt_tile_words(a->t, a->p->head_dim);
	w->depth = dt_tile_depth(a->t);
	w->pad = dt_attn_value_pad(a->p);
	w->packed = buf;
	w->k = w->packed + DT_TILE * w->words;
	w->v = w->k + DT_TILE * w->words;
	w->o = (float *)(w->v + w->depth * w->pad);
	w->s = w->o + DT_TILE * w->pad;
	w->pw = (uint32_t *)w->s + (a->t->pairs ? DT_TILE * DT_TILE : 0);
	w->group = dt_kv_group(a->p, a->k.dtype, 0, 1) * dt_dtype_size(a->k.dtype);
}

/* Adds the sinks of q heads `of` to the sums of rows, which are complete. */
static void add_sinks(const struct dt_tensor sink, const int64_t *of, struct dt_attn_row *row, int64_t n)
{
	float buf;

	for (int64_t i = 0; i < n; i++)
		row[i].sum[0] += expf(*dt_load(&buf, dt_at(sink, of[i]), sink.dtype, 1) - row[i].max);
}

/* next: the thread's next task, NULL if unknown. asked: the task before has prefetched the first keys. */
static void task(const struct dt_paged_run *a, uint32_t *buf, const struct dt_paged_place *at,
		 const struct dt_paged_place *next, bool asked)
{
	union dt_paged_keys keys[2];
	struct dt_attn_row row[DT_TILE];
	struct dt_paged_work w;
	struct dt_paged_sums sums, all;
	int64_t rows = 0, of[DT_TILE];
	const void *from[DT_TILE];
	void *to[DT_TILE];

	lay(a, &w, buf, at);
	w.here = &keys[0];
	w.next = &keys[1];
	for (int64_t h = 0; h < w.kvs; h++, rows += w.n)
		w.n = task_rows(a, w.row + rows, from + rows, to + rows, of + rows, at, w.kv + h);
	w.first = w.row[0].first;
	sums = (struct dt_paged_sums){w.o, w.row};
	all = at->spans > 1 ? (struct dt_paged_sums){(float *)buf + dt_paged_task_words(a->t, a->p), row}
			    : sums;
	dt_paged_queries(a, &w, from, at->tokens == 1);
	if (at->spans > 1)
		dt_paged_begin(&all, rows, w.pad);
	dt_paged_find(a, w.here, w.seq, w.kv, at->from / DT_TILE * DT_TILE, w.first);
	if (!asked)
		dt_paged_fetch(a, &w);
	for (int64_t j = at->from, end; j < at->end; j = end) {
		end = dt_min64(at->end, (j / DT_PAGED_SPAN + 1) * DT_PAGED_SPAN);
		dt_paged_begin(&sums, rows, w.pad);
		sum_up(a, &w, j, end, at, next);
		if (at->spans > 1 && a->spans == 1)
			dt_paged_join(&all, &sums, rows, w.pad);
	}
	if (at->spans > 1 && a->spans > 1 && !dt_paged_part(a, at, &all, &sums, rows, w.pad))
		return;
	if (a->g->sink.data)
		add_sinks(a->g->sink, of, all.row, rows);
	dt_attn_finish(a->t, to, a->o.dtype, all.o, all.row, rows, dt_attn_value_dim(a->p), w.pad);
}

/* The first of tasks [i, last) that has rows, in *p; last: none has. Tasks with several key heads leave the
 * others of their sequence without rows. */
static int64_t task_from(const struct dt_paged_run *a, int64_t i, int64_t last, struct dt_paged_place *p)
{
	for (; i < last; i++) {
		*p = place_of(a, i);
		if (p->tokens > 0)
			break;
	}
	return i;
}

/*
 * Key heads per task of few rows: all, if sequences or their spans still give each thread several tasks.
 * Then a thread reads whole cache rows.
 */
static int64_t heads_together(const struct dt_paged_run *a, int64_t spans, int threads)
{
	const int64_t tasks = a->spans > 1 ? spans : a->g->nseq;
	const bool enough = tasks >= 4 * threads || (a->spans == 1 && tasks % threads == 0);
	const int64_t kvs = a->p->kv_heads, least = a->grouped ? dt_ceil_div(kvs, DT_PAGED_TOGETHER) : 1;

	return dt_ceil_div(kvs, enough || least > threads ? least : threads);
}

/*
 * The tasks, and how threads share them. apart: each thread has an equal part of the sequences, always the
 * same, and takes tasks of others after that. Otherwise there is one part for all.
 */
struct dt_paged_shared {
	const struct dt_paged_run *a;
	char *buf;
	int64_t words, each, run; /* working memory of a thread; tasks per sequence; tasks taken at once */
	bool apart;
};

/* A thread's working memory ends with the number of tasks taken of the part of this number. */
static atomic_llong *taken(const struct dt_paged_shared *c, int t)
{
	return (atomic_llong *)(c->buf + (t + 1) * c->words * 4 - 64);
}

/* Part i of n has the sequences from this one to that of part i + 1. */
static int64_t sequence_of(const struct dt_paged_shared *c, int i, int n)
{
	return (int64_t)c->a->g->nseq * i / n;
}

/* Lists the cache rows that thread t of n reads in the next layer, with this layer's window. */
static void list_soon(const struct dt_paged_shared *c, int t, int n)
{
	const struct dt_paged_run *a = c->a;
	const struct dt_paged *g = a->g;
	const bool some =
		c->apart && g->further && dt_rows(a->qkv) >= DT_SOON_ROWS && g->block_size % DT_KV_GROUP == 0;
	const int64_t bytes = DT_KV_GROUP * dt_kv_row(a->p, a->k.dtype) * dt_dtype_size(a->k.dtype);
	const char *k = some ? (const char *)a->k.data + g->further : NULL;
	const char *v = some && dt_kv_parts(a->p) == 2 ? (const char *)a->v.data + g->further : NULL;

	dt_soon_begin(k, v, bytes);
	for (int64_t i = sequence_of(c, t, n); some && i < sequence_of(c, t + 1, n); i++) {
		int64_t from, end;

		dt_paged_keys(a, (int)i, 0, g->q_start[i + 1] - g->q_start[i], &from, &end);
		for (int64_t j = from / DT_KV_GROUP * DT_KV_GROUP; j < end; j += DT_KV_GROUP)
			if (!dt_soon_add(dt_paged_row(g, (int)i, j) / DT_KV_GROUP))
				break;
	}
	dt_soon_end();
}

/* Takes tasks [first, end), part of which other threads have. */
static void take_tasks(const struct dt_paged_shared *c, uint32_t *buf, atomic_llong *count, int64_t first,
		       int64_t end)
{
	const struct dt_paged_run *a = c->a;
	int64_t from;

	while ((from = first + atomic_fetch_add(count, c->run)) < end) {
		const int64_t last = dt_min64(end, from + c->run);
		struct dt_paged_place at, next;

		for (int64_t i = task_from(a, from, last, &at), then; i < last; i = then, at = next) {
			then = task_from(a, i + 1, last, &next);
			task(a, buf, &at, then < last ? &next : NULL, i > from);
		}
		dt_tile_end(a->t);
	}
}

static void some_tasks(void *arg, int t, int n)
{
	const struct dt_paged_shared *c = arg;
	uint32_t *buf = (uint32_t *)c->buf + t * c->words;
	const int parts = c->apart ? n : 1;

	list_soon(c, t, n);
	for (int i = 0; i < parts; i++) {
		const int part = (t + i) % parts;

		take_tasks(c, buf, taken(c, part), sequence_of(c, part, parts) * c->each,
			   sequence_of(c, part + 1, parts) * c->each);
	}
}

int dt_cpu_attention_paged(struct dt_dev *dev, struct dt_tensor o, struct dt_tensor qkv,
			   struct dt_tensor kcache, struct dt_tensor vcache, const struct dt_attn *p,
			   const struct dt_paged *g)
{
	struct dt_paged_run a = {.t = dt_tile_with_amx(kcache.dtype == DT_I8 ? qkv.dtype : kcache.dtype),
				 .p = p,
				 .g = g,
				 .o = o,
				 .qkv = qkv,
				 .k = kcache,
				 .v = vcache,
				 .grouped = dt_kv_grouped(p, kcache),
				 .spans = 1};
	struct dt_paged_size size = {
		.nseq = g->nseq, .rows = g->q_start[g->nseq] - g->q_start[0], .longest = 1};
	const int64_t words = dt_paged_words(a.t, p);
	const size_t room = (size_t)(dev->nthreads * words) * 4;
	struct dt_paged_shared c;
	int64_t keys = 0;
	char *buf;

	for (int i = 0; i < g->nseq; i++) {
		const int64_t rows = g->q_start[i + 1] - g->q_start[i];

		size.most = rows > size.most ? rows : size.most;
		keys = g->kv_len[i] > keys ? g->kv_len[i] : keys;
	}
	/* With at most one span no further functions are called: streamed weights evict code from the
	 * caches. */
	if (keys > DT_PAGED_SPAN)
		dt_paged_count_spans(&a, &size);
	dt_paged_share(&a, p->value_dim ? &size : NULL, size.most, dev->nthreads);
	a.halves = kcache.dtype == DT_I8 && qkv.dtype == DT_BF16 && a.t->halves_of;
	buf = dt_cpu_scratch(dev,
			     room + (size.longest > 1 ? dt_paged_parts_bytes(&a, &size, dev->nthreads) : 0));
	if (!buf)
		return -ENOMEM;
	if (a.spans > 1)
		dt_paged_parts_lay(&a, buf + room);
	a.together = heads_together(&a, size.spans, dev->nthreads);
	c = (struct dt_paged_shared){.a = &a,
				     .buf = buf,
				     .words = words,
				     .each = a.chunks * p->kv_heads * a.shares * a.spans,
				     .run = 1,
				     .apart = a.chunks == 1 && a.spans == 1};
	/* Consecutive short tasks, so that the keys of one are prefetched during another. */
	if (a.chunks == 1)
		c.run = dt_ceil_div(c.each * g->nseq, 4 * dev->nthreads);
	for (int t = 0; t < dev->nthreads; t++)
		atomic_init(taken(&c, t), 0);
	dt_cpu_together(dev->nthreads, dev->steps, some_tasks, &c);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
