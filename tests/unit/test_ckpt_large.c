/*
 * Pieces large enough to go past the page cache: from memory that lies well and from memory that does not,
 * read back whole and in part, out of the page cache and off the disk.
 */
#include "base/rng.h"
#include "base/tmpfile.h"
#include "ckpt/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define N 4 /* tensors */

static char root[64];
static char *memory;

static const struct {
	const char *name;
	enum dt_dtype dtype;
	int64_t rows, cols, skew; /* skew: bytes from a page */
} tensor[N] = {
	{"model/aligned", DT_F32, 3000, 1024, 0},
	{"model/by512", DT_BF16, 2049, 777, 512},
	{"model/odd", DT_F32, 1531, 1023, 28},
	{"model/small", DT_U8, 77, 13, 3},
};

static int setup(void **state)
{
	const char *base = getenv("TMPDIR");
	struct dt_rng rng = dt_rng_make(7, DT_RNG_TEST, 3);
	size_t bytes = (size_t)64 << 20;

	memory = aligned_alloc(4096, bytes);
	for (size_t i = 0; memory && i < bytes / 4; i++)
		((uint32_t *)(void *)memory)[i] =
			dt_rng_u32(&rng, i) & 0xbf7fbf7fu; /* no NaN as bf16 or f32 */
	snprintf(root, sizeof(root), "%.40s/dt-large-XXXXXX", base ? base : "/tmp");
	return memory && mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state)
{
	free(memory);
	return dt_remove_tree(root, NULL);
}

static const char *elements(int i)
{
	return memory + (size_t)i * ((size_t)16 << 20) + tensor[i].skew;
}

static void save(void)
{
	json_t *list = NULL, *meta = json_object();
	struct dt_piece p[N];
	struct dt_err err;
	char *tmp;

	for (int i = 0; i < N; i++) {
		p[i] = (struct dt_piece){.dtype = tensor[i].dtype,
					 .ndim = 2,
					 .global = {tensor[i].rows, tensor[i].cols},
					 .shape = {tensor[i].rows, tensor[i].cols},
					 .data = elements(i)};
		snprintf(p[i].name, sizeof(p[i].name), "%s", tensor[i].name);
	}
	if (dt_ckpt_begin(root, 1, &tmp, &err) < 0 ||
	    dt_ckpt_write_shard(tmp, 0, p, N, false, &list, &err) < 0 ||
	    dt_ckpt_commit(root, 1, meta, &list, 1, 0, &err) < 0)
		fail_msg("%s", err.msg);
	json_decref(list);
	json_decref(meta);
	free(tmp);
}

/* The shard out of the page cache, as far as the file system does that. */
static void forget(void)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/latest/shard-00000.h5", root);
	fd = open(path, O_RDONLY);
	assert_true(fd >= 0);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
}

static void check_box(struct dt_ckpt *c, int i, const int64_t *off, const int64_t *shape)
{
	size_t size = (size_t)dt_dtype_size(tensor[i].dtype), row = (size_t)shape[1] * size;
	char *got = malloc((size_t)shape[0] * row + 1);
	struct dt_err err;

	if (dt_ckpt_read(c, dt_ckpt_find(c, tensor[i].name), off, shape, tensor[i].dtype, got, &err) < 0)
		fail_msg("%s", err.msg);
	for (int64_t r = 0; r < shape[0]; r++)
		assert_memory_equal(got + (size_t)r * row,
				    elements(i) + (size_t)((off[0] + r) * tensor[i].cols + off[1]) * size,
				    row);
	free(got);
}

static void every_way(void **state)
{
	struct dt_rng rng = dt_rng_make(8, DT_RNG_TEST, 4);
	uint64_t drawn = 0;

	save();
	for (int way = 0; way < 4; way++) {
		struct dt_err err;
		struct dt_ckpt *c;

		if (dt_ckpt_open(root, &c, &err) < 0)
			fail_msg("%s", err.msg);
		if (way & 1)
			dt_ckpt_read_once(c);
		for (int i = 0; i < N; i++)
			for (int k = 0; k < 3; k++) {
				int64_t off[4] = {0}, shape[4] = {tensor[i].rows, tensor[i].cols};

				for (int d = 0; d < 2 && k; d++) {
					off[d] = (int64_t)dt_rng_below(&rng, drawn++, (uint64_t)shape[d]);
					shape[d] = 1 + (int64_t)dt_rng_below(&rng, drawn++,
									     (uint64_t)(shape[d] - off[d]));
				}
				if (way & 2)
					forget();
				check_box(c, i, off, shape);
			}
		dt_ckpt_close(c);
	}
	assert_int_equal(dt_ckpt_verify(root, 2, NULL, NULL, NULL, NULL), 0);
}

/* One flipped bit anywhere in a large piece is found on either way in. */
static void flipped(void **state)
{
	struct dt_rng rng = dt_rng_make(9, DT_RNG_TEST, 5);
	char path[128], byte;
	struct dt_err err;
	struct dt_ckpt *c;
	uint64_t at;
	int i, fd;

	snprintf(path, sizeof(path), "%s/latest/shard-00000.h5", root);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(dt_ckpt_open(root, &c, &err), 0);
	i = dt_ckpt_find(c, tensor[2].name);
	for (int trial = 0; trial < 12; trial++) {
		const struct ck_piece *p = &c->m.piece[c->m.tensor[i].first];
		void *got = malloc(p->bytes);

		at = p->at + dt_rng_below(&rng, (uint64_t)trial, p->bytes);
		assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
		byte ^= (char)(1 << trial % 8);
		assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
		if (trial % 2) {
			fsync(fd);
			forget();
		}
		c->once = trial % 3;
		assert_int_equal(dt_ckpt_read(c, i, p->off, p->shape, tensor[2].dtype, got, &err), -EBADMSG);
		byte ^= (char)(1 << trial % 8);
		assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
		assert_int_equal(dt_ckpt_read(c, i, p->off, p->shape, tensor[2].dtype, got, &err), 0);
		free(got);
	}
	dt_ckpt_close(c);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_way),
		cmocka_unit_test(flipped),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
