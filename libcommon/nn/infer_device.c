/*
 * Inference on a device with its own memory: weights, cache and working set are on the device. The tables of
 * a batch are copied there in one transfer per step, and tokens or logits are copied back. Decode steps (one
 * token per sequence) that differ only in the contents of the tables are recorded as CUDA graphs the second
 * time they occur, and replayed from then on.
 */
#include "nn/exec.h"
#include "nn/infer_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_KEYS 256 /* steps are recorded for 256, 512, 1024 ... keys */
#define EDITS_EACH 64  /* initial room for edits of logits, per sequence */

static int table_blocks(const struct dt_infer *m)
{
	return (int)((m->positions + m->p.block_size - 1) / m->p.block_size);
}

static void tables_close(struct dt_infer *m)
{
	struct dt_infer_side *s = &m->side;

	dt_dev_tables(m->dev, NULL, NULL, 0);
	dt_dev_host_free(m->dev, s->host);
	dt_dev_free(m->dev, s->there);
	s->host = s->there = NULL;
}

/* Allocates the tables of a step, with room for `edits` edits. */
static int tables_open(struct dt_infer *m, int edits, struct dt_err *err)
{
	struct dt_infer_side *s = &m->side;
	size_t tokens = (size_t)m->p.max_tokens, seqs = (size_t)m->p.max_seqs, at = 0;
	struct {
		void *to;
		size_t n;
	} part[] = {
		{&s->parts, dt_infer_side_lanes(m)}, /* first: most steps do not copy them */
		{&s->slot, tokens * sizeof(int64_t)},
		{&s->all_slots, m->ranks.cp ? tokens * sizeof(int64_t) : 0},
		{&s->ids, tokens * 4},
		{&s->pos, tokens * 4},
		{&s->q_start, (seqs + 1) * 4},
		{&s->kv_len, seqs * 4},
		{&s->table, seqs * (size_t)table_blocks(m) * 4},
		{&s->state, m->config.ssm_heads ? seqs * 4 : 0},
		{&s->head, m->config.kv_rank ? (size_t)(m->config.heads + 1) * 4 : 0},
		{&s->draw, seqs * sizeof(*s->draw)},
		{&s->edit, (size_t)edits * sizeof(*s->edit)},
	};
	int rc;

	s->bytes = 0;
	for (size_t i = 0; i < sizeof(part) / sizeof(*part); i++) {
		s->fixed = s->bytes;
		s->bytes += (part[i].n + 15) / 16 * 16;
	}
	if ((rc = dt_dev_host_alloc(m->dev, (void **)&s->host, s->bytes)) < 0 ||
	    (rc = dt_dev_alloc(m->dev, (void **)&s->there, s->bytes)) < 0)
		return dt_err_sys(err, rc, "cannot allocate the tables of a step");
	for (size_t i = 0; i < sizeof(part) / sizeof(*part); i++) {
		*(void **)part[i].to = s->host + at;
		at += (part[i].n + 15) / 16 * 16;
	}
	s->max_edits = edits;
	memset(s->host, 0, s->bytes);
	return 0;
}

int dt_infer_side_open(struct dt_infer *m, struct dt_err *err)
{
	struct dt_infer_side *s = &m->side;
	size_t seqs = (size_t)m->p.max_seqs;
	int rc;

	if (dt_dev_is_host(m->dev))
		return 0;
	rc = dt_infer_side_number(m) < 0 ? dt_err_sys(err, -ENOMEM, "cannot number the program's linears")
					 : tables_open(m, m->p.max_seqs * EDITS_EACH, err);
	if (rc < 0)
		return rc;
	s->out_bytes = seqs * (size_t)m->config.vocab * sizeof(float);
	if ((rc = dt_dev_host_alloc(m->dev, (void **)&s->logits, s->out_bytes)) < 0 ||
	    (rc = dt_dev_alloc(m->dev, (void **)&s->out, s->out_bytes)) < 0 ||
	    (rc = dt_dev_host_alloc(m->dev, (void **)&s->drawn_host, seqs * sizeof(*s->drawn))) < 0 ||
	    (rc = dt_dev_alloc(m->dev, (void **)&s->drawn, seqs * sizeof(*s->drawn))) < 0)
		return dt_err_sys(err, rc, "cannot allocate the results of a step");
	return 0;
}

