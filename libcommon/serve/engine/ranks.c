/*
 * The step message: a head, then the tables of the batch one behind the other, slots first as they are the
 * widest. It goes in a broadcast of FIRST bytes, which hold it whole while few sequences decode, and a second
 * one of what is left.
 */
#include "serve/engine/ranks.h"

#include "comm/comm.h"
#include "plan/inferplan.h"
#include "serve/engine/kvparts.h"
#include "serve/engine/ranks_adapters.h"
#include "serve/sched/kvkey.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST 4096

enum kind { KIND_STEP = 1, KIND_COPY, KIND_READ, KIND_WRITE, KIND_BEAT, KIND_ADAPTER, KIND_END };

enum { TAG_BLOCK = 1, TAG_ANSWER };

struct head {
	int32_t kind;
	int32_t nseq, ntokens, max_blocks, nwant, pools; /* pools: whether some sequence is pooled */
	int32_t adapters;				 /* whether some sequence has one */
	int32_t from, to; /* of a copy; from: the block that is read or written, or an adapter's number */
	int32_t replica;  /* of a copy */
};

struct dt_serve_ranks {
	struct dt_infer *m;
	struct dt_comm *all;
	struct dt_infer_params p;
	int64_t table; /* blocks of all sequences of a step */
	char *buf;     /* a message */
	size_t room;
	struct dt_layout layout;
	int mine;		 /* this rank's replica */
	int32_t *q_start, *want; /* [max_seqs + 1], [max_seqs] of its part of a step */
	int32_t *tokens_of;	 /* [ep] */
	float *logits;		 /* of another replica's first rank; [max_seqs + 2, vocab] */
	/* A follower's sums, [dp * max_seqs, hidden], and where each sequence's is; rank 0: one sum. */
	float *pooled;
	float **pool;
	struct dt_serve_given given;		 /* a follower's adapters */
	const struct dt_infer_adapter **adapter; /* a follower's, [dp * max_seqs] of a step */
	struct dt_kvparts parts;		 /* of a block */
	char *part;				 /* one rank's */
	uint64_t name;
};

/* Where the tables of a message are. */
struct tables {
	int64_t *slot;					      /* [ntokens] */
	int32_t *ids, *pos, *q_start, *kv_len, *block, *want; /* as in struct dt_infer_batch */
	int32_t *replica;				      /* [nseq] */
	int32_t *pool;					      /* [nseq] whether it is pooled */
	int32_t *adapter;				      /* [nseq] its adapter's number, 0: none */
};

static size_t bytes_of(const struct head *h)
{
	size_t seqs = (size_t)h->nseq, tokens = (size_t)h->ntokens;
	size_t numbers = 2 * tokens + 3 * seqs + 1 + seqs * (size_t)h->max_blocks + (size_t)h->nwant +
			 (h->pools ? seqs : 0) + (h->adapters ? seqs : 0);

	return sizeof(*h) + tokens * sizeof(int64_t) + numbers * sizeof(int32_t);
}

static struct tables tables_of(char *buf, const struct head *h)
{
	struct tables t = {.slot = (int64_t *)(buf + sizeof(*h))};
	int32_t *at = (int32_t *)(t.slot + h->ntokens);

	t.ids = at;
	t.pos = at += h->ntokens;
	t.q_start = at += h->ntokens;
	t.kv_len = at += h->nseq + 1;
	t.block = at += h->nseq;
	t.want = at += (int64_t)h->nseq * h->max_blocks;
	t.replica = at += h->nwant;
	t.pool = at + h->nseq;
	t.adapter = t.pool + (h->pools ? h->nseq : 0);
	return t;
}

