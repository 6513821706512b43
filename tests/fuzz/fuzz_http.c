/*
 * Bytes sent to the HTTP server over a loopback connection, which then closes its sending half: heads,
 * bodies, chunks, several requests. The server answers or closes, and is well afterwards.
 */
#include "base/tmpfile.h"
#include "serve/http/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

static struct dt_http *http;

/* Every token is the next id: texts end at 256. */
static int forward(void *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err)
{
	for (int i = 0; i < b->nwant; i++) {
		float *row = logits + (size_t)i * 300;

		for (int k = 0; k < 300; k++)
			row[k] = 0;
		row[(b->ids[b->want[i]] + 1) % 257] = 9;
	}
	return 0;
}

static char folder[] = "/tmp/fuzz-http-XXXXXX";

static void remove_folder(void)
{
	dt_remove_tree(folder, NULL);
}

/* Files and batches too, in a folder that is soon full. */
static void keep(struct dt_engine *engine)
{
	struct dt_batches_params p = {.engine = engine, .model_name = "tiny", .request_timeout = 20};
	struct dt_batches *batches;
	struct dt_store *store;

	if (!mkdtemp(folder) || atexit(remove_folder) != 0 || dt_store_open(&store, folder, 1024, NULL) < 0 ||
	    dt_batches_open(&batches, store, &p, NULL) < 0)
		abort();
	dt_http_keep(http, store, batches);
}

static void start(void)
{
	static struct dt_tokenizer *tok;
	static struct dt_chat chat;
	static struct dt_engine *engine;
	struct dt_engine_params p = {
		.model = {.forward = forward, .vocab = 300, .hidden = 3, .eos = {256}, .neos = 1},
		.max_seqs = 4,
		.max_tokens = 64,
		.max_len = 100,
		.blocks = 100,
		.block_size = 4,
		.queue = 8,
		.stuck_after = 60};
	struct dt_http_params hp = {.host = "127.0.0.1",
				    .model_name = "tiny",
				    .max_body = 1 << 16,
				    .max_memory = 1 << 24,
				    .max_connections = 16,
				    .read_timeout = 20,
				    .answer_timeout = 20,
				    .request_timeout = 20};

	if (dt_tokenizer_open("byte", &tok, NULL) < 0)
		abort();
	p.tok = tok;
	dt_chat_init(&chat, DT_CHAT_CHATML, NULL, tok);
	if (dt_engine_open(&engine, &p, NULL) < 0 || dt_http_open(&http, &hp, NULL) < 0)
		abort();
	keep(engine);
	dt_http_serve(http, engine, &chat);
}

/* Sends n bytes and reads until the server closes; the beginning of what it says into buf. */
static void exchange(const void *data, size_t n, char *buf, size_t max)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	size_t have = 0;

	a.sin_port = htons((uint16_t)atoi(strrchr(dt_http_url(http), ':') + 1));
	while (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
		if (errno != EADDRNOTAVAIL) /* all ports are in TIME_WAIT */
			abort();
		usleep(100000);
	}
	if (fd < 0)
		abort();
	if (send(fd, data, n, MSG_NOSIGNAL) >= 0)
		shutdown(fd, SHUT_WR);
	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		char skip[4096];
		ssize_t got;

		if (poll(&p, 1, 30000) == 0)
			abort(); /* it neither answers nor closes */
		got = have + 1 < max ? recv(fd, buf + have, max - 1 - have, 0)
				     : recv(fd, skip, sizeof(skip), 0);
		if (got <= 0)
			break;
		if (have + 1 < max)
			have += (size_t)got;
	}
	buf[have] = '\0';
	close(fd);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
	static const char health[] = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
	static unsigned rounds;
	char buf[1024];

	if (!http)
		start();
	exchange(data, n, buf, sizeof(buf));
	if (buf[0] && strncmp(buf, "HTTP/1.", 7))
		abort();
	if (rounds++ % 64)
		return 0;
	exchange(health, sizeof(health) - 1, buf, sizeof(buf));
	if (!strstr(buf, " 200 "))
		abort();
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
