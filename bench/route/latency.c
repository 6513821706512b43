/*
 * The latency a router adds: the same load to servers that answer at once, directly and through the router,
 * in one run.
 *
 *   latency dt-route SERVERS RATE SECONDS [CONNECTIONS [BODY-BYTES [POLICY]]]
 *
 * RATE 0: closed loop, each connection asks again after its answer. Prints one JSON object: percentiles of
 * both in microseconds, their difference, requests/s, and the router's processor time per request, which is
 * least affected by other load on the machine.
 */
#include "base/order.h"
#include "base/progress.h"
#include "route/conn.h"
#include "route/http1.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- servers ---- */

struct peer {
	struct dt_route_conn conn;
	struct event_base *base;
	size_t scanned;
	/* of a client */
	double due;
	bool busy;
};

static const char answer[] =
	"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 101\r\n\r\n"
	"{\"data\":[{\"id\":\"m\"}],\"choices\":[{\"text\":\"hello\"}],"
	"\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1} }";

static void serve_data(void *arg)
{
	struct peer *p = arg;
	struct dt_route_buf *in = &p->conn.in;
	struct dt_route_head h;
	const char *why;

	for (;;) {
		size_t scanned = 0;
		ssize_t n = dt_route_head_parse(dt_route_buf_data(in), dt_route_buf_size(in), false, &scanned,
						&h, &why);

		if (n <= 0 || dt_route_buf_size(in) < (size_t)n + h.length)
			break;
		dt_route_buf_take(in, (size_t)n + h.length);
		dt_route_conn_put(&p->conn, answer, sizeof(answer) - 1);
	}
	dt_route_conn_flush(&p->conn);
}

static void serve_ended(void *arg, int rc)
{
	dt_route_conn_close(&((struct peer *)arg)->conn); /* the peer itself, a few bytes, is not freed */
}

static void nothing(void *arg)
{
}

static void serve_accept(evutil_socket_t fd, short what, void *arg)
{
	static const struct dt_route_conn_ops ops = {serve_data, serve_ended, nothing};
	int s = accept4(fd, NULL, NULL, SOCK_NONBLOCK);
	struct peer *p = s < 0 ? NULL : calloc(1, sizeof(*p));

	if (p)
		dt_route_conn_init(&p->conn, arg, s, &ops, p);
}

