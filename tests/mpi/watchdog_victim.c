/*
 * A job that goes wrong in a chosen way: watchdog_victim MODE TIMEOUT [NODE_RANKS [OPERATION WORD ...]]. Rank
 * 1 is the one at fault. With the modes stop-amid and kill-amid the operation is repeated for ever and rank 1
 * stands still or dies somewhere in it; words: registered, mpi, or an algorithm.
 */
#include "base/opt.h"
#include "comm/internal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

/* Rank 1 has all others stand still for three timeouts, as a suspended job does, while they wait for it. */
static int suspend_others(struct dt_comm *c, int rank, double timeout_s, struct dt_err *err)
{
	int pid[64], mine = (int)getpid();

	if (dt_comm_size(c) > 64 || dt_all_gather(c, pid, &mine, 1, DT_I32, "processes", err))
		return 1;
	if (rank != 1)
		return 0;
	usleep((useconds_t)(timeout_s * 3e5));
	for (int i = 0; i < dt_comm_size(c); i++)
		if (i != 1)
			kill(pid[i], SIGSTOP);
	usleep((useconds_t)(timeout_s * 3e6));
	for (int i = 0; i < dt_comm_size(c); i++)
		if (i != 1)
			kill(pid[i], SIGCONT);
	usleep((useconds_t)(timeout_s * 3e5));
	return 0;
}

static volatile sig_atomic_t signal_amid;

static void hit(int sig)
{
	(void)sig;
	kill(getpid(), signal_amid);
}

/* Around the ring, two ranks at a time in turn. */
static int messages(struct dt_comm *c, float *dst, const float *src, size_t n, struct dt_err *err)
{
	int p = dt_comm_size(c), me = dt_comm_rank(c), rc;
	struct dt_comm_req *q = NULL;

	rc = dt_irecv(c, dst, n, DT_F32, (me + p - 1) % p, 0, "victim", &q, err);
	if (!rc)
		rc = dt_send(c, src, n, DT_F32, (me + 1) % p, 0, "victim", err);
	return rc ? rc : dt_wait(&q, NULL, err);
}

static int once(struct dt_comm *c, const char *op, float *dst, float *src, size_t n, struct dt_err *err)
{
	size_t each[64];

	for (int i = 0; i < 64; i++)
		each[i] = n;
	if (!strcmp(op, "all-reduce"))
		return dt_all_reduce(c, dst, src, n, DT_F32, DT_SUM, "victim", err);
	if (!strcmp(op, "reduce-scatter"))
		return dt_reduce_scatter(c, dst, src, n, DT_F32, DT_SUM, "victim", err);
	if (!strcmp(op, "all-gather"))
		return dt_all_gather(c, dst, src, n, DT_F32, "victim", err);
	if (!strcmp(op, "broadcast"))
		return dt_broadcast(c, dst, n, DT_F32, 0, "victim", err);
	if (!strcmp(op, "all-to-all"))
		return dt_all_to_all(c, dst, src, n, DT_F32, "victim", err);
	if (!strcmp(op, "all-to-allv"))
		return dt_all_to_allv(c, dst, each, src, each, DT_F32, "victim", err);
	if (!strcmp(op, "reduce"))
		return dt_reduce(c, dst, src, n, DT_F32, DT_SUM, 0, "victim", err);
	if (!strcmp(op, "gather"))
		return dt_gather(c, dst, src, n, DT_F32, 0, "victim", err);
	if (!strcmp(op, "scatter"))
		return dt_scatter(c, dst, src, n, DT_F32, 0, "victim", err);
	if (!strcmp(op, "barrier"))
		return dt_barrier(c, "victim", err);
	return messages(c, dst, src, n, err);
}

/* The operation again and again, until the watchdog ends it. */
static int amid(struct dt_world *w, struct dt_comm *c, int sig, const char *op, int argc, char **argv,
		struct dt_err *err)
{
	size_t n = 50000, bytes = n * sizeof(float) * (size_t)dt_comm_size(c);
	struct itimerval in = {.it_value.tv_usec = 100000};
	bool registered = false;
	void *src, *dst;
	int rc = 0;

	for (int i = 0; i < argc && !rc; i++) {
		int alg = dt_opt_choice_index(DT_ALG_CHOICES, argv[i]);

		registered |= !strcmp(argv[i], "registered");
		if (alg > 0)
			rc = dt_comm_set_algorithm(c, (enum dt_alg)alg, err);
	}
	if (rc || dt_comm_size(c) > 64)
		return 1;
	src = registered ? NULL : calloc(1, bytes);
	dst = registered ? NULL : calloc(1, bytes);
	if (registered && (dt_buffer_alloc(w, bytes, &src, err) || dt_buffer_alloc(w, bytes, &dst, err)))
		return 1;
	if (!src || !dst)
		return 1;
	if (dt_comm_rank(c) == 1) {
		signal_amid = sig;
		signal(SIGALRM, hit);
		setitimer(ITIMER_REAL, &in, NULL);
	}
	while (!rc)
		rc = once(c, op, dst, src, n, err);
	dt_log_err(w->log, err);
	return rc;
}

