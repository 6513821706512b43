/* Shared by the files sweep*.c. */
#ifndef DT_SUPERVISE_SWEEP_PRIV_H
#define DT_SUPERVISE_SWEEP_PRIV_H

#include "supervise/priv.h"
#include "supervise/sweep.h"

enum { SWEEP_AXES_MAX = 16, SWEEP_TRIALS_MAX = 9999 };

struct sweep_axis {
	char *name; /* of the option, without dashes */
	char **value;
	int n; /* values; 0: drawn from [lo, hi) */
	double lo, hi;
	bool log, whole; /* of what is drawn: uniform in the logarithm; rounded to a whole number */
};

enum sweep_state {
	SWEEP_WAITS, /* for its next stretch, or its first */
	SWEEP_RUNS,
	SWEEP_ENDED,  /* the stretch of its rung */
	SWEEP_FAILED, /* for good */
};

struct sweep_trial {
	int number;		     /* from 1 */
	char *value[SWEEP_AXES_MAX]; /* as on a command line */
	enum sweep_state state;
	int rung;	       /* that it is in, or ended in */
	int64_t steps;	       /* done, by the metrics */
	double score, seconds; /* NAN: none; of all stretches */
	double began;
	pid_t pid; /* 0: no process; of one that runs: it was asked to end */
};

struct sweep {
	const struct dt_sweep *o;
	struct sweep_axis axis[SWEEP_AXES_MAX];
	int naxes;
	struct sweep_trial *trial;
	int ntrials;
	int64_t steps; /* of a whole run; of the first trial if they are swept */
	int rungs;     /* 1 without halving */
	int program;   /* place of dt-train in argv */
	int ranks;     /* of a trial */
	int jobs;
	int threads; /* of a rank; 0: the command says */
	FILE *file;  /* sweep.jsonl */
	bool stop;   /* a signal asked for the end */
};

/* ---- sweep_plan.c ---- */

/* Axes and trials from the options. -EINVAL with a message. */
int sweep_plan(struct sweep *s, struct dt_err *err);
void sweep_release(struct sweep *s);
/* Whether --steps is an axis: trials then have no common number of steps. */
bool sweep_varies_steps(const struct sweep *s);
/* The step at which rung k ends. */
int64_t sweep_rung_end(const struct sweep *s, int k);
/* The words of trial t's command in rung k. */
struct sup_words sweep_command(const struct sweep *s, const struct sweep_trial *t, int k);
/* "lr=1e-3 warmup=10" */
const char *sweep_name(const struct sweep *s, const struct sweep_trial *t, char *buf, size_t n);
/* a before b, by the score; those without one last. */
bool sweep_better(const struct sweep *s, const struct sweep_trial *a, const struct sweep_trial *b);

/* ---- sweep_report.c ---- */

/* Opens DIR/sweep.jsonl and takes over what an earlier call of the same sweep has done. */
int sweep_open(struct sweep *s, struct dt_err *err);
/* Sets the score of a stretch that ended and notes it. -ENODATA: the metrics have no value. */
int sweep_note(struct sweep *s, struct sweep_trial *t, int status, struct dt_err *err);
void sweep_print(const struct sweep *s, FILE *f);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
