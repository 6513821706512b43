#include "base/beat.h"

#include "base/cond.h"
#include "base/launch.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ADDRESSES = 8 };

static struct {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t thread;
	bool running, stop;
	int fd, nto;
	struct sockaddr_in to[ADDRESSES];
	struct dt_beat beat;
} s = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .beat = {.start = 1}};

/* Call with the lock held. */
static void send_one(void)
{
	s.beat.no++;
	for (int i = 0; i < s.nto; i++)
		(void)!sendto(s.fd, &s.beat, sizeof(s.beat), MSG_DONTWAIT | MSG_NOSIGNAL,
			      (struct sockaddr *)&s.to[i], sizeof(s.to[i]));
}

static void *sender(void *arg)
{
	pthread_mutex_lock(&s.lock);
	while (!s.stop) {
		send_one();
		dt_cond_wait_s(&s.wake, &s.lock, DT_BEAT_EVERY_S);
	}
	pthread_mutex_unlock(&s.lock);
	return NULL;
}

/* Parses PORT:COOKIE:START:ADDRESSES; false: malformed. */
static bool parse(const char *text)
{
	char cookie[33], list[256];
	unsigned port, start;

	if (sscanf(text, "%5u:%32[0-9a-f]:%9u:%255s", &port, cookie, &start, list) != 4 ||
	    strlen(cookie) != 32 || port > 65535)
		return false;
	for (int i = 0; i < 16; i++) {
		unsigned byte;

		sscanf(cookie + 2 * i, "%2x", &byte);
		s.beat.cookie[i] = (uint8_t)byte;
	}
	s.beat.start = start;
	for (char *save = NULL, *word = strtok_r(list, ",", &save); word && s.nto < ADDRESSES;
	     word = strtok_r(NULL, ",", &save)) {
		struct sockaddr_in *a = &s.to[s.nto];

		*a = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
		s.nto += inet_pton(AF_INET, word, &a->sin_addr) == 1;
	}
	return s.nto > 0;
}

void dt_beat_open(int rank)
{
	const char *text = getenv(DT_BEAT_ENV), *job = getenv("OMPI_MCA_ess_base_jobid");
	sigset_t all, old;

	if (!text || s.running || !parse(text))
		return;
	s.fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (s.fd < 0)
		return;
	s.beat.magic = DT_BEAT_MAGIC;
	s.beat.rank = s.beat.place = rank < 0 ? dt_launch_rank() : rank;
	s.beat.board = -1;
	s.beat.pid = (int32_t)getpid();
	s.beat.job = job ? (uint32_t)strtoul(job, NULL, 10) : 0;
	s.beat.saved = -1;
	gethostname(s.beat.host, sizeof(s.beat.host) - 1);
	dt_cond_init_monotonic(&s.wake);
	sigfillset(&all); /* signals go to the program's own threads */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	s.running = pthread_create(&s.thread, NULL, sender, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

int dt_beat_start(void)
{
	return (int)s.beat.start;
}

void dt_beat_set(const struct dt_beat *b, bool now)
{
	if (!s.running)
		return;
	pthread_mutex_lock(&s.lock);
	s.beat.phase = b->phase;
	s.beat.stage = b->stage;
	s.beat.epoch = b->epoch;
	s.beat.ranks = b->ranks;
	s.beat.place = b->place;
	s.beat.board = b->board;
	s.beat.step = b->step;
	s.beat.from = b->from;
	s.beat.saved = b->saved;
	s.beat.restore_s = b->restore_s;
	s.beat.step_s = b->step_s;
	s.beat.data_s = b->data_s;
	s.beat.save_s = b->save_s;
	s.beat.recovery_s = b->recovery_s;
	s.beat.compute_s = b->compute_s;
	if (now)
		send_one();
	pthread_mutex_unlock(&s.lock);
}

struct dt_beat dt_beat_get(void)
{
	struct dt_beat ret;

	pthread_mutex_lock(&s.lock);
	ret = s.beat;
	pthread_mutex_unlock(&s.lock);
	return ret;
}

void dt_beat_close(int status)
{
	if (!s.running)
		return;
	pthread_mutex_lock(&s.lock);
	s.stop = true;
	s.beat.phase = DT_BEAT_END;
	s.beat.status = status;
	send_one();
	pthread_cond_signal(&s.wake);
	pthread_mutex_unlock(&s.lock);
	pthread_join(s.thread, NULL);
	close(s.fd);
	s.running = false;
}
/* SPDX-License-Identifier: Apache-2.0 */
