/*
 * Attention over a sequence that is cut over context-parallel ranks. Three schemes:
 *   gather   all-gathers keys and values, queries stay (Llama 3, 2024, section 3.3.2); backward gathers
 *            them again and reduce-scatters their gradients
 *   ring     keys and values go around a ring while they are used (Liu et al. 2023), one node each way
 *   ulysses  all-to-all from a cut by tokens to a cut by heads and back (Jacobs et al., DeepSpeed
 *            Ulysses, 2023)
 */
#include "model/op/cost.h"
#include "model/op/rule.h"

/* Columns of keys and values. */
static int64_t kv_cols(const struct dt_attr *a)
{
	return a->kv_heads * (a->head_dim + a->value_dim);
}

void dt_shape_kv_gather(struct dt_lower *lo, struct dt_node *n)
{
	const struct dt_attr *a = &n->attr;
	const bool one = dt_lo_serves(lo) && a->latent_dim; /* key and value are the same latent */

	n->out[0] = dt_lo_value(lo, "kv", n->unit, lo->s->compute, DT_ROWS_SEQ, 1,
				one ? a->kv_heads * a->head_dim : kv_cols(a));
}

/* Nothing to do: the gather has one reader, attention, whose backward has emitted the scatter. */
void dt_back_kv_gather(struct dt_lower *lo, const struct dt_node *n)
{
}

/* Emits the reduce-scatter of dkv and adds it to dqkv; returns the complete gradient. */
int dt_lo_kv_scatter(struct dt_lower *lo, const struct dt_node *n, int dqkv, int dkv)
{
	struct dt_node *m = dt_lo_emit(lo, DT_OP_KV_SCATTER, n);
	int out = dt_lo_like(lo, "d.qkv", n->unit, dqkv);

	m->in[0] = dqkv;
	m->in[1] = dkv;
	m->out[0] = out;
	return out;
}

/* Columns of q, k and v (kv_heads 0: of q alone) of one rank's heads under Ulysses. */
static int64_t heads_cols(const struct dt_attr *a, int cp)
{
	int64_t kv = a->kv_heads == 0 ? 0 : a->kv_heads >= cp ? a->kv_heads / cp : 1;

	return a->heads / cp * a->head_dim + kv * (a->head_dim + a->value_dim);
}

static int exchange_room(struct dt_lower *lo, const struct dt_node *n, const char *name)
{
	return dt_lo_room(lo, name, n->unit, lo->s->compute, DT_ROWS_SEQ, 1, heads_cols(&n->attr, lo->s->cp));
}

void dt_shape_to_heads(struct dt_lower *lo, struct dt_node *n)
{
	const char *name = lo->p->value[n->in[0]].name;

	n->out[0] = dt_lo_value(lo, name, n->unit, lo->s->compute, DT_ROWS_SEQ, 1,
				heads_cols(&n->attr, lo->s->cp));
	n->out[1] = exchange_room(lo, n, "sent");
	n->out[2] = exchange_room(lo, n, "received");
}

void dt_shape_to_tokens(struct dt_lower *lo, struct dt_node *n)
{
	const char *name = lo->p->value[n->in[0]].name;

	n->out[0] = dt_lo_value(lo, name, n->unit, lo->s->compute, DT_ROWS_ALL, 1,
				n->attr.heads * n->attr.head_dim + kv_cols(&n->attr));
	n->out[1] = exchange_room(lo, n, "sent");
	n->out[2] = exchange_room(lo, n, "received");
}

/* Emits the reverse exchange as backward; shape: the shape rule of op. */
static void back_exchange(struct dt_lower *lo, const struct dt_node *n, enum dt_op op,
			  void (*shape)(struct dt_lower *lo, struct dt_node *n))
{
	struct dt_node *m = dt_lo_emit(lo, op, n);

	m->in[0] = dt_lo_grad(lo, n->out[0]);
	shape(lo, m);
	lo->p->value[m->out[0]].gradient = true;
	dt_lo_add_grad(lo, n->in[0], m->out[0]);
}

void dt_back_to_heads(struct dt_lower *lo, const struct dt_node *n)
{
	back_exchange(lo, n, DT_OP_TO_TOKENS, dt_shape_to_tokens);
}

