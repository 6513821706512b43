/* Nodes of decoders. */
#include "convert/onnx_nodes.h"

#include "nn/exec.h"

#include <math.h>
#include <stdlib.h>

static const struct ox_attr *axis_last(void)
{
	static const struct ox_attr a = {.name = "axis", .n = 1, .i = {-1}};

	return &a;
}

static int embed(struct ox_making *m, const struct dt_node *n)
{
	int x = ox_times(m, ox_op2(&m->o, "Gather", ox_param(&m->o, n->param[0]), m->ids), n->attr.scale);

	if (n->param[1] >= 0)
		x = ox_op2(&m->o, "Add", x, ox_op2(&m->o, "Gather", ox_param(&m->o, n->param[1]), m->pos));
	return x;
}

/* x / rms(x) times the weight, over the last dimension. */
static int rms(struct ox_making *m, int x, int weight, const struct dt_attr *a)
{
	static const struct ox_attr mean = {.name = "axes", .n = -1, .i = {-1}};
	const int square = ox_op2(&m->o, "Mul", x, x);
	const int sum = ox_op2(&m->o, "Add", ox_op(&m->o, "ReduceMean", &square, 1, &mean, 1),
			       ox_number(&m->o, a->eps));
	int w = ox_param(&m->o, weight);

	if (a->plus_one)
		w = ox_op2(&m->o, "Add", w, ox_number(&m->o, 1));
	return ox_op2(&m->o, "Mul", ox_op2(&m->o, "Div", x, ox_op1(&m->o, "Sqrt", sum)), w);
}

static int norm(struct ox_making *m, const struct dt_node *n)
{
	int x = m->value[n->in[0]];

	if (n->in[1] >= 0) {
		x = ox_op2(&m->o, "Add", x, m->value[n->in[1]]);
		m->value[n->out[1]] = x;
	}
	if (n->attr.layernorm) {
		const struct ox_attr a[2] = {*axis_last(), {.name = "epsilon", .f = n->attr.eps}};
		const bool biased = n->param[1] >= 0;
		const int in[3] = {x, ox_param(&m->o, n->param[0]),
				   biased ? ox_param(&m->o, n->param[1]) : -1};

		return ox_op(&m->o, "LayerNormalization", in, biased ? 3 : 2, a, 2);
	}
	return rms(m, x, n->param[0], &n->attr);
}

/* Splits the columns of q, k and v. */
static void heads_of(struct ox_making *m, const struct dt_node *n, int qkv[3])
{
	const int64_t d = n->attr.head_dim,
		      size[3] = {n->attr.heads * d, n->attr.kv_heads * d, n->attr.kv_heads * d};

	ox_split(&m->o, m->value[n->in[0]], size, 3, qkv);
}

static int heads_norm(struct ox_making *m, const struct dt_node *n)
{
	const int64_t back[3] = {0, 0, -1}, apart[4] = {0, 0, -1, n->attr.head_dim};
	int qkv[3];

	heads_of(m, n, qkv);
	for (int k = 0; k < 2; k++) {
		const int x = n->attr.whole ? qkv[k] : ox_reshape(&m->o, qkv[k], apart, 4);

		qkv[k] = rms(m, x, n->param[k], &n->attr);
		qkv[k] = n->attr.whole ? qkv[k] : ox_reshape(&m->o, qkv[k], back, 3);
	}
	return ox_concat(&m->o, qkv, 3);
}

/* The first rows of the cosine or sine table, [sequence, 1, rotated pairs]; -1: out of memory. */
static int angles(struct ox_making *m, bool local, int which)
{
	static const char *const names[2][2] = {{"cos", "sin"}, {"cos_local", "sin_local"}};
	const int64_t rows = m->c->max_seq, half = dt_rope_dim(m->c) / 2;
	int *t = m->table[local];

	if (t[0] < 0) {
		float *both[2] = {malloc((size_t)(rows * half) * 4), malloc((size_t)(rows * half) * 4)};

		m->o.failed |= !both[0] || !both[1];
		if (m->o.failed) {
			free(both[0]);
			free(both[1]);
			return -1;
		}
		(local ? dt_rope_local_table : dt_rope_table)(m->c, rows, both[0], both[1]);
		for (int i = 0; i < 2; i++)
			t[i] = ox_table(&m->o, names[local][i], both[i], rows, half);
	}
	return ox_unsqueeze(&m->o, ox_op2(&m->o, "Gather", t[which], m->pos), 1);
}

/* Splits the pairs of the last dimension into two tensors [.., half]; below, joins them again. */
static void pairs_of(struct ox_making *m, int x, int64_t half, int pair[2])
{
	const int64_t apart[5] = {0, 0, 0, half, 2}, one[2] = {1, 1}, halves[2] = {half, half}, last = -1;

	if (m->c->rope_pairing == DT_ROPE_HALF) {
		ox_split(&m->o, x, halves, 2, pair);
		return;
	}
	ox_split(&m->o, ox_reshape(&m->o, x, apart, 5), one, 2, pair);
	for (int i = 0; i < 2; i++)
		pair[i] = ox_op2(&m->o, "Squeeze", pair[i], ox_ints(&m->o, &last, 1));
}

static int paired(struct ox_making *m, const int pair[2])
{
	int apart[2];

	if (m->c->rope_pairing == DT_ROPE_HALF)
		return ox_concat(&m->o, pair, 2);
	for (int i = 0; i < 2; i++)
		apart[i] = ox_unsqueeze(&m->o, pair[i], -1);
	return ox_concat(&m->o, apart, 2);
}

