/*
 * The step message: a head, then the tables of the batch one after the other, slots first because their
 * elements are the widest. Within a stage it is sent as a broadcast of FIRST bytes, which contains the whole
 * message while few sequences decode, and a second broadcast of the rest.
 *
 * From stage to stage the message is forwarded by the first ranks: a broadcast to all ranks would complete
 * only when all have joined it, and the last stages lag behind. Forwarding completes when the next stage
 * receives the message, which happens before that stage takes the step's activations; small messages do not
 * wait for it.
 */
#include "comm/comm.h"
#include "serve/engine/ranks_priv.h"

#include <errno.h>
#include <string.h>

#define FIRST	 DT_SERVE_FIRST
#define TAG_STEP 100 /* distinct from the tags of nn/infer_ranks.c */

size_t dt_serve_ranks_bytes(const struct dt_serve_head *h)
{
	size_t seqs = (size_t)h->nseq, tokens = (size_t)h->ntokens;
	size_t numbers = 2 * tokens + 3 * seqs + 1 + seqs * (size_t)h->max_blocks + (size_t)h->nwant +
			 (h->pools ? seqs : 0) + (h->adapters ? seqs : 0);
	size_t n = sizeof(*h) + tokens * sizeof(int64_t) + numbers * sizeof(int32_t);

	return h->kind == DT_SERVE_STEP ? n : sizeof(*h);
}

struct dt_serve_tables dt_serve_ranks_tables(char *buf, const struct dt_serve_head *h)
{
	struct dt_serve_tables t = {.slot = (int64_t *)(buf + sizeof(*h))};
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

/* Whether the counts of a message are valid, so that its tables fit. */
static bool makes_sense(const struct dt_serve_ranks *r, const struct dt_serve_head *h)
{
	const int dp = r->layout.dp;

	return h->kind != DT_SERVE_STEP ||
	       (h->nseq > 0 && h->nseq <= dp * r->p.max_seqs && h->ntokens > 0 &&
		h->ntokens <= dp * r->p.max_tokens && h->nwant >= 0 && h->nwant <= dp * r->p.max_seqs &&
		h->max_blocks > 0 && (int64_t)h->max_blocks * h->nseq <= r->table);
}

int dt_serve_ranks_free_buf(struct dt_serve_ranks *r, struct dt_err *err)
{
	return dt_wait(&r->passed, NULL, err);
}

static bool is_leader(const struct dt_serve_ranks *r)
{
	return r->at.dp == 0 && r->at.cp == 0 && r->at.tp == 0;
}

static int pass_on(struct dt_serve_ranks *r, size_t bytes, struct dt_err *err)
{
	if (!is_leader(r) || r->at.pp + 1 == r->layout.pp)
		return 0;
	return dt_isend(r->p.ranks->pp, r->buf, bytes, DT_U8, r->at.pp + 1, TAG_STEP, "step", &r->passed,
			err);
}

static int tell_stage(struct dt_serve_ranks *r, size_t bytes, struct dt_err *err)
{
	int rc = dt_broadcast(r->stage, r->buf, FIRST, DT_U8, 0, "step", err);

	if (rc == 0 && bytes > FIRST)
		rc = dt_broadcast(r->stage, r->buf + FIRST, bytes - FIRST, DT_U8, 0, "rest of the step", err);
	return rc;
}

int dt_serve_ranks_tell(struct dt_serve_ranks *r, size_t bytes, struct dt_err *err)
{
	int rc = pass_on(r, bytes, err);

	return rc < 0 ? rc : tell_stage(r, bytes, err);
}

int dt_serve_ranks_tell_kind(struct dt_serve_ranks *r, struct dt_serve_head h, struct dt_err *err)
{
	int rc = dt_serve_ranks_free_buf(r, err);

	memcpy(r->buf, &h, sizeof(h));
	return rc < 0 ? rc : dt_serve_ranks_tell(r, sizeof(h), err);
}

/* Receives the head of the next message; from the previous stage, the whole message. */
static int hear_head(struct dt_serve_ranks *r, struct dt_serve_head *ret, struct dt_err *err)
{
	const bool handed = is_leader(r) && r->at.pp > 0;
	int rc = handed ? dt_recv(r->p.ranks->pp, r->buf, r->room, DT_U8, r->at.pp - 1, TAG_STEP, "step", err)
			: dt_broadcast(r->stage, r->buf, FIRST, DT_U8, 0, "step", err);

	if (rc < 0)
		return rc;
	memcpy(ret, r->buf, sizeof(*ret));
	if (!makes_sense(r, ret))
		return dt_err_set(err, -EPROTO, "rank 0 sent an invalid step of %d tokens of %d sequences",
				  ret->ntokens, ret->nseq);
	return handed;
}

int dt_serve_ranks_hear(struct dt_serve_ranks *r, struct dt_serve_head *ret, struct dt_err *err)
{
	int rc = dt_serve_ranks_free_buf(r, err), handed;
	size_t n;

	if (rc < 0 || (rc = handed = hear_head(r, ret, err)) < 0)
		return rc;
	n = dt_serve_ranks_bytes(ret);
	if (handed)
		return dt_serve_ranks_tell(r, n, err);
	return n > FIRST
		       ? dt_broadcast(r->stage, r->buf + FIRST, n - FIRST, DT_U8, 0, "rest of the step", err)
		       : 0;
}

/* ---- a replica's part of a step ---- */

struct dt_serve_part dt_serve_ranks_part_of(const struct dt_infer_batch *b, int i, int32_t *q_start,
					    int32_t *want)
{
	struct dt_serve_part p = {.batch = *b};
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

/* Sets the token counts of the replicas that compute together with this one; returns their sum. */
static int64_t count_tokens(struct dt_serve_ranks *r, const struct dt_infer_batch *b)
{
	const int joined = dt_layout_joined(&r->layout), first = r->at.dp / joined * joined;
	int64_t sum = 0;

	for (int i = 0; i < joined; i++)
		sum += r->tokens_of[i] = dt_serve_ranks_part_of(b, first + i, NULL, NULL).batch.ntokens;
	return sum;
}

int dt_serve_ranks_compute(struct dt_serve_ranks *r, const struct dt_infer_batch *b, float *logits,
			   struct dt_err *err)
{
	struct dt_serve_part p = {.batch = *b};

	if (r->layout.dp > 1 || r->layout.ep > 1) {
		p = dt_serve_ranks_part_of(b, r->at.dp, r->q_start, r->want);
		if (count_tokens(r, b) == 0)
			return 0;
		p.batch.tokens_of = r->tokens_of;
	}
	if (p.batch.nseq > r->seqs || p.batch.nwant > r->seqs || p.batch.ntokens > r->p.max_tokens)
		return dt_err_set(err, -EPROTO,
				  "the share of replica %d, %d tokens of %d sequences, exceeds its limits",
				  r->at.dp, p.batch.ntokens, p.batch.nseq);
	return r->layout.pp > 1 ? dt_infer_stage(r->m, &p.batch, logits, err)
				: dt_infer_forward(r->m, &p.batch, logits, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
