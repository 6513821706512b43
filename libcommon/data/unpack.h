/*
 * Reads files that may be compressed with gzip or zstd, recognized by their first bytes. A truncated file is
 * an error that names the file.
 */
#ifndef DT_DATA_UNPACK_H
#define DT_DATA_UNPACK_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct unpack;

/* Whether path names a file rather than standard input or a command. */
bool unpack_is_file(const char *path);
/*
 * Opens path. "-" is standard input, "|COMMAND" the output of COMMAND run by /bin/sh; a non-zero exit status
 * is reported as an error at the end of its output. -ENOTSUP: zstd in a build without it, and files that
 * begin like xz, bzip2, lz4, zip, Parquet or HDF5, which would be taken for text.
 */
int unpack_open(const char *path, struct unpack **ret, struct dt_err *err);
void unpack_close(struct unpack *u);
/*
 * Reads up to n bytes. Returns their number, 0 at the end, or a negative errno; -EBADMSG: the file is damaged
 * or truncated.
 */
int unpack_read(struct unpack *u, void *buf, int n, struct dt_err *err);
/* Reads n bytes, or returns -EBADMSG with a message that `what` is cut short. */
int unpack_all(struct unpack *u, void *buf, size_t n, const char *what, struct dt_err *err);
/* Reads the rest, NUL-terminated and malloc'd. -EFBIG: more than `most` bytes. */
int unpack_rest(struct unpack *u, size_t most, char **ret, size_t *ret_n, struct dt_err *err);
/* The same for a whole file, "-" or "|COMMAND". */
int unpack_whole(const char *path, size_t most, char **ret, size_t *ret_n, struct dt_err *err);
/* Whether the file is compressed. */
bool unpack_is_packed(const struct unpack *u);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
