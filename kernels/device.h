/*
 * A device and views of its memory. A dt_tensor is pointer, type and shape: no ownership, no graph, no
 * autograd. Kernels return 0 or a negative errno; they never print.
 */
#ifndef DT_KERNELS_DEVICE_H
#define DT_KERNELS_DEVICE_H

#include "kernels/dtype.h"

#include <stdbool.h>
#include <stddef.h>

struct dt_tensor {
	void *data;
	enum dt_dtype dtype;
	int ndim;
	int64_t dim[4]; /* row-major */
	/*
	 * Elements from one row of the last dimension to the next; 0: rows follow one another. Its memory is
	 * then whole rows of ld; what lies past their columns is nobody's. Ops whose contract says so take
	 * it, on devices where dt_dev_row_pad is not 1; all others refuse it (-EINVAL).
	 */
	int64_t ld;
};

static inline struct dt_tensor dt_t1(void *data, enum dt_dtype t, int64_t n)
{
	return (struct dt_tensor){data, t, 1, {n, 1, 1, 1}, 0};
}

static inline struct dt_tensor dt_t2(void *data, enum dt_dtype t, int64_t rows, int64_t cols)
{
	return (struct dt_tensor){data, t, 2, {rows, cols, 1, 1}, 0};
}

/* ld: at least cols. */
static inline struct dt_tensor dt_t2_ld(void *data, enum dt_dtype t, int64_t rows, int64_t cols, int64_t ld)
{
	return (struct dt_tensor){data, t, 2, {rows, cols, 1, 1}, ld};
}

static inline struct dt_tensor dt_t3(void *data, enum dt_dtype t, int64_t n, int64_t rows, int64_t cols)
{
	return (struct dt_tensor){data, t, 3, {n, rows, cols, 1}, 0};
}

static inline int64_t dt_numel(struct dt_tensor t)
{
	int64_t n = 1;

	for (int i = 0; i < t.ndim; i++)
		n *= t.dim[i];
	return n;
}

#define DT_NONE ((struct dt_tensor){0}) /* an optional tensor that is absent */

enum dt_dev_kind { DT_DEV_CPU, DT_DEV_CUDA };

struct dt_ops;

struct dt_dev {
	enum dt_dev_kind kind;
	int index;
	int nthreads;
	bool batch_invariant; /* matmul.h: a row's result is the same whatever the number of rows */
	const struct dt_ops *ops;
	void *impl; /* the device's own state: primitive cache, stream, scratch */
};

/*
 * First in main, before options are parsed out of argv: has threads that wait for each other go to sleep
 * after some 10 us, instead of milliseconds of spinning that cost whole time slices wherever there are more
 * threads than processors (ranks that share a machine, a server's other threads, other programs).
 *
 * OpenMP's runtimes read how long they spin from the environment, libgomp before main. So the variables are
 * set and the program starts over, once, with the same process id and open files. Where the user has set one
 * of OMP_WAIT_POLICY, GOMP_SPINCOUNT and KMP_BLOCKTIME nothing is done; nor when it cannot start over, which
 * only makes it slower.
 */
void dt_dev_spin_less(char **argv);

/*
 * nthreads 0: all processors this process may run on. CUDA: -ENOTSUP in a build without it, -ENODEV where
 * there is no driver or no such card. A CUDA device is one stream of one card: opened twice it is two streams
 * that share memory.
 */
int dt_dev_open(struct dt_dev **ret, enum dt_dev_kind kind, int index, int nthreads);
void dt_dev_close(struct dt_dev *dev);

/*
 * Ends the calling thread's helpers; they start again with its next op. For a thread that hands the device on
 * to another: as long as there are more helpers than processors, OpenMP has them sleep at every barrier.
 */
void dt_dev_rest(struct dt_dev *dev);
/*
 * "cpu", "cuda", "cuda:N" or "auto" (the first card, or the CPU where there is none). -EINVAL: none of
 * these.
 */
int dt_dev_parse(const char *name, enum dt_dev_kind *ret_kind, int *ret_index);
/* Devices of the kind; 0 where there is none. */
int dt_dev_count(enum dt_dev_kind kind);
/* Why dt_dev_open failed with rc, as a clause: "no NVIDIA driver or no such card". */
const char *dt_dev_why(int rc);

/*
 * Memory of the device, 64-byte aligned at least; contents undefined. What ops read and write lies there; on
 * CUDA the host may not touch it, and copies are how data comes and goes. Tables of a call that a contract
 * calls host memory are copied by it.
 */
int dt_dev_alloc(struct dt_dev *dev, void **ret, size_t n);
void dt_dev_free(struct dt_dev *dev, void *p);
/* Host memory that copies to and from the device go fastest with (pinned). */
int dt_dev_host_alloc(struct dt_dev *dev, void **ret, size_t n);
void dt_dev_host_free(struct dt_dev *dev, void *p);
/* Whether the host may use device memory as its own. */
bool dt_dev_is_host(const struct dt_dev *dev);
/* What is free and what there is, bytes; -ENOTSUP on the CPU. */
int dt_dev_memory(struct dt_dev *dev, size_t *ret_free, size_t *ret_total);

/*
 * On CUDA ops, copies and clears are queued, and run in the order of their calls. Host memory given to a copy
 * stays as it is until dt_dev_sync, or until an event recorded after it has been waited for; then what was
 * copied to the host is there. The CPU has done everything when a call returns.
 *
 * Index arrays in device memory (token ids, positions) cannot be looked at by the call that gets them. An
 * index out of range is met by the kernel, which leaves what hangs on it alone; the next dt_dev_sync is
 * -EINVAL.
 */
