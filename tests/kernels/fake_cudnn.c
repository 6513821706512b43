/*
 * A libcudnn without cards: the calls that kernels/cuda/dnn.c makes, computed in f64 on the emulated card's
 * memory, on layouts as the library's manual has them. What the real one refuses (a filter that is not laid
 * out like the images, types that differ, sums in 16 bits) is refused here; what it leaves undefined ends the
 * program: another algorithm than one of those offered, less workspace than it wants, addresses that are not
 * multiples of 16. Of what it offers the first is not deterministic, the second wants too much memory, the
 * third is not there for the shape.
 */
#include "kernels/dtype.h"

#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>

/* The emulation's, in the program that loads this. */
void dt_emu_device_memory(int open);
void dt_emu_stream_begin(void *stream);
void dt_emu_stream_end(void *stream);

/* By which the emulation knows that it may. */
extern const int dt_emu_cudnn;
const int dt_emu_cudnn = 1;

struct cudnnContext {
	cudaStream_t stream;
};

struct image { /* and filters: n is out, c is in */
	cudnnTensorFormat_t format;
	cudnnDataType_t type;
	int n, c, h, w;
};

struct conv {
	int pad, step;
	cudnnMathType_t math;
};

enum { RIGHT = 3, SPARE = 4096 };

static void die(const char *what)
{
	fprintf(stderr, "fake cuDNN: %s\n", what);
	abort();
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *h)
{
	*h = calloc(1, sizeof **h);
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t h)
{
	free(h);
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t stream)
{
	h->stream = stream;
	return CUDNN_STATUS_SUCCESS;
}

#define CREATE(name, type, of)                                                                               \
	cudnnStatus_t cudnnCreate##name(type *ret)                                                           \
	{                                                                                                    \
		*ret = (type)calloc(1, sizeof(struct of));                                                   \
		return CUDNN_STATUS_SUCCESS;                                                                 \
	}                                                                                                    \
	cudnnStatus_t cudnnDestroy##name(type d)                                                             \
	{                                                                                                    \
		free(d);                                                                                     \
		return CUDNN_STATUS_SUCCESS;                                                                 \
	}