static void drop(struct dt_infer *m, int i)
{
	struct dt_infer_side *s = &m->side;

	dt_graph_close(m->dev, s->recorded[i].graph);
	s->recorded[i] = s->recorded[--s->nrecorded];
}

void dt_infer_side_forget(struct dt_infer *m)
{
	while (m->side.nrecorded)
		drop(m, m->side.nrecorded - 1);
}

void dt_infer_side_release(struct dt_infer *m)
{
	struct dt_infer_side *s = &m->side;

	if (dt_dev_is_host(m->dev))
		return;
	dt_infer_side_forget(m);
	tables_close(m);
	free(s->linear);
	dt_dev_host_free(m->dev, s->logits);
	dt_dev_free(m->dev, s->out);
	dt_dev_host_free(m->dev, s->drawn_host);
	dt_dev_free(m->dev, s->drawn);
}

/* Tables with room for more edits. After a failure the old ones are still there. */
static int tables_grow(struct dt_infer *m, int edits, struct dt_err *err)
{
	struct dt_infer_side *s = &m->side, old;
	int rc;

	dt_infer_side_forget(m); /* recorded steps use the old tables */
	old = *s;
	s->host = s->there = NULL;
	rc = tables_open(m, edits, err);
	if (rc < 0) {
		tables_close(m);
		*s = old;
		return rc;
	}
	dt_dev_tables(m->dev, NULL, NULL, 0);
	dt_dev_host_free(m->dev, old.host);
	dt_dev_free(m->dev, old.there);
	return 0;
}

/* Copies the batch into the pinned tables and on to the device; *ret: the batch in these tables. */
static int take(struct dt_infer *m, const struct dt_infer_batch *b, struct dt_infer_batch *ret,
		struct dt_err *err)
{
	struct dt_infer_side *s = &m->side;
	size_t tokens = (size_t)b->ntokens, seqs = (size_t)b->nseq, edits = 0, skip;
	int width = table_blocks(m), rc;

	if (b->nseq > m->p.max_seqs)
		return dt_err_set(err, -EINVAL, "a batch of %d sequences exceeds %d", b->nseq, m->p.max_seqs);
	if (b->draw && b->nedits > s->max_edits && (rc = tables_grow(m, 2 * b->nedits, err)) < 0)
		return rc;
	memcpy(s->ids, b->ids, tokens * 4);
	memcpy(s->pos, b->pos, tokens * 4);
	memcpy(s->slot, b->slot, tokens * sizeof(*s->slot));
	memcpy(s->q_start, b->q_start, (seqs + 1) * 4);
	memcpy(s->kv_len, b->kv_len, seqs * 4);
	for (int i = 0; i < b->nseq; i++) {
		int n = b->max_blocks < width ? b->max_blocks : width;

		memcpy(s->table + (size_t)i * (size_t)width,
		       b->block_table + (size_t)i * (size_t)b->max_blocks, (size_t)n * 4);
	}
	if (m->config.ssm_heads)
		memcpy(s->state, b->state, seqs * 4);
	for (int64_t h = 0; m->config.kv_rank && h <= m->config.heads; h++)
		s->head[h] = (int32_t)(h * b->ntokens);
	*ret = *b;
	if (b->all_slots) {
		memcpy(s->all_slots, b->all_slots,
		       (size_t)dt_infer_rows_before(b->rows_of_cp, m->ranks.layout.cp) *
			       sizeof(*s->all_slots));
		ret->all_slots = s->all_slots;
	}
	if (b->draw) {
		memcpy(s->draw, b->draw, (size_t)b->nwant * sizeof(*s->draw));
		if (b->nedits)
			memcpy(s->edit, b->edit, (size_t)b->nedits * sizeof(*s->edit));
		edits = (size_t)b->nedits * sizeof(*s->edit);
		ret->draw = s->draw;
		ret->edit = s->edit;
		ret->nedits = s->max_edits; /* the number that recorded steps use */
		ret->drawn = s->drawn;
	}
	ret->ids = s->ids;
	ret->pos = s->pos;
	ret->slot = s->slot;
	ret->q_start = s->q_start;
	ret->kv_len = s->kv_len;
	ret->block_table = s->table;
	ret->state = s->state;
	ret->max_blocks = width;
	dt_dev_tables(m->dev, s->host, s->there, s->bytes);
	skip = (size_t)((char *)s->slot - s->host);
	rc = dt_dev_copy(m->dev, s->there + skip, s->slot, s->fixed - skip + edits);
	if (rc < 0)
		return dt_err_sys(err, rc, "cannot copy to the device");
	return dt_infer_adapts(b) ? dt_infer_side_adapt(m, b, err) : 0;
}

