#include "supervise/priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

int sup_ranks_open(struct sup_ranks *r, struct dt_err *err)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof(at);
	int room = 4 << 20;

	*r = (struct sup_ranks){.fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
				.ends = epoll_create1(EPOLL_CLOEXEC)};
	if (r->ends < 0)
		return dt_err_sys(err, -errno, "cannot watch processes");
	if (r->fd < 0 || bind(r->fd, (struct sockaddr *)&at, sizeof(at)) < 0 ||
	    getsockname(r->fd, (struct sockaddr *)&at, &len) < 0)
		return dt_err_sys(err, -errno, "cannot listen for heartbeats");
	setsockopt(r->fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	r->port = ntohs(at.sin_port);
	if (getrandom(r->cookie, sizeof(r->cookie), 0) != sizeof(r->cookie))
		return dt_err_sys(err, -errno, "cannot get random numbers");
	return 0;
}

void sup_ranks_reset(struct sup_ranks *r, uint32_t start)
{
	for (int i = 0; i < r->n; i++) {
		if (!r->v[i].known || r->v[i].pidfd < 0)
			continue;
		epoll_ctl(r->ends, EPOLL_CTL_DEL, r->v[i].pidfd, NULL);
		close(r->v[i].pidfd);
	}
	free(r->v);
	r->v = NULL;
	r->n = r->n_ended = 0;
	r->start = start;
}

void sup_ranks_close(struct sup_ranks *r)
{
	sup_ranks_reset(r, 0);
	if (r->fd >= 0)
		close(r->fd);
	if (r->ends >= 0)
		close(r->ends);
	r->fd = r->ends = -1;
}

void sup_ranks_address(const struct sup_ranks *r, char *buf, size_t n)
{
	struct ifaddrs *list = NULL;
	size_t k = (size_t)snprintf(buf, n, "%u:", r->port);
	int addresses = 0;

	for (int i = 0; i < 16; i++)
		k += (size_t)snprintf(buf + k, n - k, "%02x", r->cookie[i]);
	k += (size_t)snprintf(buf + k, n - k, ":%u:127.0.0.1", r->start);
	if (getifaddrs(&list) < 0)
		return;
	for (struct ifaddrs *i = list; i && k < n && addresses < 6; i = i->ifa_next) {
		char text[INET_ADDRSTRLEN];

		if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP) ||
		    (i->ifa_flags & IFF_LOOPBACK))
			continue;
		inet_ntop(AF_INET, &((struct sockaddr_in *)i->ifa_addr)->sin_addr, text, sizeof(text));
		k += (size_t)snprintf(buf + k, n - k, ",%s", text);
		addresses++;
	}
	freeifaddrs(list);
}

/* The entry of a rank; NULL: none. */
static struct sup_rank *place(struct sup_ranks *r, int rank)
{
	if (rank < 0 || rank >= 1 << 20)
		return NULL;
	if (rank >= r->n) {
		struct sup_rank *grown = realloc(r->v, ((size_t)rank + 1) * sizeof(*grown));

		if (!grown)
			return NULL;
		memset(grown + r->n, 0, ((size_t)rank + 1 - (size_t)r->n) * sizeof(*grown));
		r->v = grown;
		r->n = rank + 1;
	}
	return &r->v[rank];
}

/* If the rank is a process of this machine, starts watching for its end. */
static void meet(struct sup_ranks *r, struct sup_rank *k)
{
	struct epoll_event e = {.events = EPOLLIN, .data.fd = (int)(k - r->v)};
	char host[64] = "", path[64], name[32] = "";
	FILE *f;

	gethostname(host, sizeof(host) - 1);
	k->known = true;
	k->pidfd = -1;
	snprintf(path, sizeof(path), "/proc/%d/comm", k->beat.pid);
	f = strcmp(host, k->beat.host) ? NULL : fopen(path, "re");
	if (f && fgets(name, sizeof(name), f) && !strncmp(name, "dt-train", 8))
		k->pidfd = (int)syscall(SYS_pidfd_open, k->beat.pid, 0);
	if (f)
		fclose(f);
	k->local = k->pidfd >= 0 && epoll_ctl(r->ends, EPOLL_CTL_ADD, k->pidfd, &e) == 0;
}