/* The parts of a block that the ranks have, and what all of them together stand for. */
static int open_blocks(struct dt_serve_ranks *r, struct dt_err *err)
{
	const int64_t mine = r->p.name ? (int64_t)dt_infer_cache_name(r->m) : 0;
	const int n = dt_comm_size(r->all);
	int64_t *name = calloc((size_t)n, sizeof(*name));
	size_t most = 0;
	int rc;

	r->parts = (struct dt_kvparts){dt_infer_block_form(r->m), r->p.ranks->layout, dt_infer_config(r->m)};
	for (int i = 0; i < n; i++)
		most = dt_kvparts_bytes(&r->parts, i) > most ? dt_kvparts_bytes(&r->parts, i) : most;
	r->part = malloc(most);
	if (!name || !r->part) {
		free(name);
		return dt_err_sys(err, -ENOMEM, "cannot start the engine");
	}
	rc = dt_all_gather(r->all, name, &mine, 1, DT_I64, "name of the cache", err);
	r->name = 2; /* of how the whole lies */
	for (int i = 0; i < n; i++)
		r->name = dt_kvkey_mix(r->name, (uint64_t)name[i]);
	free(name);
	return rc;
}

/* The first rank of replica i. */
static int first_rank(const struct dt_serve_ranks *r, int i)
{
	return dt_layout_rank(&r->layout, (struct dt_coords){.dp = i});
}

/* Whether this rank has the logits of another replica than rank 0's. */
static bool answers(const struct dt_serve_ranks *r)
{
	return r->mine > 0 && dt_comm_rank(r->all) == first_rank(r, r->mine);
}

static int open_buffers(struct dt_serve_ranks *r, struct dt_err *err)
{
	const struct dt_config *c = dt_infer_config(r->m);
	const size_t seqs = (size_t)r->p.max_seqs, all = seqs * (size_t)r->layout.dp;
	bool good;

	r->buf = calloc(1, r->room);
	r->q_start = calloc(seqs + 1, sizeof(*r->q_start));
	r->want = calloc(seqs, sizeof(*r->want));
	r->tokens_of = calloc((size_t)r->layout.ep, sizeof(*r->tokens_of));
	good = r->buf && r->q_start && r->want && r->tokens_of;
	if (dt_comm_rank(r->all) > 0) {
		r->pooled = calloc(all * (size_t)c->hidden, sizeof(*r->pooled));
		r->pool = calloc(all, sizeof(*r->pool));
		r->adapter = calloc(all, sizeof(*r->adapter));
		good = good && r->pooled && r->pool && r->adapter;
	} else {
		r->pooled = calloc((size_t)c->hidden, sizeof(*r->pooled));
		good = good && r->pooled;
	}
	if (answers(r)) {
		r->logits = malloc(DT_INFER_LOGITS_ROWS(seqs) * (size_t)c->vocab * sizeof(*r->logits));
		good = good && r->logits;
	}
	return good ? 0 : dt_err_sys(err, -ENOMEM, "cannot start the engine");
}

int dt_serve_ranks_open(struct dt_serve_ranks **ret, struct dt_infer *m, struct dt_comm *all,
			const struct dt_infer_params *p, struct dt_err *err)
{
	struct dt_serve_ranks *r = calloc(1, sizeof(*r));
	const int dp = p->ranks->layout.dp;
	int64_t each = (p->max_len + p->block_size - 1) / p->block_size;
	struct head most = {.nseq = dp * p->max_seqs,
			    .ntokens = dp * p->max_tokens,
			    .max_blocks = (int32_t)each,
			    .nwant = dp * p->max_seqs,
			    .pools = 1,
			    .adapters = 1};
	int rc;

	if (!r)
		return dt_err_sys(err, -ENOMEM, "cannot start the engine");
	r->m = m;
	r->all = all;
	r->p = *p;
	r->layout = p->ranks->layout;
	r->mine = p->ranks->at.dp;
	r->table = each * dp * p->max_seqs;
	r->room = bytes_of(&most);
	r->room = r->room < FIRST ? FIRST : r->room;
	rc = open_buffers(r, err);
	if (rc == 0)
		rc = open_blocks(r, err);
	if (rc < 0) {
		dt_serve_ranks_close(r);
		return rc;
	}
	*ret = r;
	return 0;
}

void dt_serve_ranks_close(struct dt_serve_ranks *r)
{
	if (!r)
		return;
	free(r->buf);
	free(r->q_start);
	free(r->want);
	free(r->tokens_of);
	free(r->logits);
	free(r->pooled);
	free(r->pool);
	free(r->adapter);
	dt_serve_given_release(&r->given);
	free(r->part);
	free(r);
}

