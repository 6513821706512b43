#include "convert/onnx_out.h"

#include "base/signals.h"
#include "base/tmpfile.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Field numbers of onnx.proto. */
enum { NODE_INPUT = 1, NODE_OUTPUT, NODE_NAME, NODE_TYPE, NODE_ATTRIBUTE };
enum { ATTR_NAME = 1, ATTR_F, ATTR_I, ATTR_INTS = 8, ATTR_TYPE = 20 };
enum { ATTR_IS_FLOAT = 1, ATTR_IS_INT = 2, ATTR_IS_INTS = 7 };
enum { TENSOR_DIMS = 1, TENSOR_TYPE = 2, TENSOR_NAME = 8, TENSOR_RAW = 9 };
enum { GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_INIT = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };
enum { MODEL_IR = 1, MODEL_PRODUCER, MODEL_VERSION, MODEL_GRAPH = 7, MODEL_OPSET, MODEL_META = 14 };

int ox_value(struct onnx *o, const char *name)
{
	char **grown = realloc(o->name, ((size_t)o->nvalue + 1) * sizeof(*grown)), text[24];

	o->failed |= !grown;
	if (!grown)
		return -1;
	o->name = grown;
	snprintf(text, sizeof(text), "v%d", o->nvalue);
	o->name[o->nvalue] = strdup(name ? name : text);
	o->failed |= !o->name[o->nvalue];
	return o->nvalue++;
}

static void put_name(struct onnx *o, struct dt_pb *m, int field, int v)
{
	dt_pb_text(m, field, v >= 0 && v < o->nvalue && o->name[v] ? o->name[v] : "");
}

static void put_attr(struct dt_pb *node, const struct ox_attr *a)
{
	struct dt_pb m = {0};

	dt_pb_text(&m, ATTR_NAME, a->name);
	if (a->n == 0)
		dt_pb_float(&m, ATTR_F, a->f);
	else if (a->n == 1)
		dt_pb_int(&m, ATTR_I, a->i[0]);
	for (int k = 0; a->n != 1 && k < (a->n < 0 ? -a->n : a->n); k++)
		dt_pb_int(&m, ATTR_INTS, a->i[k]);
	dt_pb_int(&m, ATTR_TYPE, a->n == 0 ? ATTR_IS_FLOAT : a->n == 1 ? ATTR_IS_INT : ATTR_IS_INTS);
	dt_pb_message(node, NODE_ATTRIBUTE, &m);
}

static void put_node(struct onnx *o, const char *type, const int *in, int nin, const int *out, int nout,
		     const struct ox_attr *a, int na)
{
	struct dt_pb m = {0};

	for (int i = 0; i < nin; i++)
		put_name(o, &m, NODE_INPUT, in[i]);
	for (int i = 0; i < nout; i++)
		put_name(o, &m, NODE_OUTPUT, out[i]);
	dt_pb_text(&m, NODE_TYPE, type);
	for (int i = 0; i < na; i++)
		put_attr(&m, &a[i]);
	dt_pb_message(&o->nodes, GRAPH_NODE, &m);
}

int ox_op(struct onnx *o, const char *type, const int *in, int nin, const struct ox_attr *a, int na)
{
	const int out = ox_value(o, NULL);

	put_node(o, type, in, nin, &out, 1, a, na);
	return out;
}

int ox_named(struct onnx *o, const char *name, int x)
{
	const int out = ox_value(o, name);

	put_node(o, "Identity", &x, 1, &out, 1, NULL, 0);
	return out;
}

int ox_op1(struct onnx *o, const char *type, int x)
{
	return ox_op(o, type, &x, 1, NULL, 0);
}

int ox_op2(struct onnx *o, const char *type, int x, int y)
{
	const int in[2] = {x, y};

	return ox_op(o, type, in, 2, NULL, 0);
}

void ox_split(struct onnx *o, int x, const int64_t *size, int n, int *out)
{
	const struct ox_attr last = {.name = "axis", .n = 1, .i = {-1}};
	const int in[2] = {x, ox_ints(o, size, n)};

	for (int i = 0; i < n; i++)
		out[i] = ox_value(o, NULL);
	put_node(o, "Split", in, 2, out, n, &last, 1);
}

int ox_reshape(struct onnx *o, int x, const int64_t *dim, int n)
{
	return ox_op2(o, "Reshape", x, ox_ints(o, dim, n));
}

int ox_turn(struct onnx *o, int x, const int64_t *order, int n)
{
	struct dt_pb m = {0}, attr = {0};
	const int out = ox_value(o, NULL);

	put_name(o, &m, NODE_INPUT, x);
	put_name(o, &m, NODE_OUTPUT, out);
	dt_pb_text(&m, NODE_TYPE, "Transpose");
	dt_pb_text(&attr, ATTR_NAME, "perm");
	for (int i = 0; i < n; i++)
		dt_pb_int(&attr, ATTR_INTS, order[i]);
	dt_pb_int(&attr, ATTR_TYPE, ATTR_IS_INTS);
	dt_pb_message(&m, NODE_ATTRIBUTE, &attr);
	dt_pb_message(&o->nodes, GRAPH_NODE, &m);
	return out;
}

