/*
 * Products by cuBLASLt, which is loaded when the device is opened, so that programs also start without it. A
 * row-major c[m, n] = op(a) op(b) is a column-major product with the operands swapped. The algorithm chosen
 * for a shape is cached.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/symbols.h"

#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>

#define SLOTS 1024 /* number of shapes after which the cache is cleared */

/* Functions of cuBLASLt that this file calls. */
#define FUNCTIONS(X)                                                                                         \
	X(cublasLtCreate)                                                                                    \
	X(cublasLtDestroy)                                                                                   \
	X(cublasLtMatmul)                                                                                    \
	X(cublasLtMatmulDescCreate)                                                                          \
	X(cublasLtMatmulDescDestroy)                                                                         \
	X(cublasLtMatmulDescSetAttribute)                                                                    \
	X(cublasLtMatrixLayoutCreate)                                                                        \
	X(cublasLtMatrixLayoutDestroy)                                                                       \
	X(cublasLtMatmulPreferenceCreate)                                                                    \
	X(cublasLtMatmulPreferenceDestroy)                                                                   \
	X(cublasLtMatmulPreferenceSetAttribute)                                                              \
	X(cublasLtMatmulAlgoGetHeuristic)

struct key {
	int64_t m, n, k, lda, ldb, ldc; /* ld: row strides */
	uint8_t in, in_b, out, ta, tb, bias, accumulate;
	uint8_t align_a, align_b, align_c, align_bias, gelu, pad[4]; /* log2 of bytes, at most 4 */
};

enum { NO_GELU, GELU, DGELU }; /* values of gelu in a key */

struct entry {
	struct key key;
	bool used, absent; /* absent: the library has no such product */
	cublasLtMatmulDesc_t desc;
	cublasLtMatrixLayout_t a, b, c;
	cublasLtMatmulAlgo_t algo;
};

struct dt_blas {
	void *lib;
	cublasLtHandle_t lt;
	void *workspace;
	struct entry slot[SLOTS];
	int used;
#define MEMBER(name) __typeof__(name) *name;
	FUNCTIONS(MEMBER)
#undef MEMBER
};

#define SYMBOL(name) {#name, offsetof(struct dt_blas, name)},
static const struct dt_symbol symbols[] = {FUNCTIONS(SYMBOL)};

/* Workspace bytes: little when emulated, as each launch opens and closes all device memory. */
static size_t room(void)
{
	return (size_t)(dt_gpu_emulated() ? 1 : 32) << 20;
}

static int result(cublasStatus_t s)
{
	switch (s) {
	case CUBLAS_STATUS_SUCCESS:
		return 0;
	case CUBLAS_STATUS_ALLOC_FAILED:
		return -ENOMEM;
	case CUBLAS_STATUS_NOT_SUPPORTED:
	case CUBLAS_STATUS_INVALID_VALUE:
		return -ENOTSUP;
	default:
		return -EIO;
	}
}

static bool find(struct dt_blas *b)
{
	char name[64];

	/* The version compiled against: structures of others may differ. */
	snprintf(name, sizeof name, "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
	b->lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!b->lib)
		return false;
	return dt_symbols_find(b->lib, symbols, sizeof symbols / sizeof *symbols, b);
}

int dt_blas_open(struct dt_blas **ret)
{
	struct dt_blas *b = calloc(1, sizeof *b);
	int rc = b ? 0 : -ENOMEM;

	if (rc == 0 && !find(b))
		rc = -ENOTSUP;
	if (rc == 0)
		rc = result(b->cublasLtCreate(&b->lt));
	if (rc == 0)
		rc = dt_gpu_alloc(&b->workspace, room());
	if (rc < 0) {
		dt_blas_close(b);
		return rc;
	}
	*ret = b;
	return 0;
}

static void entry_release(struct dt_blas *b, struct entry *e)
{
	if (e->desc)
		b->cublasLtMatmulDescDestroy(e->desc);
	if (e->a)
		b->cublasLtMatrixLayoutDestroy(e->a);
	if (e->b)
		b->cublasLtMatrixLayoutDestroy(e->b);
	if (e->c)
		b->cublasLtMatrixLayoutDestroy(e->c);
	memset(e, 0, sizeof *e);
}

static void forget(struct dt_blas *b)
{
	for (int i = 0; i < SLOTS; i++)
		entry_release(b, &b->slot[i]);
	b->used = 0;
}

void dt_blas_close(struct dt_blas *b)
{
	if (!b)
		return;
	if (b->lt) {
		forget(b);
		b->cublasLtDestroy(b->lt);
	}
	if (b->workspace)
		dt_gpu_free(b->workspace);
	if (b->lib)
		dlclose(b->lib);
	free(b);
}

size_t dt_blas_bytes(const struct dt_blas *b)
{
	return b ? room() : 0;
}

static cudaDataType_t type_of(uint8_t t)
{
	switch (t) {
	case DT_F32:
		return CUDA_R_32F;
	case DT_BF16:
		return CUDA_R_16BF;
	case DT_E4M3:
		return CUDA_R_8F_E4M3;
	case DT_E5M2:
		return CUDA_R_8F_E5M2;
	default:
		return CUDA_R_16F;
	}
}

