/*
 * Attention of a task (attention_paged.c) with one tile of keys and values at a time, in the layout of the
 * cache (kv.h): rows in place, rows packed first, or groups.
 *
 * Keys are split into spans at multiples of DT_PAGED_SPAN. Each span has its own softmax, and the results are
 * merged in order. So several threads can share the spans of a few rows, and the bits do not depend on it.
 */
#ifndef DT_KERNELS_CPU_PAGED_H
#define DT_KERNELS_CPU_PAGED_H

#include "kernels/cpu/attention.h"
#include "kernels/cpu/kv.h"

#include <math.h>
#include <stdatomic.h>

enum { DT_PAGED_SPAN = 16 * DT_TILE, DT_PAGED_TOGETHER = 4 /* most key heads of a task, from groups */ };

/* Partial results of rows whose spans are separate tasks. */
struct dt_paged_parts {
	float *sums;	   /* [spans of all sequences, tasks per span of a sequence, words] */
	int64_t words;	   /* words of a task's struct dt_paged_sums */
	int64_t *first;	   /* [nseq]: index of each sequence's first span */
	atomic_int *there; /* [nseq, tasks per span of a sequence]: number of spans done */
};

struct dt_paged_run {
	const struct dt_tile *t;
	const struct dt_attn *p;
	const struct dt_paged *g;
	struct dt_tensor o, qkv, k, v;
	bool grouped;		/* kv.h */
	bool halves;		/* int8 rows are multiplied as 16-bit integers (tile.h) */
	int64_t tokens, chunks; /* tokens per task, and tasks for the longest sequence */
	int64_t shares, heads;	/* shares of a key head's q heads, and q heads per share: the last may have
				 * fewer */
	int64_t together;	/* key heads per task of few rows */
	int64_t spans;		/* of the longest sequence, if each span is a task; else 1 */
	struct dt_paged_parts parts;
};

/* A tile of keys as cache rows, for head kv and the following heads. */
struct dt_paged_rows {
	/* NULL before the first key that a query sees, whose blocks may hold anything */
	const void *k[DT_TILE], *v[DT_TILE];
	int64_t n;
};

/* The groups of the cache that hold a tile of keys; only keys from skip up to n are seen. */
struct dt_paged_groups {
	const void *k[DT_TILE / DT_KV_GROUP], *v[DT_TILE / DT_KV_GROUP];
	int64_t skip, n;
};

union dt_paged_keys {
	struct dt_paged_groups groups;
	struct dt_paged_rows rows;
};

/* A task: its query rows and working memory; sizes in words. */
struct dt_paged_work {
	int seq;
	int64_t kv, kvs, n; /* n rows for each of the key heads kv .. kv + kvs - 1 */
	int64_t first;	    /* first key that the first row sees */
	int64_t words, depth, pad, q_row;
	int64_t group; /* bytes of a head in a group of the cache */
	const uint32_t *q;
	uint32_t *packed, *k, *v, *pw;
	float *o, *s;
	struct dt_attn_row row[DT_TILE];
	union dt_paged_keys *here, *next;
	/* int8 groups, per key head: queries, and weights in the memory of k */
	struct dt_tile_bytes bytes[DT_PAGED_TOGETHER][2];
	int16_t *halves;      /* int8 rows: queries [all rows, head_dim] */
	float scale[DT_TILE]; /* scales of halves */
};

/* Which rows and keys a task has. */
struct dt_paged_place {
	int seq;
	int64_t kv, kvs, share, first; /* kvs: number of key heads from kv on */
	int64_t tokens;		       /* 0 if the sequence is shorter than others */
	int64_t from, end;	       /* range of keys: all that the rows see, or one span of them */
	int64_t span, spans;	       /* span index and number of spans; (0, 1) if the task has all keys */
};

/* Running results of rows: o [rows, pad], relative to their softmax state. */
struct dt_paged_sums {
	float *o;
	struct dt_attn_row *row;
};
/* Initial state: no key seen. */
static inline void dt_paged_begin(const struct dt_paged_sums *s, int64_t rows, int64_t pad)
{
	memset(s->o, 0, (size_t)(rows * pad) * 4);
	for (int64_t i = 0; i < rows; i++) {
		s->row[i].max = -INFINITY;
		memset(s->row[i].sum, 0, sizeof s->row[i].sum);
	}
}

/* Merges part, of later keys, into to. */
void dt_paged_join(const struct dt_paged_sums *to, const struct dt_paged_sums *part, int64_t rows,
		   int64_t pad);

/* The keys [*from, *end) that `tokens` tokens of a sequence see, from token `first` on. */
static inline void dt_paged_keys(const struct dt_paged_run *a, int seq, int64_t first, int64_t tokens,
				 int64_t *from, int64_t *end)
{
	const int64_t count = a->g->q_start[seq + 1] - a->g->q_start[seq];
	const int64_t last = a->g->kv_len[seq] - count + first, window = a->p->window;

	*from = window > 0 && last >= window ? last - window + 1 : 0;
	*end = last + tokens;
}