/* ---- a replica's part of a step ---- */

struct part { /* sequences [first, last), rows [row, end), and wanted rows [want, want + batch.nwant) */
	int first, last, row, want;
	struct dt_infer_batch batch;
};

/* What replica i has of b; its q_start and want are written to those. NULL: the numbers alone are wanted. */
static struct part part_of(const struct dt_infer_batch *b, int i, int32_t *q_start, int32_t *want)
{
	struct part p = {.batch = *b};
	int end, n = 0;

	while (p.first < b->nseq && b->replica[p.first] < i)
		p.first++;
	for (p.last = p.first; p.last < b->nseq && b->replica[p.last] == i;)
		p.last++;
	p.row = b->q_start[p.first];
	end = b->q_start[p.last];
	while (p.want < b->nwant && b->want[p.want] < p.row)
		p.want++;
	while (p.want + n < b->nwant && b->want[p.want + n] < end)
		n++;
	p.batch.nseq = p.last - p.first;
	p.batch.ntokens = end - p.row;
	p.batch.nwant = n;
	p.batch.replica = NULL;
	if (!q_start)
		return p;
	for (int k = p.first; k <= p.last; k++)
		q_start[k - p.first] = b->q_start[k] - p.row;
	for (int k = 0; k < n; k++)
		want[k] = b->want[p.want + k] - p.row;
	p.batch.ids += p.row;
	p.batch.pos += p.row;
	p.batch.slot += p.row;
	p.batch.q_start = q_start;
	p.batch.kv_len += p.first;
	p.batch.block_table += (size_t)p.first * (size_t)b->max_blocks;
	p.batch.want = want;
	p.batch.pool = b->pool ? b->pool + p.first : NULL;
	p.batch.adapter = b->adapter ? b->adapter + p.first : NULL;
	return p;
}

/* Tokens that the replicas whose experts this one shares have in the step; their sum. */
static int64_t count_tokens(struct dt_serve_ranks *r, const struct dt_infer_batch *b)
{
	const int ep = r->layout.ep, first = r->mine / ep * ep;
	int64_t sum = 0;

	for (int i = 0; i < ep; i++)
		sum += r->tokens_of[i] = part_of(b, first + i, NULL, NULL).batch.ntokens;
	return sum;
}

/* This rank's part of b is computed; 0 where it has none, and no share in the experts of another's. */
static int compute(struct dt_serve_ranks *r, const struct dt_infer_batch *b, float *logits,
		   struct dt_err *err)
{
	struct part p;

	if (r->layout.dp == 1)
		return dt_infer_forward(r->m, b, logits, err);
	p = part_of(b, r->mine, r->q_start, r->want);
	if (count_tokens(r, b) == 0)
		return 0;
	p.batch.tokens_of = r->tokens_of;
	if (p.batch.nseq > r->p.max_seqs || p.batch.ntokens > r->p.max_tokens)
		return dt_err_set(err, -EPROTO, "replica %d has %d tokens of %d sequences", r->mine,
				  p.batch.ntokens, p.batch.nseq);
	return dt_infer_forward(r->m, &p.batch, logits, err);
}

static int add_pooled(struct dt_serve_ranks *r, int replica, float *to, struct dt_err *err)
{
	const size_t n = (size_t)dt_infer_config(r->m)->hidden;
	int rc = dt_recv(r->all, r->pooled, n, DT_F32, first_rank(r, replica), TAG_ANSWER,
			 "pooled states of a replica", err);

	for (size_t k = 0; k < n && rc == 0; k++)
		to[k] += r->pooled[k];
	return rc;
}

/* Logits, and the sums of states that are asked for, from the first ranks of the other replicas. */
static int collect(struct dt_serve_ranks *r, const struct dt_infer_batch *b, float *logits,
		   struct dt_err *err)
{
	const struct dt_config *c = dt_infer_config(r->m);
	int rc = 0;

