/*
 * Checkpoint bandwidth as ratios to plain system calls on the same disk, taken in turns in one run:
 *
 *	bench/ckpt FOLDER [MIB [TURNS]]		(built in the build folder; the script bench/ckpt calls it)
 *
 * write: begin, write_shard and commit, over write and fsync of a plain file of the same size, as
 * dd bs=1M conv=fsync does.
 *
 * read: dt_ckpt_read of every tensor into memory, over read of the plain file into memory.
 *
 * verify: dt_ckpt_verify with one and two workers, over the same read into one block, as dd of=/dev/null.
 *
 * Reads are timed twice: from memory, where copying and summing is all the work, and from the disk, after the
 * kernel was asked to forget the file.
 *
 * Prints one JSON object: for each, the median over the turns of the plain call's time over ours (1 is its
 * speed), and the fastest plain turn over our median, which forgives the plain call every bad turn.
 */
#include "ckpt/ckpt.h"
#include "base/order.h"
#include "base/progress.h"
#include "base/tmpfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define TENSORS 32
#define TURNS	16
#define BLOCK	((size_t)1 << 20)

static char dir[512], plain[600], root[600];
static char *data, *into;
static size_t bytes;
static struct dt_err err;

static void die(const char *what)
{
	fprintf(stderr, "bench/ckpt: %s %s\n", what, err.msg);
	exit(1);
}

/* Indices of the timed operations; seconds per turn are in took. */
enum what { PLAIN_WRITE, WRITE, PLAIN_COPY, PLAIN_READ, READ, VERIFY_1, VERIFY_2, WHATS };
static double took[2][WHATS][TURNS]; /* [1]: reads from disk; [0]: everything else */

static double plain_write(void)
{
	double t0 = dt_now();
	int fd = open(plain, O_WRONLY | O_CREAT | O_TRUNC, 0666);

	for (size_t at = 0; at < bytes;) {
		ssize_t w = write(fd, data + at, bytes - at < BLOCK ? bytes - at : BLOCK);

		if (w <= 0)
			die("cannot write");
		at += (size_t)w;
	}
	if (fsync(fd) < 0)
		die("cannot flush");
	close(fd);
	return dt_now() - t0;
}

/* whole: into a buffer as large as the file; otherwise every block into the same buffer. */
static double plain_read(bool whole)
{
	double t0 = dt_now();
	int fd = open(plain, O_RDONLY);

	for (size_t at = 0; at < bytes;) {
		ssize_t got = read(fd, into + (whole ? at : 0), bytes - at < BLOCK ? bytes - at : BLOCK);

		if (got <= 0)
			die("cannot read");
		at += (size_t)got;
	}
	close(fd);
	return dt_now() - t0;
}

/* Drops a file from the page cache, or reads it in. */
static void cache(const char *path, bool in)
{
	int fd = open(path, O_RDONLY);
	ssize_t got = 1;

	if (fd < 0 || fsync(fd) < 0 || (!in && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0))
		die("cannot drop the page cache");
	while (in && got > 0)
		got = read(fd, into, BLOCK);
	close(fd);
}

static void cache_all(bool in)
{
	char path[1200];
	struct dirent *e;
	DIR *d;

	cache(plain, in);
	snprintf(path, sizeof(path), "%s/latest", root);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/latest/%s", root, e->d_name);
		if (e->d_name[0] != '.')
			cache(path, in);
	}
	if (d)
		closedir(d);
}

static double ckpt_write(int64_t step)
{
	int64_t rows = (int64_t)(bytes / TENSORS / 4 / 1024);
	struct dt_piece p[TENSORS];
	json_t *list = NULL, *meta = json_object();
	double t0 = dt_now();
	char *tmp;

	for (int i = 0; i < TENSORS; i++) {
		p[i] = (struct dt_piece){.dtype = DT_F32,
					 .ndim = 2,
					 .global = {rows, 1024},
					 .shape = {rows, 1024},
					 .data = data + (size_t)i * (size_t)rows * 4096};
		snprintf(p[i].name, sizeof(p[i].name), "model/layers.%d.weight", i);
	}
	if (dt_ckpt_begin(root, step, &tmp, &err) < 0 ||
	    dt_ckpt_write_shard(tmp, 0, p, TENSORS, false, &list, &err) < 0 ||
	    dt_ckpt_commit(root, step, meta, &list, 1, 1, &err) < 0)
		die("cannot save");
	json_decref(list);
	json_decref(meta);
	free(tmp);
	return dt_now() - t0;
}

