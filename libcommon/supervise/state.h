/* The supervisor's state; private to supervise.c, start.c, watch.c and report.c. */
#ifndef DT_SUPERVISE_STATE_H
#define DT_SUPERVISE_STATE_H

#include "supervise/priv.h"

enum { SUP_EVENT_KINDS = 23 };

/* Why the job under way has been asked to end, or killed. */
enum sup_ending { SUP_RUNS, SUP_LEAVE /* for good */, SUP_RESIZE, SUP_FAILED };

enum sup_mirror_part {
	SUP_MIRROR_NOTHING,
	SUP_MIRROR_LIST,
	SUP_MIRROR_SEND,
	SUP_MIRROR_BACK,
	SUP_MIRROR_CHECK,
	SUP_MIRROR_NAME,
	SUP_MIRROR_REMOVE
};

struct sup_mirror_list { /* checkpoints in the mirror; those sent that were not found whole, too */
	struct sup_copy {
		int64_t step;
		bool whole;
	} * v;
	int n;
};

struct sup_mirror {
	int64_t wanted, tried; /* steps: the newest checkpoint, the newest that was begun with; -1 */
	int64_t step;	       /* of the checkpoint under way */
	int doing;	       /* enum sup_mirror_part */
	pid_t pid;	       /* 0: none */
	double began;	       /* the child */
	bool asked, fetching;  /* at the start: what the mirror has */
	bool listed;	       /* list is known */
	struct sup_mirror_list list;
	struct sup_mirror_list left; /* what a killed dt-run had begun to send */
	int64_t removing;	     /* step of the checkpoint that is being removed */
};

struct sup_replace { /* of this start */
	int want;    /* ranks */
	int tried;   /* replacements since one trained a step */
	double next; /* not before */
	bool given_up;
};

struct sup {
	const struct dt_supervise *o;
	const struct dt_log *log;
	FILE *events;
	struct sup_command cmd;
	struct sup_ranks ranks;
	struct sup_hosts hosts;
	struct sup_choice choice;
	struct sup_job job;
	struct sup_books books;
	struct sup_probe discover, notice;
	struct sup_mirror mirror;
	struct sup_slow slow;
	struct sup_replace replace;
	int signals;		      /* descriptor */
	double next_files, heard_now; /* when to look for files next; when the heartbeats being read came */
	/* this start */
	int start;
	double spawned, trained, progress; /* began; began to train; the last step or save; 0: not yet */
	struct dt_beat last;
	uint32_t noted; /* job number */
	enum sup_ending ending;
	double asked;	  /* when it was asked to end, 0: not */
	bool stop;	  /* for good: nothing is started again */
	double signalled; /* dt_now() of the first signal to end, 0: none */
	bool forced;	  /* signalled again: the job was killed */
	bool leave;	  /* signalled again after the job's end: without the mirror */
	/* all starts */
	int64_t best, saved; /* largest step ever done; of the newest checkpoint told */
	int idle;	     /* starts since best rose */
	double down;	     /* since when there is no progress, 0: there is */
	bool hosts_known;
	bool refused; /* no number of ranks allows what the command asks for */
	/* page.c */
	double page_next, page_events[SUP_EVENT_KINDS];
	bool page_failed;
};

/* report.c: an event's line: members as json_pack has them. */
void sup_event(struct sup *s, const char *name, const char *fmt, ...);

/* page.c */
/* Renews the page, at most once a second unless now. What cannot be written is given up with a message. */
void sup_page(struct sup *s, bool now);
/* An event is counted. */
void sup_page_event(struct sup *s, const char *name);

/* start.c */
/* Chooses ranks and layout, and starts the job. -EAGAIN: not enough hosts now. */
int sup_start(struct sup *s, double now, struct dt_err *err);
/* dt-train and its options, as each rank has them. */
void sup_command_words(const struct sup *s, struct sup_words *w);
/* How many ranks the hosts of now would have; 0: too few. */
int sup_would(struct sup *s, double now);
/* Leaves out hosts that cannot be reached. */
void sup_check_hosts(struct sup *s, double now);

/* mirror.c; the rest of it in mirror.h */
/* Advances transfers under way by a part each; failures are reported and do not end the job. */
void sup_mirror_step(struct sup *s);
/* mirror_start.c */
/* Waits for what there is to be sent. */
void sup_mirror_end(struct sup *s);
/* Once, before the first start: where the run has no checkpoint here, the mirror's newest is fetched. */
int sup_mirror_fetch(struct sup *s, struct dt_err *err);

/* replace.c: starts processes in place of ranks that an elastic run has lost. */
void sup_replace_step(struct sup *s, double now);

/* watch.c */
/* One round: heartbeats, signals, files and commands; waits at most wait_s for something. */
void sup_watch(struct sup *s, double wait_s);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
