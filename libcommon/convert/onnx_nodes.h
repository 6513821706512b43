/* For the files of onnx.h: nodes of a graph in operators of ONNX. Values are numbers of onnx_out.h. */
#ifndef DT_CONVERT_ONNX_NODES_H
#define DT_CONVERT_ONNX_NODES_H

#include "convert/onnx_out.h"
#include "kernels/activation.h"
#include "model/graph.h"

struct ox_making {
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

/* x times a number, tanh(x / cap) cap, x w^T + bias (-1: none), f(x); x itself where that changes nothing. */
int ox_times(struct ox_making *m, int x, float by);
int ox_capped(struct ox_making *m, int x, float cap);
int ox_activated(struct ox_making *m, int x, enum dt_act_fn f);

/* onnx_decoder.c: the value of a node of a decoder; -1: the op is none of those. */
int ox_decoder_node(struct ox_making *m, const struct dt_node *n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
