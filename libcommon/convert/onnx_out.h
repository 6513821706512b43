/*
 * An ONNX model (onnx.proto of ONNX 1.12: operator set 17, IR version 8) put together node by node. Values
 * are numbers; weights are read from the model's source when the file is written, so memory is that of one
 * tensor. Out of memory is found by ox_write.
 */
#ifndef DT_CONVERT_ONNX_OUT_H
#define DT_CONVERT_ONNX_OUT_H

#include "base/protobuf.h"
#include "ckpt/source.h"

#define OX_OPSET 17

struct ox_init { /* a constant; of the source where param or buffer says which */
	char *name;
	int64_t dim[4];
	int ndim, type; /* of TensorProto */
	int param;	/* -1: not one */
	const char *buffer;
	void *data; /* malloc'd */
	size_t bytes;
};

struct onnx {
	struct dt_source *s;
	struct dt_pb nodes, ends; /* fields of the graph: nodes; its inputs and outputs */
	struct ox_init *init;
	int ninit, nvalue;
	char **name; /* [nvalue] */
	bool failed;
};

struct ox_attr {
	const char *name;
	int n;	      /* of i; 0: f */
	int64_t i[4]; /* one is an INT, several INTS; n negative: a list of one */
	float f;
};

/* A new value; name NULL: a number. */
int ox_value(struct onnx *o, const char *name);
/* A node of one result; in may have -1 for what is left out. */
int ox_op(struct onnx *o, const char *type, const int *in, int nin, const struct ox_attr *a, int na);
/* x under a name of its own. */
int ox_named(struct onnx *o, const char *name, int x);
int ox_op1(struct onnx *o, const char *type, int x);
int ox_op2(struct onnx *o, const char *type, int x, int y);
/* x cut along its last dimension. */
void ox_split(struct onnx *o, int x, const int64_t *size, int n, int *out);
int ox_reshape(struct onnx *o, int x, const int64_t *dim, int n); /* 0: as it is; -1: the rest */
int ox_turn(struct onnx *o, int x, const int64_t *order, int n);  /* Transpose */
int ox_unsqueeze(struct onnx *o, int x, int64_t axis);
int ox_concat(struct onnx *o, const int *in, int n); /* along the last dimension */

int ox_number(struct onnx *o, float v);
int ox_ints(struct onnx *o, const int64_t *v, int n); /* [n]; n 0: the scalar *v */
/* A parameter of the source, a buffer of n elements, or data [rows, cols], which becomes o's. */
int ox_param(struct onnx *o, int i);
int ox_buffer(struct onnx *o, const char *name, int64_t n);
int ox_table(struct onnx *o, const char *name, float *data, int64_t rows, int64_t cols);

enum { OX_FLOAT = 1, OX_INT64 = 7 };
/* What goes in or comes out; text[i] names dimension i where it is not NULL. */
void ox_end(struct onnx *o, bool input, int value, int type, const int64_t *dim, const char *const *text,
	    int n);

/* meta: pairs of texts, ended by NULL. */
int ox_write(struct onnx *o, const char *path, const char *const *meta, struct dt_err *err);
void ox_release(struct onnx *o);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
