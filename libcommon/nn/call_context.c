/* Attention, and its communication where sequences are divided over context-parallel ranks. */
#include "nn/call.h"

#include "base/progress.h"

#include <errno.h>
#include <stdio.h>

static struct dt_attn attention_of(const struct dt_exec *x, const struct dt_node *n, int64_t seq)
{
	return (struct dt_attn){.batch = n->attr.tokens ? x->p->rows[DT_ROWS_ALL] : x->batch,
				.seq = n->attr.tokens ? n->attr.tokens : seq,
				.heads = n->attr.heads,
				.kv_heads = n->attr.kv_heads,
				.head_dim = n->attr.head_dim,
				.value_dim = n->attr.value_dim == n->attr.head_dim ? 0 : n->attr.value_dim,
				.window = n->attr.window,
				.scale = n->attr.scale,
				.softcap = n->attr.cap};
}

/* Tokens per sequence in this value's rows: all tokens under Ulysses, else this rank's. */
static int64_t seq_of(const struct dt_exec *x, int v)
{
	return x->p->value[v].rows == DT_ROWS_SEQ ? x->positions : x->seq;
}

/*
 * A span with queries, keys and values as columns of one matrix of whole sequences: by document, or without a
 * causal mask.
 */
static struct dt_attn_span joined(const struct dt_exec *x, const struct dt_node *n, const struct dt_attn *a,
				  const struct dt_attn_run *run)
{
	return (struct dt_attn_span){.rows = a->seq,
				     .first = x->flight->first,
				     .all = n->attr.all,
				     .nrun = 1,
				     .run = run,
				     .run_keys = a->seq,
				     .stride = a->seq,
				     .k_col = a->heads * a->head_dim,
				     .v_col = (a->heads + a->kv_heads) * a->head_dim};
}

/*
 * A span of this rank's queries against the keys of ranks first .. first + n - 1 of the group, whose blocks
 * [batch, seq, keys and values] are contiguous.
 */
static struct dt_attn_span blocks(const struct dt_exec *x, const struct dt_attn *a, int first, int n,
				  struct dt_attn_run run[DT_ATTN_RUNS])
{
	int64_t c = x->seq / 2, block = x->batch * x->seq;
	struct dt_attn_span s = {.rows = x->seq,
				 .pos = x->pos,
				 .first = x->flight->first,
				 .run = run,
				 .run_keys = c,
				 .stride = x->seq,
				 .v_col = a->kv_heads * a->head_dim};

	for (int q = 0; q < 2 * x->cp_size; q++) { /* chunks in order */
		int owner = q < x->cp_size ? q : 2 * x->cp_size - 1 - q;

		if (owner >= first && owner < first + n && s.nrun < DT_ATTN_RUNS)
			run[s.nrun++] = (struct dt_attn_run){q * c, (owner - first) * block +
									    (q < x->cp_size ? 0 : c)};
	}
	return s;
}

struct dt_tensor dt_call_sinks(const struct dt_exec *x, const struct dt_node *n, const struct dt_tensor *t,
			       int v)
{
	struct dt_tensor s = t[n->param[0]];

	if (x->cp_size < 2 || x->p->value[v].rows != DT_ROWS_SEQ)
		return s;
	return dt_t1((char *)s.data + x->cp_rank * n->attr.heads * dt_dtype_size(s.dtype), s.dtype,
		     n->attr.heads);
}

/* [batch, heads, rows] of a node whose attention has value v. */
static struct dt_tensor lse_of(const struct dt_exec *x, const struct dt_node *n, int lse, int v)
{
	return dt_t3(dt_call_at(x, lse), DT_F32, x->batch, n->attr.heads, seq_of(x, v));
}

/* Attention's results without the sinks become those with them. */
static int add_sinks(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	if (n->param[0] >= 0)
		TRY(x->dev->ops->attention_sink(x->dev, dt_call_mat(x, n->out[0]),
						lse_of(x, n, n->out[1], n->out[0]),
						dt_call_sinks(x, n, x->w, n->out[0])));
	return 0;
}

int dt_call_sink_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	TRY(x->dev->ops->attention_sink_backward(x->dev, dt_call_sinks(x, n, x->g, n->in[1]),
						 dt_call_mat(x, n->in[0]), dt_call_mat(x, n->in[1]),
						 lse_of(x, n, n->in[2], n->in[1]),
						 dt_call_sinks(x, n, x->w, n->in[1])));
	return 0;
}

