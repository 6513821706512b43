/*
 * The part of NCCL that is used, loaded at run time: libnccl.so.2 of 2.10 or later. The numbers are those of
 * its C interface (docs.nvidia.com/deeplearning/nccl: Types, Communicator Creation, Collective and Point To
 * Point functions); tests/nccl/abi.c holds them against nccl.h where there is one.
 */
#ifndef DT_COMM_NCCL_API_H
#define DT_COMM_NCCL_API_H

#include <stddef.h>

enum dt_comm_nccl_result {
	DT_NCCL_SUCCESS = 0,
	DT_NCCL_SYSTEM_ERROR = 2,
	DT_NCCL_REMOTE_ERROR = 6,
	DT_NCCL_IN_PROGRESS = 7
};
enum dt_comm_nccl_dtype {
	DT_NCCL_I8 = 0,
	DT_NCCL_U8 = 1,
	DT_NCCL_I32 = 2,
	DT_NCCL_I64 = 4,
	DT_NCCL_F16 = 6,
	DT_NCCL_F32 = 7,
	DT_NCCL_F64 = 8,
	DT_NCCL_BF16 = 9
};
enum dt_comm_nccl_redop { DT_NCCL_SUM = 0, DT_NCCL_MAX = 2, DT_NCCL_MIN = 3, DT_NCCL_AVG = 4 };

struct dt_comm_nccl_id {
	char internal[128];
};

/* result, type and op are ints; comm and stream pointers. */
struct dt_comm_nccl_lib {
	void *handle;
	int (*GetVersion)(int *version);
	const char *(*GetErrorString)(int result);
	int (*GetUniqueId)(struct dt_comm_nccl_id *id);
	int (*CommInitRank)(void **comm, int size, struct dt_comm_nccl_id id, int rank);
	int (*CommDestroy)(void *comm);
	int (*CommAbort)(void *comm);
	int (*CommGetAsyncError)(void *comm, int *result);
	int (*AllReduce)(const void *src, void *dst, size_t n, int type, int op, void *comm, void *stream);
	int (*Reduce)(const void *src, void *dst, size_t n, int type, int op, int root, void *comm,
		      void *stream);
	int (*Broadcast)(const void *src, void *dst, size_t n, int type, int root, void *comm, void *stream);
	int (*AllGather)(const void *src, void *dst, size_t n, int type, void *comm, void *stream);
	int (*ReduceScatter)(const void *src, void *dst, size_t n, int type, int op, void *comm,
			     void *stream);
	int (*Send)(const void *src, size_t n, int type, int peer, void *comm, void *stream);
	int (*Recv)(void *dst, size_t n, int type, int peer, void *comm, void *stream);
	int (*GroupStart)(void);
	int (*GroupEnd)(void);
};

#endif
/* SPDX-License-Identifier: Apache-2.0 */
