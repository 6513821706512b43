#include "convert/onnx.h"

#include "convert/onnx_nodes.h"
#include "nn/exec.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int ox_times(struct ox_making *m, int x, float by)
{
	return by == 1 ? x : ox_op2(&m->o, "Mul", x, ox_number(&m->o, by));
}

int ox_capped(struct ox_making *m, int x, float cap)
{
	return cap > 0 ? ox_times(m, ox_op1(&m->o, "Tanh", ox_times(m, x, 1 / cap)), cap) : x;
}

/* y = x w^T + bias */
static int product(struct ox_making *m, int x, int weight, int bias)
{
	static const int64_t turned[] = {1, 0};
	const int y = ox_op2(&m->o, "MatMul", x, ox_turn(&m->o, ox_param(&m->o, weight), turned, 2));

	return bias < 0 ? y : ox_op2(&m->o, "Add", y, ox_param(&m->o, bias));
}

static int linear(struct ox_making *m, const struct dt_node *n)
{
	static const struct ox_attr flat = {.name = "axis", .n = 1, .i = {1}};
	int x = m->value[n->in[0]], y[3], parts = 0;

	if (m->ids < 0) /* flattens pixels of a 1 x 1 plane */
		x = ox_op(&m->o, "Flatten", &x, 1, &flat, 1);
	for (int i = 0; i < 3; i++)
		if (n->param[i] >= 0)
			y[parts++] = product(m, x, n->param[i], n->param[3 + i]);
	return ox_concat(&m->o, y, parts);
}

/* Adds an activation function (kernels/activation.h). */
int ox_activated(struct ox_making *m, int x, enum dt_act_fn f)
{
	int t;

	switch (f) {
	case DT_ACT_RELU:
		return ox_op1(&m->o, "Relu", x);
	case DT_ACT_SILU:
		return ox_op2(&m->o, "Mul", x, ox_op1(&m->o, "Sigmoid", x));
	case DT_ACT_GELU_ERF:
		t = ox_op1(&m->o, "Erf", ox_times(m, x, (float)M_SQRT1_2));
		break;
	default:
		t = ox_op2(&m->o, "Mul", ox_op2(&m->o, "Mul", x, x), ox_times(m, x, 0.044715f));
		t = ox_op1(&m->o, "Tanh", ox_times(m, ox_op2(&m->o, "Add", x, t), (float)sqrt(2 / M_PI)));
	}
	return ox_op2(&m->o, "Mul", ox_times(m, x, 0.5f), ox_op2(&m->o, "Add", t, ox_number(&m->o, 1)));
}

/* ---- images: ONNX has [batch, channels, height, width], dt's tensors are channels-last ---- */

static int windowed(struct ox_making *m, const char *type, const int *in, int nin, const struct dt_node *n)
{
	const struct dt_sliding *w = &n->attr.window2d;
	const struct ox_attr a[4] = {{.name = "kernel_shape", .n = 2, .i = {w->kernel, w->kernel}},
				     {.name = "strides", .n = 2, .i = {w->stride, w->stride}},
				     {.name = "pads", .n = 4, .i = {w->pad, w->pad, w->pad, w->pad}},
				     {.name = "count_include_pad", .n = 1, .i = {1}}};

	return ox_op(&m->o, type, in, nin, a, n->op == DT_OP_POOL_AVG ? 4 : 3);
}

static int batch_norm(struct ox_making *m, const struct dt_node *n)
{
	const struct ox_attr eps = {.name = "epsilon", .f = n->attr.eps};
	const struct dt_param *p = m->g.buffers.p;
	int in[5] = {m->value[n->in[0]], ox_param(&m->o, n->param[0]), ox_param(&m->o, n->param[1])}, y;

	for (int64_t at = 0; at < n->attr.buffer; p++)
		at += dt_param_numel(p);
	for (int i = 0; i < 2; i++) /* mean and variance */
		in[3 + i] = ox_buffer(&m->o, p[i].name, dt_param_numel(&p[i]));
	y = ox_op(&m->o, "BatchNormalization", in, 5, &eps, 1);
	if (n->in[1] >= 0)
		y = ox_op2(&m->o, "Add", y, m->value[n->in[1]]);
	return n->attr.relu ? ox_op1(&m->o, "Relu", y) : y;
}