CREATE(TensorDescriptor, cudnnTensorDescriptor_t, image)
CREATE(FilterDescriptor, cudnnFilterDescriptor_t, image)
CREATE(ConvolutionDescriptor, cudnnConvolutionDescriptor_t, conv)

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t d, cudnnTensorFormat_t format,
					 cudnnDataType_t type, int n, int c, int h, int w)
{
	*(struct image *)d = (struct image){format, type, n, c, h, w};
	return n < 1 || c < 1 || h < 1 || w < 1 ? CUDNN_STATUS_BAD_PARAM : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t type,
					 cudnnTensorFormat_t format, int k, int c, int h, int w)
{
	*(struct image *)d = (struct image){format, type, k, c, h, w};
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t d, int pad_h, int pad_w, int u,
					      int v, int dilation_h, int dilation_w,
					      cudnnConvolutionMode_t mode, cudnnDataType_t compute)
{
	*(struct conv *)d = (struct conv){.pad = pad_h, .step = u};
	if (pad_h != pad_w || u != v || dilation_h != 1 || dilation_w != 1 || mode != CUDNN_CROSS_CORRELATION)
		die("another convolution than we have");
	return compute == CUDNN_DATA_FLOAT ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t math)
{
	((struct conv *)d)->math = math;
	return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check(const struct image *x, const struct image *w, const struct conv *p,
			   const struct image *y)
{
	const int h = (x->h + 2 * p->pad - w->h) / p->step + 1, v = (x->w + 2 * p->pad - w->w) / p->step + 1;

	if (x->c != w->c || y->c != w->n || x->n != y->n || y->h != h || y->w != v)
		return CUDNN_STATUS_BAD_PARAM;
	if (x->type != w->type || y->type != x->type || x->format != CUDNN_TENSOR_NHWC ||
	    y->format != CUDNN_TENSOR_NHWC || w->format != CUDNN_TENSOR_NHWC)
		return CUDNN_STATUS_NOT_SUPPORTED;
	if ((x->type == CUDNN_DATA_FLOAT) != (p->math == CUDNN_FMA_MATH))
		die("f32 is not multiplied in f32, or what has 16 bits is");
	return CUDNN_STATUS_SUCCESS;
}

/* Bytes that the algorithm wants: they depend on the shape, so that one of another shape is met. */
static size_t wanted(const struct image *y)
{
	return SPARE + (size_t)(y->h * y->c) * 4;
}

#define OFFER(ret, y, want, found)                                                                           \
	do {                                                                                                 \
		if ((want) <= RIGHT)                                                                         \
			die("no room for offers");                                                           \
		memset(ret, 0, sizeof *(ret) * (RIGHT + 1));                                                 \
		for (int i = 0; i <= RIGHT; i++) {                                                           \
			(ret)[i].algo = i;                                                                   \
			(ret)[i].memory = i == 1 ? (size_t)8 << 30 : wanted(y);                              \
			(ret)[i].determinism = i == 0 ? CUDNN_NON_DETERMINISTIC : CUDNN_DETERMINISTIC;       \
			(ret)[i].status = i == 2 ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;        \
		}                                                                                            \
		*(found) = RIGHT + 1;                                                                        \
	} while (0)

#define IMAGE(d) ((const struct image *)(d))
#define CONV(d)	 ((const struct conv *)(d))

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t h, const cudnnTensorDescriptor_t x,
						     const cudnnFilterDescriptor_t w,
						     const cudnnConvolutionDescriptor_t p,
						     const cudnnTensorDescriptor_t y, const int want,
						     int *found, cudnnConvolutionFwdAlgoPerf_t *ret)
{
	OFFER(ret, IMAGE(y), want, found);
	return check(IMAGE(x), IMAGE(w), CONV(p), IMAGE(y));
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t h, const cudnnFilterDescriptor_t w,
							  const cudnnTensorDescriptor_t y,
							  const cudnnConvolutionDescriptor_t p,
							  const cudnnTensorDescriptor_t x, const int want,
							  int *found, cudnnConvolutionBwdDataAlgoPerf_t *ret)
{
	OFFER(ret, IMAGE(y), want, found);
	return check(IMAGE(x), IMAGE(w), CONV(p), IMAGE(y));
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t h, const cudnnTensorDescriptor_t x,
							    const cudnnTensorDescriptor_t y,
							    const cudnnConvolutionDescriptor_t p,
							    const cudnnFilterDescriptor_t w, const int want,
							    int *found,
							    cudnnConvolutionBwdFilterAlgoPerf_t *ret)
{
	OFFER(ret, IMAGE(y), want, found);
	return check(IMAGE(x), IMAGE(w), CONV(p), IMAGE(y));
}

static double get(const void *p, cudnnDataType_t t, size_t i)
{
	const uint16_t *narrow = p;

	return t == CUDNN_DATA_FLOAT	  ? (double)((const float *)p)[i]
	       : t == CUDNN_DATA_BFLOAT16 ? (double)dt_bf16_to_f32(narrow[i])
					  : (double)dt_f16_to_f32(narrow[i]);
}

static void put(void *p, cudnnDataType_t t, size_t i, double v)
{
	if (t == CUDNN_DATA_FLOAT)
		((float *)p)[i] = (float)v;
	else
		((uint16_t *)p)[i] =
			t == CUDNN_DATA_BFLOAT16 ? dt_f32_to_bf16((float)v) : dt_f32_to_f16((float)v);
}

/* One of the three from the other two. */
enum which { Y, X, W };

struct run {
	const struct image *x, *w, *y;
	const struct conv *p;
	const void *at[3]; /* by enum which */
};

static size_t size_of(const struct image *d)
{
	return (size_t)d->n * (size_t)d->c * (size_t)d->h * (size_t)d->w;
}

static size_t place(const struct image *d, int n, int h, int w, int c)
{
	return (((size_t)n * (size_t)d->h + (size_t)h) * (size_t)d->w + (size_t)w) * (size_t)d->c + (size_t)c;
}

