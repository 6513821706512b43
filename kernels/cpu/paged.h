/*
 * Attention of a task (attention_paged.c) with a tile of keys and values at a time, as the cache holds them
 * (kv.h): rows where they lie, rows rearranged first, or groups.
 *
 * Keys are taken by spans, which begin at multiples of DT_PAGED_SPAN. Each has a softmax of its own; these
 * are joined in their order. So the spans of a few rows can be tasks for several threads, and bits do not
 * depend on whether they are.
 */
#ifndef DT_KERNELS_CPU_PAGED_H
#define DT_KERNELS_CPU_PAGED_H

#include "kernels/cpu/attention.h"
#include "kernels/cpu/kv.h"

#include <math.h>
#include <stdatomic.h>

enum { DT_PAGED_SPAN = 16 * DT_TILE };

/* The parts of rows whose spans are tasks. */
struct dt_paged_parts {
	float *sums;	   /* [spans of all sequences, tasks of a sequence's span, words] */
	int64_t words;	   /* struct dt_paged_sums of a task */
	int64_t *first;	   /* [nseq]: where a sequence's spans begin */
	atomic_int *there; /* [nseq, tasks of a sequence's span]: how many of its spans are summed up */
};

struct dt_paged_run {
	const struct dt_tile *t;
	const struct dt_attn *p;
	const struct dt_paged *g;
	struct dt_tensor o, qkv, k, v;
	bool grouped;		/* kv.h */
	bool halves;		/* rows of int8 are multiplied as integers of 16 bits (tile.h) */
	int64_t tokens, chunks; /* a task, and tasks for the longest sequence */
	int64_t shares, heads;	/* of the heads of a key, and heads of each: the last may have fewer */
	int64_t together;	/* key heads of a task of few rows */
	int64_t spans;		/* of the longest sequence, where each is a task of its own; else 1 */
	struct dt_paged_parts parts;
};

/* A tile of keys as rows of the cache, of head kv and those behind it. */
struct dt_paged_rows {
	/* NULL for those before the first that a query sees, whose blocks may hold anything by now */
	const void *k[DT_TILE], *v[DT_TILE];
	int64_t n;
};

/* The groups of the cache that hold a tile of keys; those from skip up to n are seen. */
struct dt_paged_groups {
	const void *k[DT_TILE / DT_KV_GROUP], *v[DT_TILE / DT_KV_GROUP];
	int64_t skip, n;
};

union dt_paged_keys {
	struct dt_paged_groups groups;
	struct dt_paged_rows rows;
};

/* A task: its query rows, and what they work in; sizes in words. */
struct dt_paged_work {
	int seq;
	int64_t kv, kvs, n; /* n rows of each of the key heads kv .. kv + kvs */
	int64_t first;	    /* key that the first row sees */
	int64_t words, depth, pad, q_row;
	const uint32_t *q;
	uint32_t *packed, *k, *v, *pw;
	float *o, *s;
	struct dt_attn_row row[DT_TILE];
	union dt_paged_keys *here, *next;
	struct dt_tile_bytes bytes[2]; /* of int8 in groups: queries, and weights in the room of k */
	int16_t *halves;	       /* of int8 in rows: queries [all rows, head_dim] */
	float scale[DT_TILE];	       /* of theirs */
};

/* A task's rows and keys. */
struct dt_paged_place {
	int seq;
	int64_t kv, kvs, share, first; /* kvs: key heads from kv on */
	int64_t tokens;		       /* none where the sequence is shorter than others */
	int64_t from, end;	       /* keys: all that the rows see, or those of one span */
	int64_t span, spans;	       /* which of how many spans: the first where the task has them all */
};

/* What rows have summed up: o [rows, pad] under their softmax so far. */
struct dt_paged_sums {
	float *o;
	struct dt_attn_row *row;
};
/* Rows that have seen no key. */
static inline void dt_paged_begin(const struct dt_paged_sums *s, int64_t rows, int64_t pad)
{
	memset(s->o, 0, (size_t)(rows * pad) * 4);
	for (int64_t i = 0; i < rows; i++) {
		s->row[i].max = -INFINITY;
		memset(s->row[i].sum, 0, sizeof s->row[i].sum);
	}
}

/* to: of keys in front of those of part. */
void dt_paged_join(const struct dt_paged_sums *to, const struct dt_paged_sums *part, int64_t rows,
		   int64_t pad);

/* The keys that so many tokens of a sequence see, from token `first` on: [*from, *end). */
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

/* Spans of the longest sequence. */
int64_t dt_paged_longest(const struct dt_paged_run *a);
/*
 * Sets a->spans; tokens: of a sequence, at most. Returns the bytes of the parts, which _lay puts into memory,
 * aligned to 64, where spans are more than 1.
 */
size_t dt_paged_parts_bytes(struct dt_paged_run *a, int64_t tokens, int threads);
void dt_paged_parts_lay(struct dt_paged_run *a, void *memory);
/* Keeps a task's sums. The last of its rows' spans joins all in `to`, which has begun, and returns true. */
bool dt_paged_part(const struct dt_paged_run *a, const struct dt_paged_place *at,
		   const struct dt_paged_sums *to, const struct dt_paged_sums *sums, int64_t rows,
		   int64_t pad);

/* Whether n query rows of a key head are multiplied with rows of the cache where they are. */
bool dt_paged_as_they_lie(const struct dt_paged_run *a, int64_t n);

/* The query rows `from` [n kvs] as the products of the task's tiles want them. */
void dt_paged_queries(const struct dt_paged_run *a, struct dt_paged_work *w, const void *const *from,
		      bool one_token);
/* Keys from j on of head kv of a sequence, as many of a tile as it has; none before `first` is seen. */
void dt_paged_find(const struct dt_paged_run *a, union dt_paged_keys *keys, int seq, int64_t kv, int64_t j,
		   int64_t first);
/* Adds those in *w->here, which begin at key j, to w->o; those in *w->next are asked for. */
void dt_paged_tile(const struct dt_paged_run *a, struct dt_paged_work *w, int64_t j);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
