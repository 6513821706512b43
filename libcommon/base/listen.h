/* Sockets that listen, and how many files a process may have open. */
#ifndef DT_BASE_LISTEN_H
#define DT_BASE_LISTEN_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Listens on the first address of host; port 0: any free one. Returns the socket. */
int dt_listen(const char *host, int port, struct dt_err *err);
/* The address of such a socket: as a URL "SCHEME://HOST:PORT", and whether only this machine reaches it. */
int dt_listen_name(int fd, const char *scheme, char *url, size_t room, bool *ret_loopback,
		   struct dt_err *err);

/* Raises the soft limit of open files to the hard one; returns what it is now. */
uint64_t dt_raise_files(void);
/*
 * How many of `wanted` connections may be open beside `others` files; at least 1. For libmicrohttpd, whose
 * accept loop does not rest while no file is left: it has to be told a number that leaves some.
 */
int dt_files_for(int wanted, int others);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
