/*
 * The step message: a head, then the tables of the batch one behind the other, slots first as they are the
 * widest. It goes in a broadcast of FIRST bytes, which hold it whole while few sequences decode, and a second
 * one of what is left.
 */
#include "serve/engine/ranks.h"

#include "comm/comm.h"
#include "serve/engine/kvparts.h"
#include "serve/sched/kvkey.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST 4096

enum kind { KIND_STEP = 1, KIND_COPY, KIND_READ, KIND_WRITE, KIND_BEAT, KIND_END };

enum { TAG_BLOCK = 1 };

struct head {
	int32_t kind;
	int32_t nseq, ntokens, max_blocks, nwant, pools; /* pools: whether some sequence is pooled */
	int32_t from, to; /* of a copy; from: the block that is read or written */
};

struct dt_serve_ranks {
	struct dt_infer *m;
	struct dt_comm *all;
	struct dt_infer_params p;
	int64_t table; /* blocks of all sequences of a step */
	char *buf;     /* a message */
	size_t room;
	float *pooled; /* a follower's sums, [max_seqs, hidden], and where each sequence's is */
	float **pool;
	struct dt_kvparts parts; /* of a block */
	char *part;		 /* one rank's */
	uint64_t name;
};

/* Where the tables of a message are. */
struct tables {
	int64_t *slot;					      /* [ntokens] */
	int32_t *ids, *pos, *q_start, *kv_len, *block, *want; /* as in struct dt_infer_batch */
	int32_t *pool;					      /* [nseq] whether it is pooled */
};

static size_t bytes_of(const struct head *h)
{
	size_t seqs = (size_t)h->nseq, tokens = (size_t)h->ntokens;
	size_t numbers = 2 * tokens + 2 * seqs + 1 + seqs * (size_t)h->max_blocks + (size_t)h->nwant +
			 (h->pools ? seqs : 0);

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
	t.pool = at + h->nwant;
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

int dt_serve_ranks_open(struct dt_serve_ranks **ret, struct dt_infer *m, struct dt_comm *all,
			const struct dt_infer_params *p, struct dt_err *err)
{
	struct dt_serve_ranks *r = calloc(1, sizeof(*r));
	size_t seqs = (size_t)p->max_seqs;
	int64_t each = (p->max_len + p->block_size - 1) / p->block_size;
	struct head most = {.nseq = p->max_seqs,
			    .ntokens = p->max_tokens,
			    .max_blocks = (int32_t)each,
			    .nwant = p->max_seqs,
			    .pools = 1};
	int rc;

	if (!r)
		return dt_err_sys(err, -ENOMEM, "cannot start the engine");
	r->m = m;
	r->all = all;
	r->p = *p;
	r->table = each * p->max_seqs;
	r->room = bytes_of(&most);
	r->room = r->room < FIRST ? FIRST : r->room;
	r->buf = calloc(1, r->room);
	if (dt_comm_rank(all) > 0) {
		r->pooled = calloc(seqs * (size_t)dt_infer_config(m)->hidden, sizeof(*r->pooled));
		r->pool = calloc(seqs, sizeof(*r->pool));
	}
	if (!r->buf || (dt_comm_rank(all) > 0 && (!r->pooled || !r->pool))) {
		dt_serve_ranks_close(r);
		return dt_err_sys(err, -ENOMEM, "cannot start the engine");
	}
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
	free(r->pooled);
	free(r->pool);
	free(r->part);
	free(r);
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
	int rc;

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
	for (int i = 0; h.pools && i < b->nseq; i++)
		t.pool[i] = b->pool[i] != NULL;
	rc = tell(r, bytes_of(&h), err);
	return rc < 0 ? rc : dt_infer_forward(r->m, b, logits, err);
}

int dt_serve_ranks_copy_block(void *ranks, int32_t from, int32_t to)
{
	struct dt_serve_ranks *r = ranks;
	int rc = tell_kind(r, (struct head){.kind = KIND_COPY, .from = from, .to = to}, NULL);

	return rc < 0 ? rc : dt_infer_copy_block(r->m, from, to);
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
	return h->nseq > 0 && h->nseq <= r->p.max_seqs && h->ntokens > 0 && h->ntokens <= r->p.max_tokens &&
	       h->nwant >= 0 && h->nwant <= r->p.max_seqs && h->max_blocks > 0 &&
	       (int64_t)h->max_blocks * h->nseq <= r->table;
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
				    .nwant = h->nwant};
	if (h->pools) {
		set_pool(r, h, t.pool);
		b.pool = r->pool;
	}
	return dt_infer_forward(r->m, &b, NULL, err);
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
		else if (h.kind == KIND_COPY && (rc = dt_infer_copy_block(r->m, h.from, h.to)) < 0)
			dt_err_sys(err, rc, "cannot copy a block of the cache");
		else if (h.kind == KIND_READ || h.kind == KIND_WRITE)
			rc = move_block(r, &h, err);
		else if (h.kind == KIND_BEAT)
			rc = dt_barrier(r->all, "sign of life", err);
		if (rc < 0)
			return rc;
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
