/* Building blocks of image classifiers. */
#include "model/block/image.h"

#include "kernels/conv.h"

#include <math.h>
#include <stdio.h>

/* Sets a tensor's full name: those of image models have torchvision's names. */
static int named(struct dt_builder *b, int tensor, const char *name)
{
	struct dt_param *p = tensor < 0 ? NULL : dt_tensor_at(b, tensor);

	if (p)
		snprintf(p->name, sizeof(p->name), "%s", name);
	return tensor;
}

static struct dt_plane slid(struct dt_plane x, int v, int64_t channels, struct dt_sliding w)
{
	return (struct dt_plane){v, channels, dt_window_out(x.height, w.kernel, w.stride, w.pad),
				 dt_window_out(x.width, w.kernel, w.stride, w.pad)};
}

static struct dt_sliding window_over(struct dt_plane x, int64_t kernel, int64_t stride, int64_t pad)
{
	return (struct dt_sliding){x.channels, x.height, x.width, kernel, stride, pad};
}

struct dt_plane dt_block_pixels(struct dt_builder *b)
{
	static const char *const out[] = {"pixels"};
	struct dt_plane x = {-1, b->c->channels, b->c->image_size, b->c->image_size};
	struct dt_node *n = dt_node_add(b, DT_OP_PIXELS, "pixels", 1, out);

	if (n) {
		n->attr.window2d = window_over(x, 1, 1, 0);
		x.v = n->out[0];
	}
	return x;
}

struct dt_plane dt_block_conv(struct dt_builder *b, struct dt_plane x, const char *tensor, const char *name,
			      int64_t out, int64_t kernel, int64_t stride)
{
	static const char *const outs[] = {"conv"};
	const struct dt_sliding w = window_over(x, kernel, stride, kernel / 2);
	int t = named(b, dt_tensor_add_conv(b, tensor, out, x.channels, kernel), tensor);
	struct dt_node *n = dt_node_add(b, DT_OP_CONV, name, 1, outs);

	if (!n)
		return x;
	n->in[0] = x.v;
	n->param[0] = t;
	n->attr.window2d = w;
	return slid(x, n->out[0], out, w);
}

struct dt_plane dt_block_whiten(struct dt_builder *b, struct dt_plane x, const char *prefix, int64_t kernel)
{
	static const char *const outs[] = {"conv", "bias"};
	const int64_t out = 2 * x.channels * kernel * kernel;
	const struct dt_sliding w = window_over(x, kernel, 1, 0);
	struct dt_node *n = dt_node_add(b, DT_OP_CONV, "whiten", 2, outs);
	struct dt_param *p;
	char text[80];
	int t[2];

	snprintf(text, sizeof(text), "%s.weight", prefix);
	t[0] = named(b, dt_tensor_add_conv(b, text, out, x.channels, kernel), text);
	snprintf(text, sizeof(text), "%s.bias", prefix);
	t[1] = named(b, dt_tensor_add(b, DT_W_CONV_B, text, out, 0), text);
	p = dt_tensor_at(b, t[0]);
	if (!p || !n)
		return x;
	p->init = DT_INIT_WHITEN;
	p->frozen = true;
	n->in[0] = x.v;
	n->param[0] = t[0];
	n->param[3] = t[1];
	n->attr.window2d = w;
	return slid(x, n->out[0], out, w);
}

struct dt_plane dt_block_patches(struct dt_builder *b, struct dt_plane x)
{
	static const char *const outs[] = {"patches", "bias"};
	const int64_t side = b->c->patch, out = b->c->hidden;
	const struct dt_sliding w = window_over(x, side, side, 0);
	const int t[2] = {dt_tensor_add_conv(b, "patch.weight", out, x.channels, side),
			  dt_tensor_add(b, DT_W_CONV_B, "patch.bias", out, 0)};
	struct dt_node *n = dt_node_add(b, DT_OP_CONV, "patches", 2, outs);

	if (!n)
		return x;
	dt_tensor_at(b, t[0])->init_std = b->c->init_std;
	n->in[0] = x.v;
	n->param[0] = t[0];
	n->param[3] = t[1];
	n->attr.window2d = w;
	return slid(x, n->out[0], out, w);
}

int dt_block_tokens(struct dt_builder *b, struct dt_plane x)
{
	static const char *const outs[] = {"resid"};
	const int t[2] = {dt_tensor_add(b, DT_W_CLASS_TOKEN, "class_token", b->c->hidden, 0),
			  dt_tensor_add(b, DT_W_POS, "pos.weight", dt_config_tokens(b->c), b->c->hidden)};
	struct dt_node *n = dt_node_add(b, DT_OP_TOKENS, "tokens", 1, outs);

	if (!n)
		return -1;
	dt_tensor_at(b, t[0])->ones = 2;
	dt_tensor_at(b, t[0])->init = DT_INIT_NORMAL;
	dt_tensor_at(b, t[0])->init_std = b->c->init_std;
	dt_tensor_at(b, t[1])->ones = 1;
	dt_tensor_at(b, t[1])->decay = false;
	n->in[0] = x.v;
	n->param[0] = t[0];
	n->param[1] = t[1];
	return n->out[0];
}

struct dt_plane dt_block_class_row(struct dt_builder *b, int x)
{
	static const char *const outs[] = {"class"};
	struct dt_node *n = dt_node_add(b, DT_OP_CLASS_ROW, "class_row", 1, outs);

	if (n) {
		n->in[0] = x;
		n->attr.tokens = dt_config_tokens(b->c);
	}
	return (struct dt_plane){n ? n->out[0] : -1, b->c->hidden, 1, 1};
}