/*
 * The number of keys to record for: the longest sequence's, rounded up. 0: not recordable, as the step is not
 * one token per sequence, or adapters replace tensors, or ranks exchange messages, which the host posts.
 */
static int64_t bucket(const struct dt_infer *m, const struct dt_infer_batch *b)
{
	int64_t n = LEAST_KEYS;

	if (b->nseq != b->ntokens || b->nwant != b->ntokens || dt_infer_wholes(b) || m->ranks.tp ||
	    m->ranks.pp || m->ranks.cp || m->ranks.ep)
		return 0;
	for (int i = 0; i < b->nseq; i++) {
		if (b->want[i] != i || (b->pool && b->pool[i]))
			return 0;
		while (n < b->kv_len[i])
			n *= 2;
	}
	return n;
}

static int find(const struct dt_infer *m, int nseq, int kind, bool adapted, int64_t keys)
{
	for (int i = 0; i < m->side.nrecorded; i++) {
		const struct dt_infer_recorded *r = &m->side.recorded[i];

		if (r->nseq == nseq && r->kind == kind && r->adapted == adapted && r->keys == keys)
			return i;
	}
	return -1;
}

/* Returns a free entry; replaces the least recently used one if all are in use. */
static int room(struct dt_infer *m)
{
	struct dt_infer_side *s = &m->side;
	int oldest = 0;

	if (s->nrecorded < DT_INFER_RECORDED)
		return s->nrecorded++;
	for (int i = 1; i < s->nrecorded; i++)
		if (s->recorded[i].used < s->recorded[oldest].used)
			oldest = i;
	dt_graph_close(m->dev, s->recorded[oldest].graph);
	return oldest;
}

static int record(struct dt_infer *m, const struct dt_infer_batch *b, int64_t keys, struct dt_graph **ret,
		  struct dt_err *err)
{
	int rc = dt_graph_begin(m->dev), end;

	if (rc < 0)
		return dt_err_sys(err, rc, "cannot record a step");
	m->side.keys = keys;
	rc = dt_infer_pass(m, b, m->side.out, err);
	end = dt_graph_end(m->dev, rc < 0 ? NULL : ret);
	return rc < 0 ? rc : end < 0 ? dt_err_sys(err, end, "cannot record a step") : 0;
}

/* A step that may recur: runs normally the first time, is recorded the second, and replayed from then on. */
static int decode(struct dt_infer *m, const struct dt_infer_batch *b, int64_t keys, struct dt_err *err)
{
	struct dt_infer_side *s = &m->side;
	int kind = b->draw ? (int)dt_draw_kind(b->draw, b->nwant) : -1;
	const bool adapted = dt_infer_adapts(b);
	int i = find(m, b->nseq, kind, adapted, keys), rc;

	s->keys = keys;
	if (i < 0) {
		i = room(m);
		s->recorded[i] = (struct dt_infer_recorded){b->nseq, kind, adapted, keys, ++s->steps, NULL};
		return dt_infer_pass(m, b, s->out, err);
	}
	s->recorded[i].used = ++s->steps;
	if (!s->recorded[i].graph && (rc = record(m, b, keys, &s->recorded[i].graph, err)) < 0)
		return rc;
	rc = dt_graph_run(m->dev, s->recorded[i].graph);
	if (rc == -ESTALE) { /* a larger step ran in between */
		drop(m, i);
		return dt_infer_pass(m, b, s->out, err);
	}
	s->replayed += rc == 0;
	return rc < 0 ? dt_err_sys(err, rc, "cannot run a recorded step") : 0;
}

