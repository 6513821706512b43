/* Reading files that may be compressed by gzip, exactly: what is short is an error with the file's name. */
#ifndef DT_DATA_GZ_H
#define DT_DATA_GZ_H

#include "base/err.h"

#include <stddef.h>

struct gz_file;

/* "-" is standard input. */
int gz_open(const char *path, struct gz_file **ret, struct dt_err *err);
void gz_close(struct gz_file *f);
/*
 * Up to n bytes: their number, 0 at the end, or a negative errno; -EBADMSG for a damaged or truncated file.
 */
int gz_read(struct gz_file *f, void *buf, int n, struct dt_err *err);
/* n bytes, or -EBADMSG saying that what is cut short. */
int gz_read_all(struct gz_file *f, void *buf, size_t n, const char *what, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
