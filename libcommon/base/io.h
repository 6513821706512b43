/* Whole reads and writes: what is cut short or interrupted goes on. */
#ifndef DT_BASE_IO_H
#define DT_BASE_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* From byte `at` of the file; at < 0: from where fd stands, which may be a socket or a pipe. */

/* All n bytes: 0, or a negative errno. */
int dt_write_all(int fd, const void *data, size_t n, int64_t at);
/* n, fewer where the file ends before, or a negative errno. */
ssize_t dt_read_all(int fd, void *to, size_t n, int64_t at);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
