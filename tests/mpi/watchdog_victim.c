/* A job that goes wrong in a chosen way: watchdog_victim MODE TIMEOUT [node=N]. Rank 1 is the one at fault.
 */
#include "comm/internal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[1] : "";
	struct dt_log log = {.f = stderr, .name = "victim", .rank = -1};
	struct dt_world_opts o = {.timeout_s = argc > 2 ? atof(argv[2]) : 1};
	struct dt_world_info info;
	struct dt_world *w;
	struct dt_comm *c;
	struct dt_err err;
	struct dt_req *q;
	float x = 1, *big = NULL;

	if (!strcmp(mode, "start"))
		o.start_s = o.timeout_s;
	if (argc > 3)
		o.node_ranks = atoi(argv[3]);
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
