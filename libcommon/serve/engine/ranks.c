/* Rank 0's part of serve/engine/ranks.h, and opening on all ranks. */
#include "comm/comm.h"
#include "plan/inferplan.h"
#include "serve/engine/ranks_priv.h"
#include "serve/sched/kvkey.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Sets how a block is split over ranks, and the cache name of all ranks together. */
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
	r->name = 2; /* version of the layout of whole blocks */
	for (int i = 0; i < n; i++)
		r->name = dt_kvkey_mix(r->name, (uint64_t)name[i]);
	free(name);
	return rc;
}

/*
 * Allocates registered memory from which other ranks read: messages to the next stage, and results for rank
 * 0.
 */
static int open_messages(struct dt_serve_ranks *r, struct dt_err *err)
{
	const struct dt_config *c = dt_infer_config(r->m);
	const size_t logits = (size_t)r->seqs * (size_t)c->vocab,
		     pooled = (size_t)r->seqs * (size_t)c->hidden;
	const size_t each = r->kept ? logits + pooled : 0;
	float *at;
	void *p;
	int rc;

	r->room = (r->room + sizeof(*at) - 1) / sizeof(*at) * sizeof(*at);
	rc = dt_buffer_alloc(r->p.ranks->world, r->room + (size_t)r->depth * each * sizeof(*at), &p, err);
	if (rc < 0)
		return rc;
	r->buf = p;
	at = (float *)(r->buf + r->room);
	for (int i = 0; r->kept && i < r->depth; i++, at += each)
		r->kept[i] = (struct dt_serve_kept){.logits = at, .pooled = at + logits};
	return 0;
}

static int open_buffers(struct dt_serve_ranks *r, struct dt_err *err)
{
	const size_t seqs = (size_t)r->p.max_seqs, all = seqs * (size_t)r->layout.dp;
	const int me = dt_comm_rank(r->all);
	bool good;

	r->q_start = calloc(seqs + 1, sizeof(*r->q_start));
	r->want = calloc(seqs, sizeof(*r->want));
	r->tokens_of = calloc((size_t)dt_layout_joined(&r->layout), sizeof(*r->tokens_of));
	good = r->q_start && r->want && r->tokens_of;
	if (me > 0) {
		r->adapter = calloc(all, sizeof(*r->adapter));
		r->pool = calloc(all, sizeof(*r->pool));
		good = good && r->adapter && r->pool;
	}
	if (me == 0 || r->layout.cp > 1) {
		r->pooled =
			calloc((size_t)r->seqs * (size_t)dt_infer_config(r->m)->hidden, sizeof(*r->pooled));
		good = good && r->pooled;
	}
	if (me > 0 && me == dt_serve_ranks_answerer(r, r->at.dp)) {
		r->kept = calloc((size_t)r->depth, sizeof(*r->kept));
		good = good && r->kept;
	}
	return good ? open_messages(r, err) : dt_err_sys(err, -ENOMEM, "cannot start the engine");
}

int dt_serve_ranks_open(struct dt_serve_ranks **ret, struct dt_infer *m, const struct dt_mesh *mesh,
			int depth, const struct dt_infer_params *p, struct dt_err *err)
{
	struct dt_serve_ranks *r = calloc(1, sizeof(*r));
	const int dp = p->ranks->layout.dp;
	int64_t each = (p->max_len + p->block_size - 1) / p->block_size;
	struct dt_serve_head most = {.kind = DT_SERVE_STEP,
				     .nseq = dp * p->max_seqs,
				     .ntokens = dp * p->max_tokens,
				     .max_blocks = (int32_t)each,
				     .nwant = dp * p->max_seqs,
				     .pools = 1,
				     .adapters = 1};
	int rc;

	if (!r)
		return dt_err_sys(err, -ENOMEM, "cannot start the engine");
	r->m = m;
	r->all = dt_mesh_comm(mesh, DT_ON_ALL);
	r->stage = p->ranks->layout.pp > 1 ? dt_mesh_comm(mesh, DT_ON_STAGE) : r->all;
	r->p = *p;
	r->layout = p->ranks->layout;
	r->at = p->ranks->at;
	r->depth = depth;
	r->seqs = (p->max_seqs + depth - 1) / depth;
	r->table = each * dp * p->max_seqs;
	r->room = dt_serve_ranks_bytes(&most);
	r->room = r->room < DT_SERVE_FIRST ? DT_SERVE_FIRST : r->room;
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
	if (r->buf)
		dt_buffer_free(r->p.ranks->world, r->buf);
	free(r->kept);
	free(r->q_start);
	free(r->want);
	free(r->tokens_of);
	free(r->pooled);
	free(r->pool);
	free(r->adapter);
	dt_serve_given_release(&r->given);
	free(r->part);
	free(r);
}

