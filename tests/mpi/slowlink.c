/*
 * A slow network between network namespaces, for tests where the kernel has no netem: a switch with a port to
 * each namespace. A port carries RATE bits a second in each direction and a packet takes DELAY from its first
 * bit's leaving to its arriving; nothing is lost, queues are as long as they need to be.
 *
 * The port is a TUN device named "slow0" that this program makes in the namespace; who started it gives it an
 * address, whose last byte is the number of the port (the first namespace is 1), and a route. Packets to
 * other numbers are dropped. The program prints "ready" when the devices are there and runs until it is
 * killed or its parent ends; the devices go with it.
 *
 * A packet goes through two queues, the sender's line and the receiver's. Its first bit enters the sender's
 * when the one before is out and, DELAY later, the receiver's when that is free; so a packet alone takes
 * DELAY and its own length once.
 *
 * Usage: slowlink BITS-PER-SECOND DELAY-US NAMESPACE ...
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define PORTS_MAX	64
#define FRAME		9216	 /* bytes of a packet at most */
#define FRAME_BITS_MORE (38 * 8) /* preamble, header, check and gap of Ethernet */

struct packet {
	struct packet *next;
	int64_t at; /* ns: leaves its queue then */
	int to;
	size_t n;
	char data[FRAME];
};

struct queue {
	struct packet *head, *tail;
	int64_t free; /* when the line is free again */
};

struct port {
	int fd;
	struct queue up, down;
};

static struct port port[PORTS_MAX];
static int ports;
static struct packet *spare;
static double ns_a_bit;
static int64_t delay;

static void die(const char *what)
{
	fprintf(stderr, "slowlink: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A TUN device in a namespace; the descriptor works from any. */
static int open_port(const char *ns)
{
	struct ifreq r = {.ifr_flags = IFF_TUN | IFF_NO_PI};
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "/var/run/netns/%s", ns);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		die(path);
	close(fd);
	fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		die("/dev/net/tun");
	strcpy(r.ifr_name, "slow0");
	if (ioctl(fd, TUNSETIFF, &r))
		die("TUNSETIFF");
	return fd;
}

static void push(struct queue *q, struct packet *p)
{
	p->next = NULL;
	if (q->head)
		q->tail->next = p;
	else
		q->head = p;
	q->tail = p;
}

static struct packet *pop(struct queue *q)
{
	struct packet *p = q->head;

	q->head = p->next;
	return p;
}

static int64_t wire(const struct packet *p)
{
	return (int64_t)((double)(8 * p->n + FRAME_BITS_MORE) * ns_a_bit);
}

/* Everything a namespace has sent. */
static void take(struct port *from)
{
	for (;;) {
		struct packet *p = spare;
		ssize_t n;
		int64_t t;

		if (p)
			spare = p->next;
		else
			p = malloc(sizeof(*p));
		if (!p)
			die("malloc");
		n = read(from->fd, p->data, sizeof(p->data));
		p->to = n >= 20 && (p->data[0] & 0xf0) == 0x40 ? (unsigned char)p->data[19] - 1 : -1;
		if (n <= 0 || p->to < 0 || p->to >= ports) {
			p->next = spare;
			spare = p;
			if (n <= 0)
				return;
			continue;
		}
		p->n = (size_t)n;
		t = now();
		t = t > from->up.free ? t : from->up.free;
		from->up.free = t + wire(p);
		p->at = t + delay;
		push(&from->up, p);
	}
}

/* Hands on what is due; returns when the next thing is, INT64_MAX: nothing waits. */
static int64_t move(void)
{
	for (;;) {
		struct port *first = NULL;
		int64_t next = INT64_MAX, t = now();
		struct packet *p;

		for (int i = 0; i < ports; i++) /* the receiver's line is given in the order of arrival */
			if (port[i].up.head && port[i].up.head->at < next) {
				first = &port[i];
				next = first->up.head->at;
			}
		if (first && next <= t) {
			struct queue *q;

			p = pop(&first->up);
			q = &port[p->to].down;
			q->free = (p->at > q->free ? p->at : q->free) + wire(p);
			p->at = q->free;
			push(q, p);
			continue;
		}
		for (int i = 0; i < ports; i++) {
			struct queue *q = &port[i].down;

			while (q->head && q->head->at <= t) {
				p = pop(q);
				if (write(port[i].fd, p->data, p->n) < 0 &&
				    errno != EIO) /* EIO: not up yet */
					die("write");
				p->next = spare;
				spare = p;
			}
			if (q->head && q->head->at < next)
				next = q->head->at;
		}
		return next;
	}
}

int main(int argc, char **argv)
{
	struct pollfd fd[PORTS_MAX];
	struct sched_param prio = {.sched_priority = 1};
	pid_t parent = getppid();
	int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

	if (argc < 4 || argc - 3 > PORTS_MAX || atof(argv[1]) <= 0) {
		fprintf(stderr, "usage: slowlink BITS-PER-SECOND DELAY-US NAMESPACE ...\n");
		return 2;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		return 1;
	prctl(PR_SET_TIMERSLACK, 1);
	ns_a_bit = 1e9 / atof(argv[1]);
	delay = (int64_t)(atof(argv[2]) * 1000);
	for (int i = 3; i < argc; i++, ports++) {
		port[ports].fd = open_port(argv[i]);
		fd[ports] = (struct pollfd){.fd = port[ports].fd, .events = POLLIN};
	}
	if (home < 0 || setns(home, CLONE_NEWNET))
		die("/proc/self/ns/net");
	close(home);
	/* ahead of ranks that spin: the wire does not wait for a processor */
	if (sched_setscheduler(0, SCHED_FIFO, &prio))
		fprintf(stderr, "slowlink: no real-time priority: times depend on the load\n");
	mlockall(MCL_CURRENT | MCL_FUTURE);
	puts("ready");
	fflush(stdout);
	for (;;) {
		int64_t next = move(), t = now(), left = next > t ? next - t : 0;
		struct timespec wait = {left / 1000000000, left % 1000000000};

		if (ppoll(fd, (nfds_t)ports, next == INT64_MAX ? NULL : &wait, NULL) > 0)
			for (int i = 0; i < ports; i++)
				if (fd[i].revents & POLLIN)
					take(&port[i]);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
