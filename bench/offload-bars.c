/*
 * Times the parts of offloading to disk next to the limits of the machine, in turns:
 *   offload-bars FOLDER [THREADS [ROUNDS [MIB]]]
 * The fused AdamW update in bytes/s next to a memory copy with as many threads; tiles written and read
 * through base/scratch.h, four in flight, next to plain O_DIRECT of the same blocks by four threads. Reports
 * the best of all rounds of each, and their ratios.
 */
#include "base/progress.h"
#include "base/scratch.h"
#include "kernels/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NUMEL	((int64_t)16 << 20)
#define TILE	((size_t)6 << 20)
#define PIECE	((size_t)2 << 20) /* size of the pieces that base/scratch.c splits a tile into */
#define RING	4
#define THREADS 4

struct plain { /* a thread of plain transfers: every THREADS-th piece */
	int fd, first;
	bool write, failed;
	char *data;
	size_t bytes;
};

static void *move(void *arg)
{
	struct plain *p = arg;

	for (size_t at = (size_t)p->first * PIECE; at < p->bytes; at += THREADS * PIECE) {
		ssize_t n = p->write ? pwrite(p->fd, p->data, PIECE, (off_t)at)
				     : pread(p->fd, p->data, PIECE, (off_t)at);

		p->failed |= n != (ssize_t)PIECE;
	}
	return NULL;
}

/* Seconds for all pieces of a file; < 0: failed. */
static double plain(int fd, bool write, char *data, size_t bytes)
{
	struct plain p[THREADS];
	pthread_t thread[THREADS];
	double t0 = dt_now();
	bool failed = false;

	for (int i = 0; i < THREADS; i++) {
		p[i] = (struct plain){fd, i, write, false, data + (size_t)i * PIECE, bytes};
		if (pthread_create(&thread[i], NULL, move, &p[i]))
			abort();
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(thread[i], NULL);
		failed |= p[i].failed;
	}
	return failed ? -1 : dt_now() - t0;
}

static double tiles(struct dt_scratch *s, bool write, char *data, size_t bytes, struct dt_err *err)
{
	double t0 = dt_now();
	int n = (int)(bytes / TILE), rc = 0;

	for (int i = 0; i < n + RING && rc == 0; i++) {
		const int k = i % RING;

		rc = i >= RING ? dt_scratch_wait(s, k, err) : 0;
		if (i >= n || rc < 0)
			continue;
		if (write)
			dt_scratch_write(s, k, data + (size_t)k * TILE, TILE, (uint64_t)i * TILE);
		else
			dt_scratch_read(s, k, data + (size_t)k * TILE, TILE, (uint64_t)i * TILE);
	}
	return rc < 0 ? -1 : dt_now() - t0;
}

static double copied(int threads, char *to, const char *from, size_t n)
{
	const double t0 = dt_now();
	const size_t part = n / (size_t)threads;

#pragma omp parallel for num_threads(threads)
	for (int i = 0; i < threads; i++)
		memcpy(to + (size_t)i * part, from + (size_t)i * part, part);
	return dt_now() - t0;
}

static void keep(double *best, double seconds)
{
	*best = *best == 0 || seconds < *best ? seconds : *best;
}

