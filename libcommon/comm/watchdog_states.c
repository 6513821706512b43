/* What the ranks are doing: read from this machine's board, and queried from others over UDP. */
#include "comm/watchdog.h"

#include "base/progress.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define ASK_S 1.0 /* seconds that other machines have to answer */

struct datagram {
	uint64_t cookie[2];
	int kind; /* 0 question, 1 answer */
	int group;
	struct dt_comm_rank_state s;
};

char dt_comm_process(int pid, uint64_t *ret_born)
{
	char path[32], text[1024], state = 0, *p;
	unsigned long long born = 0;
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
	if (f)
		fclose(f);
	text[n] = '\0';
	p = strrchr(text, ')'); /* the name in parentheses may contain anything */
	if (!p ||
	    sscanf(p + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
		   &state, &born) != 2)
		return 0;
	*ret_born = born;
	return state == 'Z' || state == 'X' ? 0 : state;
}

struct dt_comm_where dt_comm_watch_where(const struct dt_comm_slot *s)
{
	struct dt_comm_where at;
	uint32_t v;

	for (int tries = 0; tries < 1000; tries++) {
		v = atomic_load_explicit(&s->version, memory_order_acquire);
		at = s->at;
		atomic_thread_fence(memory_order_acquire);
		if (!(v & 1) && v == atomic_load_explicit(&s->version, memory_order_relaxed))
			return at;
	}
	return (struct dt_comm_where){0}; /* it changes too fast to be stuck */
}

static struct dt_comm_rank_state board_state(const struct dt_world *w, int i, int group)
{
	const struct dt_comm_slot *s = &w->board[i];
	struct dt_comm_rank_state st = {.known = true,
					.rank = w->board_n > 1 ? w->node_ranks[i] : w->info.rank};
	uint64_t born;

	st.pid = atomic_load(&s->pid);
	st.phase = atomic_load(&s->phase);
	st.run = st.pid ? dt_comm_process(st.pid, &born) : '?';
	st.arrived = group >= 0 ? atomic_load(&s->arrived[group]) : 0;
	st.at = dt_comm_watch_where(s);
	st.at.what[sizeof(st.at.what) - 1] = '\0';
	return st;
}

int dt_world_stopped(const struct dt_world *w, int *ret_pid)
{
	for (int i = 0; i < w->board_n; i++) {
		const struct dt_comm_rank_state s = board_state(w, i, -1);

		*ret_pid = s.pid;
		if (dt_comm_process_stopped(s.run))
			return s.rank;
	}
	return -1;
}

static void answer(struct dt_world *w, const struct datagram *q, const struct sockaddr_in *to)
{
	for (int i = 0; i < w->board_n; i++) {
		struct datagram d = *q;

		d.kind = 1;
		d.s = board_state(w, i, q->group);
		sendto(w->watch->udp, &d, sizeof(d), MSG_DONTWAIT, (const struct sockaddr *)to, sizeof(*to));
	}
}

void dt_comm_watch_receive(struct dt_world *w)
{
	struct dt_comm_watch *k = w->watch;
	struct sockaddr_in from;
	struct datagram d;

	for (;;) {
		socklen_t len = sizeof(from);
		ssize_t n = recvfrom(k->udp, &d, sizeof(d), MSG_DONTWAIT, (struct sockaddr *)&from, &len);

		if (n < 0)
			return;
		if (n != sizeof(d) || memcmp(d.cookie, k->cookie, sizeof(d.cookie)) || d.group < -1 ||
		    d.group >= DT_COMM_GROUPS_MAX)
			continue;
		if (d.kind == 0) {
			answer(w, &d, &from);
		} else if (d.s.rank >= 0 && d.s.rank < w->info.size) {
			d.s.at.what[sizeof(d.s.at.what) - 1] = '\0';
			if (d.s.at.kind >= 0 && d.s.at.kind <= DT_COMM_FINISH)
				k->state[d.s.rank] = d.s;
		}
	}
}

static bool on_board(const struct dt_world *w, int rank)
{
	if (w->board_n == 1)
		return rank == w->info.rank;
	for (int i = 0; i < w->board_n; i++)
		if (w->node_ranks[i] == rank)
			return true;
	return false;
}

void dt_comm_watch_collect(struct dt_world *w, int group)
{
	struct dt_comm_watch *k = w->watch;
	struct datagram q = {.kind = 0, .group = group};
	double until = dt_now() + ASK_S;
	bool missing;

	memset(k->state, 0, (size_t)w->info.size * sizeof(*k->state));
	for (int i = 0; i < w->board_n; i++) {
		struct dt_comm_rank_state s = board_state(w, i, group);

		k->state[s.rank] = s;
	}
	if (!k->contact)
		return;
	memcpy(q.cookie, k->cookie, sizeof(q.cookie));
	for (int r = 0; r < w->info.size; r++)
		for (int a = 0; a < DT_COMM_ADDRESSES && !on_board(w, r); a++) {
			struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = k->contact[r].port};

			to.sin_addr.s_addr = k->contact[r].ip[a];
			if (k->contact[r].ip[a])
				sendto(k->udp, &q, sizeof(q), MSG_DONTWAIT, (struct sockaddr *)&to,
				       sizeof(to));
		}
	do {
		struct pollfd p = {.fd = k->udp, .events = POLLIN};

		poll(&p, 1, 20);
		dt_comm_watch_receive(w);
		missing = false;
		for (int r = 0; r < w->info.size; r++)
			missing |= !k->state[r].known;
	} while (missing && dt_now() < until);
}
/* SPDX-License-Identifier: Apache-2.0 */
