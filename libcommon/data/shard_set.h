/*
 * Sharded files, shared by data sets of tokens and of images: D-00000-of-0000N.h5 beside an index D.h5 (or
 * D.h5 alone), written to temporary names and renamed together. Values are collected in a file without a
 * name (the spool) until their number is known. Also reads the index.
 */
#ifndef DT_DATA_SHARD_SET_H
#define DT_DATA_SHARD_SET_H

#include "base/h5.h"

#include <stdbool.h>

/* Hint for a file that is not HDF5, such as a text. */
#define DT_DATASET_MADE_BY "dt-dataset build makes a data set of texts, dt-dataset images of images"

#define SET_SHARDS_MAX 99999

/* Writing */

struct set_file {
	char *path;	    /* name that the index gives */
	char *target, *tmp; /* path less a symbolic link; "TARGET.tmp.PID" */
	int64_t offset;	    /* of the values in the file */
	uint32_t crc;
	bool committed;
};

/*
 * Bytes in front of the values of a spool: a data set of one file takes them for HDF5's own, and then the
 * spool becomes that file without a copy of the values.
 */
#define SET_HEAD 2048
/* A file beside path that has no name. */
int set_spool_open(const char *path, int *ret_fd, struct dt_err *err);
/* All n bytes: 0, or a negative errno (-EIO: the file ends before). */
int set_read(int fd, void *buf, size_t n, int64_t at);
/* Continues the checksum over n bytes of values, from at on. */
int set_checksum(int spool, int64_t at, int64_t n, uint32_t *crc);
/*
 * Gives f, whose HDF5 file is complete but for the n bytes at f->offset, those bytes of values, and flushes
 * it: the spool becomes the file (only: all values are f's), or they are copied and their place in the spool
 * is given back. 0, or a negative errno.
 */
int set_fill(const struct set_file *f, int spool, int64_t at, int64_t n, bool only);

/* How a kind of data set writes its files; w is its writer. */
struct set_writer {
	int (*shard)(void *w, struct set_file *f, int64_t first, int64_t count, bool only,
		     struct dt_err *err);
	int (*index)(void *w, const char *tmp, const struct set_file *f, const int64_t *count, int n,
		     struct dt_err *err);
};
/* Cuts values into n files, whose lengths differ by at most one, and where n > 1 an index at path. */
int set_make(const struct set_writer *how, void *w, const char *path, int64_t values, int n,
	     struct dt_err *err);

/* A new file without times: the same input makes the same bytes. */
hid_t set_create(const char *tmp);
/* A contiguous dataset whose values the caller writes at *ret_offset once the file is closed. */
int set_put_place(hid_t file, const char *name, hid_t type, int rank, const hsize_t *dim,
		  int64_t *ret_offset);
/* /shards, /shard_COUNT and /shard_crc32 of the index. */
int set_put_index(hid_t file, const char *count_name, const struct set_file *f, const int64_t *count, int n);
/*
 * A virtual dataset of rank dimensions that joins those of the same name in the files along the first, count
 * values of it each.
 */
int set_put_view(hid_t file, const char *name, hid_t type, int rank, const hsize_t *dim,
		 const struct set_file *f, const int64_t *count, int n);

/* Reading */

struct set_index {
	int n;
	char **path; /* files beside the index, nowhere else */
	int64_t *count, *crc;
};
/* Reads /shards, /shard_COUNT and /shard_crc32. */
int set_read_index(hid_t file, const char *path, const char *count_name, struct set_index *ret,
		   struct dt_err *err);
void set_index_free(struct set_index *x);

/* Values [first, first + n) of an open list. */
int set_read_list(hid_t dataset, int64_t first, int64_t n, hid_t type, void *ret);
/* A whole list of n whole numbers of file. */
int set_read_numbers(hid_t file, const char *path, const char *name, int64_t n, int64_t *ret,
		     struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