static int rope(struct ox_making *m, const struct dt_node *n)
{
	const struct dt_attr *a = &n->attr;
	const int64_t d = a->head_dim, rotated = dt_rope_dim(m->c), of_head[2] = {rotated, d - rotated},
		      size[2] = {(a->heads + a->kv_heads) * d, a->kv_heads * d},
		      apart[4] = {0, 0, a->heads + a->kv_heads, d},
		      turned[4] = {0, 0, a->heads + a->kv_heads, rotated}, back[3] = {0, 0, size[0]};
	const bool local = a->local && m->c->rope_local_theta > 0;
	const int c = angles(m, local, 0), s = angles(m, local, 1);
	int part[2], head[2], x[2], y[2];

	ox_split(&m->o, m->value[n->in[0]], size, 2, part);
	head[0] = ox_reshape(&m->o, part[0], apart, 4);
	if (rotated < d)
		ox_split(&m->o, head[0], of_head, 2, head);
	pairs_of(m, head[0], rotated / 2, x);
	y[0] = ox_op2(&m->o, "Sub", ox_op2(&m->o, "Mul", x[0], c), ox_op2(&m->o, "Mul", x[1], s));
	y[1] = ox_op2(&m->o, "Add", ox_op2(&m->o, "Mul", x[0], s), ox_op2(&m->o, "Mul", x[1], c));
	head[0] = paired(m, y);
	if (rotated < d) {
		head[0] = ox_reshape(&m->o, head[0], turned, 4);
		head[0] = ox_concat(&m->o, head, 2);
	}
	part[0] = ox_reshape(&m->o, head[0], back, 3);
	return ox_concat(&m->o, part, 2);
}

/* Attention mask [sequence, sequence]: 0 if row i sees column j, else -Inf. */
static int mask(struct ox_making *m, int64_t window)
{
	const int64_t zero = 0;
	int distance, hidden, in[3];

	if (m->mask >= 0 && m->mask_window == window)
		return m->mask;
	distance = ox_op2(&m->o, "Sub", ox_unsqueeze(&m->o, m->pos, 1), ox_unsqueeze(&m->o, m->pos, 0));
	hidden = ox_op2(&m->o, "Less", distance, ox_ints(&m->o, &zero, 0));
	if (window > 0)
		hidden = ox_op2(&m->o, "Or", hidden,
				ox_op2(&m->o, "GreaterOrEqual", distance, ox_ints(&m->o, &window, 0)));
	in[0] = hidden;
	in[1] = ox_number(&m->o, -INFINITY);
	in[2] = ox_number(&m->o, 0);
	m->mask_window = window;
	return m->mask = ox_op(&m->o, "Where", in, 3, NULL, 0);
}

/* Heads that share keys are a separate dimension: [batch, kv heads, shared by, sequence, head_dim]. */
static int attention(struct ox_making *m, const struct dt_node *n)
{
	static const int64_t to_rows[] = {0, 2, 3, 1, 4}, to_columns[] = {0, 2, 3, 4, 1},
			     back[] = {0, 3, 1, 2, 4};
	const struct dt_attr *a = &n->attr;
	const int64_t d = a->head_dim, each = a->heads / a->kv_heads, of_q[5] = {0, 0, a->kv_heads, each, d},
		      of_k[5] = {0, 0, a->kv_heads, 1, d}, flat[3] = {0, 0, a->heads * d};
	int qkv[3], s;

	heads_of(m, n, qkv);
	qkv[0] = ox_turn(&m->o, ox_reshape(&m->o, qkv[0], of_q, 5), to_rows, 5);
	qkv[1] = ox_turn(&m->o, ox_reshape(&m->o, qkv[1], of_k, 5), to_columns, 5);
	qkv[2] = ox_turn(&m->o, ox_reshape(&m->o, qkv[2], of_k, 5), to_rows, 5);
	s = ox_capped(m, ox_times(m, ox_op2(&m->o, "MatMul", qkv[0], qkv[1]), a->scale), a->cap);
	s = ox_op2(&m->o, "Add", s, mask(m, a->window));
	s = ox_op(&m->o, "Softmax", &s, 1, axis_last(), 1);
	return ox_reshape(&m->o, ox_turn(&m->o, ox_op2(&m->o, "MatMul", s, qkv[2]), back, 5), flat, 3);
}

static int gated(struct ox_making *m, const struct dt_node *n)
{
	const int64_t size[2] = {m->c->ffn, m->c->ffn};
	int part[2];

	ox_split(&m->o, m->value[n->in[0]], size, 2, part);
	return ox_op2(&m->o, "Mul", ox_activated(m, part[0], (enum dt_act_fn)n->attr.act), part[1]);
}

int ox_decoder_node(struct ox_making *m, const struct dt_node *n)
{
	switch (n->op) {
	case DT_OP_EMBED:
		return embed(m, n);
	case DT_OP_NORM:
		return norm(m, n);
	case DT_OP_HEADS_NORM:
		return heads_norm(m, n);
	case DT_OP_ROPE:
		return rope(m, n);
	case DT_OP_ATTENTION:
		return attention(m, n);
	case DT_OP_GATED:
		return gated(m, n);
	default:
		return -1;
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
