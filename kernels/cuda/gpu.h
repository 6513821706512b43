/*
 * The interface to a card for the CUDA backend: memory, streams, events. gpu.cu implements it over the CUDA
 * runtime; emulate/gpu.cc computes on the host, so that every kernel can be tested without a card. All
 * functions return 0 or a negative errno: -ENODEV (no driver, no card), -ENOMEM, -EIO.
 */
#ifndef DT_KERNELS_CUDA_GPU_H
#define DT_KERNELS_CUDA_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct dt_gpu_info {
	char name[64];
	int major, minor;     /* compute capability */
	int sms;	      /* multiprocessors */
	size_t memory;	      /* bytes */
	unsigned char id[16]; /* unique per card */
};

int dt_gpu_count(void); /* number of cards; -ENODEV without a driver */
int dt_gpu_info(int index, struct dt_gpu_info *ret);
int dt_gpu_use(int index); /* makes the card current for this thread */
int dt_gpu_memory(size_t *ret_free, size_t *ret_total);
bool dt_gpu_emulated(void);

int dt_gpu_alloc(void **ret, size_t n); /* 256-byte aligned on a card; contents undefined */
void dt_gpu_free(void *p);
int dt_gpu_host_alloc(void **ret, size_t n); /* pinned */
void dt_gpu_host_free(void *p);

/* Queued on the stream; either side may be the card. */
int dt_gpu_copy(void *to, const void *from, size_t n, void *stream);
int dt_gpu_copy_rows(void *to, size_t to_step, const void *from, size_t from_step, size_t n, size_t rows,
		     void *stream);
int dt_gpu_set(void *to, int byte, size_t n, void *stream);

int dt_gpu_stream_open(void **ret);
void dt_gpu_stream_close(void *stream);
int dt_gpu_stream_sync(void *stream);

int dt_gpu_event_open(void **ret);
void dt_gpu_event_close(void *event);
int dt_gpu_event_record(void *event, void *stream);
int dt_gpu_event_wait(void *event, void *stream); /* later work in the stream waits */
int dt_gpu_event_sync(void *event);		  /* the host waits */
int dt_gpu_event_done(void *event);		  /* 1, or 0: not yet */
int dt_gpu_event_ms(void *from, void *to, float *ret);

/*
 * Describes an array of 16-bit elements for TMA copies (tma.h): n[0] contiguous elements, n[1] heads, n[2]
 * rows, n[3] sequences; n[i] are step[i - 1] elements apart. A copy is 64 of n[0] by 64 of n[2], in the
 * layout of wgmma.h's tiles, with zeros outside the array. `from` and the steps are multiples of 16 bytes,
 * else -EINVAL. -EIO: the driver has no such copies.
 */
struct dt_gpu_map {
	unsigned char of[128] __attribute__((aligned(64)));
};

int dt_gpu_map(struct dt_gpu_map *ret, const void *from, const int64_t n[4], const int64_t step[3]);

/* Work given to the stream between begin and end is recorded instead; run queues all of it on a stream. */
int dt_gpu_record_begin(void *stream);
int dt_gpu_record_end(void *stream, void **ret);
int dt_gpu_record_run(void *record, void *stream);
void dt_gpu_record_close(void *record);

#ifdef __cplusplus
}
#endif
#endif
/* SPDX-License-Identifier: Apache-2.0 */