int dt_call_attention(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_ops *o = x->dev->ops;
	struct dt_attn a = attention_of(x, n, seq_of(x, n->out[0]));
	struct dt_tensor out = dt_call_mat(x, n->out[0]), lse = dt_call_vec(x, n->out[1]),
			 qkv = dt_call_mat(x, n->in[0]);
	struct dt_attn_run run[DT_ATTN_RUNS] = {{0, 0}};
	struct dt_attn_span s;

	if (n->in[1] >= 0) {
		s = blocks(x, &a, 0, x->cp_size, run);
		TRY(o->attention_span_forward(x->dev, out, lse, qkv, dt_call_mat(x, n->in[1]), &a, &s));
	} else if (x->flight->first || n->attr.all) {
		s = joined(x, n, &a, run);
		TRY(o->attention_span_forward(x->dev, out, lse, qkv, qkv, &a, &s));
	} else {
		TRY(o->attention_forward(x->dev, out, lse, qkv, &a));
	}
	return add_sinks(x, n, err);
}

int dt_call_attention_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_ops *o = x->dev->ops;
	struct dt_attn a = attention_of(x, n, seq_of(x, n->in[0]));
	struct dt_tensor d = dt_call_mat(x, n->out[0]), dout = dt_call_mat(x, n->in[0]),
			 out = dt_call_mat(x, n->in[1]), lse = dt_call_vec(x, n->in[2]),
			 qkv = dt_call_mat(x, n->in[3]);
	struct dt_attn_run run[DT_ATTN_RUNS] = {{0, 0}};
	struct dt_attn_span s;

	if (n->in[4] >= 0) {
		s = blocks(x, &a, 0, x->cp_size, run);
		TRY(o->attention_span_backward(x->dev, d, dt_call_mat(x, n->out[1]), dout, out, lse, qkv,
					       dt_call_mat(x, n->in[4]), &a, &s));
	} else if (x->flight->first || n->attr.all) {
		s = joined(x, n, &a, run);
		TRY(o->attention_span_backward(x->dev, d, d, dout, out, lse, qkv, qkv, &a, &s));
	} else {
		TRY(o->attention_backward(x->dev, d, dout, out, lse, qkv, &a));
	}
	return 0;
}

/* Copies this rank's keys and values, without its queries, into its block. */
static int pack_kv(struct dt_exec *x, const struct dt_node *n, struct dt_tensor to, struct dt_tensor qkv,
		   struct dt_err *err)
{
	TRY(x->dev->ops->columns(x->dev, to, 0, qkv, n->attr.heads * n->attr.head_dim, to.dim[1], false));
	return 0;
}

int dt_call_kv_gather(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_tensor kv = dt_call_mat(x, n->out[0]), qkv = dt_call_mat(x, n->in[0]),
			 own = dt_call_rows_of(kv, x->cp_rank * qkv.dim[0], qkv.dim[0]);
	int rc = pack_kv(x, n, own, qkv, err);
	double t0 = dt_now();

	if (rc == 0)
		rc = dt_all_gather(x->cp, kv.data, own.data, (size_t)dt_numel(own), x->dtype,
				   "keys and values", err);
	x->comm_s += dt_now() - t0;
	return rc;
}

int dt_call_kv_scatter(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_tensor dkv = dt_call_mat(x, n->in[1]), dqkv = dt_call_mat(x, n->out[0]),
			 own = dt_call_rows_of(dkv, x->cp_rank * dqkv.dim[0], dqkv.dim[0]);
	double t0 = dt_now();
	int rc = dt_reduce_scatter(x->cp, own.data, dkv.data, (size_t)dt_numel(own), DT_F32, DT_SUM,
				   "gradients of keys and values", err);

	x->comm_s += dt_now() - t0;
	if (rc < 0)
		return rc;
	if (dqkv.data != dt_call_at(x, n->in[0]))
		TRY(dt_dev_copy(x->dev, dqkv.data, dt_call_at(x, n->in[0]),
				(size_t)(dt_numel(dqkv) * dt_dtype_size(dqkv.dtype))));
	TRY(x->dev->ops->columns(x->dev, dqkv, n->attr.heads * n->attr.head_dim, own, 0, own.dim[1], false));
	return 0;
}

/* ---- Ulysses ---- */

/* Copies rows between a matrix of all tokens, in order, and the ranks' blocks [batch, seq] of messages. */
static int reorder(struct dt_exec *x, struct dt_tensor whole, struct dt_tensor blocks_of, bool to_whole,
		   struct dt_err *err)
{
	int64_t c = x->seq / 2, t = x->seq, wide = whole.dim[1] * dt_dtype_size(whole.dtype);

