/*
 * Convolutions by cuDNN, which is loaded when the device is opened, so that programs also start without it.
 * Images and weights are NHWC for cuDNN, so weights are converted at each call, as on the CPU. Of the
 * algorithms that its heuristics suggest, the first deterministic one that needs at most WORKSPACE is used.
 * The choice for a shape is cached.
 */
#include "kernels/cuda/conv.h"
#include "kernels/symbols.h"

#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>

#define WORKSPACE ((size_t)256 << 20)
enum { OFFERS = 8 }; /* suggestions examined */

/* Functions of cuDNN that this file calls. */
#define FUNCTIONS(X)                                                                                         \
	X(cudnnCreate)                                                                                       \
	X(cudnnDestroy)                                                                                      \
	X(cudnnSetStream)                                                                                    \
	X(cudnnCreateTensorDescriptor)                                                                       \
	X(cudnnDestroyTensorDescriptor)                                                                      \
	X(cudnnSetTensor4dDescriptor)                                                                        \
	X(cudnnCreateFilterDescriptor)                                                                       \
	X(cudnnDestroyFilterDescriptor)                                                                      \
	X(cudnnSetFilter4dDescriptor)                                                                        \
	X(cudnnCreateConvolutionDescriptor)                                                                  \
	X(cudnnDestroyConvolutionDescriptor)                                                                 \
	X(cudnnSetConvolution2dDescriptor)                                                                   \
	X(cudnnSetConvolutionMathType)                                                                       \
	X(cudnnGetConvolutionForwardAlgorithm_v7)                                                            \
	X(cudnnGetConvolutionBackwardDataAlgorithm_v7)                                                       \
	X(cudnnGetConvolutionBackwardFilterAlgorithm_v7)                                                     \
	X(cudnnConvolutionForward)                                                                           \
	X(cudnnConvolutionBackwardData)                                                                      \
	X(cudnnConvolutionBackwardFilter)

enum kind { FORWARD, BACKWARD, WEIGHTS };

struct key {
	struct dt_conv p;
	int64_t kind, type;
};

struct entry {
	struct key key;
	struct entry *next;
	bool absent; /* the library has no such convolution */
	cudnnTensorDescriptor_t x, y;
	cudnnFilterDescriptor_t w;
	cudnnConvolutionDescriptor_t conv;
	int algo;
	size_t workspace;
};

struct dt_dnn {
	void *lib;
	cudnnHandle_t handle;
	struct entry *entry;
#define MEMBER(name) __typeof__(name) *name;
	FUNCTIONS(MEMBER)
#undef MEMBER
};

#define SYMBOL(name) {#name, offsetof(struct dt_dnn, name)},
static const struct dt_symbol symbols[] = {FUNCTIONS(SYMBOL)};

static int result(cudnnStatus_t s)
{
	if (s == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
	    s == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
		return -ENOMEM;
	switch ((int)CUDNN_STATUS_CATEGORY(s)) {
	case CUDNN_STATUS_SUCCESS:
		return 0;
	case CUDNN_STATUS_NOT_SUPPORTED:
	case CUDNN_STATUS_BAD_PARAM:
		return -ENOTSUP;
	default:
		return -EIO;
	}
}

static bool find(struct dt_dnn *d)
{
	char name[64];

	/* The version compiled against: structures of others may differ. */
	snprintf(name, sizeof name, "libcudnn.so.%d", CUDNN_MAJOR);
	d->lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!d->lib || (dt_gpu_emulated() && !dlsym(d->lib, "dt_emu_cudnn"))) /* the real one needs a card */
		return false;
	return dt_symbols_find(d->lib, symbols, sizeof symbols / sizeof *symbols, d);
}

int dt_dnn_open(struct dt_dnn **ret, void *stream)
{
	struct dt_dnn *d = calloc(1, sizeof *d);
	int rc = d ? 0 : -ENOMEM;

	if (rc == 0 && !find(d))
		rc = -ENOTSUP;
	if (rc == 0)
		rc = result(d->cudnnCreate(&d->handle));
	if (rc == 0)
		rc = result(d->cudnnSetStream(d->handle, (cudaStream_t)stream));
	if (rc < 0) { /* a library that fails to initialise counts as missing: convolutions are refused */
		dt_dnn_close(d);
		return rc == -ENOMEM ? rc : -ENOTSUP;
	}
	*ret = d;
	return 0;
}

static void entry_free(struct dt_dnn *d, struct entry *e)
{
	if (e->x)
		d->cudnnDestroyTensorDescriptor(e->x);
	if (e->y)
		d->cudnnDestroyTensorDescriptor(e->y);
	if (e->w)
		d->cudnnDestroyFilterDescriptor(e->w);
	if (e->conv)
		d->cudnnDestroyConvolutionDescriptor(e->conv);
	free(e);
}

