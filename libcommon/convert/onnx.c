#include "convert/onnx.h"

#include "convert/onnx_out.h"
#include "kernels/activation.h"
#include "kernels/rope.h"
#include "model/graph.h"
#include "nn/exec.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct making {
	struct onnx o;
	const struct dt_config *c;
	struct dt_graph g;
	int *value;	     /* [g.nvalue] what a value of the graph is there */
	int ids, pos;	     /* decoders: input_ids, and 0 .. sequence - 1; else -1 */
	int table[2][2];     /* cos and sin of every position, of layers with a window too; -1: not yet */
	int mask;	     /* of the last window asked for; -1: none yet */
	int64_t mask_window; /* that window */
	int logits;
};

static const struct ox_attr *axis_last(void)
{
	static const struct ox_attr a = {.name = "axis", .n = 1, .i = {-1}};

	return &a;
}

static int times(struct making *m, int x, float by)
{
	return by == 1 ? x : ox_op2(&m->o, "Mul", x, ox_number(&m->o, by));
}

static int capped(struct making *m, int x, float cap)
{
	return cap > 0 ? times(m, ox_op1(&m->o, "Tanh", times(m, x, 1 / cap)), cap) : x;
}

/* x w^T + bias */
static int product(struct making *m, int x, int weight, int bias)
{
	static const int64_t turned[] = {1, 0};
	const int y = ox_op2(&m->o, "MatMul", x, ox_turn(&m->o, ox_param(&m->o, weight), turned, 2));

	return bias < 0 ? y : ox_op2(&m->o, "Add", y, ox_param(&m->o, bias));
}

/* ---- decoders ---- */

static int embed(struct making *m, const struct dt_node *n)
{
	int x = times(m, ox_op2(&m->o, "Gather", ox_param(&m->o, n->param[0]), m->ids), n->attr.scale);

	if (n->param[1] >= 0)
		x = ox_op2(&m->o, "Add", x, ox_op2(&m->o, "Gather", ox_param(&m->o, n->param[1]), m->pos));
	return x;
}

/* x / rms(x) times the weight, over the last dimension. */
static int rms(struct making *m, int x, int weight, const struct dt_attr *a)
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

static int norm(struct making *m, const struct dt_node *n)
{
	int x = m->value[n->in[0]];

	if (n->in[1] >= 0) {
		x = ox_op2(&m->o, "Add", x, m->value[n->in[1]]);
		m->value[n->out[1]] = x;
	}
	if (n->attr.layernorm) {
		const struct ox_attr a[2] = {*axis_last(), {.name = "epsilon", .f = n->attr.eps}};
		const int in[3] = {x, ox_param(&m->o, n->param[0]), ox_param(&m->o, n->param[1])};

		return ox_op(&m->o, "LayerNormalization", in, 3, a, 2);
	}
	return rms(m, x, n->param[0], &n->attr);
}

static int linear(struct making *m, const struct dt_node *n)
{
	static const struct ox_attr flat = {.name = "axis", .n = 1, .i = {1}};
	int x = m->value[n->in[0]], y[3], parts = 0;

	if (m->ids < 0) /* pixels of a plane of one */
		x = ox_op(&m->o, "Flatten", &x, 1, &flat, 1);
	for (int i = 0; i < 3; i++)
		if (n->param[i] >= 0)
			y[parts++] = product(m, x, n->param[i], n->param[3 + i]);
	return ox_concat(&m->o, y, parts);
}

/* Columns of q, k and v apart. */
static void heads_of(struct making *m, const struct dt_node *n, int qkv[3])
{
	const int64_t d = n->attr.head_dim,
		      size[3] = {n->attr.heads * d, n->attr.kv_heads * d, n->attr.kv_heads * d};

	ox_split(&m->o, m->value[n->in[0]], size, 3, qkv);
}

static int heads_norm(struct making *m, const struct dt_node *n)
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

