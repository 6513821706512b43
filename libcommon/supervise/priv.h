/* Shared by the files of supervise/. */
#ifndef DT_SUPERVISE_PRIV_H
#define DT_SUPERVISE_PRIV_H

#include "base/beat.h"
#include "base/json.h"
#include "plan/run_options.h"
#include "supervise/supervise.h"

#include <stdio.h>
#include <sys/types.h>

/* ---- command.c: parses the job's command ---- */

struct sup_command {
	char *const *argv;
	int program;		 /* place of dt-train or dt-serve in argv */
	bool serves;		 /* it is dt-serve: no options are looked at, nothing is saved */
	struct dt_run_options o; /* of the options that matter here: model, batch, layout, save ... */
	bool resumes;		 /* --resume is there */
	struct dt_opt *table;
	json_t *saved; /* what o's strings may point to */
};
/* -EINVAL with a message: no program of ours, dt-train without --save, --resume of something else. */
int sup_command_read(struct sup_command *c, char *const *argv, struct dt_err *err);
void sup_command_release(struct sup_command *c);
/* Reads options that the command line leaves open from the newest complete checkpoint. Its step, -1: none. */
int sup_command_refresh(struct sup_command *c, int64_t *ret_step, struct dt_err *err);

struct sup_words { /* an argument list that grows; strings are owned */
	char **v;
	int n;
};
void sup_words_add(struct sup_words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sup_words_free(struct sup_words *w);

/* ---- hosts.c: where ranks may run ---- */

struct sup_host {
	char name[256];
	int slots;
	double out_until, cool_s; /* the host is left out until then; for how long the next time */
};
struct sup_hosts {
	struct sup_host *v;
	int n;
};
/* Output of --discover. Hosts that were known keep their times. -EINVAL names the line. */
int sup_hosts_parse(struct sup_hosts *h, const char *text, struct dt_err *err);
int sup_hosts_slots(const struct sup_hosts *h, double now);
/* Of the first n slots in use now: the most of one host, and "a:2,b:1" (malloc'd; NULL: out of memory). */
int sup_hosts_per(const struct sup_hosts *h, double now, int n);
char *sup_hosts_list(const struct sup_hosts *h, double now, int n);

/* ---- layout.c: which layout for so many ranks ---- */

struct sup_choice {
	int ranks;
	struct dt_layout layout;
	int64_t microbatch, global_batch;
};
/* -ENOSPC, -EINVAL: no way to run it on so many. */
int sup_choose(const struct sup_command *c, const char *cluster, int ranks, int per_node,
	       struct sup_choice *ret, struct dt_err *err);

/* ---- job.c: processes ---- */

enum { SUP_JOINED = 256 };

struct sup_job {
	pid_t pid;		  /* of the command; 0: it has ended */
	pid_t joined[SUP_JOINED]; /* processes that became ranks later, or are about to */
	int njoined;
	uint32_t key; /* of the run, in the folder's name */
	char tmp[80]; /* Open MPI's own files */
	bool elastic; /* the job survives the loss of ranks */
	bool serves;  /* dt-serve: after a rank's death another gets a moment to answer waiting clients */
	bool running; /* any of these processes runs */
	pid_t aside;  /* a child that does not end with the job; 0: none */
	int status;   /* of waitpid for the command, once it has ended */
};
int sup_job_start(struct sup_job *j, char *const *argv, const char *beat_env, struct dt_err *err);
/* One more process of a running job, which finds its ranks at board (DT_JOIN_ENV). Returns its pid. */
int sup_job_join(struct sup_job *j, char *const *argv, const char *beat_env, const char *board,
		 struct dt_err *err);
/* Sends a signal to the command and to processes that joined. */
void sup_job_signal(const struct sup_job *j, int sig);
/* Ends every process below this one at once. */
void sup_job_kill(struct sup_job *j);
/* Collects children; true when the job has ended by this call. */
bool sup_job_reap(struct sup_job *j);
/* Notes Open MPI's number of the job in its folder: it is in the names of the shared memory to be removed. */
void sup_job_note(const struct sup_job *j, uint32_t number);
/* Removes what the job left: its folder and shared memory. */
void sup_job_clean(struct sup_job *j);
/* The same for earlier jobs of this key, whose supervisor was killed with them. */
void sup_job_clean_stale(const struct sup_job *j);
/* The exit status a shell would see. */
int sup_job_exit(const struct sup_job *j);

struct sup_probe { /* a command that is run again and again */
	const char *command;
	double every, next, began;
	pid_t pid;
	int fd;
	char *text;
	size_t n;
};
/* 1: it has ended, *ret_status is its exit status and p->text its output; 0: not yet. */
int sup_probe_step(struct sup_probe *p, double now, int *ret_status);
void sup_probe_close(struct sup_probe *p);

/* ---- books.c: where the time went ---- */

enum sup_cost {
	SUP_STEPS,
	SUP_START,
	SUP_DATA,
	SUP_SAVE,
	SUP_RESTORE,
	SUP_REDONE,
	SUP_RECOVERY,
	SUP_OTHER,
	SUP_COSTS
};
struct sup_books {
	double began, s[SUP_COSTS];
	double *step; /* [room]: seconds of the last attempt at step base + 1 + i; 0: none */
	int64_t base, room, top;
	int64_t redone; /* steps */
};
void sup_books_step(struct sup_books *b, int64_t step, double seconds);
/* Steps beyond this one are lost. */
void sup_books_back(struct sup_books *b, int64_t step);
int64_t sup_books_count(const struct sup_books *b);
/* Closes them at time now: what is in no other place is SUP_OTHER. */
json_t *sup_books_json(struct sup_books *b, double now);
void sup_books_text(const struct sup_books *b, char *buf, size_t n);

/* ---- ranks.c: heartbeats ---- */

struct sup_rank {
	bool known, local;
	int pidfd;
	int ended;    /* the order in which the processes of this start ended, from 1; 0: it runs */
	double heard; /* when */
	struct dt_beat beat;
	int gone; /* a process that was this rank and has left the job; 0: none */
};
struct sup_ranks {
	int fd;
	int ends; /* epoll over the processes of this machine: readable once one has ended */
	int n_ended;
	uint16_t port;
	uint8_t cookie[16];
	uint32_t start;
	struct sup_rank *v;
	int n;
};
int sup_ranks_open(struct sup_ranks *r, struct dt_err *err);
/* For another start of the job. */
void sup_ranks_reset(struct sup_ranks *r, uint32_t start);
void sup_ranks_close(struct sup_ranks *r);
/* The value of DT_BEAT_ENV. */
void sup_ranks_address(const struct sup_ranks *r, char *buf, size_t n);
/*
 * Takes the ends of processes, then the datagrams that have arrived: whoever says DT_BEAT_END says it before
 * its process ends. first is called for every new datagram of rank 0.
 */
void sup_ranks_receive(struct sup_ranks *r, double now, void (*first)(void *arg, const struct dt_beat *b),
		       void *arg);
/*
 * A rank that is lost: of the processes of this machine that have ended the one that ended first, or one not
 * heard for limit seconds. -1: none.
 */
int sup_ranks_lost(struct sup_ranks *r, double now, double limit, char *why, size_t n);
/* The job goes on without the rank; what its process still sends is not heard. */
void sup_ranks_forget(struct sup_ranks *r, int rank);
/* Ranks that are known. */
int sup_ranks_count(const struct sup_ranks *r);
/* The exit status that a rank of the last epoch has told at its end; -1: none has. */
int sup_ranks_status(const struct sup_ranks *r);
/* After this process was stopped itself: resets the time since each rank was heard. */
void sup_ranks_forgive(struct sup_ranks *r, double now);
/* The ranks that have been heard: number, process and host. */
json_t *sup_ranks_json(const struct sup_ranks *r);
/* Open MPI's number of the job; 0: not known. */
uint32_t sup_ranks_job(const struct sup_ranks *r);

/* ---- slow.c: ranks that compute slowly ---- */

enum { SUP_SLOW_STEPS = 20, SUP_SLOW_TIMES = 3 };

struct sup_pace { /* of a rank */
	int pid;
	int64_t step; /* of the last look */
	double compute_s, best, score, own;
	int slow; /* looks in a row that found it slow */
};
struct sup_slow {
	struct sup_pace *v;
	int n;
};
/*
 * Every SUP_SLOW_STEPS steps of all ranks: a rank's score is the median compute time of its stage divided by
 * its own; `own` is its best time divided by its current one. Returns a rank whose score was below limit in
 * SUP_SLOW_TIMES consecutive looks; -1: none. The first look after a start does not count.
 */
int sup_slow_look(struct sup_slow *s, const struct sup_ranks *r, double limit);
void sup_slow_reset(struct sup_slow *s);

/* ---- replace.c ---- */

/*
 * Processes that a job of `want` ranks lacks, where some are coming: the ranks of its newest epoch count. 0
 * too once they leave by themselves.
 */
int sup_replace_missing(const struct sup_ranks *r, int want, int coming);

/* ---- report.c: systemd ---- */

void sup_notify(const char *state);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
