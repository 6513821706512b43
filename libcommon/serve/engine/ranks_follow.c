/* What the ranks other than 0 do. */
#include "comm/comm.h"
#include "serve/engine/ranks_priv.h"

#include <errno.h>
#include <string.h>

/* Points r->pool to consecutive sums in `pooled` for this rank's pooled sequences. */
static int set_pool(struct dt_serve_ranks *r, const struct dt_infer_batch *b, const int32_t *which,
		    float *pooled)
{
	const struct dt_serve_part p = dt_serve_ranks_part_of(b, r->at.dp, NULL, NULL);
	const size_t hidden = (size_t)dt_infer_config(r->m)->hidden;
	int n = 0;

	if (p.batch.nseq > r->seqs) /* dt_serve_ranks_compute refuses it */
		return 0;
	for (int i = p.first; i < p.last; i++) {
		r->pool[i] = which[i] ? pooled + (size_t)n++ * hidden : NULL;
		if (r->pool[i])
			memset(r->pool[i], 0, hidden * sizeof(*pooled));
	}
	return n;
}

/*
 * Computes a step and sends its results to rank 0, which receives them in dt_serve_ranks_take. Waits first
 * for the sends of the older step that used the same entry of r->kept.
 */
static int answer(struct dt_serve_ranks *r, struct dt_infer_batch *b, const int32_t *pools,
		  struct dt_err *err)
{
	struct dt_serve_kept *k = &r->kept[r->answered++ % r->depth];
	const struct dt_config *c = dt_infer_config(r->m);
	const struct dt_serve_part p = dt_serve_ranks_part_of(b, r->at.dp, NULL, NULL);
	int rc = dt_wait_all(k->sent, 2, NULL, err), n = 0;

	if (rc == 0 && pools)
		n = set_pool(r, b, pools, k->pooled);
	if (rc == 0)
		rc = dt_serve_ranks_compute(r, b, k->logits, err);
	if (rc == 0 && p.batch.nwant > 0)
		rc = dt_isend(r->all, k->logits, (size_t)p.batch.nwant * (size_t)c->vocab, DT_F32, 0,
			      DT_SERVE_TAG_ANSWER, "logits", &k->sent[0], err);
	if (rc == 0 && n > 0)
		rc = dt_isend(r->all, k->pooled, (size_t)n * (size_t)c->hidden, DT_F32, 0,
			      DT_SERVE_TAG_ANSWER, "pooled states", &k->sent[1], err);
	return rc;
}

static int step(struct dt_serve_ranks *r, const struct dt_serve_head *h, struct dt_err *err)
{
	const struct dt_serve_tables t = dt_serve_ranks_tables(r->buf, h);
	struct dt_infer_batch b = {.nseq = h->nseq,
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

	for (int i = 0; h->adapters && i < h->nseq; i++) {
		r->adapter[i] = t.adapter[i] ? dt_serve_given_find(&r->given, t.adapter[i]) : NULL;
		if (t.adapter[i] && !r->adapter[i])
			return dt_err_set(err, -EPROTO, "adapter %d was not received from rank 0",
					  t.adapter[i]);
	}
	b.adapter = h->adapters ? r->adapter : NULL;
	b.pool = h->pools ? r->pool : NULL;
	if (r->layout.cp > 1 && h->pools) /* every rank has some of their rows */
		set_pool(r, &b, t.pool, r->pooled);
	return r->kept ? answer(r, &b, h->pools ? t.pool : NULL, err)
		       : dt_serve_ranks_compute(r, &b, NULL, err);
}

/* Sends this rank's part of a block to rank 0, or receives it. */
static int move_block(struct dt_serve_ranks *r, const struct dt_serve_head *h, struct dt_err *err)
{
	const size_t n = dt_kvparts_bytes(&r->parts, dt_comm_rank(r->all));
	int rc;

	if (h->from < 0 || h->from >= r->p.blocks)
		return dt_err_set(err, -EPROTO, "rank 0 sent the invalid cache block number %d", h->from);
	if (h->kind == DT_SERVE_READ) {
		rc = dt_infer_read_block(r->m, h->from, r->part);
		if (rc < 0)
			return dt_err_sys(err, rc, "cannot read a block of the cache");
		return dt_send(r->all, r->part, n, DT_U8, 0, DT_SERVE_TAG_BLOCK, "a block of the cache", err);
	}
	rc = dt_recv(r->all, r->part, n, DT_U8, 0, DT_SERVE_TAG_BLOCK, "a block of the cache", err);
	if (rc == 0 && (rc = dt_infer_write_block(r->m, h->from, r->part)) < 0)
		dt_err_sys(err, rc, "cannot write a block of the cache");
	return rc;
}

static int copy_block(struct dt_serve_ranks *r, const struct dt_serve_head *h, struct dt_err *err)
{
	int rc = h->replica == r->at.dp ? dt_infer_copy_block(r->m, h->from, h->to) : 0;

	return rc < 0 ? dt_err_sys(err, rc, "cannot copy a block of the cache") : 0;
}

static int take_adapter(struct dt_serve_ranks *r, const struct dt_serve_head *h, struct dt_err *err)
{
	const struct dt_infer_adapter *a;

	if (h->to != DT_SERVE_MEASURED)
		return h->to ? dt_serve_given_take(&r->given, r->all, r->m, h->from, err)
			     : dt_serve_given_drop(&r->given, h->from, err);
	a = dt_serve_given_find(&r->given, h->from);
	if (!a || h->nseq < 1 || h->replica < 0)
		return dt_err_set(err, -EPROTO, "adapter %d was not received from rank 0", h->from);
	return dt_infer_adapter_measure(a, r->m, h->replica, h->nseq, err);
}

/* Waits until all messages of this rank were received, so that they can be freed. */
static int finish(struct dt_serve_ranks *r, struct dt_err *err)
{
	int rc = dt_serve_ranks_free_buf(r, err);

	for (int i = 0; r->kept && i < r->depth && rc == 0; i++)
		rc = dt_wait_all(r->kept[i].sent, 2, NULL, err);
	return rc;
}

int dt_serve_ranks_follow(struct dt_serve_ranks *r, struct dt_err *err)
{
	for (;;) {
		struct dt_serve_head h;
		int rc = dt_serve_ranks_hear(r, &h, err);

		if (rc == 0 && h.kind == DT_SERVE_END)
			return finish(r, err);
		if (rc == 0)
			rc = h.kind == DT_SERVE_STEP	  ? step(r, &h, err)
			     : h.kind == DT_SERVE_COPY	  ? copy_block(r, &h, err)
			     : h.kind == DT_SERVE_READ	  ? move_block(r, &h, err)
			     : h.kind == DT_SERVE_WRITE	  ? move_block(r, &h, err)
			     : h.kind == DT_SERVE_ADAPTER ? take_adapter(r, &h, err)
			     : h.kind == DT_SERVE_BEAT	  ? dt_barrier(r->all, "sign of life", err)
							  : 0;
		if (rc < 0)
			return rc;
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