/* Rows of the tables of cosines and sines, [sequence, 1, head_dim / 2]; -1: out of memory. */
static int angles(struct making *m, bool local, int which)
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

/* The pairs of the last dimension apart, as [.., half] each; and together again. */
static void pairs_of(struct making *m, int x, int64_t half, int pair[2])
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

static int paired(struct making *m, const int pair[2])
{
	int apart[2];

	if (m->c->rope_pairing == DT_ROPE_HALF)
		return ox_concat(&m->o, pair, 2);
	for (int i = 0; i < 2; i++)
		apart[i] = ox_unsqueeze(&m->o, pair[i], -1);
	return ox_concat(&m->o, apart, 2);
}

static int rope(struct making *m, const struct dt_node *n)
{
	const struct dt_attr *a = &n->attr;
	const int64_t d = a->head_dim, size[2] = {(a->heads + a->kv_heads) * d, a->kv_heads * d},
		      apart[4] = {0, 0, a->heads + a->kv_heads, d}, back[3] = {0, 0, size[0]};
	const bool local = a->local && m->c->rope_local_theta > 0;
	const int c = angles(m, local, 0), s = angles(m, local, 1);
	int part[2], x[2], y[2];

	ox_split(&m->o, m->value[n->in[0]], size, 2, part);
	pairs_of(m, ox_reshape(&m->o, part[0], apart, 4), d / 2, x);
	y[0] = ox_op2(&m->o, "Sub", ox_op2(&m->o, "Mul", x[0], c), ox_op2(&m->o, "Mul", x[1], s));
	y[1] = ox_op2(&m->o, "Add", ox_op2(&m->o, "Mul", x[0], s), ox_op2(&m->o, "Mul", x[1], c));
	part[0] = ox_reshape(&m->o, paired(m, y), back, 3);
	return ox_concat(&m->o, part, 2);
}

/* [sequence, sequence]: 0 where row i sees column j, else -Inf. */
static int mask(struct making *m, int64_t window)
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

/* Heads that share keys are a dimension of their own: [batch, kv heads, shared by, sequence, head_dim]. */
static int attention(struct making *m, const struct dt_node *n)
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
	s = capped(m, times(m, ox_op2(&m->o, "MatMul", qkv[0], qkv[1]), a->scale), a->cap);
	s = ox_op2(&m->o, "Add", s, mask(m, a->window));
	s = ox_op(&m->o, "Softmax", &s, 1, axis_last(), 1);
	return ox_reshape(&m->o, ox_turn(&m->o, ox_op2(&m->o, "MatMul", s, qkv[2]), back, 5), flat, 3);
}

/* kernels/activation.h */
static int activated(struct making *m, int x, enum dt_act_fn f)
{
	int t;

	switch (f) {
	case DT_ACT_RELU:
		return ox_op1(&m->o, "Relu", x);
	case DT_ACT_SILU:
		return ox_op2(&m->o, "Mul", x, ox_op1(&m->o, "Sigmoid", x));
	case DT_ACT_GELU_ERF:
		t = ox_op1(&m->o, "Erf", times(m, x, (float)M_SQRT1_2));
		break;
	default:
		t = ox_op2(&m->o, "Mul", ox_op2(&m->o, "Mul", x, x), times(m, x, 0.044715f));
		t = ox_op1(&m->o, "Tanh", times(m, ox_op2(&m->o, "Add", x, t), (float)sqrt(2 / M_PI)));
	}
	return ox_op2(&m->o, "Mul", times(m, x, 0.5f), ox_op2(&m->o, "Add", t, ox_number(&m->o, 1)));
}

static int gated(struct making *m, const struct dt_node *n)
{
	const int64_t size[2] = {m->c->ffn, m->c->ffn};
	int part[2];

	ox_split(&m->o, m->value[n->in[0]], size, 2, part);
	return ox_op2(&m->o, "Mul", activated(m, part[0], (enum dt_act_fn)n->attr.act), part[1]);
}