int ox_unsqueeze(struct onnx *o, int x, int64_t axis)
{
	return ox_op2(o, "Unsqueeze", x, ox_ints(o, &axis, 1));
}

int ox_concat(struct onnx *o, const int *in, int n)
{
	const struct ox_attr last = {.name = "axis", .n = 1, .i = {-1}};

	return n == 1 ? in[0] : ox_op(o, "Concat", in, n, &last, 1);
}

/* ---- constants ---- */

static struct ox_init *add_init(struct onnx *o, const char *name, int type, int *ret)
{
	struct ox_init *grown = realloc(o->init, ((size_t)o->ninit + 1) * sizeof(*grown));

	*ret = ox_value(o, name);
	o->failed |= !grown;
	if (!grown || *ret < 0)
		return NULL;
	o->init = grown;
	o->init[o->ninit] = (struct ox_init){.name = o->name[*ret], .type = type, .param = -1};
	return &o->init[o->ninit++];
}

/* Adds a constant: a copy of data, n elements of `size` bytes. */
static int constant(struct onnx *o, int type, const void *data, int n, size_t size, bool scalar)
{
	int ret;
	struct ox_init *t = add_init(o, NULL, type, &ret);

	if (!t)
		return -1;
	t->ndim = !scalar;
	t->dim[0] = n;
	t->bytes = (size_t)n * size;
	t->data = malloc(t->bytes);
	o->failed |= !t->data;
	if (t->data)
		memcpy(t->data, data, t->bytes);
	return ret;
}

int ox_number(struct onnx *o, float v)
{
	return constant(o, OX_FLOAT, &v, 1, sizeof(v), true);
}

int ox_ints(struct onnx *o, const int64_t *v, int n)
{
	return constant(o, OX_INT64, v, n ? n : 1, sizeof(*v), n == 0);
}

int ox_table(struct onnx *o, const char *name, float *data, int64_t rows, int64_t cols)
{
	int ret;
	struct ox_init *t = add_init(o, name, OX_FLOAT, &ret);

	if (!t) {
		free(data);
		return -1;
	}
	t->ndim = 2;
	t->dim[0] = rows;
	t->dim[1] = cols;
	t->bytes = (size_t)(rows * cols) * sizeof(*data);
	t->data = data;
	return ret;
}

int ox_param(struct onnx *o, int i)
{
	const struct dt_param *p = &dt_source_params(o->s)->p[i];
	struct ox_init *t;
	int ret;

	for (int v = 0; v < o->nvalue; v++) /* a tied head exists already */
		if (o->name[v] && !strcmp(o->name[v], p->name))
			return v;
	t = add_init(o, p->name, OX_FLOAT, &ret);
	if (!t)
		return -1;
	t->ndim = dt_param_dims(p, t->dim);
	t->param = i;
	t->bytes = (size_t)dt_param_numel(p) * sizeof(float);
	return ret;
}

int ox_buffer(struct onnx *o, const char *name, int64_t n)
{
	int ret;
	struct ox_init *t = add_init(o, name, OX_FLOAT, &ret);

	if (!t)
		return -1;
	t->ndim = 1;
	t->dim[0] = n;
	t->buffer = name;
	t->bytes = (size_t)n * sizeof(float);
	return ret;
}

/* ---- the file ---- */

void ox_end(struct onnx *o, bool input, int value, int type, const int64_t *dim, const char *const *text,
	    int n)
{
	struct dt_pb m = {0}, kind = {0}, tensor = {0}, shape = {0};

	for (int i = 0; i < n; i++) {
		struct dt_pb d = {0};

		if (text[i])
			dt_pb_text(&d, 2, text[i]);
		else
			dt_pb_int(&d, 1, dim[i]);
		dt_pb_message(&shape, 1, &d);
	}
	dt_pb_int(&tensor, 1, type);
	dt_pb_message(&tensor, 2, &shape);
	dt_pb_message(&kind, 1, &tensor);
	put_name(o, &m, 1, value);
	dt_pb_message(&m, 2, &kind);
	dt_pb_message(&o->ends, input ? GRAPH_INPUT : GRAPH_OUTPUT, &m);
}

/* A constant's message without its bytes, which follow. */
static struct dt_pb head_of(const struct ox_init *t)
{
	struct dt_pb m = {0}, field = {0};