/* Rank 1 dies when it has offered its memory; rank 0 opens it half a second later. */
static int offered(struct dt_world *w, struct dt_comm *c, int rank, struct dt_err *err)
{
	struct dt_comm_req *q;
	float *big;
	int rc = dt_buffer_alloc(w, 1 << 20, (void **)&big, err);

	signal(SIGTERM, SIG_IGN); /* of mpirun, which has noticed the death */
	if (rc == 0 && rank == 1) {
		rc = dt_isend(c, big, 1 << 18, DT_F32, 0, 0, "activations", &q, err);
		raise(SIGKILL);
	}
	usleep(500000);
	if (rc == 0)
		rc = dt_recv(c, big, 1 << 18, DT_F32, 1, 0, "activations", err);
	dt_log_err(w->log, err);
	return rc < 0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[1] : "";
	struct dt_log log = {.f = stderr, .name = "victim", .rank = -1};
	struct dt_world_opts o = {.timeout_s = argc > 2 ? atof(argv[2]) : 1};
	struct dt_world_info info;
	struct dt_world *w;
	struct dt_comm *c;
	struct dt_err err;
	struct dt_comm_req *q;
	float x = 1, *big = NULL;

	if (!strcmp(mode, "start"))
		o.start_s = o.timeout_s;
	if (argc > 3)
		o.node_ranks = atoi(argv[3]);
	for (int i = 5; i < argc; i++)
		if (!strcmp(argv[i], "mpi"))
			o.transport = DT_TRANSPORT_MPI;
	if (!strcmp(mode, "start") && getenv("OMPI_COMM_WORLD_RANK") &&
	    atoi(getenv("OMPI_COMM_WORLD_RANK")) == 1)
		sleep(60); /* never reaches MPI_Init */
	if (dt_world_open(&w, &o, &log, &err) || (dt_world_info(w, &info), 0) ||
	    dt_comm_create(&c, w, "dp", 0, 0, &err)) {
		dt_log_err(&log, &err);
		return 1;
	}
	log.rank = info.rank;
	for (int i = 0; i < 3; i++)
		if (dt_all_reduce(c, &x, NULL, 1, DT_F32, DT_AVG, "warm up", &err))
			return 1;
	if (argc > 4 && (!strcmp(mode, "stop-amid") || !strcmp(mode, "kill-amid")))
		return amid(w, c, mode[0] == 's' ? SIGSTOP : SIGKILL, argv[4], argc - 5, argv + 5, &err);
	if (!strcmp(mode, "kill-offered"))
		return offered(w, c, info.rank, &err);
	if (!strcmp(mode, "kill-registered")) { /* mapped by all before it happens */
		if (dt_buffer_alloc(w, 1 << 20, (void **)&big, &err) ||
		    dt_all_reduce(c, big, NULL, 1 << 18, DT_F32, DT_SUM, "warm up", &err))
			return 1;
	}
	if (info.rank == 1) {
		if (!strcmp(mode, "absent"))
			sleep(60);
		if (!strcmp(mode, "stop"))
			raise(SIGSTOP);
		if (big) /* rank 0 may still read this rank's part of the sum */
			usleep(500000);
		if (!strcmp(mode, "kill") || big)
			raise(SIGKILL);
		if (!strcmp(mode, "exit"))
			_exit(0);
		if (!strcmp(mode, "slow")) /* three times the timeout, all of it computing */
			usleep((useconds_t)(o.timeout_s * 3e6));
	}
	if (!strcmp(mode, "suspend") && suspend_others(c, info.rank, o.timeout_s, &err))
		return 1;
	if (!strcmp(mode, "receive") && info.rank == 0)
		return dt_recv(c, &x, 1, DT_F32, 1, 0, "activations", &err);
	if (!strcmp(mode, "receive"))
		sleep(60);
	if (!strcmp(mode, "slow")) { /* the others post and compute for as long before they wait */
		if (dt_iall_reduce(c, &x, NULL, 1, DT_F32, DT_AVG, "grads bucket 3", &q, &err))
			return 1;
		if (info.rank != 1)
			usleep((useconds_t)(o.timeout_s * 2.7e6));
		if (dt_wait(&q, NULL, &err))
			return 1;
	} else if (dt_all_reduce(c, &x, NULL, 1, DT_F32, DT_AVG, "grads bucket 3", &err)) {
		return 1;
	}
	if (x != 1.0f)
		return 1;
	dt_comm_free(c);
	dt_world_finalize(w);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