int dt_serve_ranks_ready(void *ranks, const struct dt_infer_adapter *a, struct dt_err *err)
{
	struct dt_serve_ranks *r = ranks;
	struct dt_serve_head h = {.kind = DT_SERVE_ADAPTER, .from = dt_infer_adapter_id(a)};
	const void *part;
	int rc = 0, parts;
	size_t n;

	if (dt_infer_adapter_part(a, 0, &part, &n)) {
		h.to = DT_SERVE_GIVEN;
		rc = dt_serve_ranks_tell_kind(r, h, err);
		if (rc == 0)
			rc = dt_serve_give(r->all, a, err);
	} else if ((h.replica = dt_infer_adapter_portion(a, &parts)) >= 0) {
		h.to = DT_SERVE_MEASURED;
		h.nseq = parts;
		rc = dt_serve_ranks_tell_kind(r, h, err);
		if (rc == 0)
			rc = dt_infer_adapter_measure(a, r->m, h.replica, parts, err);
		if (rc == 0)
			dt_infer_adapter_measured(a);
	}
	return rc < 0 ? rc : dt_infer_adapter_portion(a, &parts) < 0;
}

/* Tells the other ranks which adapters are gone, and sends those that this step is the first to need. */
static int give_adapters(struct dt_serve_ranks *r, const struct dt_infer_batch *b, struct dt_err *err)
{
	struct dt_serve_head h = {.kind = DT_SERVE_ADAPTER};
	int rc = 0;

	while (rc == 0 && (h.from = dt_infer_adapter_gone(r->m)) > 0)
		rc = dt_serve_ranks_tell_kind(r, h, err);
	for (int i = 0; b->adapter && i < b->nseq && rc == 0; i++)
		while (b->adapter[i] && (rc = dt_serve_ranks_ready(r, b->adapter[i], err)) == 0)
			;
	return rc < 0 ? rc : 0;
}

/* Sends a step message to the other ranks. */
static int tell_step(struct dt_serve_ranks *r, const struct dt_infer_batch *b, struct dt_err *err)
{
	struct dt_serve_head h = {.kind = DT_SERVE_STEP,
				  .nseq = b->nseq,
				  .ntokens = b->ntokens,
				  .max_blocks = b->max_blocks,
				  .nwant = b->nwant,
				  .pools = b->pool != NULL,
				  .adapters = b->adapter != NULL};
	size_t tokens = (size_t)b->ntokens * 4, seqs = (size_t)b->nseq * 4;
	struct dt_serve_tables t;
	int rc = give_adapters(r, b, err);

	if (rc < 0 || (rc = dt_serve_ranks_free_buf(r, err)) < 0)
		return rc;
	memcpy(r->buf, &h, sizeof(h));
	t = dt_serve_ranks_tables(r->buf, &h);
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
	return dt_serve_ranks_tell(r, dt_serve_ranks_bytes(&h), err);
}

/* Receives the pooled states of a replica and adds them to those of its sequences. */
static int add_pooled(struct dt_serve_ranks *r, const struct dt_infer_batch *b, const struct dt_serve_part *p,
		      int from, struct dt_err *err)
{
	const size_t hidden = (size_t)dt_infer_config(r->m)->hidden;
	size_t n = 0;
	int rc;

	for (int k = p->first; b->pool && k < p->last; k++)
		n += b->pool[k] != NULL;
	if (n == 0)
		return 0;
	rc = dt_recv(r->all, r->pooled, n * hidden, DT_F32, from, DT_SERVE_TAG_ANSWER, "pooled states", err);
	n = 0;
	for (int k = p->first; k < p->last && rc == 0; k++) {
		for (size_t i = 0; b->pool[k] && i < hidden; i++)
			b->pool[k][i] += r->pooled[n * hidden + i];
		n += b->pool[k] != NULL;
	}
	return rc;
}

