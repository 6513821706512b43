/*
 * A libcublasLt without cards: the calls that kernels/cuda/blas.c makes, computed in f64 on the emulated
 * card's memory, column by column as the library's manual has it. What the real one refuses (8-bit operands
 * that are not transposed and plain, sizes that do not divide by 16, two E5M2, a bias for f32 results of
 * 8-bit products, an auxiliary matrix whose columns are not multiples of 8 apart) is refused here; what it
 * leaves undefined ends the program: an algorithm of another product, less alignment than was said, scales
 * that are not on the card. Before it adds to what 16-bit results were, or a bias to those whose rows, or an
 * operand's, begin anywhere, it rounds them once more (seen on an H100, CUDA 13.0).
 */
#include "kernels/dtype.h"

#include <cublasLt.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* The emulation's, in the program that loads this. */
void dt_emu_device_memory(int open);
void dt_emu_stream_begin(void *stream);
void dt_emu_stream_end(void *stream);

struct desc {
	cublasOperation_t ta, tb;
	cublasLtEpilogue_t epilogue;
	cudaDataType_t bias_type;
	const void *bias;
	const float *scale_a, *scale_b;
	void *aux;
	int64_t aux_ld;
	int8_t fast;
};

struct layout {
	cudaDataType type;
	uint64_t rows, cols;
	int64_t ld;
};

struct preference {
	uint64_t workspace;
	uint32_t align[4]; /* a, b, c, d */
	uint32_t sums;
};

/* What the heuristic's answer stands for. */
struct algo {
	uint32_t align[5]; /* and the bias */
	struct desc desc;
	uint64_t m, n, k;
};

/* Products of 16 bits that ran, and those of which the real one is known to be slow (an H200, CUDA 13.0). */
int dt_fake_blas_calls, dt_fake_blas_slow;

static struct algo known[4096];
static int nknown;

static void die(const char *what)
{
	fprintf(stderr, "fake cuBLASLt: %s\n", what);
	abort();
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
	*h = calloc(1, 8);
	return *h ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
	free(h);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *ret, cublasComputeType_t compute,
					cudaDataType_t scale)
{
	struct desc *d = calloc(1, sizeof *d);

	if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
		die("not computed in f32");
	d->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
	*ret = (cublasLtMatmulDesc_t)d;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
	free(d);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t what,
					      const void *buf, size_t n)
{
	struct desc *d = (struct desc *)desc;

#define TAKE(name, member)                                                                                   \
	case CUBLASLT_MATMUL_DESC_##name:                                                                    \
		if (n != sizeof d->member)                                                                   \
			return CUBLAS_STATUS_INVALID_VALUE;                                                  \
		memcpy(&d->member, buf, n);                                                                  \
		return CUBLAS_STATUS_SUCCESS
	switch (what) {
		TAKE(TRANSA, ta);
		TAKE(TRANSB, tb);
		TAKE(EPILOGUE, epilogue);
		TAKE(BIAS_DATA_TYPE, bias_type);
		TAKE(BIAS_POINTER, bias);
		TAKE(A_SCALE_POINTER, scale_a);
		TAKE(B_SCALE_POINTER, scale_b);
		TAKE(FAST_ACCUM, fast);
		TAKE(EPILOGUE_AUX_POINTER, aux);
		TAKE(EPILOGUE_AUX_LD, aux_ld);
	default:
		return CUBLAS_STATUS_INVALID_VALUE;
	}
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *ret, cudaDataType type, uint64_t rows,
					  uint64_t cols, int64_t ld)
{
	struct layout *l = malloc(sizeof *l);

	*l = (struct layout){type, rows, cols, ld};
	*ret = (cublasLtMatrixLayout_t)l;
	return ld < (int64_t)rows ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
	free(l);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *ret)
{
	struct preference *p = calloc(1, sizeof *p);

	for (int i = 0; i < 4; i++)
		p->align[i] = 256;
	*ret = (cublasLtMatmulPreference_t)p;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
	free(p);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
						    cublasLtMatmulPreferenceAttributes_t what,
						    const void *buf, size_t n)
{
	struct preference *p = (struct preference *)pref;

	if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && n == sizeof p->workspace)
		memcpy(&p->workspace, buf, n);
	else if (what >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
		 what <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES && n == sizeof p->align[0])
		memcpy(&p->align[what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], buf, n);
	else if (what == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK && n == sizeof p->sums)
		memcpy(&p->sums, buf, n);
	else
		return CUBLAS_STATUS_INVALID_VALUE;
	return CUBLAS_STATUS_SUCCESS;
}

static bool eight(cudaDataType t)
{
	return t == CUDA_R_8F_E4M3 || t == CUDA_R_8F_E5M2;
}

static uint32_t alignment(const void *p)
{
	uint32_t n = 1;

	while (n < 16 && !((uintptr_t)p & n))
		n *= 2;
	return n;
}

/* Of GELU_AUX, GELU_AUX_BIAS and DGELU. */
static bool has_aux(const struct desc *d)
{
	return d->epilogue & 128;
}