	for (int r = 0; r < x->cp_size; r++)
		for (int64_t b = 0; b < x->batch; b++)
			for (int half = 0; half < 2; half++) {
				int64_t at =
					b * x->positions + dt_zigzag(x->positions, x->cp_size, r, half * c);
				char *w = (char *)whole.data + at * wide,
				     *k = (char *)blocks_of.data + ((r * x->batch + b) * t + half * c) * wide;

				TRY(dt_dev_copy(x->dev, to_whole ? w : k, to_whole ? k : w,
						(size_t)(c * wide)));
			}
	return 0;
}

/* Columns of rank r's heads, in a row of all heads and in a row of only r's heads: queries, keys, values. */
struct heads_part {
	int64_t all, own, n;
	bool again; /* another rank has the same heads: gradients are added */
};

static int parts_of(const struct dt_node *n, int cp, int r, struct heads_part p[3])
{
	int64_t d = n->attr.head_dim, v = n->attr.value_dim, a = n->attr.heads, g = n->attr.kv_heads,
		q = a / cp, kv = g >= cp ? g / cp : 1, first = g >= cp ? r * kv : r * g / cp;

	p[0] = (struct heads_part){r * q * d, 0, q * d, false};
	if (g == 0)
		return 1;
	p[1] = (struct heads_part){(a + first) * d, q * d, kv * d, g < cp && r * g % cp != 0};
	p[2] = (struct heads_part){(a + g) * d + first * v, (q + kv) * d, kv * v, p[1].again};
	return 3;
}

static int exchange(struct dt_exec *x, struct dt_tensor to, struct dt_tensor from, struct dt_err *err)
{
	double t0 = dt_now();
	int rc = dt_all_to_all(x->cp, to.data, from.data, (size_t)(dt_numel(to) / x->cp_size), x->dtype,
			       "heads and tokens", err);

	x->comm_s += dt_now() - t0;
	return rc;
}

int dt_call_to_heads(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_tensor in = dt_call_mat(x, n->in[0]), out = dt_call_mat(x, n->out[0]),
			 sent = dt_call_mat(x, n->out[1]), got = dt_call_mat(x, n->out[2]);
	struct heads_part p[3];
	int rc;

	for (int r = 0; r < x->cp_size; r++)
		for (int i = 0; i < parts_of(n, x->cp_size, r, p); i++)
			TRY(x->dev->ops->columns(x->dev, dt_call_rows_of(sent, r * in.dim[0], in.dim[0]),
						 p[i].own, in, p[i].all, p[i].n, false));
	rc = exchange(x, got, sent, err);
	return rc < 0 ? rc : reorder(x, out, got, true, err);
}

int dt_call_to_tokens(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_tensor in = dt_call_mat(x, n->in[0]), out = dt_call_mat(x, n->out[0]),
			 sent = dt_call_mat(x, n->out[1]), got = dt_call_mat(x, n->out[2]);
	struct heads_part p[3];
	int rc = reorder(x, in, sent, false, err);

	if (rc == 0)
		rc = exchange(x, got, sent, err);
	for (int r = 0; r < x->cp_size && rc == 0; r++)
		for (int i = 0; i < parts_of(n, x->cp_size, r, p); i++)
			TRY(x->dev->ops->columns(x->dev, out, p[i].all,
						 dt_call_rows_of(got, r * out.dim[0], out.dim[0]), p[i].own,
						 p[i].n, p[i].again));
	return rc;
}

/* ---- ring ---- */

enum { KV, DKV };

/* Sends to the next rank of the ring and receives from the previous one. */
static int pass_on(struct dt_exec *x, struct dt_tensor from, struct dt_tensor to, int tag,
		   struct dt_comm_req *req[2], struct dt_err *err)
{
	int next = (x->cp_rank + 1) % x->cp_size, before = (x->cp_rank + x->cp_size - 1) % x->cp_size;
	int rc = dt_irecv(x->cp, to.data, (size_t)dt_numel(to), to.dtype, before, tag, "ring", &req[0], err);

	return rc < 0 ? rc
		      : dt_isend(x->cp, from.data, (size_t)dt_numel(from), from.dtype, next, tag, "ring",
				 &req[1], err);
}

static int arrived(struct dt_exec *x, struct dt_comm_req *req[2], struct dt_err *err)
{
	int rc = dt_wait(&req[0], &x->comm_s, err);

	return rc < 0 ? rc : dt_wait(&req[1], &x->comm_s, err);
}