int dt_serve_ranks_take(void *ranks, const struct dt_infer_batch *b, float *logits, struct dt_err *err)
{
	struct dt_serve_ranks *r = ranks;
	const size_t vocab = (size_t)dt_infer_config(r->m)->vocab;
	int rc = 0;

	for (int i = 0; i < r->layout.dp && rc == 0; i++) {
		const struct dt_serve_part p = dt_serve_ranks_part_of(b, i, NULL, NULL);
		const int from = dt_serve_ranks_answerer(r, i);

		if (from == 0)
			continue;
		if (p.batch.nwant > 0)
			rc = dt_recv(r->all, logits + (size_t)p.want * vocab, (size_t)p.batch.nwant * vocab,
				     DT_F32, from, DT_SERVE_TAG_ANSWER, "logits", err);
		if (rc == 0)
			rc = add_pooled(r, b, &p, from, err);
	}
	return rc == 0 && r->layout.pp > 1 && b->draw ? dt_infer_draw(r->m, b, logits, err) : rc;
}

int dt_serve_ranks_begin(void *ranks, const struct dt_infer_batch *b, struct dt_err *err)
{
	struct dt_serve_ranks *r = ranks;
	int rc = tell_step(r, b, err);

	return rc < 0 ? rc : dt_serve_ranks_compute(r, b, NULL, err);
}

int dt_serve_ranks_forward(void *ranks, const struct dt_infer_batch *b, float *logits, struct dt_err *err)
{
	struct dt_serve_ranks *r = ranks;
	int rc = tell_step(r, b, err);

	rc = rc < 0 ? rc : dt_serve_ranks_compute(r, b, logits, err);
	return rc < 0 ? rc : dt_serve_ranks_take(r, b, logits, err);
}

int dt_serve_ranks_copy_block(void *ranks, int replica, int32_t from, int32_t to)
{
	struct dt_serve_ranks *r = ranks;
	const struct dt_serve_head h = {.kind = DT_SERVE_COPY, .from = from, .to = to, .replica = replica};
	int rc = dt_serve_ranks_tell_kind(r, h, NULL);

	return rc < 0 || replica != r->at.dp ? rc : dt_infer_copy_block(r->m, from, to);
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
	int rc = dt_serve_ranks_tell_kind(r, (struct dt_serve_head){.kind = DT_SERVE_READ, .from = block},
					  NULL);

	if (rc == 0)
		rc = dt_infer_read_block(r->m, block, r->part);
	for (int i = 0; i < dt_comm_size(r->all) && rc == 0; i++) {
		if (i > 0)
			rc = dt_recv(r->all, r->part, dt_kvparts_bytes(&r->parts, i), DT_U8, i,
				     DT_SERVE_TAG_BLOCK, "a block of the cache", NULL);
		if (rc == 0)
			dt_kvparts_join(&r->parts, i, r->part, to);
	}
	return rc;
}

int dt_serve_ranks_write_block(void *ranks, int32_t block, const void *from)
{
	struct dt_serve_ranks *r = ranks;
	int rc = dt_serve_ranks_tell_kind(r, (struct dt_serve_head){.kind = DT_SERVE_WRITE, .from = block},
					  NULL);

	for (int i = 0; i < dt_comm_size(r->all) && rc == 0; i++) {
		dt_kvparts_cut(&r->parts, i, r->part, from);
		rc = i == 0 ? dt_infer_write_block(r->m, block, r->part)
			    : dt_send(r->all, r->part, dt_kvparts_bytes(&r->parts, i), DT_U8, i,
				      DT_SERVE_TAG_BLOCK, "a block of the cache", NULL);
	}
	return rc;
}

struct dt_infer *dt_serve_ranks_part(const struct dt_serve_ranks *r)
{
	return r->m;
}

/* The barrier is needed because a broadcast alone would not notice a rank that has stopped. */
int dt_serve_ranks_beat(void *ranks, struct dt_err *err)
{
	struct dt_serve_ranks *r = ranks;
	int rc = dt_serve_ranks_tell_kind(r, (struct dt_serve_head){.kind = DT_SERVE_BEAT}, err);

	return rc < 0 ? rc : dt_barrier(r->all, "sign of life", err);
}

int dt_serve_ranks_end(struct dt_serve_ranks *r, struct dt_err *err)
{
	return dt_serve_ranks_tell_kind(r, (struct dt_serve_head){.kind = DT_SERVE_END}, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