/* After a pass, or its failure rc: copies n bytes to pinned memory. The tables are then free again. */
static int fetch(struct dt_infer *m, int rc, void *to, const void *from, size_t n, struct dt_err *err)
{
	if (rc < 0) {
		dt_dev_sync(m->dev);
		return rc;
	}
	rc = n ? dt_dev_copy(m->dev, to, from, n) : 0;
	if (rc == 0)
		rc = dt_dev_sync(m->dev);
	return rc < 0 ? dt_err_sys(err, rc, "cannot compute on the device") : 0;
}

int dt_infer_side_forward(struct dt_infer *m, const struct dt_infer_batch *host, float *logits,
			  struct dt_err *err)
{
	struct dt_infer_side *s = &m->side;
	const struct dt_prog *p = &m->plan.stage.chunk[0];
	const bool last = dt_infer_last_stage(m);
	const int whole = last ? p->step[p->start[DT_LIST_LOSS]].n.out[3] : -1; /* logits, with stages */
	const size_t row = host->draw ? sizeof(*s->drawn) : (size_t)m->config.vocab * sizeof(float),
		     n = last && m->ranks.at.tp == 0 ? (size_t)host->nwant * row : 0;
	void *to = host->draw ? (void *)s->drawn_host : s->logits, *from = s->out;
	struct dt_infer_batch b;
	int64_t keys;
	int rc = take(m, host, &b, err);

	if (rc < 0)
		return rc;
	keys = m->disk ? 0 : bucket(m, &b); /* the addresses of weights change between steps */
	s->keys = 0;
	rc = keys ? decode(m, &b, keys, err) : dt_infer_pass(m, &b, s->out, err);
	if (host->draw)
		from = s->drawn;
	else if (whole >= 0)
		from = dt_exec_value(&m->x, &m->flight, whole);
	rc = fetch(m, rc, to, from, n, err);
	if (rc == 0 && n && (host->draw || logits))
		memcpy(host->draw ? (void *)host->drawn : logits, to, n);
	return rc;
}

int dt_infer_side_draw(struct dt_infer *m, const struct dt_infer_batch *b, const float *logits,
		       struct dt_err *err)
{
	struct dt_infer_side *s = &m->side;
	const size_t vocab = (size_t)m->config.vocab;
	int rc = 0;

	for (int i = 0, n; i < b->nwant && rc == 0; i += n) { /* with replicas there may be more than fit */
		n = b->nwant - i < m->p.max_seqs ? b->nwant - i : m->p.max_seqs;
		memcpy(s->logits, logits + (size_t)i * vocab, (size_t)n * vocab * sizeof(*logits));
		rc = dt_dev_copy(m->dev, s->out, s->logits, (size_t)n * vocab * sizeof(*logits));
		if (rc == 0)
			rc = m->dev->ops->sample(m->dev, s->drawn, dt_t2(s->out, DT_F32, n, (int64_t)vocab),
						 b->draw + i, b->edit, b->nedits);
		rc = fetch(m, rc, s->drawn_host, s->drawn, (size_t)n * sizeof(*s->drawn), err);
		if (rc == 0)
			memcpy(b->drawn + i, s->drawn_host, (size_t)n * sizeof(*s->drawn));
	}
	return rc;
}

uint64_t dt_infer_replayed(const struct dt_infer *m)
{
	return m->side.replayed;
}
/* SPDX-License-Identifier: Apache-2.0 */
