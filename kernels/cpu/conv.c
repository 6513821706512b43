/* Chooses the implementation of a convolution, and widens types that none supports. */
#include "kernels/cpu/conv.h"
#include "kernels/cpu/winograd.h"

static size_t align_up(size_t n)
{
	return (n + 63) / 64 * 64;
}

static int convolve(struct dt_dev *dev, const struct dt_conv_key *key, const struct dt_conv_operands *o);

/* Computes in f32: inputs are widened, the output is rounded once. */
static int convolve_wide(struct dt_dev *dev, const struct dt_conv_key *key, const struct dt_conv_operands *o)
{
	struct dt_conv_key wide = *key;
	const struct dt_tensor from[3] = {o->image, o->weight, o->result};
	const int out = key->kind == DT_CONV_BACKWARD ? 0 : key->kind == DT_CONV_WEIGHTS ? 1 : 2;
	struct dt_tensor to[3];
	const size_t bytes =
		dt_conv_wide_bytes((enum dt_dtype)key->type, key->kind == DT_CONV_WEIGHTS, &key->p);
	char *copies = dt_cpu_scratch_of(dev, DT_SCRATCH_WIDE, bytes);
	size_t n = 0;
	int rc = copies ? 0 : -ENOMEM;

	wide.type = DT_F32;
	for (int i = 0; i < 3 && rc == 0; i++) {
		to[i] = from[i];
		if (from[i].dtype == DT_F32)
			continue;
		to[i].dtype = DT_F32;
		to[i].data = copies + n;
		n += align_up((size_t)dt_numel(from[i]) * 4);
		if (i != out || key->adds)
			rc = dt_cpu_convert(dev, to[i], from[i]);
	}
	if (rc == 0)
		rc = convolve(dev, &wide,
			      &(struct dt_conv_operands){to[0], to[1], to[2], o->bias, o->accumulate});
	if (rc == 0 && to[out].data != from[out].data)
		rc = dt_cpu_convert(dev, from[out], to[out]);
	return rc;
}

static int winograd(struct dt_dev *dev, const struct dt_conv_key *key, const struct dt_conv_operands *o)
{
	const struct dt_conv *p = &key->p;
	float *room = dt_cpu_scratch_of(dev, DT_SCRATCH_PANELS, dt_wino_bytes(dev->nthreads, p));

	if (!room)
		return -ENOMEM;
	if (key->kind == DT_CONV_BACKWARD)
		dt_wino_backward(dev, room, o, p);
	else if (key->kind == DT_CONV_WEIGHTS)
		dt_wino_weights(dev, room, o, p);
	else
		dt_wino_forward(dev, room, o, key->adds, key->relu, p);
	return 0;
}

static int convolve(struct dt_dev *dev, const struct dt_conv_key *key, const struct dt_conv_operands *o)
{
	int rc;

	if (key->type == DT_F32 && dt_wino_takes(&key->p))
		return winograd(dev, key, o);
	rc = dt_conv_onednn(dev, key, o);
	return rc == DT_CONV_WIDEN ? convolve_wide(dev, key, o) : rc;
}

static int on_threads(struct dt_dev *dev, struct dt_conv_key key, const struct dt_conv *p,
		      const struct dt_conv_operands *o)
{
	int rc, threads;

	key.p = *p;
	key.nthreads = dev->nthreads;
	key.type = (uint8_t)o->image.dtype;
	threads = dt_cpu_set_threads(dev->nthreads);
	rc = convolve(dev, &key, o);
	omp_set_num_threads(threads);
	return rc;
}

int dt_cpu_conv_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, struct dt_tensor w,
			const struct dt_conv *p)
{
	return on_threads(dev, (struct dt_conv_key){.kind = DT_CONV_FORWARD}, p,
			  &(struct dt_conv_operands){.image = x, .weight = w, .result = y});
}

int dt_cpu_conv_bias(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, struct dt_tensor w,
		     struct dt_tensor bias, struct dt_tensor residual, bool relu, const struct dt_conv *p)
{
	const struct dt_conv_key key = {
		.kind = DT_CONV_FORWARD_BIAS, .adds = residual.data != NULL, .relu = relu};
	const int rc = residual.data && residual.data != y.data ? dt_cpu_convert(dev, y, residual) : 0;

	return rc < 0 ? rc
		      : on_threads(dev, key, p,
				   &(struct dt_conv_operands){
					   .image = x, .weight = w, .result = y, .bias = bias});
}

int dt_cpu_conv_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy, struct dt_tensor w,
			 const struct dt_conv *p)
{
	return on_threads(dev, (struct dt_conv_key){.kind = DT_CONV_BACKWARD}, p,
			  &(struct dt_conv_operands){.image = dx, .weight = w, .result = dy});
}

int dt_cpu_conv_weights(struct dt_dev *dev, struct dt_tensor dw, struct dt_tensor dy, struct dt_tensor x,
			bool accumulate, const struct dt_conv *p)
{
	if (!p->batch)
		return dt_cpu_fill(dev, dw, 0);
	return on_threads(
		dev, (struct dt_conv_key){.kind = DT_CONV_WEIGHTS}, p,
		&(struct dt_conv_operands){.image = x, .weight = dw, .result = dy, .accumulate = accumulate});
}
/* SPDX-License-Identifier: Apache-2.0 */
