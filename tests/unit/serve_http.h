/* A client of raw sockets for an HTTP server over the stand-in model. */
#ifndef SERVE_HTTP_H
#define SERVE_HTTP_H

#include "base/progress.h"
#include "serve/http/http.h"
#include "serve_fake.h"

#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>

#include <cmocka.h>

static struct fake fake;
static struct dt_tokenizer *tok;
static struct dt_engine *engine;
static struct dt_http *http;

static inline int dial_to(struct dt_http *h)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	a.sin_port = htons((uint16_t)atoi(strrchr(dt_http_url(h), ':') + 1));
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

static inline int dial(void)
{
	return dial_to(http);
}

static inline void say(int fd, const char *s)
{
	assert_int_equal(send(fd, s, strlen(s), MSG_NOSIGNAL), strlen(s));
}

/* Reads until the server closes, or seconds are over; returns whether it closed. */
static inline bool hear(int fd, double seconds, char *buf, size_t max)
{
	double end = dt_now() + seconds;
	size_t n = 0;

	buf[0] = '\0';
	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		int ms = (int)((end - dt_now()) * 1000);
		ssize_t got;

		if (ms <= 0 || poll(&p, 1, ms) <= 0)
			return false;
		got = recv(fd, buf + n, max - 1 - n, 0);
		if (got <= 0)
			return true;
		n += (size_t)got;
		buf[n] = '\0';
	}
}

static inline void ask(const char *request, char *buf, size_t max)
{
	int fd = dial();

	say(fd, request);
	assert_true(hear(fd, 60, buf, max));
	close(fd);
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
#define POST(n)                                                                                              \
	"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " n        \
	"\r\n\r\n"
#define HEALTH	    GET("/health")
#define SHORT_BODY  "{\"prompt\":\"x\",\"max_tokens\":2}"
#define SHORT_BYTES "29"

#endif
/* SPDX-License-Identifier: Apache-2.0 */