	for (int i = 1; i < r->layout.dp && rc == 0; i++) {
		const struct part p = part_of(b, i, NULL, NULL);

		if (p.batch.nwant > 0)
			rc = dt_recv(r->all, logits + (size_t)p.want * (size_t)c->vocab,
				     (size_t)p.batch.nwant * (size_t)c->vocab, DT_F32, first_rank(r, i),
				     TAG_ANSWER, "logits of a replica", err);
		for (int k = p.first; b->pool && k < p.last && rc == 0; k++)
			if (b->pool[k])
				rc = add_pooled(r, i, b->pool[k], err);
	}
	return rc;
}

/* ---- rank 0 ---- */

static int tell(struct dt_serve_ranks *r, size_t bytes, struct dt_err *err)
{
	int rc = dt_broadcast(r->all, r->buf, FIRST, DT_U8, 0, "step", err);

	if (rc == 0 && bytes > FIRST)
		rc = dt_broadcast(r->all, r->buf + FIRST, bytes - FIRST, DT_U8, 0, "rest of the step", err);
	return rc;
}

static int tell_kind(struct dt_serve_ranks *r, struct head h, struct dt_err *err)
{
	memcpy(r->buf, &h, sizeof(h));
	return tell(r, sizeof(h), err);
}

/* The others forget what is gone, and are given what this step is the first to need. */
static int give_adapters(struct dt_serve_ranks *r, const struct dt_infer_batch *b, struct dt_err *err)
{
	struct head h = {.kind = KIND_ADAPTER};
	const void *part;
	int rc = 0;
	size_t n;

	while (rc == 0 && (h.from = dt_infer_adapter_gone(r->m)) > 0)
		rc = tell_kind(r, h, err);
	h.to = 1; /* it comes */
	for (int i = 0; b->adapter && i < b->nseq && rc == 0; i++)
		if (b->adapter[i] && dt_infer_adapter_part(b->adapter[i], 0, &part, &n)) {
			h.from = dt_infer_adapter_id(b->adapter[i]);
			rc = tell_kind(r, h, err);
			if (rc == 0)
				rc = dt_serve_give(r->all, b->adapter[i], err);
		}
	return rc;
}

int dt_serve_ranks_forward(void *ranks, const struct dt_infer_batch *b, float *logits, struct dt_err *err)
{
	struct dt_serve_ranks *r = ranks;
	struct head h = {.kind = KIND_STEP,
			 .nseq = b->nseq,
			 .ntokens = b->ntokens,
			 .max_blocks = b->max_blocks,
			 .nwant = b->nwant};
	size_t tokens = (size_t)b->ntokens * 4, seqs = (size_t)b->nseq * 4;
	struct tables t;
	int rc = give_adapters(r, b, err);

	if (rc < 0)
		return rc;
	h.adapters = b->adapter != NULL;
	for (int i = 0; b->pool && i < b->nseq; i++)
		h.pools |= b->pool[i] != NULL;
	memcpy(r->buf, &h, sizeof(h));
	t = tables_of(r->buf, &h);
	memcpy(t.slot, b->slot, 2 * tokens);
	memcpy(t.ids, b->ids, tokens);
	memcpy(t.pos, b->pos, tokens);
	memcpy(t.q_start, b->q_start, seqs + 4);
	memcpy(t.kv_len, b->kv_len, seqs);
	memcpy(t.block, b->block_table, seqs * (size_t)b->max_blocks);
	memcpy(t.want, b->want, (size_t)b->nwant * 4);
	memcpy(t.replica, b->replica, seqs);
	for (int i = 0; h.pools && i < b->nseq; i++)
		t.pool[i] = b->pool[i] != NULL;
	for (int i = 0; h.adapters && i < b->nseq; i++)
		t.adapter[i] = b->adapter[i] ? dt_infer_adapter_id(b->adapter[i]) : 0;
	rc = tell(r, bytes_of(&h), err);
	rc = rc < 0 ? rc : compute(r, b, logits, err);
	return rc < 0 ? rc : collect(r, b, logits, err);
}

int dt_serve_ranks_copy_block(void *ranks, int replica, int32_t from, int32_t to)
{
	struct dt_serve_ranks *r = ranks;
	const struct head h = {.kind = KIND_COPY, .from = from, .to = to, .replica = replica};
	int rc = tell_kind(r, h, NULL);

	return rc < 0 || replica != r->mine ? rc : dt_infer_copy_block(r->m, from, to);
}