static inline int64_t dt_paged_spans(int64_t from, int64_t end)
{
	return (end - 1) / DT_PAGED_SPAN - from / DT_PAGED_SPAN + 1;
}

/* What the working memory of a batch depends on. */
struct dt_paged_size {
	int64_t nseq, rows, most; /* sequences; query rows of all of them, and of the one with most */
	int64_t longest, spans;	  /* spans of the longest sequence, and of all */
};
/* The spans of g; size has the rest. */
void dt_paged_count_spans(const struct dt_paged_run *a, struct dt_paged_size *size);

/*
 * Splits the q heads of one key head into shares, of latents: at most as many heads as a tile has rows, and
 * one task per thread where spans give too few. Sets shares, heads, tokens and chunks; s NULL: not latents.
 */
static inline void dt_paged_share(struct dt_paged_run *a, const struct dt_paged_size *s, int64_t most,
				  int threads)
{
	const int64_t group = a->p->heads / a->p->kv_heads;

	a->shares = 1;
	a->heads = group;
	if (s) {
		const int64_t tasks = s->rows * a->p->kv_heads * (s->rows == s->nseq ? s->longest : 1);

		a->shares = dt_ceil_div(group, DT_TILE);
		if (tasks * a->shares < threads)
			a->shares = dt_min64(group, dt_ceil_div(threads, tasks));
		a->heads = dt_ceil_div(group, a->shares);
		a->shares = dt_ceil_div(group, a->heads);
	}
	a->tokens = DT_TILE / a->heads;
	a->chunks = dt_ceil_div(most, a->tokens);
}

/* Words of working memory of a task, without the sums that parts are joined in. */
static inline int64_t dt_paged_task_words(const struct dt_tile *t, const struct dt_attn *p)
{
	const int64_t pad = dt_attn_value_pad(p), words = dt_tile_words(t, p->head_dim);

	return DT_TILE * (2 * words + pad + 2 * DT_TILE) + dt_tile_depth(t) * pad;
}
/* That of a thread: with these sums, and a line for the number of tasks taken. */
static inline int64_t dt_paged_words(const struct dt_tile *t, const struct dt_attn *p)
{
	return dt_ceil_div(dt_paged_task_words(t, p), 16) * 16 + DT_TILE * dt_attn_value_pad(p) + 16;
}
/*
 * serve_scratch.c: sets a->spans and parts.words, after dt_paged_share. Returns the bytes for parts, which
 * follow those of dt_paged_words of each thread; if spans > 1, pass that memory, aligned to 64, to _lay.
 */
size_t dt_paged_parts_bytes(struct dt_paged_run *a, const struct dt_paged_size *s, int threads);
/* Bytes of them in front of the sums. */
size_t dt_paged_head_bytes(const struct dt_paged_run *a, int64_t nseq);
void dt_paged_parts_lay(struct dt_paged_run *a, void *memory);
/* Stores a task's partial results. The last span of its rows to finish merges all into `to`, which must be
 * initialised, and returns true. */
bool dt_paged_part(const struct dt_paged_run *a, const struct dt_paged_place *at,
		   const struct dt_paged_sums *to, const struct dt_paged_sums *sums, int64_t rows,
		   int64_t pad);

/* Whether n query rows of a key head are multiplied with cache rows in place. */
bool dt_paged_as_they_lie(const struct dt_paged_run *a, int64_t n);

/* Packs the query rows `from` [n kvs] for the task's tile products. */
void dt_paged_queries(const struct dt_paged_run *a, struct dt_paged_work *w, const void *const *from,
		      bool one_token);
/* Finds the keys of head kv from j on, at most one tile; no key before `first` is seen. */
void dt_paged_find(const struct dt_paged_run *a, union dt_paged_keys *keys, int seq, int64_t kv, int64_t j,
		   int64_t first);
void dt_paged_find_groups(const struct dt_paged_run *a, struct dt_paged_groups *g, int seq, int64_t kv,
			  int64_t j, int64_t first);
/* Reads the keys in *w->here into the caches, if nothing has prefetched them. */
void dt_paged_fetch(const struct dt_paged_run *a, const struct dt_paged_work *w);
/* Adds the keys in *w->here, which begin at key j, to w->o; prefetches those in *w->next. */
void dt_paged_tile(const struct dt_paged_run *a, struct dt_paged_work *w, int64_t j);
void dt_paged_groups_tile(const struct dt_paged_run *a, struct dt_paged_work *w, int64_t j);
/* Converts queries to bytes, in the memory of packed queries and of keys, which need no packing then. */
void dt_paged_bytes_of(const struct dt_paged_run *a, struct dt_paged_work *w, const void *const *from);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
