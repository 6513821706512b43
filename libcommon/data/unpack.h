/*
 * Reading files that may be compressed, by gzip or zstd, told apart by their first bytes. What is short is
 * an error with the file's name.
 */
#ifndef DT_DATA_UNPACK_H
#define DT_DATA_UNPACK_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct unpack;

/* What is opened names a file: neither standard input nor a command. */
bool unpack_is_file(const char *path);
/*
 * "-" is standard input, "|COMMAND" the output of what /bin/sh makes of COMMAND. One that does not end with
 * status 0 is an error where its output ends. -ENOTSUP: zstd, in a build without it, and files that begin
 * as those of xz, bzip2, lz4, zip, Parquet and HDF5, whose bytes would else be taken for text.
 */
int unpack_open(const char *path, struct unpack **ret, struct dt_err *err);
void unpack_close(struct unpack *u);
/*
 * Up to n bytes: their number, 0 at the end, or a negative errno; -EBADMSG for a damaged or truncated file.
 */
int unpack_read(struct unpack *u, void *buf, int n, struct dt_err *err);
/* n bytes, or -EBADMSG saying that what is cut short. */
int unpack_all(struct unpack *u, void *buf, size_t n, const char *what, struct dt_err *err);
/* All that is left, NUL-terminated, malloc'd; more than most bytes: -EFBIG. */
int unpack_rest(struct unpack *u, size_t most, char **ret, size_t *ret_n, struct dt_err *err);
/* The same of a whole file, "-" or "|COMMAND". */
int unpack_whole(const char *path, size_t most, char **ret, size_t *ret_n, struct dt_err *err);
/* A compressed file rather than a plain one. */
bool unpack_is_packed(const struct unpack *u);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