struct dt_plane dt_block_act(struct dt_builder *b, struct dt_plane x, enum dt_act_fn act)
{
	static const char *const outs[] = {"act"};
	struct dt_node *n = dt_node_add(b, DT_OP_ACT, "act", 1, outs);

	if (!n)
		return x;
	n->in[0] = x.v;
	n->attr.act = act;
	x.v = n->out[0];
	return x;
}

struct dt_plane dt_block_batch_norm(struct dt_builder *b, struct dt_plane x, const char *prefix,
				    const char *name, int residual, bool relu)
{
	static const char *const outs[] = {"norm", "mean", "rstd"};
	struct dt_node *n;
	char text[80];
	int tensor[2];
	int64_t at;

	for (int i = 0; i < 2; i++) {
		snprintf(text, sizeof(text), "%s.%s", prefix, i ? "bias" : "weight");
		tensor[i] = named(
			b, dt_tensor_add(b, i ? DT_W_BATCH_NORM_B : DT_W_BATCH_NORM, text, x.channels, 0),
			text);
	}
	if (!b->failed)
		dt_tensor_at(b, tensor[0])->init = DT_INIT_ONES;
	snprintf(text, sizeof(text), "%s.running_mean", prefix);
	at = dt_buffer_add(b, text, x.channels, DT_INIT_ZEROS);
	snprintf(text, sizeof(text), "%s.running_var", prefix);
	dt_buffer_add(b, text, x.channels, DT_INIT_ONES);
	n = dt_node_add(b, DT_OP_BATCH_NORM, name, 3, outs);
	if (!n)
		return x;
	n->in[0] = x.v;
	n->in[1] = residual;
	n->param[0] = tensor[0];
	n->param[1] = tensor[1];
	n->attr.eps = (float)b->c->norm_eps;
	n->attr.relu = relu;
	n->attr.buffer = at;
	x.v = n->out[0];
	return x;
}

struct dt_plane dt_block_pool(struct dt_builder *b, struct dt_plane x, bool max, int64_t kernel,
			      int64_t stride, int64_t pad)
{
	static const char *const outs[] = {"pooled", "places"};
	const struct dt_sliding w = window_over(x, kernel, stride, pad);
	struct dt_node *n = dt_node_add(b, max ? DT_OP_POOL_MAX : DT_OP_POOL_AVG, "pool", max ? 2 : 1, outs);

	if (!n)
		return x;
	n->in[0] = x.v;
	n->attr.window2d = w;
	return slid(x, n->out[0], x.channels, w);
}

struct dt_plane dt_block_flatten(struct dt_builder *b, struct dt_plane x)
{
	static const char *const outs[] = {"flat"};
	struct dt_node *n;

	if (x.height * x.width == 1)
		return x;
	n = dt_node_add(b, DT_OP_FLATTEN, "flatten", 1, outs);
	if (!n)
		return x;
	n->in[0] = x.v;
	return (struct dt_plane){n->out[0], x.channels * x.height * x.width, 1, 1};
}

/*
 * Adds a linear's weight and bias. The weight is normal with the variance of PyTorch's uniform on +-1 /
 * sqrt(in).
 */
static void linear_tensors(struct dt_builder *b, const char *prefix, int64_t out, int64_t in, bool bias,
			   int tensor[2])
{
	char text[80];

	snprintf(text, sizeof(text), "%s.weight", prefix);
	tensor[0] = named(b, dt_tensor_add(b, DT_W_CLASSES, text, out, in), text);
	snprintf(text, sizeof(text), "%s.bias", prefix);
	tensor[1] = bias ? named(b, dt_tensor_add(b, DT_W_CLASSES_B, text, out, 0), text) : -1;
	if (!b->failed)
		dt_tensor_at(b, tensor[0])->init_std = 1 / sqrt(3 * (double)in);
}

struct dt_plane dt_block_dense(struct dt_builder *b, struct dt_plane x, const char *prefix, int64_t out)
{
	int tensor[2], v;

	linear_tensors(b, prefix, out, x.channels, true, tensor);
	v = dt_block_linear(b, "dense", "up", x.v, 1, tensor, tensor + 1);
	return dt_block_act(b, (struct dt_plane){v, out, 1, 1}, DT_ACT_RELU);
}

static void classify(struct dt_builder *b, const char *name, struct dt_plane x, const int tensor[2])
{
	static const char *const outs[] = {"d.features", "logits", "d.logits", "loss rows"};
	struct dt_node *n = dt_node_add(b, DT_OP_CLASSIFY, name, 4, outs);

	if (!n)
		return;
	n->in[0] = x.v;
	n->param[0] = tensor[0];
	n->param[3] = tensor[1];
	n->attr.label_loss = b->c->label_loss;
}

void dt_block_classify(struct dt_builder *b, struct dt_plane x, bool bias)
{
	int tensor[2];

	linear_tensors(b, "fc", b->c->vocab, x.channels, bias, tensor);
	classify(b, "fc", x, tensor);
}

void dt_block_labels_loss(struct dt_builder *b, struct dt_plane x)
{
	const int64_t n = b->c->labels;
	const int tensor[2] = {dt_tensor_add(b, DT_W_LABELS, "labels.weight", n, x.channels),
			       dt_tensor_add(b, DT_W_LABELS_B, "labels.bias", n, 0)};

	classify(b, "labels", x, tensor);
}
/* SPDX-License-Identifier: Apache-2.0 */