void dt_dnn_close(struct dt_dnn *d)
{
	if (!d)
		return;
	for (struct entry *e = d->entry, *next; e; e = next) {
		next = e->next;
		entry_free(d, e);
	}
	if (d->handle)
		d->cudnnDestroy(d->handle);
	if (d->lib)
		dlclose(d->lib);
	free(d);
}

static cudnnDataType_t type_of(int64_t t)
{
	return t == DT_F32 ? CUDNN_DATA_FLOAT : t == DT_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
}

/* f32 is multiplied in f32, like matrix products; accumulation is always f32. */
static int describe(struct dt_dnn *d, struct entry *e)
{
	const struct dt_conv *p = &e->key.p;
	const cudnnDataType_t t = type_of(e->key.type);
	const int k = (int)p->kernel, pad = (int)p->pad, step = (int)p->stride, n = (int)p->batch,
		  c = (int)p->channels, o = (int)p->out;
	const int64_t h = dt_window_out(p->height, p->kernel, p->stride, p->pad),
		      w = dt_window_out(p->width, p->kernel, p->stride, p->pad);
	cudnnStatus_t s = d->cudnnCreateTensorDescriptor(&e->x);

	s = s ? s : d->cudnnCreateTensorDescriptor(&e->y);
	s = s ? s : d->cudnnCreateFilterDescriptor(&e->w);
	s = s ? s : d->cudnnCreateConvolutionDescriptor(&e->conv);
	s = s ? s
	      : d->cudnnSetTensor4dDescriptor(e->x, CUDNN_TENSOR_NHWC, t, n, c, (int)p->height,
					      (int)p->width);
	s = s ? s : d->cudnnSetTensor4dDescriptor(e->y, CUDNN_TENSOR_NHWC, t, n, o, (int)h, (int)w);
	s = s ? s : d->cudnnSetFilter4dDescriptor(e->w, t, CUDNN_TENSOR_NHWC, o, c, k, k);
	s = s ? s
	      : d->cudnnSetConvolution2dDescriptor(e->conv, pad, pad, step, step, 1, 1,
						   CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
	s = s ? s
	      : d->cudnnSetConvolutionMathType(e->conv,
					       e->key.type == DT_F32 ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH);
	return result(s);
}

/* The first usable suggestion; -ENOTSUP: none. */
#define CHOOSE(e, offer, n)                                                                                  \
	for (int i = 0; i < (n); i++)                                                                        \
		if ((offer)[i].status == CUDNN_STATUS_SUCCESS && (offer)[i].memory <= WORKSPACE &&           \
		    (offer)[i].determinism == CUDNN_DETERMINISTIC) {                                         \
			(e)->algo = (int)(offer)[i].algo;                                                    \
			(e)->workspace = (offer)[i].memory;                                                  \
			return 0;                                                                            \
		}                                                                                            \
	return -ENOTSUP

static int choose_forward(struct dt_dnn *d, struct entry *e)
{
	cudnnConvolutionFwdAlgoPerf_t offer[OFFERS];
	int n = 0, rc = result(d->cudnnGetConvolutionForwardAlgorithm_v7(d->handle, e->x, e->w, e->conv, e->y,
									 OFFERS, &n, offer));

	if (rc < 0)
		return rc;
	CHOOSE(e, offer, n);
}

static int choose_backward(struct dt_dnn *d, struct entry *e)
{
	cudnnConvolutionBwdDataAlgoPerf_t offer[OFFERS];
	int n = 0, rc = result(d->cudnnGetConvolutionBackwardDataAlgorithm_v7(d->handle, e->w, e->y, e->conv,
									      e->x, OFFERS, &n, offer));

	if (rc < 0)
		return rc;
	CHOOSE(e, offer, n);
}

static int choose_weights(struct dt_dnn *d, struct entry *e)
{
	cudnnConvolutionBwdFilterAlgoPerf_t offer[OFFERS];
	int n = 0, rc = result(d->cudnnGetConvolutionBackwardFilterAlgorithm_v7(
			   d->handle, e->x, e->y, e->conv, e->w, OFFERS, &n, offer));

	if (rc < 0)
		return rc;
	CHOOSE(e, offer, n);
}

static int entry_make(struct dt_dnn *d, struct entry *e)
{
	int rc = describe(d, e);

	if (rc == 0)
		rc = e->key.kind == FORWARD    ? choose_forward(d, e)
		     : e->key.kind == BACKWARD ? choose_backward(d, e)
					       : choose_weights(d, e);
	e->absent = rc == -ENOTSUP;
	return e->absent ? 0 : rc;
}

static int find_entry(struct dt_dnn *d, const struct key *key, struct entry **ret)
{
	struct entry *e = d->entry;
	int rc;

	while (e && memcmp(&e->key, key, sizeof *key))
		e = e->next;
	if (!e) {
		e = calloc(1, sizeof *e);
		if (!e)
			return -ENOMEM;
		e->key = *key;
		rc = entry_make(d, e);
		if (rc < 0) {
			entry_free(d, e);
			return rc;
		}
		e->next = d->entry;
		d->entry = e;
	}
	*ret = e;
	return e->absent ? -ENOTSUP : 0;
}

static size_t align_up(size_t n)
{
	return (n + 255) / 256 * 256;
}

/* A call: its convolution, and device memory for weights, the workspace and a result. */
struct call {
	struct dt_cuda *c;
	struct entry *e;
	char *weights, *workspace, *result;
};

static int begin(struct dt_dev *dev, enum kind kind, enum dt_dtype type, const struct dt_conv *p,
		 size_t result_n, struct call *ret)
{
	struct dt_cuda *c = dt_cuda_enter(dev);
	const struct key key = {.p = *p, .kind = kind, .type = type};
	const size_t weights = align_up((size_t)(p->out * p->channels * p->kernel * p->kernel) *
					(size_t)dt_dtype_size(type));
	char *room;
	int rc;

	if (!c)
		return -ENODEV;
	if (!c->dnn)
		return -ENOTSUP;
	rc = find_entry(c->dnn, &key, &ret->e);
	if (rc < 0)
		return rc;
	room = dt_cuda_scratch(dev, weights + align_up(ret->e->workspace) + align_up(result_n));
	if (!room)
		return -ENOMEM;
	ret->c = c;
	ret->weights = room;
	ret->workspace = ret->e->workspace ? room + weights : NULL;
	ret->result = room + weights + align_up(ret->e->workspace);
	return 0;
}

static int forward(const struct call *a, void *y, struct dt_tensor x, struct dt_tensor w)
{
	const struct dt_conv *p = &a->e->key.p;
	const float one = 1, none = 0;
	struct dt_dnn *d = a->c->dnn;
	int rc = dt_conv_weights_in(a->c, a->weights, w, p->channels, p->kernel * p->kernel);

	return rc < 0 ? rc
		      : result(d->cudnnConvolutionForward(d->handle, &one, a->e->x, x.data, a->e->w,
							  a->weights, a->e->conv,
							  (cudnnConvolutionFwdAlgo_t)a->e->algo, a->workspace,
							  a->e->workspace, &none, a->e->y, y));
}

int dt_cuda_conv_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, struct dt_tensor w,
			 const struct dt_conv *p)
{
	struct call a;
	int rc = begin(dev, FORWARD, x.dtype, p, 0, &a);

	return rc < 0 ? rc : forward(&a, y.data, x, w);
}