static int disk(const char *folder, int rounds, size_t bytes, struct dt_err *err)
{
	double best[2][2] = {{0}}; /* plain or tiles, read or write */
	char path[4096], *data = aligned_alloc(DT_SCRATCH_ALIGN, RING * TILE);
	struct dt_scratch *s = NULL;
	int fd, rc;

	snprintf(path, sizeof(path), "%s/offload-bars-XXXXXX", folder);
	fd = mkostemp(path, O_DIRECT);
	if (fd < 0 || !data)
		return dt_err_sys(err, -errno, "cannot make a file past the page cache in '%s'", folder);
	unlink(path);
	memset(data, 7, RING * TILE);
	if (posix_fallocate(fd, 0, (off_t)bytes))
		return dt_err_sys(err, -ENOSPC, "cannot reserve a file in '%s'", folder);
	rc = dt_scratch_open(folder, bytes, false, &s, err);
	/* the first round writes blocks for the first time */
	for (int i = 0; i <= rounds && rc == 0; i++)
		for (int write = 1; write >= 0 && rc == 0; write--) {
			double a = plain(fd, write, data, bytes), b = tiles(s, write, data, bytes, err);

			if (a < 0 || b < 0)
				rc = b < 0 ? err->code : dt_err_sys(err, -EIO, "cannot use '%s'", folder);
			keep(&best[0][write], i || a < 0 ? a : 1e9);
			keep(&best[1][write], i || b < 0 ? b : 1e9);
		}
	for (int write = 0; write < 2 && rc == 0; write++)
		printf("%-6s plain O_DIRECT %6.2f GB/s, tiles %6.2f GB/s: %.2f of it\n",
		       write ? "write" : "read", (double)bytes / best[0][write] / 1e9,
		       (double)bytes / best[1][write] / 1e9, best[0][write] / best[1][write]);
	if (rc == 0)
		printf("tiles: %s\n", dt_scratch_how(s));
	dt_scratch_close(s);
	close(fd);
	free(data);
	return rc;
}

static int update(int threads, int rounds, struct dt_err *err)
{
	const struct dt_optim o = {DT_OPTIM_ADAMW, 1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, 1, 10};
	const size_t bytes = 30 * (size_t)NUMEL; /* four values read, three and a bf16 copy written */
	struct dt_dev *dev = NULL;
	char *memory = calloc(1, 2 * bytes);
	struct dt_tensor f[4];
	double best[2] = {0};
	int rc = dt_dev_open(&dev, DT_DEV_CPU, 0, threads);

	if (rc < 0 || !memory)
		return dt_err_sys(err, rc < 0 ? rc : -ENOMEM, "cannot open the processor");
	memset(memory, 0, 2 * bytes);
	for (int i = 0; i < 4; i++)
		f[i] = dt_t1(memory + (size_t)i * 4 * (size_t)NUMEL, DT_F32, NUMEL);
	for (int i = 0; i < rounds && rc == 0; i++) {
		double t0 = dt_now();

		rc = dev->ops->optim_step(dev, &o, dt_t1(memory + 16 * (size_t)NUMEL, DT_BF16, NUMEL), f[0],
					  f[1], f[2], f[3]);
		keep(&best[0], dt_now() - t0);
		keep(&best[1], copied(threads, memory + bytes, memory, bytes / 2));
	}
	printf("update %6.2f GB/s (%.2f ns/parameter), copy %6.2f GB/s, %d threads: %.2f of it\n",
	       (double)bytes / best[0] / 1e9, best[0] * 1e9 / (double)NUMEL, (double)bytes / best[1] / 1e9,
	       threads, best[1] / best[0]);
	free(memory);
	dt_dev_close(dev);
	return rc < 0 ? dt_err_sys(err, rc, "cannot update") : 0;
}

int main(int argc, char **argv)
{
	const int threads = argc > 2 ? atoi(argv[2]) : 2, rounds = argc > 3 ? atoi(argv[3]) : 5;
	const size_t mib = argc > 4 ? strtoull(argv[4], NULL, 10) : 768;
	struct dt_err err = {0};
	int rc;

	if (argc < 2 || threads < 1 || rounds < 1 || mib < 24) {
		fputs("usage: offload-bars FOLDER [THREADS [ROUNDS [MIB]]]\n", stderr);
		return 2;
	}
	rc = access(argv[1], W_OK) < 0 ? dt_err_sys(&err, -errno, "cannot write into '%s'", argv[1]) : 0;
	if (rc == 0)
		rc = update(threads, rounds, &err);
	if (rc == 0)
		rc = disk(argv[1], rounds, mib / 24 * 24 << 20, &err);
	if (rc < 0)
		fprintf(stderr, "offload-bars: %s\n", err.msg);
	return rc < 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