static void product(const struct run *r, enum which which, double *sum, int n, int oy, int ox, int ky, int kx)
{
	const int iy = oy * r->p->step + ky - r->p->pad, ix = ox * r->p->step + kx - r->p->pad;
	const cudnnDataType_t t = r->x->type;

	if (iy < 0 || ix < 0 || iy >= r->x->h || ix >= r->x->w)
		return;
	for (int o = 0; o < r->y->c; o++)
		for (int c = 0; c < r->x->c; c++) {
			const size_t i[3] = {place(r->y, n, oy, ox, o), place(r->x, n, iy, ix, c),
					     place(r->w, o, ky, kx, c)};
			const int a = which == Y ? X : Y, b = which == W ? X : W;

			sum[i[which]] += get(r->at[a], t, i[a]) * get(r->at[b], t, i[b]);
		}
}

static cudnnStatus_t run(cudnnHandle_t h, const struct run *r, enum which which, int algo,
			 const void *workspace, size_t n, const void *alpha, const void *beta, void *to)
{
	const struct image *d = which == Y ? r->y : which == X ? r->x : r->w;
	double *sum = calloc(size_of(d), sizeof *sum);

	if (check(r->x, r->w, r->p, r->y))
		die("a convolution that was refused");
	if (!sum || !h->stream || algo != RIGHT || !workspace || n < wanted(r->y) ||
	    *(const float *)alpha != 1 || *(const float *)beta != 0)
		die("arguments");
	for (int i = 0; i < 3; i++)
		if ((uintptr_t)r->at[i] % 16)
			die("less alignment than it wants");
	dt_emu_stream_begin(h->stream);
	dt_emu_device_memory(1);
	memset((void *)workspace, 0xff, n);
	for (int i = 0; i < r->y->n; i++)
		for (int oy = 0; oy < r->y->h; oy++)
			for (int ox = 0; ox < r->y->w; ox++)
				for (int k = 0; k < r->w->h * r->w->w; k++)
					product(r, which, sum, i, oy, ox, k / r->w->w, k % r->w->w);
	for (size_t i = 0; i < size_of(d); i++)
		put(to, d->type, i, sum[i]);
	dt_emu_device_memory(0);
	dt_emu_stream_end(h->stream);
	free(sum);
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t h, const void *alpha, const cudnnTensorDescriptor_t xd,
				      const void *x, const cudnnFilterDescriptor_t wd, const void *w,
				      const cudnnConvolutionDescriptor_t p, cudnnConvolutionFwdAlgo_t algo,
				      void *workspace, size_t n, const void *beta,
				      const cudnnTensorDescriptor_t yd, void *y)
{
	return run(h, &(struct run){IMAGE(xd), IMAGE(wd), IMAGE(yd), CONV(p), {y, x, w}}, Y, (int)algo,
		   workspace, n, alpha, beta, y);
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t h, const void *alpha,
					   const cudnnFilterDescriptor_t wd, const void *w,
					   const cudnnTensorDescriptor_t yd, const void *dy,
					   const cudnnConvolutionDescriptor_t p,
					   cudnnConvolutionBwdDataAlgo_t algo, void *workspace, size_t n,
					   const void *beta, const cudnnTensorDescriptor_t xd, void *dx)
{
	return run(h, &(struct run){IMAGE(xd), IMAGE(wd), IMAGE(yd), CONV(p), {dy, dx, w}}, X, (int)algo,
		   workspace, n, alpha, beta, dx);
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t h, const void *alpha,
					     const cudnnTensorDescriptor_t xd, const void *x,
					     const cudnnTensorDescriptor_t yd, const void *dy,
					     const cudnnConvolutionDescriptor_t p,
					     cudnnConvolutionBwdFilterAlgo_t algo, void *workspace, size_t n,
					     const void *beta, const cudnnFilterDescriptor_t wd, void *dw)
{
	return run(h, &(struct run){IMAGE(xd), IMAGE(wd), IMAGE(yd), CONV(p), {dy, x, dw}}, W, (int)algo,
		   workspace, n, alpha, beta, dw);
}
/* SPDX-License-Identifier: Apache-2.0 */
