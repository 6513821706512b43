/* What control.c and control_act.c share. */
#ifndef DT_RL_CONTROL_PRIV_H
#define DT_RL_CONTROL_PRIV_H

#include "ckpt/ckpt.h"
#include "rl/control.h"
#include "rl/crew.h"
#include "rl/qlearn.h"

#include <limits.h>

enum { CONTROL_WEIGHTS = 1, CONTROL_UNROLL };

struct control {
	struct dt_control *o;
	const struct dt_control_rule *rule;
	struct dt_unroll_size size; /* of an actor's unroll */
	bool ids;		    /* rows say which agent it is */
	struct dt_net *net;
	struct dt_critic *critic; /* of a policy */
	struct dt_qlearn *q;	  /* of values, with */
	struct dt_replay *replay;
	struct dt_transition *drawn; /* [batch] */
	int64_t *number;	     /* [batch] */
	double *weight, *error;	     /* [batch]; [batch, or steps of an unroll, whichever is more] */
	double *explore;	     /* [environments of all] */
	double due;		     /* updates that what has come is worth */
	struct dt_crew *crew;
	struct dt_unroll *u; /* [actors] */
	int64_t *version;    /* [actors] of the weights behind each */
	const struct dt_unroll **full;
	bool *there; /* [actors] whose unroll is in its place */
	int nfull;
	int64_t updates, frames, episodes;
	double score[DT_CONTROL_SCORES];
	double *place; /* [environments of all, DT_ACTOR_PLACE] where they were when last heard of */
	struct dt_control_line line;
	char from[PATH_MAX];	     /* the checkpoint to resume from; "": none */
	char run_id[DT_CKPT_RUN_ID]; /* of checkpoints */
	int lock;		     /* of the folder; -1: none */
	bool outside;		     /* what has failed is not the learner: its weights are whole */
	double began;
};

/* Options of learning values from n transitions; an actor only looks at errors. */
struct dt_qlearn_opts control_values(const struct control *c, bool learns);
/* What goes with a message of weights: parts of it, at most 2. */
int control_parts(struct dt_net *net, const struct dt_qlearn *q, struct dt_part part[2]);
/* The work of a process: struct dt_crew_opts. */
int control_act(void *arg, int number, int fd, struct dt_err *err);

/* control_keep.c: the checkpoints of struct dt_control. */
int control_save(struct control *c, struct dt_err *err);
/* First of all: fills from. */
int control_find(struct control *c, struct dt_err *err);
/* If --resume auto finds a checkpoint damaged, the next older one is used. */
int control_resume(struct control *c, struct dt_err *err);
/* Whether rows say which agent it is: a checkpoint to go on from decides. */
int control_choose_ids(struct control *c, int agents, struct dt_err *err);
/* Before learning: the folder is this run's from now on, or it is refused. */
int control_folder(struct control *c, struct dt_err *err);
void control_folder_release(struct control *c);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
