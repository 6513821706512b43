/*
 * The card behind the CUDA device: memory, streams, events. gpu.cu is the real one, over the CUDA runtime;
 * emulate/gpu.cc computes on the host, so that every kernel is tested where there is no card. Everything
 * returns 0 or a negative errno: -ENODEV (no driver, no card), -ENOMEM, -EIO.
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
	unsigned char id[16]; /* no other card has it */
};

int dt_gpu_count(void); /* cards; -ENODEV without a driver */
int dt_gpu_info(int index, struct dt_gpu_info *ret);
int dt_gpu_use(int index); /* by this thread from now on */
int dt_gpu_memory(size_t *ret_free, size_t *ret_total);
bool dt_gpu_emulated(void);

int dt_gpu_alloc(void **ret, size_t n); /* 256-byte aligned on a card; contents undefined */
void dt_gpu_free(void *p);
int dt_gpu_host_alloc(void **ret, size_t n); /* pinned */
void dt_gpu_host_free(void *p);

/* In the order of the stream; either side may be the card. */
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
int dt_gpu_event_wait(void *event, void *stream); /* what comes later in the stream waits */
int dt_gpu_event_sync(void *event);		  /* the host waits */
int dt_gpu_event_done(void *event);		  /* 1, or 0: not yet */
int dt_gpu_event_ms(void *from, void *to, float *ret);

/*
 * What a card's own copies (tma.h) know of an array of 16-bit elements: n[0] of them beside one another, n[i]
 * heads, rows of them, sequences step[i - 1] elements apart. They copy 64 of n[0] by 64 of n[2], as wgmma.h's
 * tiles lie, with zeros where there is nothing. `from` and the steps are multiples of 16 bytes. -EINVAL: they
 * are not, -EIO: the driver has no such copies.
 */
struct dt_gpu_map {
	unsigned char of[128] __attribute__((aligned(64)));
};

int dt_gpu_map(struct dt_gpu_map *ret, const void *from, const int64_t n[4], const int64_t step[3]);

/* What is given to the stream between begin and end is recorded instead; run gives it all to a stream. */
int dt_gpu_record_begin(void *stream);
int dt_gpu_record_end(void *stream, void **ret);
int dt_gpu_record_run(void *record, void *stream);
void dt_gpu_record_close(void *record);

#ifdef __cplusplus
}
#endif
#endif
/* SPDX-License-Identifier: Apache-2.0 */
