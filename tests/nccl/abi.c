/* Compiled where nccl.h is there: the numbers and types of comm/nccl_api.h are NCCL's. */
#include "comm/nccl_api.h"

#include <nccl.h>

_Static_assert(sizeof(struct dt_comm_nccl_id) == sizeof(ncclUniqueId), "id");
_Static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int), "enums");
_Static_assert((int)DT_NCCL_SUCCESS == (int)ncclSuccess &&
		       (int)DT_NCCL_SYSTEM_ERROR == (int)ncclSystemError &&
		       (int)DT_NCCL_REMOTE_ERROR == (int)ncclRemoteError &&
		       (int)DT_NCCL_IN_PROGRESS == (int)ncclInProgress,
	       "results");
_Static_assert((int)DT_NCCL_I8 == (int)ncclInt8 && (int)DT_NCCL_U8 == (int)ncclUint8 &&
		       (int)DT_NCCL_I32 == (int)ncclInt32 && (int)DT_NCCL_I64 == (int)ncclInt64 &&
		       (int)DT_NCCL_F16 == (int)ncclFloat16 && (int)DT_NCCL_F32 == (int)ncclFloat32 &&
		       (int)DT_NCCL_F64 == (int)ncclFloat64 && (int)DT_NCCL_BF16 == (int)ncclBfloat16,
	       "types");
_Static_assert((int)DT_NCCL_SUM == (int)ncclSum && (int)DT_NCCL_MAX == (int)ncclMax &&
		       (int)DT_NCCL_MIN == (int)ncclMin && (int)DT_NCCL_AVG == (int)ncclAvg,
	       "operations");

/* The same parameters in the same order: pointers and enums for void * and int. */
#define SAME(member, f, ...)                                                                                 \
	_Static_assert(_Generic(&(f), ncclResult_t(*)(__VA_ARGS__) : 1, default : 0), #member)

SAME(GetVersion, ncclGetVersion, int *);
SAME(GetUniqueId, ncclGetUniqueId, ncclUniqueId *);
SAME(CommInitRank, ncclCommInitRank, ncclComm_t *, int, ncclUniqueId, int);
SAME(CommDestroy, ncclCommDestroy, ncclComm_t);
SAME(CommAbort, ncclCommAbort, ncclComm_t);
SAME(CommGetAsyncError, ncclCommGetAsyncError, ncclComm_t, ncclResult_t *);
SAME(AllReduce, ncclAllReduce, const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
     cudaStream_t);
SAME(Reduce, ncclReduce, const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t,
     cudaStream_t);
SAME(Broadcast, ncclBroadcast, const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
SAME(AllGather, ncclAllGather, const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
SAME(ReduceScatter, ncclReduceScatter, const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
     cudaStream_t);
SAME(Send, ncclSend, const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
SAME(Recv, ncclRecv, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
/* SPDX-License-Identifier: Apache-2.0 */