void dt_back_to_tokens(struct dt_lower *lo, const struct dt_node *n)
{
	back_exchange(lo, n, DT_OP_TO_HEADS, dt_shape_to_heads);
}

/*
 * Two buffers of keys and values alternate: one is used while the other is received. The accumulated o and
 * the partial result of a block are f32.
 */
void dt_shape_ring(struct dt_lower *lo, struct dt_node *n)
{
	int64_t heads = n->attr.heads;

	dt_shape_attention(lo, n);
	n->out[2] = dt_lo_room(lo, "kv", n->unit, lo->s->compute, DT_ROWS_ALL, 2, kv_cols(&n->attr));
	n->out[3] = dt_lo_room(lo, "o and part", n->unit, DT_F32, DT_ROWS_ALL, 2, heads * n->attr.value_dim);
	n->out[4] = dt_lo_room(lo, "lse of part", n->unit, DT_F32, DT_ROWS_ALL, heads, 1);
}

void dt_back_ring(struct dt_lower *lo, const struct dt_node *n)
{
	int dy = dt_lo_grad(lo, n->out[0]), o = dt_lo_need(lo, n->out[0]), lse = dt_lo_need(lo, n->out[1]);
	int qkv = dt_lo_need(lo, n->in[0]), dx = dt_lo_like(lo, "d.qkv", n->unit, n->in[0]);
	int kv = dt_lo_room(lo, "kv", n->unit, lo->s->compute, DT_ROWS_ALL, 2, kv_cols(&n->attr));
	int dkv = dt_lo_room(lo, "d.kv", n->unit, DT_F32, DT_ROWS_ALL, 2, kv_cols(&n->attr));
	int dq = dt_lo_room(lo, "d.q", n->unit, DT_F32, DT_ROWS_ALL, 1, n->attr.heads * n->attr.head_dim);
	struct dt_node *m;

	dt_lo_sinks(lo, n, dy, o, lse);
	m = dt_lo_emit(lo, DT_OP_RING_B, n);
	m->in[0] = dy;
	m->in[1] = o;
	m->in[2] = lse;
	m->in[3] = qkv;
	m->out[0] = dx;
	m->out[1] = kv;
	m->out[2] = dkv;
	m->out[3] = dq;
	dt_lo_add_grad(lo, n->in[0], dx);
}

/* ---- costs ---- */

static struct dt_node_cost sends(const struct dt_cost_site *s, const struct dt_node *n, enum dt_message kind,
				 double bytes)
{
	struct dt_node_cost r = dt_cost_move(s, n);

	r.message = kind;
	r.message_bytes = bytes;
	r.over_cp = true;
	return r;
}

struct dt_node_cost dt_cost_kv_gather(const struct dt_cost_site *s, const struct dt_node *n)
{
	return sends(s, n, DT_MSG_GATHER, dt_cost_bytes(s, n->out[0]));
}

struct dt_node_cost dt_cost_kv_scatter(const struct dt_cost_site *s, const struct dt_node *n)
{
	return sends(s, n, DT_MSG_REDUCE_SCATTER, dt_cost_bytes(s, n->in[1]));
}

struct dt_node_cost dt_cost_exchange(const struct dt_cost_site *s, const struct dt_node *n)
{
	return sends(s, n, DT_MSG_ALL_TO_ALL, dt_cost_bytes(s, n->out[1]));
}

/* A rank receives the keys and values of all cp ranks; message_bytes is the total of all. */
struct dt_node_cost dt_cost_ring(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r = dt_cost_attention(s, n);

	r.message = DT_MSG_RING;
	r.message_bytes = dt_cost_bytes(s, n->out[2]) / 2 * s->cp;
	r.over_cp = true;
	return r;
}

struct dt_node_cost dt_cost_ring_b(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r = dt_cost_attention_b(s, n);

	r.message = DT_MSG_RING;
	r.message_bytes = (dt_cost_bytes(s, n->out[1]) + dt_cost_bytes(s, n->out[2])) / 2 * s->cp;
	r.over_cp = true;
	return r;
}
/* SPDX-License-Identifier: Apache-2.0 */
