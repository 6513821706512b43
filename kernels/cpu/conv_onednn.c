/*
 * oneDNN convolutions, with a cache of primitives by shape. Images are rows of pixels (oneDNN's nhwc), so
 * that other ops see a matrix. Weights are reordered to the primitive's layout at each call: that moves 2
 * bytes per 2 x pixels x batch operations.
 */
#include "kernels/cpu/conv.h"
#include "kernels/cpu/conv_weights.h"

#include <stdlib.h>

enum { IMAGE, WEIGHT, RESULT, SCRATCH, BIAS, ARGS }; /* x or dx; w or dw; y or dy */

struct entry {
	struct dt_conv_key key;
	struct entry *next;
	bool widen; /* oneDNN has no such convolution on this processor, or a slow one */
	dnnl_primitive_t prim;
	dnnl_primitive_t reorder; /* of weights, to or from the primitive's layout; NULL: layout says */
	enum dt_conv_layout layout;
	dnnl_memory_desc_t blocked;	/* the weights in the primitive's layout */
	dnnl_memory_t mem[ARGS], plain; /* plain: the weights in our layout */
	size_t scratch_n, weight_n;
};

struct dt_conv_cache {
	struct entry *entry;
	void *room; /* memory for reordered weights and scratchpads */
	size_t room_n;
};

static int status(dnnl_status_t s)
{
	return s == dnnl_success	 ? 0
	       : s == dnnl_out_of_memory ? -ENOMEM
	       : s == dnnl_unimplemented ? -ENOTSUP
					 : -EIO;
}

static size_t align_up(size_t n)
{
	return (n + 63) / 64 * 64;
}

static void entry_free(struct entry *e)
{
	for (int i = 0; i < ARGS; i++)
		if (e->mem[i])
			dnnl_memory_destroy(e->mem[i]);
	if (e->plain)
		dnnl_memory_destroy(e->plain);
	if (e->prim)
		dnnl_primitive_destroy(e->prim);
	if (e->reorder)
		dnnl_primitive_destroy(e->reorder);
	free(e);
}

void dt_cpu_conv_release(struct dt_cpu *cpu)
{
	struct dt_conv_cache *c = cpu->conv;

	if (!c)
		return;
	for (struct entry *e = c->entry, *next; e; e = next) {
		next = e->next;
		entry_free(e);
	}
	free(c->room);
	free(c);
	cpu->conv = NULL;
}

size_t dt_cpu_conv_bytes(const struct dt_cpu *cpu)
{
	return cpu->conv ? ((struct dt_conv_cache *)cpu->conv)->room_n : 0;
}

static struct dt_conv_cache *cache(struct dt_cpu *cpu)
{
	if (!cpu->conv)
		cpu->conv = calloc(1, sizeof *cpu->conv);
	return cpu->conv;
}

void *dt_cpu_conv_room(struct dt_dev *dev, size_t n)
{
	struct dt_conv_cache *c = cache(dev->impl);

	if (!c || n <= c->room_n)
		return c ? c->room : NULL;
	free(c->room);
	c->room = dt_cpu_room(&n);
	c->room_n = c->room ? n : 0;
	return c->room;
}

/* Post-ops of a convolution: adds the old y, then applies ReLU. */
static dnnl_status_t post(const struct dt_conv_key *k, dnnl_primitive_attr_t attr)
{
	dnnl_post_ops_t ops;
	dnnl_status_t s = dnnl_post_ops_create(&ops);

	if (s)
		return s;
	if (k->adds)
		s = dnnl_post_ops_append_sum(ops, 1);
	if (!s && k->relu)
		s = dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_relu, 0, 0);
	s = s ? s : dnnl_primitive_attr_set_post_ops(attr, ops);
	dnnl_post_ops_destroy(ops);
	return s;
}