size_t dt_serve_ranks_block_bytes(const struct dt_serve_ranks *r)
{
	return dt_kvparts_whole(&r->parts);
}

uint64_t dt_serve_ranks_cache_name(const struct dt_serve_ranks *r)
{
	return r->name;
}

int dt_serve_ranks_read_block(void *ranks, int32_t block, void *to)
{
	struct dt_serve_ranks *r = ranks;
	int rc = tell_kind(r, (struct head){.kind = KIND_READ, .from = block}, NULL);

	if (rc == 0)
		rc = dt_infer_read_block(r->m, block, r->part);
	for (int i = 0; i < dt_comm_size(r->all) && rc == 0; i++) {
		if (i > 0)
			rc = dt_recv(r->all, r->part, dt_kvparts_bytes(&r->parts, i), DT_U8, i, TAG_BLOCK,
				     "a block of the cache", NULL);
		if (rc == 0)
			dt_kvparts_join(&r->parts, i, r->part, to);
	}
	return rc;
}

int dt_serve_ranks_write_block(void *ranks, int32_t block, const void *from)
{
	struct dt_serve_ranks *r = ranks;
	int rc = tell_kind(r, (struct head){.kind = KIND_WRITE, .from = block}, NULL);

	for (int i = 0; i < dt_comm_size(r->all) && rc == 0; i++) {
		dt_kvparts_cut(&r->parts, i, r->part, from);
		rc = i == 0 ? dt_infer_write_block(r->m, block, r->part)
			    : dt_send(r->all, r->part, dt_kvparts_bytes(&r->parts, i), DT_U8, i, TAG_BLOCK,
				      "a block of the cache", NULL);
	}
	return rc;
}

struct dt_infer *dt_serve_ranks_part(const struct dt_serve_ranks *r)
{
	return r->m;
}

/* A broadcast alone would not notice a rank that has stopped. */
int dt_serve_ranks_beat(void *ranks, struct dt_err *err)
{
	struct dt_serve_ranks *r = ranks;
	int rc = tell_kind(r, (struct head){.kind = KIND_BEAT}, err);

	return rc < 0 ? rc : dt_barrier(r->all, "sign of life", err);
}

int dt_serve_ranks_end(struct dt_serve_ranks *r, struct dt_err *err)
{
	return tell_kind(r, (struct head){.kind = KIND_END}, err);
}

/* ---- the others ---- */

/* Whether the numbers of a message can be rank 0's: its tables then fit. */
static bool makes_sense(const struct dt_serve_ranks *r, const struct head *h)
{
	const int dp = r->layout.dp;

	return h->nseq > 0 && h->nseq <= dp * r->p.max_seqs && h->ntokens > 0 &&
	       h->ntokens <= dp * r->p.max_tokens && h->nwant >= 0 && h->nwant <= dp * r->p.max_seqs &&
	       h->max_blocks > 0 && (int64_t)h->max_blocks * h->nseq <= r->table;
}

/* The sums that this rank makes, which it sends to rank 0. */
static void set_pool(struct dt_serve_ranks *r, const struct head *h, const int32_t *which)
{
	size_t hidden = (size_t)dt_infer_config(r->m)->hidden;

	for (int i = 0; i < h->nseq; i++) {
		r->pool[i] = which[i] ? r->pooled + (size_t)i * hidden : NULL;
		if (r->pool[i])
			memset(r->pool[i], 0, hidden * sizeof(*r->pooled));
	}
}

/* What collect() waits for. */
static int answer(struct dt_serve_ranks *r, const struct dt_infer_batch *b, struct dt_err *err)
{
	const struct dt_config *c = dt_infer_config(r->m);
	const struct part p = part_of(b, r->mine, NULL, NULL);
	int rc = 0;

	if (p.batch.nwant > 0)
		rc = dt_send(r->all, r->logits, (size_t)p.batch.nwant * (size_t)c->vocab, DT_F32, 0,
			     TAG_ANSWER, "logits of a replica", err);
	for (int k = p.first; b->pool && k < p.last && rc == 0; k++)
		if (b->pool[k])
			rc = dt_send(r->all, b->pool[k], (size_t)c->hidden, DT_F32, 0, TAG_ANSWER,
				     "pooled states of a replica", err);
	return rc;
}