/* ---- images: planes are [batch, channels, height, width], ours by pixel ---- */

static int windowed(struct making *m, const char *type, const int *in, int nin, const struct dt_node *n)
{
	const struct dt_sliding *w = &n->attr.window2d;
	const struct ox_attr a[4] = {{.name = "kernel_shape", .n = 2, .i = {w->kernel, w->kernel}},
				     {.name = "strides", .n = 2, .i = {w->stride, w->stride}},
				     {.name = "pads", .n = 4, .i = {w->pad, w->pad, w->pad, w->pad}},
				     {.name = "count_include_pad", .n = 1, .i = {1}}};

	return ox_op(&m->o, type, in, nin, a, n->op == DT_OP_POOL_AVG ? 4 : 3);
}

static int batch_norm(struct making *m, const struct dt_node *n)
{
	const struct ox_attr eps = {.name = "epsilon", .f = n->attr.eps};
	const struct dt_param *p = m->g.buffers.p;
	int in[5] = {m->value[n->in[0]], ox_param(&m->o, n->param[0]), ox_param(&m->o, n->param[1])}, y;

	for (int64_t at = 0; at < n->attr.buffer; p++)
		at += dt_param_numel(p);
	for (int i = 0; i < 2; i++) /* the mean, then the variance */
		in[3 + i] = ox_buffer(&m->o, p[i].name, dt_param_numel(&p[i]));
	y = ox_op(&m->o, "BatchNormalization", in, 5, &eps, 1);
	if (n->in[1] >= 0)
		y = ox_op2(&m->o, "Add", y, m->value[n->in[1]]);
	return n->attr.relu ? ox_op1(&m->o, "Relu", y) : y;
}

static int flatten(struct making *m, const struct dt_node *n)
{
	static const struct ox_attr flat = {.name = "axis", .n = 1, .i = {1}};
	static const int64_t by_pixel[] = {0, 2, 3, 1};
	const int x = ox_turn(&m->o, m->value[n->in[0]], by_pixel, 4);

	return ox_op(&m->o, "Flatten", &x, 1, &flat, 1);
}

/* ---- all ---- */

static int node(struct making *m, const struct dt_node *n, struct dt_err *err)
{
	int in[2] = {n->in[0] >= 0 ? m->value[n->in[0]] : -1, -1}, y = -1;

	switch (n->op) {
	case DT_OP_EMBED:
		y = embed(m, n);
		break;
	case DT_OP_NORM:
		y = norm(m, n);
		break;
	case DT_OP_LINEAR:
		y = linear(m, n);
		break;
	case DT_OP_HEADS_NORM:
		y = heads_norm(m, n);
		break;
	case DT_OP_ROPE:
		y = rope(m, n);
		break;
	case DT_OP_ATTENTION:
		y = attention(m, n);
		break;
	case DT_OP_ACT:
		y = activated(m, in[0], (enum dt_act_fn)n->attr.act);
		break;
	case DT_OP_GATED:
		y = gated(m, n);
		break;
	case DT_OP_ADD:
		y = ox_op2(&m->o, "Add", in[0], m->value[n->in[1]]);
		break;
	case DT_OP_PIXELS:
		y = m->value[n->out[0]];
		break;
	case DT_OP_CONV:
		in[1] = ox_param(&m->o, n->param[0]);
		y = windowed(m, "Conv", in, 2, n);
		break;
	case DT_OP_BATCH_NORM:
		y = batch_norm(m, n);
		break;
	case DT_OP_POOL_MAX:
		y = windowed(m, "MaxPool", in, 1, n);
		break;
	case DT_OP_POOL_AVG:
		y = windowed(m, "AveragePool", in, 1, n);
		break;
	case DT_OP_FLATTEN:
		y = flatten(m, n);
		break;
	case DT_OP_LOSS:
	case DT_OP_CLASSIFY:
		if (n->op == DT_OP_LOSS && n->param[1] >= 0)
			return dt_err_set(err, -ENOTSUP, "a value head has no form in ONNX here");
		m->logits = n->op == DT_OP_CLASSIFY
				    ? linear(m, n)
				    : capped(m, product(m, in[0], n->param[0], -1), n->attr.cap);
		return 0;
	default:
		return dt_err_set(err, -ENOTSUP, "'%s' of the model has no form in ONNX here",
				  dt_node_op_name(n->op));
	}
	m->value[n->out[0]] = y;
	return 0;
}