/* Creates the primitive descriptor; for backward ones also the forward one that serves as a hint. */
static dnnl_status_t describe(const struct dt_conv_key *k, enum dt_conv_kind kind, dnnl_engine_t engine,
			      const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *ret)
{
	const struct dt_conv *p = &k->p;
	const dnnl_data_type_t type = k->type == DT_F32 ? dnnl_f32 : dnnl_bf16;
	const dnnl_dims_t xd = {p->batch, p->channels, p->height, p->width},
			  wd = {p->out, p->channels, p->kernel, p->kernel},
			  yd = {p->batch, p->out, dt_window_out(p->height, p->kernel, p->stride, p->pad),
				dt_window_out(p->width, p->kernel, p->stride, p->pad)},
			  bd = {p->out}, step = {p->stride, p->stride}, pad = {p->pad, p->pad};
	dnnl_memory_desc_t x, w, y, b;
	dnnl_convolution_desc_t d;
	dnnl_primitive_attr_t attr = NULL;
	/* Right padding up to the end of the last window; pixels lost by rounding down do not count. */
	const dnnl_dims_t far = {(yd[2] - 1) * p->stride + p->kernel - p->height - p->pad,
				 (yd[3] - 1) * p->stride + p->kernel - p->width - p->pad};
	dnnl_status_t s = dnnl_memory_desc_init_by_tag(&x, 4, xd, type, dnnl_nhwc);

	s = s ? s : dnnl_memory_desc_init_by_tag(&y, 4, yd, type, dnnl_nhwc);
	s = s ? s : dnnl_memory_desc_init_by_tag(&b, 1, bd, dnnl_f32, dnnl_a);
	s = s ? s
	      : dnnl_memory_desc_init_by_tag(&w, 4, wd, kind == DT_CONV_WEIGHTS ? dnnl_f32 : type,
					     dnnl_format_tag_any);
	if (!s)
		s = kind == DT_CONV_FORWARD ? dnnl_convolution_forward_desc_init(&d, dnnl_forward_training,
										 dnnl_convolution_direct, &x,
										 &w, NULL, &y, step, pad, far)
		    : kind == DT_CONV_FORWARD_BIAS
			    ? dnnl_convolution_forward_desc_init(&d, dnnl_forward_inference,
								 dnnl_convolution_direct, &x, &w, &b, &y,
								 step, pad, far)
		    : kind == DT_CONV_BACKWARD
			    ? dnnl_convolution_backward_data_desc_init(&d, dnnl_convolution_direct, &x, &w,
								       &y, step, pad, far)
			    : dnnl_convolution_backward_weights_desc_init(&d, dnnl_convolution_direct, &x, &w,
									  NULL, &y, step, pad, far);
	s = s ? s : dnnl_primitive_attr_create(&attr);
	s = s ? s : dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
	s = s ? s : post(k, attr);
	s = s ? s : dnnl_primitive_desc_create(ret, &d, attr, engine, hint);
	if (attr)
		dnnl_primitive_attr_destroy(attr);
	return s;
}

/* The reorder of weights before the primitive, or behind it. */
static dnnl_status_t fill_reorder(struct entry *e, dnnl_engine_t engine, const dnnl_memory_desc_t *plain)
{
	const bool behind = e->key.kind == DT_CONV_WEIGHTS;
	dnnl_primitive_desc_t copy = NULL;
	dnnl_status_t s = dnnl_reorder_primitive_desc_create(&copy, behind ? &e->blocked : plain, engine,
							     behind ? plain : &e->blocked, engine, NULL);

	s = s ? s : dnnl_primitive_create(&e->reorder, copy);
	if (copy)
		dnnl_primitive_desc_destroy(copy);
	return s;
}