/* Further operands of a product, on the card; NULL: none. */
struct beside {
	const float *scale[2];	/* for 8-bit operands, in our order */
	const void *bias, *aux; /* aux: u of gelu, written or read */
};

/* Sets the pointers for the next run, and for choosing an algorithm, which depends on their alignment. */
static int point(struct dt_blas *b, struct entry *e, const struct beside *x)
{
	cublasStatus_t s = CUBLAS_STATUS_SUCCESS;

#define SET(what, value)                                                                                     \
	if (value)                                                                                           \
	s = s ? s                                                                                            \
	      : b->cublasLtMatmulDescSetAttribute(e->desc, CUBLASLT_MATMUL_DESC_##what##_POINTER, &(value),  \
						  sizeof(value))
	SET(BIAS, x->bias);
	SET(EPILOGUE_AUX, x->aux);
	SET(A_SCALE, x->scale[1]);
	SET(B_SCALE, x->scale[0]);
#undef SET
	return result(s);
}

/* The library's operands are ours swapped, and its matrices ours transposed. */
static int describe(struct dt_blas *b, struct entry *e)
{
	const struct key *k = &e->key;
	const cublasOperation_t first = k->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
	const cublasOperation_t second = k->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
	const cublasLtEpilogue_t epilogue = k->gelu == DGELU	 ? CUBLASLT_EPILOGUE_DGELU
					    : k->gelu && k->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
					    : k->gelu		 ? CUBLASLT_EPILOGUE_GELU_AUX
								 : CUBLASLT_EPILOGUE_BIAS;
	const cudaDataType_t bias = type_of(dt_is_fp8((enum dt_dtype)k->in) ? k->out : k->in);
	const int8_t fast = k->in == DT_E4M3 && k->in_b == DT_E4M3;
	const uint64_t m = (uint64_t)k->m, n = (uint64_t)k->n, d = (uint64_t)k->k;
	cublasStatus_t s = b->cublasLtMatmulDescCreate(&e->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);

#define SET(what, value)                                                                                     \
	s = s ? s                                                                                            \
	      : b->cublasLtMatmulDescSetAttribute(e->desc, CUBLASLT_MATMUL_DESC_##what, &(value),            \
						  sizeof(value))
	SET(TRANSA, first);
	SET(TRANSB, second);
	if (k->bias || k->gelu)
		SET(EPILOGUE, epilogue);
	if (k->bias)
		SET(BIAS_DATA_TYPE, bias);
	if (k->gelu)
		SET(EPILOGUE_AUX_LD, k->n);
	if (fast)
		SET(FAST_ACCUM, fast);
#undef SET
	s = s ? s
	      : b->cublasLtMatrixLayoutCreate(&e->a, type_of(k->in_b), k->tb ? d : n, k->tb ? n : d, k->ldb);
	s = s ? s
	      : b->cublasLtMatrixLayoutCreate(&e->b, type_of(k->in), k->ta ? m : d, k->ta ? d : m, k->lda);
	s = s ? s : b->cublasLtMatrixLayoutCreate(&e->c, type_of(k->out), n, m, k->ldc);
	return result(s);
}

static int choose(struct dt_blas *b, struct entry *e)
{
	const struct key *k = &e->key;
	const uint32_t align_a = 1u << k->align_b, align_b = 1u << k->align_a, align_c = 1u << k->align_c;
	const size_t workspace = room();
	const uint32_t sums = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* split-k partial sums are f32 */
	cublasLtMatmulHeuristicResult_t found;
	cublasLtMatmulPreference_t p = NULL;
	cublasStatus_t s = b->cublasLtMatmulPreferenceCreate(&p);
	int n = 0;

#define SET(what, value)                                                                                     \
	s = s ? s                                                                                            \
	      : b->cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_##what, &(value),            \
							sizeof(value))
	SET(MAX_WORKSPACE_BYTES, workspace);
	SET(REDUCTION_SCHEME_MASK, sums);
	SET(MIN_ALIGNMENT_A_BYTES, align_a);
	SET(MIN_ALIGNMENT_B_BYTES, align_b);
	SET(MIN_ALIGNMENT_C_BYTES, align_c);
	SET(MIN_ALIGNMENT_D_BYTES, align_c);
#undef SET
	s = s ? s
	      : b->cublasLtMatmulAlgoGetHeuristic(b->lt, e->desc, e->a, e->b, e->c, e->c, p, 1, &found, &n);
	if (p)
		b->cublasLtMatmulPreferenceDestroy(p);
	if (s == CUBLAS_STATUS_SUCCESS && n)
		e->algo = found.algo;
	return s ? result(s) : n ? 0 : -ENOTSUP;
}

static uint64_t hash(const struct key *k)
{
	const unsigned char *p = (const unsigned char *)k;
	uint64_t h = 1469598103934665603u; /* FNV-1a */

	for (size_t i = 0; i < sizeof *k; i++)
		h = (h ^ p[i]) * 1099511628211u;
	return h;
}