int dt_call_ring(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_ops *o = x->dev->ops;
	struct dt_attn a = attention_of(x, n, x->seq);
	struct dt_tensor out = dt_call_mat(x, n->out[0]), qkv = dt_call_mat(x, n->in[0]),
			 kvs = dt_call_mat(x, n->out[2]), two = dt_call_mat(x, n->out[3]);
	int64_t rows = qkv.dim[0], numel = rows * two.dim[1];
	struct dt_tensor sum = dt_call_rows_of(two, 0, rows), part = dt_call_rows_of(two, rows, rows);
	struct dt_tensor lse = dt_t3(dt_call_at(x, n->out[1]), DT_F32, x->batch, a.heads, x->seq),
			 more = dt_t3(dt_call_at(x, n->out[4]), DT_F32, x->batch, a.heads, x->seq);
	int rc = pack_kv(x, n, dt_call_rows_of(kvs, 0, rows), qkv, err);

	for (int i = 0; i < x->cp_size && rc == 0; i++) {
		struct dt_tensor kv = dt_call_rows_of(kvs, i % 2 * rows, rows),
				 next = dt_call_rows_of(kvs, (i + 1) % 2 * rows, rows);
		struct dt_comm_req *req[2] = {NULL, NULL};
		struct dt_attn_run run[DT_ATTN_RUNS];
		struct dt_attn_span s = blocks(x, &a, (x->cp_rank + x->cp_size - i) % x->cp_size, 1, run);

		if (i + 1 < x->cp_size && (rc = pass_on(x, kv, next, KV, req, err)) < 0)
			return rc;
		TRY(o->attention_span_forward(x->dev, i ? part : sum, i ? more : lse, qkv, kv, &a, &s));
		if (i)
			TRY(o->attention_merge(x->dev, sum, lse, part, more));
		rc = arrived(x, req, err);
	}
	if (rc == 0)
		TRY(o->convert(x->dev, dt_t1(out.data, out.dtype, numel), dt_t1(sum.data, DT_F32, numel)));
	return rc == 0 ? add_sinks(x, n, err) : rc;
}

/*
 * Keys and values go around the ring again, followed by the sums of their gradients, which need one more step
 * to return to their rank.
 */
int dt_call_ring_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_ops *o = x->dev->ops;
	struct dt_attn a = attention_of(x, n, x->seq);
	struct dt_tensor dqkv = dt_call_mat(x, n->out[0]), qkv = dt_call_mat(x, n->in[3]),
			 kvs = dt_call_mat(x, n->out[1]), dkvs = dt_call_mat(x, n->out[2]),
			 dq = dt_call_mat(x, n->out[3]);
	int64_t rows = qkv.dim[0], q = dq.dim[1];
	struct dt_comm_req *moved[2] = {NULL, NULL};
	int rc = pack_kv(x, n, dt_call_rows_of(kvs, 0, rows), qkv, err);

	for (int i = 0; i < x->cp_size && rc == 0; i++) {
		struct dt_tensor kv = dt_call_rows_of(kvs, i % 2 * rows, rows),
				 dkv = dt_call_rows_of(dkvs, i % 2 * rows, rows);
		struct dt_comm_req *req[2] = {NULL, NULL};
		struct dt_attn_run run[DT_ATTN_RUNS];
		struct dt_attn_span s = blocks(x, &a, (x->cp_rank + x->cp_size - i) % x->cp_size, 1, run);

		s.add = i > 0;
		if (i + 1 < x->cp_size)
			rc = pass_on(x, kv, dt_call_rows_of(kvs, (i + 1) % 2 * rows, rows), KV, req, err);
		if (rc == 0)
			rc = arrived(x, moved, err); /* the gradient sums so far */
		if (rc < 0)
			return rc;
		TRY(o->attention_span_backward(x->dev, dq, dkv, dt_call_mat(x, n->in[0]),
					       dt_call_mat(x, n->in[1]), dt_call_vec(x, n->in[2]), qkv, kv,
					       &a, &s));
		rc = pass_on(x, dkv, dt_call_rows_of(dkvs, (i + 1) % 2 * rows, rows), DKV, moved, err);
		if (rc == 0)
			rc = arrived(x, req, err);
	}
	if (rc == 0)
		rc = arrived(x, moved, err);
	if (rc < 0)
		return rc;
	TRY(o->columns(x->dev, dqkv, 0, dq, 0, q, false));
	TRY(o->columns(x->dev, dqkv, q, dt_call_rows_of(dkvs, x->cp_size % 2 * rows, rows), 0, dkvs.dim[1],
		       false));
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