/* Creates the primitive, its memory objects, and the reorder of weights before or after it. */
static dnnl_status_t fill(struct entry *e, dnnl_engine_t engine, const_dnnl_primitive_desc_t pd)
{
	const enum dt_conv_kind kind = e->key.kind;
	const struct dt_conv *p = &e->key.p;
	const dnnl_dims_t wd = {p->out, p->channels, p->kernel, p->kernel};
	const dnnl_query_t image = kind == DT_CONV_BACKWARD ? dnnl_query_diff_src_md : dnnl_query_src_md,
			   weight = kind == DT_CONV_WEIGHTS ? dnnl_query_diff_weights_md
							    : dnnl_query_weights_md,
			   result = kind == DT_CONV_BACKWARD || kind == DT_CONV_WEIGHTS
					    ? dnnl_query_diff_dst_md
					    : dnnl_query_dst_md;
	const int args = kind == DT_CONV_FORWARD_BIAS ? ARGS : BIAS;
	const dnnl_memory_desc_t *md[ARGS] = {dnnl_primitive_desc_query_md(pd, image, 0),
					      dnnl_primitive_desc_query_md(pd, weight, 0),
					      dnnl_primitive_desc_query_md(pd, result, 0),
					      dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0),
					      dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 1)};
	dnnl_memory_desc_t plain;
	dnnl_status_t s = dnnl_primitive_create(&e->prim, pd);

	e->weight_n = align_up(dnnl_memory_desc_get_size(md[WEIGHT]));
	e->scratch_n = align_up(dnnl_memory_desc_get_size(md[SCRATCH]));
	for (int i = 0; i < args; i++)
		s = s ? s : dnnl_memory_create(&e->mem[i], md[i], engine, DNNL_MEMORY_NONE);
	s = s ? s : dnnl_memory_desc_init_by_tag(&plain, 4, wd, md[WEIGHT]->data_type, dnnl_oihw);
	s = s ? s : dnnl_memory_create(&e->plain, &plain, engine, DNNL_MEMORY_NONE);
	e->blocked = *md[WEIGHT];
	e->layout = dt_conv_layout_of(&e->blocked, kind == DT_CONV_WEIGHTS);
	return s || e->layout != DT_CONV_OTHER ? s : fill_reorder(e, engine, &plain);
}

static int entry_make(struct dt_cpu *cpu, struct entry *e)
{
	dnnl_primitive_desc_t forward = NULL, pd = NULL;
	const char *impl = "";
	const bool back = e->key.kind == DT_CONV_BACKWARD || e->key.kind == DT_CONV_WEIGHTS;
	dnnl_status_t s = dt_cpu_widens(e->key.type)
				  ? dnnl_unimplemented
				  : describe(&e->key, back ? DT_CONV_FORWARD : (enum dt_conv_kind)e->key.kind,
					     cpu->engine, NULL, &forward);

	if (!s && back)
		s = describe(&e->key, e->key.kind, cpu->engine, forward, &pd);
	if (!s)
		s = dnnl_primitive_desc_query(pd ? pd : forward, dnnl_query_impl_info_str, 0, &impl);
	if (e->key.type != DT_F32 && (s == dnnl_unimplemented || !strncmp(impl, "ref", 3)))
		e->widen = true;
	else if (!s)
		s = fill(e, cpu->engine, pd ? pd : forward);
	if (forward)
		dnnl_primitive_desc_destroy(forward);
	if (pd)
		dnnl_primitive_desc_destroy(pd);
	return e->widen ? 0 : status(s);
}

static int find(struct dt_cpu *cpu, const struct dt_conv_key *key, struct entry **ret)
{
	struct dt_conv_cache *c = cpu->conv;
	struct entry *e;
	int rc;

	for (e = c->entry; e; e = e->next)
		if (!memcmp(&e->key, key, sizeof *key)) {
			*ret = e;
			return 0;
		}
	e = calloc(1, sizeof *e);
	if (!e)
		return -ENOMEM;
	e->key = *key;
	rc = entry_make(cpu, e);
	if (rc < 0) {
		entry_free(e);
		return rc;
	}
	e->next = c->entry;
	*ret = c->entry = e;
	return 0;
}