static int flatten(struct ox_making *m, const struct dt_node *n)
{
	static const struct ox_attr flat = {.name = "axis", .n = 1, .i = {1}};
	static const int64_t by_pixel[] = {0, 2, 3, 1};
	const int x = ox_turn(&m->o, m->value[n->in[0]], by_pixel, 4);

	return ox_op(&m->o, "Flatten", &x, 1, &flat, 1);
}

/* ---- all models ---- */

/* The output of a node of a classifier, or of one common to all models; -1: the op is neither. */
static int image_node(struct ox_making *m, const struct dt_node *n)
{
	int in[3] = {n->in[0] >= 0 ? m->value[n->in[0]] : -1, -1, -1};

	switch (n->op) {
	case DT_OP_LINEAR:
		return linear(m, n);
	case DT_OP_ACT:
		return ox_activated(m, in[0], (enum dt_act_fn)n->attr.act);
	case DT_OP_ADD:
		return ox_op2(&m->o, "Add", in[0], m->value[n->in[1]]);
	case DT_OP_PIXELS:
		return m->value[n->out[0]];
	case DT_OP_CONV:
		in[1] = ox_param(&m->o, n->param[0]);
		if (n->param[3] >= 0)
			in[2] = ox_param(&m->o, n->param[3]);
		return windowed(m, "Conv", in, n->param[3] >= 0 ? 3 : 2, n);
	case DT_OP_BATCH_NORM:
		return batch_norm(m, n);
	case DT_OP_POOL_MAX:
		return windowed(m, "MaxPool", in, 1, n);
	case DT_OP_POOL_AVG:
		return windowed(m, "AveragePool", in, 1, n);
	case DT_OP_FLATTEN:
		return flatten(m, n);
	default:
		return -1;
	}
}

static int head(struct ox_making *m, const struct dt_node *n, struct dt_err *err)
{
	if (n->op == DT_OP_CLASSIFY)
		m->logits = linear(m, n);
	else if (n->param[1] >= 0)
		return dt_err_set(err, -ENOTSUP, "exporting a value head to ONNX is not supported");
	else
		m->logits = ox_capped(
			m, ox_times(m, product(m, m->value[n->in[0]], n->param[0], -1), n->attr.scale),
			n->attr.cap);
	return 0;
}

static int node(struct ox_making *m, const struct dt_node *n, struct dt_err *err)
{
	int y;

	if (n->op == DT_OP_LOSS || n->op == DT_OP_CLASSIFY)
		return head(m, n, err);
	y = ox_decoder_node(m, n);
	if (y < 0)
		y = image_node(m, n);
	if (y < 0)
		return dt_err_set(err, -ENOTSUP, "exporting '%s' to ONNX is not supported",
				  dt_node_op_name(n->op));
	m->value[n->out[0]] = y;
	return 0;
}

static void begin(struct ox_making *m)
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

static void finish(struct ox_making *m)
{
	static const char *const rows[] = {"batch", "sequence", NULL}, *const images[] = {"batch", NULL};
	const bool image = dt_config_is_image(m->c);
	const int64_t dim[3] = {0, image ? m->c->vocab : 0, m->c->vocab};

	m->logits = ox_named(&m->o, "logits", m->logits);
	ox_end(&m->o, false, m->logits, OX_FLOAT, dim, image ? images : rows, image ? 2 : 3);
}

static int make(struct ox_making *m, const char *dst, struct dt_err *err)
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
	struct ox_making m = {0};
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
