/* Complete reads and writes: a short or interrupted call is continued. */
#ifndef DT_BASE_IO_H
#define DT_BASE_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* at: byte offset in the file; at < 0: fd's current position, for sockets and pipes too. */

/* Writes all n bytes. Returns 0 or a negative errno. */
int dt_write_all(int fd, const void *data, size_t n, int64_t at);
/* Returns n, less if the file ends earlier, or a negative errno. */
ssize_t dt_read_all(int fd, void *to, size_t n, int64_t at);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
