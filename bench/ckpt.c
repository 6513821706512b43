/*
 * Checkpoint bandwidth as ratios to plain system calls, taken in turns in one run:
 *
 *	bench_ckpt FOLDER [MIB [TURNS]]
 *
 * write: begin, write_shard and commit, over write and fsync of a plain file of the same size.
 *
 * read: dt_ckpt_read of every tensor, over read of the plain file into memory.
 *
 * verify: dt_ckpt_verify with one and two workers, over the same read.
 *
 * Reads are timed twice: from memory, where the checksum is most of the work, and from the disk, after the
 * kernel was asked to forget the file.
 *
 * Prints the median of the turns; a ratio of 1 is the speed of the plain call.
 */
#include "ckpt/ckpt.h"
#include "base/progress.h"
#include "base/tmpfile.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TENSORS 32
#define TURNS	16

static char dir[512], plain[600], root[600];
static char *data, *into;
static size_t bytes;
static struct dt_err err;

static void die(const char *what)
{
	fprintf(stderr, "bench_ckpt: %s %s\n", what, err.msg);
	exit(1);
}

static double plain_write(void)
{
	double t0 = dt_now();
	int fd = open(plain, O_WRONLY | O_CREAT | O_TRUNC, 0666);

	for (size_t at = 0; at < bytes;) {
		ssize_t w = write(fd, data + at, bytes - at);

		if (w <= 0)
			die("cannot write");
		at += (size_t)w;
	}
	if (fsync(fd) < 0)
		die("cannot flush");
	close(fd);
	return dt_now() - t0;
}

/* Takes a file, or every file of a folder, out of the page cache. */
static void forget(const char *path)
{
	char command[800];

	snprintf(command, sizeof(command),
		 "find -L '%s' -type f -exec dd if={} iflag=nocache count=0 status=none \\;", path);
	if (system(command) != 0)
		die("cannot drop the page cache");
}

static double plain_read(void)
{
	double t0 = dt_now();
	int fd = open(plain, O_RDONLY);

	for (size_t at = 0; at < bytes;) {
		ssize_t got = read(fd, into + at, bytes - at);

		if (got <= 0)
			die("cannot read");
		at += (size_t)got;
	}
	close(fd);
	return dt_now() - t0;
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

static int up(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof(*v), up);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

int main(int argc, char **argv)
{
	int turns = argc > 3 ? atoi(argv[3]) : 5;
	double w[TURNS], r[TURNS], v1[TURNS], v2[TURNS], pw[TURNS], pr[TURNS];
	double cold[TURNS], rc[TURNS], v1c[TURNS], v2c[TURNS];

	if (argc < 2 || turns < 1 || turns > TURNS) {
		fprintf(stderr, "usage: bench_ckpt FOLDER [MIB [TURNS]]\n");
		return 2;
	}
	bytes = (size_t)(argc > 2 ? atoi(argv[2]) : 512) << 20;
	snprintf(dir, sizeof(dir), "%s/bench-ckpt-XXXXXX", argv[1]);
	data = malloc(bytes);
	into = malloc(bytes);
	if (!data || !into || !mkdtemp(dir))
		die("cannot begin");
	snprintf(plain, sizeof(plain), "%s/plain", dir);
	snprintf(root, sizeof(root), "%s/run", dir);
	for (size_t i = 0; i < bytes / 4; i++)
		((uint32_t *)data)[i] = (uint32_t)i * 2654435761u;
	memset(into, 1, bytes);
	for (int i = 0; i < turns; i++) {
		pw[i] = plain_write();
		w[i] = pw[i] / ckpt_write(i);
		plain_read(); /* the first one after the writes meets a busy memory */
		pr[i] = plain_read();
		r[i] = pr[i] / ckpt_read();
		v1[i] = pr[i] / verify(1);
		v2[i] = pr[i] / verify(2);
		forget(plain);
		cold[i] = plain_read();
		forget(root);
		rc[i] = cold[i] / ckpt_read();
		forget(root);
		v1c[i] = cold[i] / verify(1);
		forget(root);
		v2c[i] = cold[i] / verify(2);
	}
	dt_remove_tree(dir, NULL);
	printf("plain write+fsync %.2f GB/s, plain read (page cache) %.2f GB/s\n",
	       1e-9 * (double)bytes / median(pw, turns), 1e-9 * (double)bytes / median(pr, turns));
	printf("write    %.2f of plain\nread     %.2f of plain\nverify   %.2f (1 worker), %.2f (2 workers) "
	       "of plain read\n",
	       median(w, turns), median(r, turns), median(v1, turns), median(v2, turns));
	printf("from disk: plain read %.2f GB/s; read %.2f, verify %.2f (1 worker), %.2f (2 workers) of it\n",
	       1e-9 * (double)bytes / median(cold, turns), median(rc, turns), median(v1c, turns),
	       median(v2c, turns));
	free(data);
	free(into);
	return 0;
}