static int step(struct dt_serve_ranks *r, const struct head *h, struct dt_err *err)
{
	struct tables t;
	struct dt_infer_batch b;
	int rc = 0;

	if (!makes_sense(r, h))
		return dt_err_set(err, -EPROTO, "a step of %d tokens of %d sequences came from rank 0",
				  h->ntokens, h->nseq);
	t = tables_of(r->buf, h);
	if (bytes_of(h) > FIRST)
		rc = dt_broadcast(r->all, r->buf + FIRST, bytes_of(h) - FIRST, DT_U8, 0, "rest of the step",
				  err);
	if (rc < 0)
		return rc;
	b = (struct dt_infer_batch){.nseq = h->nseq,
				    .ntokens = h->ntokens,
				    .ids = t.ids,
				    .pos = t.pos,
				    .slot = t.slot,
				    .q_start = t.q_start,
				    .kv_len = t.kv_len,
				    .block_table = t.block,
				    .max_blocks = h->max_blocks,
				    .want = t.want,
				    .nwant = h->nwant,
				    .replica = t.replica};
	if (h->pools) {
		set_pool(r, h, t.pool);
		b.pool = r->pool;
	}
	for (int i = 0; h->adapters && i < h->nseq; i++) {
		r->adapter[i] = t.adapter[i] ? dt_serve_given_find(&r->given, t.adapter[i]) : NULL;
		if (t.adapter[i] && !r->adapter[i])
			return dt_err_set(err, -EPROTO, "adapter %d did not come from rank 0", t.adapter[i]);
	}
	b.adapter = h->adapters ? r->adapter : NULL;
	rc = compute(r, &b, r->logits, err);
	return rc < 0 || !answers(r) ? rc : answer(r, &b, err);
}

/* This rank's part of a block, to rank 0 or from it. */
static int move_block(struct dt_serve_ranks *r, const struct head *h, struct dt_err *err)
{
	const size_t n = dt_kvparts_bytes(&r->parts, dt_comm_rank(r->all));
	int rc;

	if (h->from < 0 || h->from >= r->p.blocks)
		return dt_err_set(err, -EPROTO, "block %d of the cache came from rank 0", h->from);
	if (h->kind == KIND_READ) {
		rc = dt_infer_read_block(r->m, h->from, r->part);
		if (rc < 0)
			return dt_err_sys(err, rc, "cannot read a block of the cache");
		return dt_send(r->all, r->part, n, DT_U8, 0, TAG_BLOCK, "a block of the cache", err);
	}
	rc = dt_recv(r->all, r->part, n, DT_U8, 0, TAG_BLOCK, "a block of the cache", err);
	if (rc == 0 && (rc = dt_infer_write_block(r->m, h->from, r->part)) < 0)
		dt_err_sys(err, rc, "cannot write a block of the cache");
	return rc;
}

int dt_serve_ranks_follow(struct dt_serve_ranks *r, struct dt_err *err)
{
	for (;;) {
		int rc = dt_broadcast(r->all, r->buf, FIRST, DT_U8, 0, "step", err);
		struct head h;

		memcpy(&h, r->buf, sizeof(h));
		if (rc < 0 || h.kind == KIND_END)
			return rc;
		if (h.kind == KIND_STEP)
			rc = step(r, &h, err);
		else if (h.kind == KIND_COPY && h.replica == r->mine &&
			 (rc = dt_infer_copy_block(r->m, h.from, h.to)) < 0)
			dt_err_sys(err, rc, "cannot copy a block of the cache");
		else if (h.kind == KIND_READ || h.kind == KIND_WRITE)
			rc = move_block(r, &h, err);
		else if (h.kind == KIND_ADAPTER)
			rc = h.to ? dt_serve_given_take(&r->given, r->all, r->m, h.from, err)
				  : dt_serve_given_drop(&r->given, h.from, err);
		else if (h.kind == KIND_BEAT)
			rc = dt_barrier(r->all, "sign of life", err);
		if (rc < 0)
			return rc;
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
