/* gpu.h over the CUDA runtime, linked statically: it loads the driver at the first call. */
#include "kernels/cuda/gpu.h"

#include <cuda.h>
#include <cuda_runtime.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int result(cudaError_t e)
{
	switch (e) {
	case cudaSuccess:
		return 0;
	case cudaErrorMemoryAllocation:
		(void)cudaGetLastError(); /* not a sticky error, but it would be returned later */
		return -ENOMEM;
	case cudaErrorNoDevice:
	case cudaErrorInsufficientDriver:
	case cudaErrorInvalidDevice:
	case cudaErrorInitializationError:
		return -ENODEV;
	default:
		return -EIO;
	}
}

int dt_gpu_count(void)
{
	int n = 0, rc = result(cudaGetDeviceCount(&n));

	return rc < 0 ? rc : n ? n : -ENODEV;
}

int dt_gpu_info(int index, struct dt_gpu_info *ret)
{
	cudaDeviceProp p;
	int rc = result(cudaGetDeviceProperties(&p, index));

	if (rc < 0)
		return rc;
	snprintf(ret->name, sizeof ret->name, "%.*s", (int)sizeof ret->name - 1, p.name);
	ret->major = p.major;
	ret->minor = p.minor;
	ret->sms = p.multiProcessorCount;
	ret->memory = p.totalGlobalMem;
	memcpy(ret->id, p.uuid.bytes, sizeof ret->id);
	return 0;
}

int dt_gpu_use(int index)
{
	return result(cudaSetDevice(index));
}

int dt_gpu_memory(size_t *ret_free, size_t *ret_total)
{
	return result(cudaMemGetInfo(ret_free, ret_total));
}

bool dt_gpu_emulated(void)
{
	return false;
}

int dt_gpu_alloc(void **ret, size_t n)
{
	return result(cudaMalloc(ret, n ? n : 1));
}

void dt_gpu_free(void *p)
{
	(void)cudaFree(p);
}

int dt_gpu_host_alloc(void **ret, size_t n)
{
	return result(cudaHostAlloc(ret, n ? n : 1, cudaHostAllocPortable));
}

void dt_gpu_host_free(void *p)
{
	(void)cudaFreeHost(p);
}

int dt_gpu_copy(void *to, const void *from, size_t n, void *stream)
{
	return result(cudaMemcpyAsync(to, from, n, cudaMemcpyDefault, (cudaStream_t)stream));
}

int dt_gpu_copy_rows(void *to, size_t to_step, const void *from, size_t from_step, size_t n, size_t rows,
		     void *stream)
{
	return result(cudaMemcpy2DAsync(to, to_step, from, from_step, n, rows, cudaMemcpyDefault,
					(cudaStream_t)stream));
}

int dt_gpu_set(void *to, int byte, size_t n, void *stream)
{
	return result(cudaMemsetAsync(to, byte, n, (cudaStream_t)stream));
}

int dt_gpu_stream_open(void **ret)
{
	cudaStream_t s;
	int rc = result(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));

	if (rc == 0)
		*ret = s;
	return rc;
}

void dt_gpu_stream_close(void *stream)
{
	(void)cudaStreamDestroy((cudaStream_t)stream);
}

int dt_gpu_stream_sync(void *stream)
{
	return result(cudaStreamSynchronize((cudaStream_t)stream));
}

int dt_gpu_event_open(void **ret)
{
	cudaEvent_t e;
	int rc = result(cudaEventCreate(&e));

	if (rc == 0)
		*ret = e;
	return rc;
}

void dt_gpu_event_close(void *event)
{
	(void)cudaEventDestroy((cudaEvent_t)event);
}

int dt_gpu_event_record(void *event, void *stream)
{
	return result(cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream));
}

int dt_gpu_event_wait(void *event, void *stream)
{
	return result(cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0));
}

int dt_gpu_event_sync(void *event)
{
	return result(cudaEventSynchronize((cudaEvent_t)event));
}

int dt_gpu_event_done(void *event)
{
	const cudaError_t e = cudaEventQuery((cudaEvent_t)event);

	if (e == cudaErrorNotReady) {
		(void)cudaGetLastError();
		return 0;
	}
	return e == cudaSuccess ? 1 : result(e);
}

int dt_gpu_event_ms(void *from, void *to, float *ret)
{
	return result(cudaEventElapsedTime(ret, (cudaEvent_t)from, (cudaEvent_t)to));
}

int dt_gpu_record_begin(void *stream)
{
	return result(cudaStreamBeginCapture((cudaStream_t)stream, cudaStreamCaptureModeThreadLocal));
}

int dt_gpu_record_end(void *stream, void **ret)
{
	cudaGraph_t g = NULL;
	cudaGraphExec_t e = NULL;
	int rc = result(cudaStreamEndCapture((cudaStream_t)stream, &g));

	if (rc == 0)
		rc = g ? result(cudaGraphInstantiate(&e, g, 0)) : -EIO;
	if (g)
		(void)cudaGraphDestroy(g);
	if (rc == 0)
		*ret = e;
	else
		(void)cudaGetLastError();
	return rc;
}

int dt_gpu_record_run(void *record, void *stream)
{
	return result(cudaGraphLaunch((cudaGraphExec_t)record, (cudaStream_t)stream));
}

void dt_gpu_record_close(void *record)
{
	(void)cudaGraphExecDestroy((cudaGraphExec_t)record);
}

/* cuTensorMapEncodeTiled (CUDA driver API, tensor map objects); cuda.h has no typedef for it. */
typedef CUresult (*map_encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
			       const cuuint64_t *, const cuuint32_t *, const cuuint32_t *,
			       CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
			       CUtensorMapFloatOOBfill);

/* Gets the driver's function at run time, without linking libcuda. NULL: not available. */
static map_encode find_encode(void)
{
	cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
	void *f = NULL;

#if CUDART_VERSION >= 12050
	if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault,
					     &found) != cudaSuccess)
		return NULL;
#else
	if (cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &f, cudaEnableDefault, &found) != cudaSuccess)
		return NULL;
#endif
	return found == cudaDriverEntryPointSuccess ? (map_encode)f : NULL;
}

int dt_gpu_map(struct dt_gpu_map *ret, const void *from, const int64_t n[4], const int64_t step[3])
{
	static const map_encode encode = find_encode();
	const cuuint64_t dims[4] = {(cuuint64_t)n[0], (cuuint64_t)n[1], (cuuint64_t)n[2], (cuuint64_t)n[3]};
	const cuuint64_t bytes[3] = {(cuuint64_t)step[0] * 2, (cuuint64_t)step[1] * 2,
				     (cuuint64_t)step[2] * 2};
	const cuuint32_t box[4] = {64, 1, 64, 1}, every[4] = {1, 1, 1, 1};

	static_assert(sizeof *ret == sizeof(CUtensorMap), "a tensor map is 128 bytes");
	if (!encode)
		return -EIO;
	return encode((CUtensorMap *)ret, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, (void *)from, dims, bytes, box,
		      every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
		      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS
		       ? 0
		       : -EINVAL;
}
/* SPDX-License-Identifier: Apache-2.0 */