int dt_dev_copy(struct dt_dev *dev, void *to, const void *from, size_t n);
int dt_dev_clear(struct dt_dev *dev, void *p, size_t n); /* zero bytes */
int dt_dev_sync(struct dt_dev *dev);
/* rows pieces of n bytes, which lie so many bytes apart. */
int dt_dev_copy_rows(struct dt_dev *dev, void *to, size_t to_step, const void *from, size_t from_step,
		     size_t n, int64_t rows);

/*
 * Tables of calls that lie in [host, host + n) are at there, device memory, already: ops take them from there
 * instead of copying them. Whoever says so copies them first, in each step. host NULL: none. Nothing on the
 * CPU.
 */
void dt_dev_tables(struct dt_dev *dev, const void *host, const void *there, size_t n);

/*
 * Ops, copies and clears recorded once and given to the device in one go again and again: what they read from
 * memory they read anew, all else (addresses, sizes, what host tables and scalars were) is as it was. Between
 * begin and end nothing runs. Everything must have run once before, so that scratch is there; tables must be
 * those of dt_dev_tables (-EBUSY), and what waits for the host is refused. -ENOTSUP on the CPU. No op writes
 * packed weights or tables: a card reads them ahead of what comes before.
 * dt_graph_run: -ESTALE where scratch has moved since: record it anew.
 */
struct dt_graph;
int dt_graph_begin(struct dt_dev *dev);
/* Also after an op failed: ret may be NULL then, and what was recorded is dropped. */
int dt_graph_end(struct dt_dev *dev, struct dt_graph **ret);
int dt_graph_run(struct dt_dev *dev, const struct dt_graph *g);
void dt_graph_close(struct dt_dev *dev, struct dt_graph *g);

/* A point in a device's queue. Of one card: the waiting device may be another stream of it. */
struct dt_event;
int dt_event_open(struct dt_event **ret, struct dt_dev *dev);
void dt_event_close(struct dt_event *e);
int dt_event_record(struct dt_event *e, struct dt_dev *dev);
int dt_event_wait(struct dt_event *e, struct dt_dev *dev); /* what dev is given later waits for it */
int dt_event_sync(struct dt_event *e);			   /* the host waits for it */

int dt_event_done(struct dt_event *e); /* 1, or 0: not yet; never waits */

/*
 * Further queues of a card, for what runs beside the device's own: messages between cards. A queue is the
 * cudaStream_t itself. -ENOTSUP on the CPU. queue NULL: the device's own.
 */
int dt_queue_open(struct dt_dev *dev, void **ret);
void dt_queue_close(struct dt_dev *dev, void *queue); /* nothing may be under way */
int dt_queue_copy(struct dt_dev *dev, void *queue, void *to, const void *from, size_t n);
int dt_event_record_on(struct dt_event *e, struct dt_dev *dev, void *queue);
int dt_event_wait_on(struct dt_event *e, struct dt_dev *dev, void *queue);
/* Makes the card the calling thread's, for calls of libraries that want that. 0 on the CPU. */
int dt_dev_use(struct dt_dev *dev);
/* What no other card has: -ENOTSUP on the CPU. */
int dt_dev_card(const struct dt_dev *dev, unsigned char ret[16]);

/* Bytes of scratch the device itself allocates for its largest op so far (part of the memory account). */
size_t dt_dev_scratch_bytes(const struct dt_dev *dev);

/* Name of the instruction set in use, "avx512_bf16" for example. */
const char *dt_dev_isa(const struct dt_dev *dev);
/* That of the processor. */
const char *dt_cpu_isa(void);

/*
 * How blocks of a cache of keys and values lie (kernels/attention.h): so many slots are a group, and a group
 * holds one head behind the other. 1: a slot is a row of heads.
 */
int dt_dev_kv_group(const struct dt_dev *dev, enum dt_dtype cache, int64_t head_dim, bool latent,
		    int block_size);

/*
 * Of how many elements the row strides of a matrix without a use for the memory between its rows should be a
 * multiple (dt_tensor's ld), for products to be fast. 1: the device has dense rows only.
 */
int64_t dt_dev_row_pad(const struct dt_dev *dev);

/* Whether it has products of this type: -ENOTSUP of an op says that it has not. A card has those of 8-bit
 * floats from sm_89 on. */
bool dt_dev_multiplies(const struct dt_dev *dev, enum dt_dtype dtype);
/* Whether it has convolutions: a card has where cuDNN was there to build with, and is there now. */
bool dt_dev_convolves(const struct dt_dev *dev);
/*
 * Whether the rows of a product [m, k] x [k, n] (tb: the second is transposed) come out the same, to the bit,
 * where it is made in parts of them for all of which this holds.
 */
bool dt_dev_rows_apart(struct dt_dev *dev, enum dt_dtype dtype, int64_t m, int64_t k, int64_t n, bool tb,
		       bool bias);

/* Measured square-matmul rate in flop/s at dtype (8-bit floats: both operands E4M3), over about seconds of
 * wall time: the ceiling for MFU. */
double dt_dev_matmul_rate(struct dt_dev *dev, enum dt_dtype dtype, double seconds);
/* What the maker's data sheet says of the card (dense, accumulating in f32), flop/s; 0: not known, as of
 * CPUs. */
double dt_dev_sheet_rate(const struct dt_dev *dev, enum dt_dtype dtype);
/* Measured copy bandwidth, bytes read plus bytes written a second, on buffers past the last-level cache. */
double dt_dev_copy_rate(struct dt_dev *dev, double seconds);
/* Measured read bandwidth, likewise: the ceiling of products of one row with weights. */
double dt_dev_read_rate(struct dt_dev *dev, double seconds);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
