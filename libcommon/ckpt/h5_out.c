/*
 * An HDF5 file driver that never fails. When HDF5 1.10 cannot write a file at close, for example on a full
 * disk, it crashes the process at exit. So it always gets success, and the first error is checked afterwards.
 * (Virtual file drivers: HDF5 Technical Note "List of VFL Functions".)
 */
#include "ckpt/internal.h"

#include "base/io.h"

#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

struct out_file {
	H5FD_t pub; /* HDF5's part, which must come first */
	struct ck_h5_out *out;
	haddr_t eoa, eof; /* end of the allocated space, and of the written bytes */
};

struct out_info { /* passed in the file access property list */
	struct ck_h5_out *out;
};

static hid_t driver;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static H5FD_t *out_open(const char *name, unsigned flags, hid_t fapl, haddr_t max)
{
	const struct out_info *info = H5Pget_driver_info(fapl);
	struct out_file *f = calloc(1, sizeof(*f));

	if (f)
		f->out = info->out;
	return f ? &f->pub : NULL;
}

static herr_t out_close(H5FD_t *file)
{
	free(file);
	return 0;
}

/* Distinguishes two open files: threads write shards at the same time. */
static int out_cmp(const H5FD_t *a, const H5FD_t *b)
{
	const struct ck_h5_out *x = ((const struct out_file *)a)->out, *y = ((const struct out_file *)b)->out;

	return x < y ? -1 : x > y;
}

static herr_t out_query(const H5FD_t *file, unsigned long *flags)
{
	*flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
		 H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
	return 0;
}

static haddr_t out_get_eoa(const H5FD_t *file, H5FD_mem_t type)
{
	return ((const struct out_file *)file)->eoa;
}

static herr_t out_set_eoa(H5FD_t *file, H5FD_mem_t type, haddr_t at)
{
	((struct out_file *)file)->eoa = at;
	return 0;
}

static haddr_t out_get_eof(const H5FD_t *file, H5FD_mem_t type)
{
	return ((const struct out_file *)file)->eof;
}

static void remember(struct out_file *f, int code)
{
	if (!f->out->error)
		f->out->error = code;
}

static herr_t out_read(H5FD_t *file, H5FD_mem_t type, hid_t dxpl, haddr_t at, size_t n, void *buf)
{
	struct out_file *f = (struct out_file *)file;
	const ssize_t got = dt_read_all(f->out->fd, buf, n, (int64_t)at);
	const size_t there = got > 0 ? (size_t)got : 0;

	if (got < 0)
		remember(f, (int)got);
	memset((char *)buf + there, 0, n - there); /* nothing was written there */
	return 0;
}

static herr_t out_write(H5FD_t *file, H5FD_mem_t type, hid_t dxpl, haddr_t at, size_t n, const void *buf)
{
	struct out_file *f = (struct out_file *)file;
	int rc = dt_write_all(f->out->fd, buf, n, (int64_t)at);

	if (rc < 0)
		remember(f, rc);
	if (f->eof < at + n)
		f->eof = at + n;
	return 0;
}

static herr_t out_truncate(H5FD_t *file, hid_t dxpl, hbool_t closing)
{
	struct out_file *f = (struct out_file *)file;

	if (f->eof != f->eoa && ftruncate(f->out->fd, (off_t)f->eoa) < 0)
		remember(f, -errno);
	f->eof = f->eoa;
	return 0;
}

static const H5FD_class_t class = {
#ifdef H5FD_CLASS_VERSION
	.version = H5FD_CLASS_VERSION,
	.value = 40404, /* 512 to 65535 are for private drivers */
#endif
	.name = "dt_out",
	.maxaddr = INT64_MAX,
	.fc_degree = H5F_CLOSE_SEMI,
	.fapl_size = sizeof(struct out_info),
	.open = out_open,
	.close = out_close,
	.cmp = out_cmp,
	.query = out_query,
	.get_eoa = out_get_eoa,
	.set_eoa = out_set_eoa,
	.get_eof = out_get_eof,
	.read = out_read,
	.write = out_write,
	.truncate = out_truncate,
	.fl_map = H5FD_FLMAP_DICHOTOMY,
};

static void register_driver(void)
{
	driver = H5FDregister(&class);
}

int ck_h5_set_out(hid_t fapl, struct ck_h5_out *out)
{
	struct out_info info = {out};

	pthread_once(&once, register_driver);
	return H5Pset_driver(fapl, driver, &info) < 0 ? -1 : 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
