/* Listening sockets and the limit of open files. */
#ifndef DT_BASE_LISTEN_H
#define DT_BASE_LISTEN_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Listens on the first address of host; port 0: any free port. Returns the socket. */
int dt_listen(const char *host, int port, struct dt_err *err);
/*
 * Writes the address of a listening socket as "SCHEME://HOST:PORT". *ret_loopback: only this machine can
 * reach it.
 */
int dt_listen_name(int fd, const char *scheme, char *url, size_t room, bool *ret_loopback,
		   struct dt_err *err);

/* Raises the soft limit of open files to the hard limit; returns the limit. */
uint64_t dt_raise_files(void);
/*
 * How many of `wanted` connections may be open beside `others` other files; at least 1. libmicrohttpd needs
 * this as its connection limit: its accept loop spins when no file descriptor is left.
 */
int dt_files_for(int wanted, int others);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