static void begin(struct making *m)
{
	static const char *const batch[] = {"batch", "sequence"}, *const planes[] = {"batch", NULL, NULL,
										     NULL};
	const int64_t size = m->c->image_size, dim[4] = {0, m->c->channels, size, size}, one = 1, zero = 0;
	int in[3];

	m->ids = m->pos = m->mask = -1;
	memset(m->table, -1, sizeof(m->table));
	if (dt_config_is_image(m->c)) {
		m->value[m->g.node[0].out[0]] = ox_value(&m->o, "pixels");
		ox_end(&m->o, true, m->value[m->g.node[0].out[0]], OX_FLOAT, dim, planes, 4);
		return;
	}
	m->ids = ox_value(&m->o, "input_ids");
	ox_end(&m->o, true, m->ids, OX_INT64, NULL, batch, 2);
	in[0] = ox_ints(&m->o, &zero, 0);
	in[1] = ox_op2(&m->o, "Gather", ox_op1(&m->o, "Shape", m->ids), ox_ints(&m->o, &one, 0));
	in[2] = ox_ints(&m->o, &one, 0);
	m->pos = ox_op(&m->o, "Range", in, 3, NULL, 0);
}

static void finish(struct making *m)
{
	static const char *const rows[] = {"batch", "sequence", NULL}, *const images[] = {"batch", NULL};
	const bool image = dt_config_is_image(m->c);
	const int64_t dim[3] = {0, image ? m->c->vocab : 0, m->c->vocab};

	m->logits = ox_named(&m->o, "logits", m->logits);
	ox_end(&m->o, false, m->logits, OX_FLOAT, dim, image ? images : rows, image ? 2 : 3);
}

static int make(struct making *m, const char *dst, struct dt_err *err)
{
	char *images = NULL;
	const char *meta[] = {"model", m->c->name, NULL, NULL, NULL};
	int rc = dt_graph_build(m->c, &m->g, err);

	if (rc < 0)
		return rc;
	m->value = calloc((size_t)m->g.nvalue + 1, sizeof(*m->value));
	if (!m->value)
		return dt_err_sys(err, -ENOMEM, "cannot write '%s'", dst);
	begin(m);
	for (int i = 0; i < m->g.nnode && rc == 0; i++)
		rc = node(m, &m->g.node[i], err);
	if (rc < 0)
		return rc;
	finish(m);
	if (dt_source_images(m->o.s) && (images = json_dumps(dt_source_images(m->o.s), JSON_COMPACT))) {
		meta[2] = "images";
		meta[3] = images;
	}
	m->o.failed |= dt_source_images(m->o.s) && !images;
	rc = ox_write(&m->o, dst, meta, err);
	free(images);
	return rc;
}

int dt_convert_onnx(const char *src, const char *dst, const struct dt_convert *c, struct dt_err *err)
{
	struct making m = {0};
	struct stat st;
	int rc;

	if (lstat(dst, &st) == 0)
		return dt_err_sys(err, -EEXIST, "cannot write '%s'", dst);
	rc = dt_source_open(src, c->from, "none", &m.o.s, err);
	if (rc < 0)
		return rc;
	m.c = dt_source_config(m.o.s);
	rc = make(&m, dst, err);
	ox_release(&m.o);
	free(m.value);
	dt_graph_release(&m.g);
	dt_source_close(m.o.s);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