static double ckpt_read(void)
{
	double t0 = dt_now();
	struct dt_ckpt *c;
	char *at = into;

	if (dt_ckpt_open(root, &c, &err) < 0)
		die("cannot open");
	dt_ckpt_read_once(c);
	for (int i = 0; i < dt_ckpt_ntensors(c); i++) {
		struct dt_ckpt_tensor t;

		dt_ckpt_tensor(c, i, &t);
		if (dt_ckpt_read(c, i, (int64_t[4]){0}, t.shape, t.dtype, at, &err) < 0)
			die("cannot read");
		at += t.bytes;
	}
	dt_ckpt_close(c);
	return dt_now() - t0;
}

static double verify(int workers)
{
	double t0 = dt_now();

	if (dt_ckpt_verify(root, workers, NULL, NULL, NULL, &err) != 0)
		die("cannot verify");
	return dt_now() - t0;
}

static void turn(int i)
{
	took[0][PLAIN_WRITE][i] = plain_write();
	took[0][WRITE][i] = ckpt_write(i);
	for (int cold = 0; cold < 2; cold++) {
		double(*v)[TURNS] = took[cold];

#define TIME(what, call) (cache_all(!cold), v[what][i] = (call))
		TIME(PLAIN_READ, plain_read(true));
		TIME(READ, ckpt_read());
		TIME(PLAIN_COPY, plain_read(false));
		TIME(VERIFY_1, verify(1));
		TIME(VERIFY_2, verify(2));
	}
}

static double median(const double *v, int n)
{
	double s[TURNS];

	memcpy(s, v, (size_t)n * sizeof(*s));
	qsort(s, (size_t)n, sizeof(*s), dt_order_f64);
	return n % 2 ? s[n / 2] : (s[n / 2 - 1] + s[n / 2]) / 2;
}

static json_t *row(const char *name, int cold, enum what plain_is, enum what ours, int n)
{
	const double *a = took[cold][plain_is], *b = took[cold][ours];
	double ratio[TURNS], best = a[0];

	for (int i = 0; i < n; i++) {
		ratio[i] = a[i] / b[i];
		best = a[i] < best ? a[i] : best;
	}
	return json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f}", "name", name, "from",
			 ours == WRITE ? "memory to disk"
			 : cold	       ? "disk"
				       : "page cache",
			 "ratio", median(ratio, n), "ratio_of_best_plain", best / median(b, n), "bytes_per_s",
			 (double)bytes / median(b, n), "plain_bytes_per_s", (double)bytes / median(a, n),
			 "best_plain_bytes_per_s", (double)bytes / best);
}

int main(int argc, char **argv)
{
	int turns = argc > 3 ? atoi(argv[3]) : 5, mib = argc > 2 ? atoi(argv[2]) : 512;
	json_t *rows = json_array(), *out;

	if (argc < 2 || argv[1][0] == '-' || mib < 1 || turns < 1 || turns > TURNS) {
		fprintf(stderr, "usage: ckpt FOLDER [MIB [TURNS]]\n");
		return 2;
	}
	bytes = (size_t)mib << 20;
	snprintf(dir, sizeof(dir), "%s/bench-ckpt-XXXXXX", argv[1]);
	/* huge pages, as in a real run */
	data = aligned_alloc((size_t)2 << 20, bytes);
	into = aligned_alloc((size_t)2 << 20, bytes);
	if (!data || !into || !mkdtemp(dir)) {
		fprintf(stderr, "ckpt: cannot begin in '%s': %s\n", argv[1], strerror(errno));
		return 1;
	}
	madvise(data, bytes, MADV_HUGEPAGE);
	madvise(into, bytes, MADV_HUGEPAGE);
	snprintf(plain, sizeof(plain), "%s/plain", dir);
	snprintf(root, sizeof(root), "%s/run", dir);
	for (size_t i = 0; i < bytes / 4; i++)
		((uint32_t *)data)[i] = (uint32_t)i * 2654435761u;
	memset(into, 1, bytes);
	for (int i = 0; i < turns; i++)
		turn(i);
	dt_remove_tree(dir, NULL);
	json_array_append_new(rows, row("write", 0, PLAIN_WRITE, WRITE, turns));
	for (int cold = 0; cold < 2; cold++) {
		json_array_append_new(rows, row("read", cold, PLAIN_READ, READ, turns));
		json_array_append_new(rows, row("verify -j1", cold, PLAIN_COPY, VERIFY_1, turns));
		json_array_append_new(rows, row("verify -j2", cold, PLAIN_COPY, VERIFY_2, turns));
	}
	out = json_pack("{s:i, s:I, s:i, s:o}", "schema", 1, "bytes", (json_int_t)bytes, "turns", turns,
			"rows", rows);
	json_dumpf(out, stdout, JSON_REAL_PRECISION(6));
	putchar('\n');
	json_decref(out);
	free(data);
	free(into);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
