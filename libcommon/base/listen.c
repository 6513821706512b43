#include "base/listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 4096 /* the kernel limits it to net.core.somaxconn */

int dt_listen(const char *host, int port, struct dt_err *err)
{
	struct addrinfo hint = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
	int fd, rc, one = 1;
	char text[16];

	snprintf(text, sizeof(text), "%d", port);
	rc = getaddrinfo(host, text, &hint, &list);
	if (rc)
		return dt_err_set(err, -EADDRNOTAVAIL, "cannot listen on '%s': %s", host, gai_strerror(rc));
	fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    bind(fd, list->ai_addr, list->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
		rc = dt_err_sys(err, -errno, "cannot listen on '%s' port %d", host, port);
	freeaddrinfo(list);
	if (rc < 0 && fd >= 0)
		close(fd);
	return rc < 0 ? rc : fd;
}

static bool is_loopback(const struct sockaddr_storage *a)
{
	const struct in6_addr *six = &((const struct sockaddr_in6 *)a)->sin6_addr;

	if (a->ss_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127);
	return a->ss_family == AF_INET &&
	       ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
}

int dt_listen_name(int fd, const char *scheme, char *url, size_t room, bool *ret_loopback, struct dt_err *err)
{
	struct sockaddr_storage at;
	socklen_t len = sizeof(at);
	char host[256], port[16];
	int rc;

	if (getsockname(fd, (struct sockaddr *)&at, &len) < 0)
		return dt_err_sys(err, -errno, "cannot use the socket");
	rc = getnameinfo((struct sockaddr *)&at, len, host, sizeof(host), port, sizeof(port),
			 NI_NUMERICHOST | NI_NUMERICSERV);
	if (rc)
		return dt_err_set(err, -EADDRNOTAVAIL, "the socket has no address of the internet: %s",
				  gai_strerror(rc));
	*ret_loopback = is_loopback(&at);
	snprintf(url, room, strchr(host, ':') ? "%s://[%s]:%s" : "%s://%s:%s", scheme, host, port);
	return 0;
}

uint64_t dt_raise_files(void)
{
	struct rlimit l, most;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0)
		return 0;
	most = (struct rlimit){.rlim_cur = l.rlim_max, .rlim_max = l.rlim_max};
	return setrlimit(RLIMIT_NOFILE, &most) < 0 ? l.rlim_cur : most.rlim_cur;
}

int dt_files_for(int wanted, int others)
{
	const uint64_t have = dt_raise_files();

	if (have >= (uint64_t)wanted + (uint64_t)others)
		return wanted;
	return have > (uint64_t)others + 1 ? (int)have - others : 1;
}
/* SPDX-License-Identifier: Apache-2.0 */