	for (int i = 0; i < t->ndim; i++)
		dt_pb_int(&m, TENSOR_DIMS, t->dim[i]);
	dt_pb_int(&m, TENSOR_TYPE, t->type);
	dt_pb_text(&m, TENSOR_NAME, t->name);
	dt_pb_begin(&m, TENSOR_RAW, t->bytes);
	dt_pb_begin(&field, GRAPH_INIT, m.n + t->bytes);
	dt_pb_raw(&field, m.p, m.n);
	field.failed |= m.failed;
	free(m.p);
	return field;
}

static int put_bytes(struct onnx *o, const struct ox_init *t, FILE *f, const char *path, struct dt_err *err)
{
	const int64_t off[2] = {0, 0};
	float *read = NULL;
	int rc = 0;

	if (!t->data && !(read = malloc(t->bytes)))
		return dt_err_sys(err, -ENOMEM, "cannot write '%s' of '%s'", t->name, path);
	if (t->param >= 0)
		rc = dt_source_read(o->s, t->param, off, dt_source_params(o->s)->p[t->param].shape, DT_F32,
				    read, err);
	else if (t->buffer)
		rc = dt_source_buffer(o->s, t->buffer, t->dim[0], read, err);
	errno = 0;
	if (rc == 0 && fwrite(t->data ? t->data : read, 1, t->bytes, f) != t->bytes)
		rc = dt_err_sys(err, errno ? -errno : -EIO, "cannot write '%s'", path);
	free(read);
	return rc;
}

static int put_graph(struct onnx *o, struct dt_pb *head, size_t n, FILE *f, const char *path,
		     struct dt_err *err)
{
	int rc = 0;

	dt_pb_begin(head, MODEL_GRAPH, n);
	if (head->failed)
		return dt_err_sys(err, -ENOMEM, "cannot write '%s'", path);
	errno = 0;
	if (fwrite(head->p, 1, head->n, f) != head->n || fwrite(o->nodes.p, 1, o->nodes.n, f) != o->nodes.n ||
	    fwrite(o->ends.p, 1, o->ends.n, f) != o->ends.n)
		return dt_err_sys(err, errno ? -errno : -EIO, "cannot write '%s'", path);
	for (int i = 0; i < o->ninit && rc == 0; i++) {
		struct dt_pb m = head_of(&o->init[i]);

		errno = m.failed ? ENOMEM : 0;
		if (m.failed || fwrite(m.p, 1, m.n, f) != m.n)
			rc = dt_err_sys(err, errno ? -errno : -EIO, "cannot write '%s'", path);
		free(m.p);
		if (rc == 0)
			rc = put_bytes(o, &o->init[i], f, path, err);
	}
	return rc;
}

int ox_write(struct onnx *o, const char *path, const char *const *meta, struct dt_err *err)
{
	struct dt_pb head = {0}, opset = {0};
	struct dt_tmpfile t;
	size_t n;
	int rc;

	dt_pb_text(&o->ends, GRAPH_NAME, "model");
	n = o->nodes.n + o->ends.n;
	for (int i = 0; i < o->ninit; i++) {
		struct dt_pb m = head_of(&o->init[i]);

		n += m.n + o->init[i].bytes;
		o->failed |= m.failed;
		free(m.p);
	}
	if (o->failed || o->nodes.failed || o->ends.failed)
		return dt_err_sys(err, -ENOMEM, "cannot write '%s'", path);
	if (n > INT32_MAX - 65536)
		return dt_err_set(err, -EFBIG,
				  "the model needs %.1f GiB as ONNX, but ONNX files are limited to 2 GiB",
				  (double)n / (1 << 30));
	dt_pb_int(&head, MODEL_IR, 8);
	dt_pb_text(&head, MODEL_PRODUCER, "dt");
	dt_pb_text(&head, MODEL_VERSION, DT_VERSION);
	dt_pb_int(&opset, 2, OX_OPSET);
	dt_pb_message(&head, MODEL_OPSET, &opset);
	for (; *meta; meta += 2) {
		struct dt_pb pair = {0};

		dt_pb_text(&pair, 1, meta[0]);
		dt_pb_text(&pair, 2, meta[1]);
		dt_pb_message(&head, MODEL_META, &pair);
	}
	rc = dt_tmpfile_open(&t, path, err);
	if (rc == 0) {
		dt_signals_remove(t.tmp);
		rc = put_graph(o, &head, n, t.f, path, err);
		if (rc == 0)
			rc = dt_tmpfile_commit(&t, err);
		else
			dt_tmpfile_abort(&t);
		dt_signals_remove(NULL);
	}
	free(head.p);
	return rc;
}

void ox_release(struct onnx *o)
{
	for (int i = 0; i < o->ninit; i++)
		free(o->init[i].data);
	for (int i = 0; i < o->nvalue; i++)
		free(o->name[i]);
	free(o->init);
	free(o->name);
	free(o->nodes.p);
	free(o->ends.p);
}
/* SPDX-License-Identifier: Apache-2.0 */
