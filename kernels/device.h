/*
 * A device and views of its memory. A dt_tensor is pointer, type and shape: no ownership, no graph, no
 * autograd. Kernels return 0 or a negative errno; they never print.
 */
#ifndef DT_KERNELS_DEVICE_H
#define DT_KERNELS_DEVICE_H

#include "kernels/dtype.h"
#include "kernels/scratch.h"

struct dt_tensor {
	void *data;
	enum dt_dtype dtype;
	int ndim;
	int64_t dim[4]; /* row-major */
	/*
	 * Elements between the starts of two rows (leading dimension); 0: dense. With ld set the memory is
	 * whole rows of ld elements, and the padding belongs to nobody. Only ops whose contract allows it
	 * accept ld, on devices where dt_dev_row_pad is not 1; all others return -EINVAL.
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

/* ld >= cols. */
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

struct dt_scratch_room { /* one of the device's scratch buffers */
	void *p;
	size_t n, most; /* size; the largest that an op has asked for */
	bool lent;	/* p is memory of dt_dev_scratch_lend */
};

struct dt_dev {
	enum dt_dev_kind kind;
	int index;
	int nthreads;
	struct dt_scratch_room scratch[DT_SCRATCH_N];
	bool batch_invariant; /* a row's result does not depend on the number of rows (matmul.h) */
	bool steps; /* for inference: parallel regions on the CPU are those of the team (cpu/team.h) */
	const struct dt_ops *ops;
	void *impl; /* the device's own state: primitive cache, stream, scratch */
};

/*
 * Called first in main, before options are parsed out of argv. Makes threads that wait for each other sleep
 * after some 10 us instead of spinning for milliseconds, which costs whole time slices when there are more
 * threads than processors (ranks that share a machine, a server's other threads, other programs).
 *
 * OpenMP runtimes read the spin time from the environment, libgomp before main. So this sets the variables
 * and re-executes the program once, with the same process id and open files. It does nothing if the user has
 * set OMP_WAIT_POLICY, GOMP_SPINCOUNT or KMP_BLOCKTIME, or if it cannot re-execute, which only makes it
 * slower.
 */
void dt_dev_spin_less(char **argv);

/*
 * nthreads 0: all processors this process may run on. CUDA: -ENOTSUP in a build without it, -ENODEV without a
 * driver or such a card. A CUDA device is one stream on one card: opening a card twice gives two streams that
 * share its memory.
 */
int dt_dev_open(struct dt_dev **ret, enum dt_dev_kind kind, int index, int nthreads);
void dt_dev_close(struct dt_dev *dev);

/*
 * Ends the calling thread's OpenMP workers; its next op starts them again. Call it before handing the device
 * to another thread: with more workers than processors, OpenMP makes them sleep at every barrier.
 */
void dt_dev_rest(struct dt_dev *dev);
/*
 * Calls fn(arg, t, first, last) for parts of `rows` rows of `each` elements of host memory, on the device's
 * host threads, which are those of its ops: the team where it infers (steps). So work of the host between
 * passes does not wake other threads, which would be in the team's way. t: number of the thread.
 */
void dt_dev_rows(struct dt_dev *dev, int64_t rows, int64_t each,
		 void (*fn)(void *arg, int t, int64_t first, int64_t last), void *arg);
/*
 * Parses "cpu", "cuda", "cuda:N" or "auto" (the first card, or the CPU if there is none). -EINVAL: none of
 * these.
 */
int dt_dev_parse(const char *name, enum dt_dev_kind *ret_kind, int *ret_index);
/* Number of devices of this kind; may be 0. */
int dt_dev_count(enum dt_dev_kind kind);
/* Why dt_dev_open failed with rc, as a clause: "no NVIDIA driver or no such GPU". */
const char *dt_dev_why(int rc);

/*
 * Device memory, at least 64-byte aligned, contents undefined. Ops read and write only such memory. On CUDA
 * the host may not access it; data goes in and out by copies. Call tables that a contract calls host memory
 * are copied by the op.
 */
int dt_dev_alloc(struct dt_dev *dev, void **ret, size_t n);
void dt_dev_free(struct dt_dev *dev, void *p);
/* Pinned host memory, for the fastest copies to and from the device. */
int dt_dev_host_alloc(struct dt_dev *dev, void **ret, size_t n);
void dt_dev_host_free(struct dt_dev *dev, void *p);
/* Whether the host may access device memory directly. */
bool dt_dev_is_host(const struct dt_dev *dev);
/* Free and total memory in bytes; -ENOTSUP on the CPU. */
int dt_dev_memory(struct dt_dev *dev, size_t *ret_free, size_t *ret_total);

/*
 * On CUDA ops, copies and clears are queued, and run in the order of their calls. The caller keeps host
 * memory given to a copy unchanged until dt_dev_sync, or until it has waited for an event recorded after the
 * copy; only then is data copied to the host valid. On the CPU everything is done when a call returns.
 *
 * A call cannot look at index arrays in device memory (token ids, positions). The kernel skips the work of an
 * index out of range, and the next dt_dev_sync returns -EINVAL.
 */
int dt_dev_copy(struct dt_dev *dev, void *to, const void *from, size_t n);
int dt_dev_clear(struct dt_dev *dev, void *p, size_t n); /* sets n bytes to zero */
int dt_dev_sync(struct dt_dev *dev);
/* Copies `rows` pieces of n bytes; to_step and from_step are the byte distances between pieces. */
int dt_dev_copy_rows(struct dt_dev *dev, void *to, size_t to_step, const void *from, size_t from_step,
		     size_t n, int64_t rows);

/*
 * Declares that the host call tables in [host, host + n) are mirrored in device memory at `there`: ops read
 * them there instead of copying them. The caller must copy them first, in each step. host NULL: no mirror.
 * No-op on the CPU.
 */
void dt_dev_tables(struct dt_dev *dev, const void *host, const void *there, size_t n);

/*
 * Records ops, copies and clears, to be launched together again and again. A replay reads memory afresh;
 * everything else (addresses, sizes, contents of host tables, scalars) is as recorded. Nothing runs between
 * begin and end. Everything must have run once before, so that scratch is allocated; tables must be those of
 * dt_dev_tables (-EBUSY), and calls that wait for the host are refused. -ENOTSUP on the CPU. Recorded ops
 * must not write packed weights or tables: a card prefetches them before preceding work is done.
 * dt_graph_run: -ESTALE if scratch has been reallocated since: record again.
 */
struct dt_graph;
int dt_graph_begin(struct dt_dev *dev);
/* Also called after an op failed: ret may be NULL then, and the recording is dropped. */
int dt_graph_end(struct dt_dev *dev, struct dt_graph **ret);
int dt_graph_run(struct dt_dev *dev, const struct dt_graph *g);
void dt_graph_close(struct dt_dev *dev, struct dt_graph *g);

/* A point in a device's queue. The device that waits may be another stream of the same card. */
struct dt_event;
int dt_event_open(struct dt_event **ret, struct dt_dev *dev);
void dt_event_close(struct dt_event *e);
int dt_event_record(struct dt_event *e, struct dt_dev *dev);
int dt_event_wait(struct dt_event *e, struct dt_dev *dev); /* later work on dev waits for the event */
int dt_event_sync(struct dt_event *e);			   /* the host waits for it */

int dt_event_done(struct dt_event *e); /* 1: done; 0: not yet; never waits */

/*
 * Further streams of a card, for work beside the device's own stream, such as messages between cards. A queue
 * is the cudaStream_t itself. -ENOTSUP on the CPU. queue NULL: the device's own stream.
 */
int dt_queue_open(struct dt_dev *dev, void **ret);
void dt_queue_close(struct dt_dev *dev, void *queue); /* the queue must be idle */
int dt_queue_copy(struct dt_dev *dev, void *queue, void *to, const void *from, size_t n);
int dt_event_record_on(struct dt_event *e, struct dt_dev *dev, void *queue);
int dt_event_wait_on(struct dt_event *e, struct dt_dev *dev, void *queue);
/* Makes the card current for the calling thread, as some libraries require. Returns 0 on the CPU. */
int dt_dev_use(struct dt_dev *dev);
/* A unique id of the card; -ENOTSUP on the CPU. */
int dt_dev_card(const struct dt_dev *dev, unsigned char ret[16]);

/* What the sizes of this device's scratch depend on (scratch.h). */
struct dt_scratch_on dt_dev_scratch_on(const struct dt_dev *dev);
/*
 * From now on a buffer of scratch is these n bytes of device memory, aligned to 64 bytes, as planned. An op
 * that asks for more gets memory that the device allocates. p NULL: ends the loan. The device is idle.
 */
void dt_dev_scratch_lend(struct dt_dev *dev, enum dt_scratch_buffer b, void *p, size_t n);
/*
 * Allocates scratch of at least these bytes ahead of the ops that will ask for it; more of what is there
 * stays. The device is idle. -ENOMEM. Does nothing on a card.
 */
int dt_dev_scratch_reserve(struct dt_dev *dev, const struct dt_scratch *s);
/* The most that ops have asked of a buffer since it was lent, or ever. */
size_t dt_dev_scratch_most(const struct dt_dev *dev, enum dt_scratch_buffer b);
/* Bytes of scratch that the device itself has allocated so far, libraries' workspaces included. */
size_t dt_dev_scratch_bytes(const struct dt_dev *dev);

/* Name of the instruction set in use, "avx512_bf16" for example. */
const char *dt_dev_isa(const struct dt_dev *dev);
/* The instruction set of the processor. */
const char *dt_cpu_isa(void);

/*
 * How blocks of a KV cache are laid out (kernels/attention.h): this many slots form a group, and a group
 * stores one head after the other. 1: each slot is a row of all heads.
 */
int dt_dev_kv_group(const struct dt_dev *dev, enum dt_dtype cache, int64_t head_dim, bool latent,
		    int block_size);

/*
 * For fast products, pad the row stride (dt_tensor's ld) of a matrix to a multiple of this many elements. 1:
 * the device accepts dense rows only.
 */
int64_t dt_dev_row_pad(const struct dt_dev *dev);

/* Whether the device multiplies this type; if not, ops return -ENOTSUP. A card multiplies 8-bit floats from
 * sm_89 on. */
bool dt_dev_multiplies(const struct dt_dev *dev, enum dt_dtype dtype);
/* Whether the device has convolutions: a card does if cuDNN was there at build time and is there now. */
bool dt_dev_convolves(const struct dt_dev *dev);
/*
 * Whether a product [m, k] x [k, n] (tb: the second operand is transposed) gives bit-identical rows when it
 * is computed in parts by rows, if this holds for every part too.
 */
bool dt_dev_rows_apart(struct dt_dev *dev, enum dt_dtype dtype, int64_t m, int64_t k, int64_t n, bool tb,
		       bool bias);

/* Measures the flop/s of square matmuls of dtype (8-bit floats: both operands E4M3), in about `seconds` of
 * wall time: the peak that MFU is relative to. */
double dt_dev_matmul_rate(struct dt_dev *dev, enum dt_dtype dtype, double seconds);
/* Peak flop/s of the card by its data sheet (dense, accumulating in f32); 0: unknown, as for CPUs. */
double dt_dev_sheet_rate(const struct dt_dev *dev, enum dt_dtype dtype);
/* Measured copy bandwidth in bytes read plus written per second, on buffers larger than the last-level
 * cache. */
double dt_dev_copy_rate(struct dt_dev *dev, double seconds);
/* Measured read bandwidth, likewise: the upper bound for products of one row with weights. */
double dt_dev_read_rate(struct dt_dev *dev, double seconds);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