static bool has_bias(const struct desc *d)
{
	return d->epilogue == CUBLASLT_EPILOGUE_BIAS || d->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

/* The library's table of what goes together, as far as it concerns us. */
static bool supported(const struct desc *d, const struct layout *a, const struct layout *b,
		      const struct layout *c, const struct preference *p)
{
	const bool biased = d->epilogue == CUBLASLT_EPILOGUE_BIAS;

	if (has_aux(d) && (d->aux_ld % 8 || d->aux_ld < (int64_t)c->rows || alignment(d->aux) < 16 ||
			   c->type != a->type || eight(a->type)))
		return false;
	if (!has_aux(d) && !biased && d->epilogue != CUBLASLT_EPILOGUE_DEFAULT)
		return false;
	if (!eight(a->type) && !eight(b->type))
		return a->type == b->type && (c->type == a->type || c->type == CUDA_R_32F) && !d->scale_a &&
		       !d->scale_b && !d->fast;
	if (!eight(a->type) || !eight(b->type) || (a->type == CUDA_R_8F_E5M2 && b->type == CUDA_R_8F_E5M2))
		return false;
	if (d->ta != CUBLAS_OP_T || d->tb != CUBLAS_OP_N || !d->scale_a || !d->scale_b)
		return false;
	if (biased && (c->type == CUDA_R_32F || d->bias_type != c->type))
		return false;
	for (int i = 0; i < 4; i++)
		if (p->align[i] < 16)
			return false;
	return (a->rows | a->cols | b->rows | b->cols | c->rows | c->cols) % 16 == 0 &&
	       (a->ld | b->ld) % 16 == 0;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t desc,
					      cublasLtMatrixLayout_t al, cublasLtMatrixLayout_t bl,
					      cublasLtMatrixLayout_t cl, cublasLtMatrixLayout_t dl,
					      cublasLtMatmulPreference_t pref, int want,
					      cublasLtMatmulHeuristicResult_t *ret, int *found)
{
	const struct desc *d = (struct desc *)desc;
	const struct layout *a = (struct layout *)al, *b = (struct layout *)bl, *c = (struct layout *)cl;
	const struct preference *p = (struct preference *)pref;
	struct algo x = {.desc = *d};

	*found = 0;
	if (!h || want != 1 || cl != dl)
		return CUBLAS_STATUS_INVALID_VALUE;
	x.m = d->ta == CUBLAS_OP_T ? a->cols : a->rows;
	x.k = d->ta == CUBLAS_OP_T ? a->rows : a->cols;
	x.n = d->tb == CUBLAS_OP_T ? b->rows : b->cols;
	if ((d->tb == CUBLAS_OP_T ? b->cols : b->rows) != x.k || c->rows != x.m || c->cols != x.n)
		return CUBLAS_STATUS_INVALID_VALUE;
	if (p->sums != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
		die("parts of sums may be rounded to the result's type");
	if (!supported(d, a, b, c, p) || nknown == 4096)
		return CUBLAS_STATUS_NOT_SUPPORTED;
	memcpy(x.align, p->align, sizeof p->align);
	x.align[4] = alignment(d->bias);
	known[nknown] = x;
	memset(ret, 0, sizeof *ret);
	memcpy(&ret->algo, &nknown, sizeof nknown);
	nknown++;
	*found = 1;
	return CUBLAS_STATUS_SUCCESS;
}

static double get(const void *p, cudaDataType t, int64_t i)
{
	switch (t) {
	case CUDA_R_32F:
		return (double)((const float *)p)[i];
	case CUDA_R_16BF:
		return (double)dt_bf16_to_f32(((const uint16_t *)p)[i]);
	case CUDA_R_16F:
		return (double)dt_f16_to_f32(((const uint16_t *)p)[i]);
	case CUDA_R_8F_E4M3:
		return (double)dt_e4m3_to_f32(((const uint8_t *)p)[i]);
	case CUDA_R_8F_E5M2:
		return (double)dt_e5m2_to_f32(((const uint8_t *)p)[i]);
	default:
		die("a type of result that nobody asks for");
		return 0;
	}
}

static void put(void *p, cudaDataType t, int64_t i, double v)
{
	if (t == CUDA_R_32F)
		((float *)p)[i] = (float)v;
	else if (t == CUDA_R_16BF)
		((uint16_t *)p)[i] = dt_f32_to_bf16((float)v);
	else
		((uint16_t *)p)[i] = dt_f32_to_f16((float)v);
}

/* A stride or an extent that does not divide by 8; fewer than 8 rows or columns are what others left. */
static bool slow(const struct algo *x, const struct layout *a, const struct layout *b, const struct layout *c,
		 bool ta, bool tb)
{
	const uint64_t along_k = ta || !tb ? x->k : 0, along_n = tb && x->n >= 8 ? x->n : 0;

	return (a->ld | b->ld | c->ld) % 8 || (x->m >= 8 && x->m % 8) || along_k % 8 || along_n % 8;
}

/* A matrix as [outer, depth]; across: neighbours in memory are neighbours in outer. */
static double *widened(const void *p, const struct layout *l, uint64_t outer, uint64_t depth, bool across)
{
	double *w = malloc(outer * depth * sizeof *w);

	if (!w)
		die("memory");
	for (uint64_t i = 0; i < outer; i++)
		for (uint64_t k = 0; k < depth; k++)
			w[i * depth + k] =
				get(p, l->type,
				    (int64_t)(across ? k * (uint64_t)l->ld + i : i * (uint64_t)l->ld + k));
	return w;
}

static bool anywhere(const struct layout *l)
{
	return (l->type == CUDA_R_16BF || l->type == CUDA_R_16F) && l->ld % 8;
}

static double rounded(double v, cudaDataType t)
{
	uint16_t h;

	put(&h, t, 0, v);
	return get(&h, t, 0);
}

/* v as it comes out, element i of the auxiliary matrix written or read. */
static double gelu(const struct desc *d, cudaDataType_t t, int64_t i, double v)
{
	const bool back = d->epilogue == CUBLASLT_EPILOGUE_DGELU;
	const double x = back ? get(d->aux, t, i) : v, k = 0.7978845608028654;
	const double th = tanh(k * (x + 0.044715 * x * x * x));

	if (back)
		return v * (0.5 * (1 + th) + 0.5 * x * (1 - th * th) * k * (1 + 3 * 0.044715 * x * x));
	put(d->aux, t, i, v);
	return 0.5 * x * (1 + th);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t desc, const void *alpha, const void *A,
			      cublasLtMatrixLayout_t al, const void *B, cublasLtMatrixLayout_t bl,
			      const void *beta, const void *C, cublasLtMatrixLayout_t cl, void *D,
			      cublasLtMatrixLayout_t dl, const cublasLtMatmulAlgo_t *algo, void *workspace,
			      size_t room, cudaStream_t stream)
{
	const struct desc *d = (struct desc *)desc;
	const struct layout *a = (struct layout *)al, *b = (struct layout *)bl, *c = (struct layout *)cl;
	const bool ta = d->ta == CUBLAS_OP_T, tb = d->tb == CUBLAS_OP_T;
	const void *at[5] = {A, B, C, D, d->bias};
	const struct algo *x;
	double scale = (double)*(const float *)alpha;
	int number;

	memcpy(&number, algo, sizeof number);
	x = &known[number];
	if (number < 0 || number >= nknown || x->desc.epilogue != d->epilogue || x->desc.fast != d->fast ||
	    x->desc.aux_ld != d->aux_ld || x->desc.ta != d->ta || x->desc.tb != d->tb || x->m != c->rows ||
	    x->n != c->cols)
		die("an algorithm of another product");
	for (int i = 0; i < 5; i++)
		if (alignment(at[i]) < x->align[i])
			die("less alignment than was said");
	if (!workspace || !room || C != D || cl != dl || !stream || (has_bias(d) && !d->bias) ||
	    (has_aux(d) && alignment(d->aux) < 16))
		die("arguments");
	if (a->type == CUDA_R_16BF || a->type == CUDA_R_16F) {
		dt_fake_blas_calls++;
		dt_fake_blas_slow += slow(x, a, b, c, ta, tb);
	}
	dt_emu_stream_begin(stream);
	dt_emu_device_memory(1);
	scale *= d->scale_a ? (double)*d->scale_a : 1;
	scale *= d->scale_b ? (double)*d->scale_b : 1;
	double *wa = widened(A, a, x->m, x->k, !ta);
	double *wb = widened(B, b, x->n, x->k, tb);

	for (uint64_t j = 0; j < x->n; j++)
		for (uint64_t i = 0; i < x->m; i++) {
			const int64_t to = (int64_t)(j * (uint64_t)c->ld + i);
			double v = 0;

			for (uint64_t k = 0; k < x->k; k++)
				v += wa[i * x->k + k] * wb[j * x->k + k];
			v *= scale;
			if (*(const float *)beta != 0 && c->type != CUDA_R_32F && !eight(a->type))
				v = rounded(v, c->type);
			if (*(const float *)beta != 0)
				v += (double)*(const float *)beta * get(C, c->type, to);
			if (has_bias(d) && c->type != CUDA_R_32F &&
			    (anywhere(a) || anywhere(b) || anywhere(c)))
				v = rounded(v, c->type);
			if (has_bias(d))
				v += get(d->bias, d->bias_type, (int64_t)i);
			if (has_aux(d))
				v = gelu(d, c->type, (int64_t)(j * (uint64_t)d->aux_ld + i), v);
			put(D, c->type, to, v);
		}
	free(wa);
	free(wb);
	dt_emu_device_memory(0);
	dt_emu_stream_end(stream);
	return CUBLAS_STATUS_SUCCESS;
}
/* SPDX-License-Identifier: Apache-2.0 */