static int listen_on(struct sockaddr_in *a)
{
	socklen_t n = sizeof(*a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	*a = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	if (fd < 0 || bind(fd, (struct sockaddr *)a, n) < 0 || listen(fd, 1024) < 0 ||
	    getsockname(fd, (struct sockaddr *)a, &n) < 0)
		exit(1);
	return fd;
}

static pid_t start_servers(int n, struct sockaddr_in *at)
{
	int fd[256];
	pid_t pid;

	for (int i = 0; i < n; i++)
		fd[i] = listen_on(&at[i]);
	pid = fork();
	if (pid == 0) {
		struct event_base *base = event_base_new();

		for (int i = 0; i < n; i++)
			event_add(event_new(base, fd[i], EV_READ | EV_PERSIST, serve_accept, base), NULL);
		event_base_dispatch(base);
		_exit(0);
	}
	for (int i = 0; i < n; i++)
		close(fd[i]);
	return pid;
}

/* ---- clients ---- */

static struct run {
	struct event_base *base;
	struct event timer;
	struct peer peer[4096];
	int npeers;
	char *request;
	size_t nrequest;
	double rate, start, end;
	double *late; /* [nlate] seconds */
	size_t nlate, cap, sent, failed;
	double queue[1 << 20];
	size_t head, tail;
} run;

static void ask(struct peer *p, double due)
{
	p->due = due;
	p->busy = true;
	run.sent++;
	dt_route_conn_put(&p->conn, run.request, run.nrequest);
	dt_route_conn_flush(&p->conn);
}

static void client_data(void *arg)
{
	struct peer *p = arg;
	struct dt_route_buf *in = &p->conn.in;
	struct dt_route_head h;
	const char *why;
	size_t scanned = 0;
	ssize_t n =
		dt_route_head_parse(dt_route_buf_data(in), dt_route_buf_size(in), true, &scanned, &h, &why);
	double now = dt_now();

	if (n <= 0 || dt_route_buf_size(in) < (size_t)n + h.length)
		return;
	dt_route_buf_take(in, (size_t)n + h.length);
	run.failed += h.status != 200;
	if (run.nlate < run.cap)
		run.late[run.nlate++] = now - p->due;
	p->busy = false;
	if (run.rate == 0 && now < run.end)
		ask(p, now);
	else if (run.head < run.tail)
		ask(p, run.queue[run.head++]);
	else if (now >= run.end && run.nlate + run.failed >= run.sent)
		event_base_loopbreak(run.base);
}

static void client_ended(void *arg, int rc)
{
	fprintf(stderr, "a connection was lost\n");
	run.failed++;
	event_base_loopbreak(run.base);
}

/* Every millisecond: sends what is due. Latency counts from when it was due. */
static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	double now = dt_now();
	static size_t made;
	static double start;

	if (start != run.start) {
		start = run.start;
		made = 0;
	}
	for (; run.rate > 0 && now < run.end && (double)made / run.rate <= now - run.start; made++)
		run.queue[run.tail++] = run.start + (double)made / run.rate;
	for (int i = 0; i < run.npeers && run.head < run.tail; i++)
		if (!run.peer[i].busy)
			ask(&run.peer[i], run.queue[run.head++]);
	if (now > run.end + 5 || (now > run.end && run.nlate + run.failed >= run.sent))
		event_base_loopbreak(run.base);
}

static void load(const struct sockaddr_in *at, int n, double rate, double seconds, double *p50, double *p99,
		 double *rps)
{
	static const struct dt_route_conn_ops ops = {client_data, client_ended, nothing};
	const struct timeval ms = {.tv_usec = 250};
	double took;

	struct event_config *c = event_config_new();

	event_config_set_flag(c, EVENT_BASE_FLAG_PRECISE_TIMER);
	run.base = event_base_new_with_config(c);
	event_config_free(c);
	run.rate = rate;
	run.cap = 4u << 20;
	run.late = run.late ? run.late : calloc(run.cap, sizeof(*run.late));
	run.nlate = run.sent = run.failed = run.head = run.tail = 0;
	for (int i = 0; i < run.npeers; i++) {
		run.peer[i] = (struct peer){0};
		dt_route_conn_connect(&run.peer[i].conn, run.base, (const struct sockaddr *)&at[i % n],
				      sizeof(*at), &ops, &run.peer[i]);
	}
	run.start = dt_now();
	run.end = run.start + seconds;
	event_assign(&run.timer, run.base, -1, EV_PERSIST, on_timer, NULL);
	event_add(&run.timer, &ms);
	for (int i = 0; i < run.npeers && rate == 0; i++)
		ask(&run.peer[i], dt_now());
	event_base_dispatch(run.base);
	took = dt_now() - run.start;
	event_del(&run.timer);
	for (int i = 0; i < run.npeers; i++)
		dt_route_conn_close(&run.peer[i].conn);
	event_base_free(run.base);
	qsort(run.late, run.nlate, sizeof(*run.late), dt_order_f64);
	*p50 = run.nlate ? run.late[run.nlate / 2] * 1e6 : 0;
	*p99 = run.nlate ? run.late[run.nlate * 99 / 100] * 1e6 : 0;
	*rps = (double)run.nlate / took;
	if (run.failed)
		fprintf(stderr, "%zu of %zu failed\n", run.failed, run.sent);
}

/* ---- the router ---- */