/* -ENOTSUP: the library has no algorithm for the shape. */
static int find_entry(struct dt_blas *b, const struct key *k, const struct beside *x, struct entry **ret)
{
	uint64_t at = hash(k) % SLOTS;
	struct entry *e;
	int rc;

	for (e = &b->slot[at]; e->used; e = &b->slot[at = (at + 1) % SLOTS])
		if (!memcmp(&e->key, k, sizeof *k)) {
			*ret = e;
			return e->absent ? -ENOTSUP : 0;
		}
	if (b->used >= SLOTS / 2) {
		forget(b);
		e = &b->slot[hash(k) % SLOTS];
	}
	e->key = *k;
	rc = describe(b, e);
	if (rc == 0)
		rc = point(b, e, x);
	if (rc == 0)
		rc = choose(b, e);
	if (rc < 0 && rc != -ENOTSUP) {
		entry_release(b, e);
		return rc;
	}
	e->used = true;
	e->absent = rc < 0;
	b->used++;
	*ret = e;
	return rc;
}

static uint8_t alignment(const void *p)
{
	uint8_t n = 0;

	while (n < 4 && !((uintptr_t)p >> n & 1))
		n++;
	return n;
}

static struct key key_of(struct dt_tensor c, struct dt_tensor a, bool ta, struct dt_tensor w, bool tb,
			 struct dt_tensor bias, bool accumulate, int64_t m, int64_t n, int64_t k)
{
	struct key key;

	memset(&key, 0, sizeof key);
	key = (struct key){.m = m,
			   .n = n,
			   .k = k,
			   .lda = ta ? m : k,
			   .ldb = tb ? k : n,
			   .ldc = n,
			   .in = (uint8_t)a.dtype,
			   .in_b = (uint8_t)w.dtype,
			   .out = (uint8_t)c.dtype,
			   .ta = ta,
			   .tb = tb,
			   .bias = bias.data != NULL,
			   .accumulate = accumulate,
			   .align_a = alignment(a.data),
			   .align_b = alignment(w.data),
			   .align_c = alignment(c.data),
			   .align_bias = alignment(bias.data)};
	return key;
}

static int run(struct dt_blas *b, void *stream, const struct key *key, const struct beside *x,
	       struct dt_tensor c, struct dt_tensor a, struct dt_tensor w)
{
	const float one = 1, beta = key->accumulate;
	struct entry *e;
	int rc = find_entry(b, key, x, &e);

	if (rc == 0)
		rc = point(b, e, x);
	return rc < 0 ? rc
		      : result(b->cublasLtMatmul(b->lt, e->desc, &one, w.data, e->a, a.data, e->b, &beta,
						 c.data, e->c, c.data, e->c, &e->algo, b->workspace, room(),
						 (cudaStream_t)stream));
}

int dt_blas_matmul(struct dt_blas *b, void *stream, struct dt_tensor c, struct dt_tensor a, bool ta,
		   struct dt_tensor w, bool tb, struct dt_tensor bias, bool accumulate, int64_t m, int64_t n,
		   int64_t k, const struct dt_blas_rows *ld)
{
	struct key key = key_of(c, a, ta, w, tb, bias, accumulate, m, n, k);

	if (ld->a)
		key.lda = ld->a;
	if (ld->b)
		key.ldb = ld->b;
	if (ld->c)
		key.ldc = ld->c;
	return run(b, stream, &key, &(struct beside){.bias = bias.data}, c, a, w);
}

/* Forward: the library's result is y, and u its auxiliary output with row stride n. Backward: u is only
 * read. */
int dt_blas_matmul_gelu(struct dt_blas *b, void *stream, struct dt_tensor c, struct dt_tensor y,
			struct dt_tensor a, struct dt_tensor w, bool tb, struct dt_tensor bias,
			struct dt_tensor u, int64_t m, int64_t n, int64_t k)
{
	const struct dt_tensor to = y.data ? y : c, aux = y.data ? c : u;
	struct key key = key_of(to, a, false, w, tb, bias, false, m, n, k);

	if (n % 8 || k % 8 || alignment(aux.data) < 4)
		return -ENOTSUP;
	key.gelu = y.data ? GELU : DGELU;
	return run(b, stream, &key, &(struct beside){.bias = bias.data, .aux = aux.data}, to, a, w);
}

/* Both operands are contiguous along k: the library has no other 8-bit products on sm_90. */
int dt_blas_fp8(struct dt_blas *b, void *stream, struct dt_tensor c, struct dt_tensor a, const float *sa,
		struct dt_tensor w, const float *sb, struct dt_tensor bias, bool accumulate, int64_t m,
		int64_t n, int64_t k)
{
	const struct key key = key_of(c, a, false, w, true, bias, accumulate, m, n, k);

	return run(b, stream, &key, &(struct beside){.scale = {sa, sb}, .bias = bias.data}, c, a, w);
}
/* SPDX-License-Identifier: Apache-2.0 */