/* The convolution is rounded before anything is added; it uses separate memory if y aliases the residual. */
int dt_cuda_conv_bias(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, struct dt_tensor w,
		      struct dt_tensor bias, struct dt_tensor residual, bool relu, const struct dt_conv *p)
{
	const bool apart = residual.data && residual.data == y.data;
	struct call a;
	int rc = begin(dev, FORWARD, x.dtype, p,
		       apart ? (size_t)dt_numel(y) * (size_t)dt_dtype_size(y.dtype) : 0, &a);
	void *to = rc == 0 && apart ? a.result : y.data;

	if (rc == 0)
		rc = forward(&a, to, x, w);
	return rc < 0 ? rc : dt_conv_epilogue(a.c, y, to, bias.data, residual.data, relu);
}

int dt_cuda_conv_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy, struct dt_tensor w,
			  const struct dt_conv *p)
{
	const float one = 1, none = 0;
	struct dt_dnn *d;
	struct call a;
	int rc = begin(dev, BACKWARD, dx.dtype, p, 0, &a);

	if (rc == 0)
		rc = dt_conv_weights_in(a.c, a.weights, w, p->channels, p->kernel * p->kernel);
	if (rc < 0)
		return rc;
	d = a.c->dnn;
	return result(d->cudnnConvolutionBackwardData(d->handle, &one, a.e->w, a.weights, a.e->y, dy.data,
						      a.e->conv, (cudnnConvolutionBwdDataAlgo_t)a.e->algo,
						      a.workspace, a.e->workspace, &none, a.e->x, dx.data));
}

int dt_cuda_conv_weights(struct dt_dev *dev, struct dt_tensor dw, struct dt_tensor dy, struct dt_tensor x,
			 bool accumulate, const struct dt_conv *p)
{
	const float one = 1, none = 0;
	struct dt_dnn *d;
	struct call a;
	int rc;

	if (!p->batch)
		return dt_cuda_fill(dev, dw, 0);
	rc = begin(dev, WEIGHTS, x.dtype, p, 0, &a);
	if (rc < 0)
		return rc;
	d = a.c->dnn;
	rc = result(d->cudnnConvolutionBackwardFilter(d->handle, &one, a.e->x, x.data, a.e->y, dy.data,
						      a.e->conv, (cudnnConvolutionBwdFilterAlgo_t)a.e->algo,
						      a.workspace, a.e->workspace, &none, a.e->w, a.weights));
	return rc < 0 ? rc
		      : dt_conv_weights_out(a.c, dw, a.weights, x.dtype, p->channels, p->kernel * p->kernel,
					    accumulate);
}
/* SPDX-License-Identifier: Apache-2.0 */