static double cpu_of(pid_t pid)
{
	char path[64], text[1024], *at;
	unsigned long user = 0, sys = 0;
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "r");
	n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
	if (f)
		fclose(f);
	text[n] = '\0';
	at = strrchr(text, ')');
	if (at)
		sscanf(at + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &sys);
	return (double)(user + sys) / (double)sysconf(_SC_CLK_TCK);
}

static pid_t start_router(const char *program, const char *policy, int n, const struct sockaddr_in *server,
			  struct sockaddr_in *ret)
{
	char *argv[300] = {(char *)program, "--port", "0", "--policy", (char *)policy}, url[300];
	int out[2], k = 5;
	pid_t pid;
	FILE *f;

	for (int i = 0; i < n; i++)
		if (asprintf(&argv[k++], "127.0.0.1:%d", ntohs(server[i].sin_port)) < 0)
			exit(1);
	if (pipe(out) < 0)
		exit(1);
	pid = fork();
	if (pid == 0) {
		dup2(out[1], 1);
		if (!freopen("/dev/null", "w", stderr))
			_exit(1);
		execv(program, argv);
		_exit(127);
	}
	close(out[1]);
	f = fdopen(out[0], "r");
	if (!f || !fgets(url, sizeof(url), f))
		exit(1);
	fclose(f);
	*ret = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	ret->sin_port = htons((uint16_t)atoi(strrchr(url, ':') + 1));
	usleep(500000); /* time for its first probes */
	return pid;
}

int main(int argc, char **argv)
{
	int n = argc > 2 ? atoi(argv[2]) : 0, body = argc > 6 ? atoi(argv[6]) : 200;
	double rate = argc > 3 ? atof(argv[3]) : 0, seconds = argc > 4 ? atof(argv[4]) : 5;
	const char *policy = argc > 7 ? argv[7] : "cache";
	double d50, d99, drps, r50, r99, rrps, cpu;
	struct sockaddr_in server[256], front;
	pid_t servers, router;
	char *fill;

	if (n < 1 || n > 256 || argc < 4) {
		fprintf(stderr, "usage: route-latency dt-route SERVERS RATE SECONDS [CONNECTIONS [BODY-BYTES "
				"[POLICY]]]\n");
		return 2;
	}
	if (access(argv[1], X_OK) < 0) {
		fprintf(stderr, "route-latency: there is no program '%s'\n", argv[1]);
		return 1;
	}
	signal(SIGPIPE, SIG_IGN);
	run.npeers = argc > 5 ? atoi(argv[5]) : 16;
	fill = calloc(1, (size_t)body + 1);
	memset(fill, 'x', (size_t)body);
	run.nrequest = (size_t)asprintf(
		&run.request,
		"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
		"Content-Length: %d\r\n\r\n{\"model\":\"m\",\"prompt\":\"%s\"}",
		body + 25, fill);
	servers = start_servers(n, server);
	load(server, n, rate, seconds, &d50, &d99, &drps);
	router = start_router(argv[1], policy, n, server, &front);
	load(&front, 1, rate, 1, &r50, &r99, &rrps); /* opens the connections */
	cpu = cpu_of(router);
	load(&front, 1, rate, seconds, &r50, &r99, &rrps);
	cpu = cpu_of(router) - cpu;
	printf("{\"servers\":%d,\"policy\":\"%s\",\"body_bytes\":%d,\"direct_p50_us\":%.0f,\"direct_p99_us\":"
	       "%.0f,"
	       "\"direct_per_s\":%.0f,\"routed_p50_us\":%.0f,\"routed_p99_us\":%.0f,\"routed_per_s\":%.0f,"
	       "\"added_p50_us\":%.0f,\"added_p99_us\":%.0f,\"cpu_us_per_request\":%.1f}\n",
	       n, policy, body, d50, d99, drps, r50, r99, rrps, r50 - d50, r99 - d99,
	       run.nlate ? cpu * 1e6 / (double)run.nlate : 0);
	kill(router, SIGTERM);
	kill(servers, SIGTERM);
	waitpid(servers, NULL, 0);
	waitpid(router, NULL, 0);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