/* Executes the convolution and oneDNN's reorder of weights, if it has one, in the required order. */
static dnnl_status_t both(struct dt_cpu *cpu, struct entry *e)
{
	static const int role[4][3] = {{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
				       {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
				       {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST},
				       {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST}};
	const bool behind = e->key.kind == DT_CONV_WEIGHTS;
	const dnnl_exec_arg_t copy[2] = {{DNNL_ARG_FROM, behind ? e->mem[WEIGHT] : e->plain},
					 {DNNL_ARG_TO, behind ? e->plain : e->mem[WEIGHT]}};
	const int *r = role[e->key.kind];
	const dnnl_exec_arg_t args[ARGS] = {{r[IMAGE], e->mem[IMAGE]},
					    {r[WEIGHT], e->mem[WEIGHT]},
					    {r[RESULT], e->mem[RESULT]},
					    {DNNL_ARG_SCRATCHPAD, e->mem[SCRATCH]},
					    {DNNL_ARG_BIAS, e->mem[BIAS]}};
	dnnl_status_t s = dnnl_success;

	if (!behind && e->reorder)
		s = dnnl_primitive_execute(e->reorder, cpu->stream, 2, copy);
	s = s ? s : dnnl_primitive_execute(e->prim, cpu->stream, e->mem[BIAS] ? ARGS : BIAS, args);
	if (behind && e->reorder)
		s = s ? s : dnnl_primitive_execute(e->reorder, cpu->stream, 2, copy);
	return s ? s : dnnl_stream_wait(cpu->stream);
}

static int execute(struct dt_dev *dev, struct entry *e, const struct dt_conv_operands *o)
{
	struct dt_cpu *cpu = dev->impl;
	const bool squares = e->layout == DT_CONV_SQUARES, adds = o->accumulate && !squares;
	const size_t plain_n = adds ? align_up((size_t)dt_numel(o->weight) * 4) : 0;
	char *at = dt_cpu_conv_room(dev, e->weight_n + e->scratch_n + plain_n + 64);
	struct dt_tensor sum = o->weight;
	int rc;

	if (!at)
		return -ENOMEM;
	if (adds)
		sum.data = at + e->weight_n + e->scratch_n;
	rc = status(dnnl_memory_set_data_handle(e->mem[IMAGE], o->image.data));
	rc = rc ? rc : status(dnnl_memory_set_data_handle(e->mem[RESULT], o->result.data));
	if (e->mem[BIAS])
		rc = rc ? rc : status(dnnl_memory_set_data_handle(e->mem[BIAS], o->bias.data));
	rc = rc ? rc : status(dnnl_memory_set_data_handle(e->mem[WEIGHT], at));
	rc = rc ? rc : status(dnnl_memory_set_data_handle(e->mem[SCRATCH], at + e->weight_n));
	rc = rc ? rc : status(dnnl_memory_set_data_handle(e->plain, sum.data));
	if (rc == 0 && e->layout == DT_CONV_PAIRS)
		dt_conv_pack(dev->nthreads, at, sum.data, &e->blocked);
	rc = rc ? rc : status(both(cpu, e));
	if (rc == 0 && squares)
		dt_conv_unpack(dev->nthreads, sum.data, (float *)at, &e->blocked, o->accumulate);
	return rc == 0 && adds ? dt_cpu_axpy(dev, o->weight, 1, sum) : rc;
}

int dt_conv_onednn(struct dt_dev *dev, const struct dt_conv_key *key, const struct dt_conv_operands *o)
{
	struct dt_cpu *cpu = dev->impl;
	struct entry *e;
	int rc;

	if (!cache(cpu))
		return -ENOMEM;
	rc = find(cpu, key, &e);
	if (rc < 0)
		return rc;
	return e->widen ? DT_CONV_WIDEN : execute(dev, e, o);
}
/* SPDX-License-Identifier: Apache-2.0 */