/*
 * Records which processes have ended, in order. The launcher kills the others soon after the first. poll() on
 * a list of descriptors would not tell which was first, but epoll's ready list is in the order in which
 * descriptors became ready, however late it is read.
 */
static void note_ends(struct sup_ranks *r)
{
	struct epoll_event e[64];
	int n;

	while ((n = epoll_wait(r->ends, e, 64, 0)) > 0) {
		for (int i = 0; i < n; i++) {
			struct sup_rank *k = &r->v[e[i].data.fd];

			k->ended = ++r->n_ended;
			epoll_ctl(r->ends, EPOLL_CTL_DEL, k->pidfd, NULL);
		}
	}
}

void sup_ranks_receive(struct sup_ranks *r, double now, void (*first)(void *arg, const struct dt_beat *b),
		       void *arg)
{
	struct dt_beat b;

	note_ends(r);
	for (;;) {
		ssize_t n = recv(r->fd, &b, sizeof(b), MSG_TRUNC);
		struct sup_rank *k;

		if (n < 0)
			return;
		if (n != sizeof(b) || b.magic != DT_BEAT_MAGIC || b.start != r->start ||
		    memcmp(b.cookie, r->cookie, sizeof(b.cookie)) || !(k = place(r, b.rank)))
			continue;
		if (k->gone == b.pid)
			continue;
		if (k->known && b.no <= k->beat.no) /* a duplicate, or late */
			continue;
		b.host[sizeof(b.host) - 1] = '\0';
		k->beat = b;
		k->heard = now;
		if (!k->known)
			meet(r, k);
		if (b.place == 0)
			first(arg, &b);
	}
}

int sup_ranks_lost(struct sup_ranks *r, double now, double limit, char *why, size_t n)
{
	int lost = -1;

	for (int i = 0; i < r->n; i++) {
		const struct sup_rank *k = &r->v[i];

		if (k->known && k->ended && k->beat.phase != DT_BEAT_END &&
		    (lost < 0 || k->ended < r->v[lost].ended))
			lost = i;
	}
	if (lost >= 0) {
		snprintf(why, n, "rank %d (process %d) has died", lost, r->v[lost].beat.pid);
		return lost;
	}
	for (int i = 0; limit > 0 && i < r->n; i++) {
		const struct sup_rank *k = &r->v[i];

		if (!k->known || k->beat.phase == DT_BEAT_END || now - k->heard <= limit)
			continue;
		snprintf(why, n, "rank %d (process %d on '%s') has sent no heartbeat for %.1f s", i,
			 k->beat.pid, k->beat.host, now - k->heard);
		return i;
	}
	return -1;
}

void sup_ranks_forget(struct sup_ranks *r, int rank)
{
	struct sup_rank *k = &r->v[rank];

	if (k->pidfd >= 0) {
		epoll_ctl(r->ends, EPOLL_CTL_DEL, k->pidfd, NULL);
		close(k->pidfd);
	}
	*k = (struct sup_rank){.gone = k->beat.pid, .pidfd = -1};
}

int sup_ranks_count(const struct sup_ranks *r)
{
	int n = 0;

	for (int i = 0; i < r->n; i++)
		n += r->v[i].known;
	return n;
}

int sup_ranks_status(const struct sup_ranks *r)
{
	const struct dt_beat *last = NULL;

	for (int i = 0; i < r->n; i++)
		if (r->v[i].known && r->v[i].beat.phase == DT_BEAT_END &&
		    (!last || r->v[i].beat.epoch > last->epoch))
			last = &r->v[i].beat;
	return last ? last->status : -1;
}

void sup_ranks_forgive(struct sup_ranks *r, double now)
{
	for (int i = 0; i < r->n; i++)
		r->v[i].heard = now;
}

json_t *sup_ranks_json(const struct sup_ranks *r)
{
	json_t *list = json_array();

	for (int i = 0; i < r->n; i++)
		if (r->v[i].known)
			json_array_append_new(list, json_pack("{s:i, s:i, s:s}", "rank", i, "pid",
							      r->v[i].beat.pid, "host", r->v[i].beat.host));
	return list;
}

uint32_t sup_ranks_job(const struct sup_ranks *r)
{
	for (int i = 0; i < r->n; i++)
		if (r->v[i].known && r->v[i].beat.job)
			return r->v[i].beat.job;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
