/*
 * One rank of a run; private to train/. What a rank is (model, mesh, plan, device) is set up once and stays;
 * what changes has an owner each, whose file alone writes its fields:
 *   store   parameters           units.c, round.c
 *   grads   gradients            reduce.c, fixed.c, replicas.c
 *   compressed  how they travel  compressed.c
 *   source  samples              source.c
 *   optim   states, the update   optim.c, whole.c
 *   peer    another's states     peer.c
 *   outer   merges of weights    outer.c
 *   backup  the slowest ranks    backup.c
 *   pace    a card's queue       pace.c
 *   ema     averaged weights     ema.c
 *   noise   gradient noise scale noise.c
 *   offload states elsewhere     offload.c
 *   stash   activations elsewhere stash.c
 *   flow    microbatches         pipeline.c
 *   objective  answers, references  objective.c, reference.c
 *   taught  what a teacher says  taught.c
 *   loop    how far it is        loop.c, step.c
 *   buffers running statistics   buffers.c
 *   experts choices, biases      experts.c
 *   save    checkpoints          save.c, folder.c
 *   report  metrics              metrics.c, trace.c
 *   details norms, ranks' times  details.c
 *   export  metrics elsewhere    export.c, histogram.c
 *   spike   steps unlike others  spike.c, rollback.c
 *   inject  faults on request    inject.c
 *   corrupt its own faults       check.c
 *   born    its first rank       elastic.c
 *   carried what left its card   elastic.c
 */
#ifndef DT_TRAIN_TRAINER_H
#define DT_TRAIN_TRAINER_H

#include "base/arena.h"
#include "nn/card.h"
#include "nn/exec.h"
#include "nn/watch.h"
#include "train/backup.h"
#include "train/behind.h"
#include "train/beside.h"
#include "train/buffers.h"
#include "train/check.h"
#include "train/compressed.h"
#include "train/details.h"
#include "train/ema.h"
#include "train/experts.h"
#include "train/export.h"
#include "train/flow.h"
#include "train/grads.h"
#include "train/inject.h"
#include "train/loop.h"
#include "train/noise.h"
#include "train/objective.h"
#include "train/offload.h"
#include "train/optim.h"
#include "train/outer.h"
#include "train/pace.h"
#include "train/peer.h"
#include "train/report.h"
#include "train/save.h"
#include "train/servers.h"
#include "train/shares.h"
#include "train/source.h"
#include "train/spike.h"
#include "train/stash.h"
#include "train/store.h"
#include "train/taught.h"
#include "train/train.h"

/* What ranks tell each other, by reason. */
enum traffic {
	TR_TENSOR,   /* inside layers, between tensor-parallel ranks */
	TR_PIPELINE, /* activations and their gradients between stages */
	TR_GRADS,
	TR_WEIGHTS, /* gathered for ZeRO */
	TR_OTHER,   /* loss, norm, signals */
	TR_N,
};

struct step_times { /* seconds of the step under way: every file adds what it spends */
	double start, data, compute, optimizer, checkpoint;
	double comm[TR_N]; /* not hidden behind compute */
};

struct trainer {
	struct dt_run run; /* settled; its config and schedule are those below */
	struct dt_config config;
	struct dt_source *init;	       /* weights that a new run starts from; NULL: they are drawn */
	char base[40];		       /* of what is frozen: which weights they are; empty: nothing is */
	struct dt_schedule file_sched; /* --schedule-file */

	struct dt_world *world;
	struct dt_world_info info;
	struct dt_mesh mesh;
	struct dt_mesh everyone; /* all ranks, before the layout is known to be right */
	const struct dt_log *log;
	struct dt_log root_log; /* speaks on rank 0 only */

	struct dt_params table;
	struct dt_local local;
	struct dt_memory_plan plan;
	uint64_t draws, draws_host; /* bytes beside it of what answers prompts (plan/draws.h) */

	int turn; /* among those of this machine's ranks that take cards in turn */
	struct dt_dev *dev;
	struct dt_exec exec;
	struct dt_arena arena;	    /* on the device */
	struct dt_arena host[12];   /* of a card's run: buffers that the processor works on, */
	enum dt_buf_id host_id[12]; /* each of them once */
	int nhost;
	struct dt_comm_card card;   /* its, where it is one */
	void *stage[2];		    /* where that is not the host's memory: pinned, for copies */
	struct dt_event *staged[2]; /* what used them is done */
	bool staged_said;	    /* that messages go through the host's memory */

	struct store store;
	struct grads grads;
	struct compressed compressed;
	struct source source;
	struct optim optim;
	struct peer peer;
	struct outer outer;
	struct backup backup;
	struct pace pace;
	struct servers servers;
	struct shares shares;
	struct ema ema;
	struct beside beside;
	struct noise noise;
	struct offload offload;
	struct stream stream;
	struct stash stash;
	struct behind behind;
	struct experts experts;
	struct objective objective;
	struct taught taught;
	struct flow flow;
	struct buffers buffers;
	struct loop loop;
	struct save save;
	struct report report;
	struct details details;
	struct export export;
	struct spike spike;
	struct dt_watch watch; /* of --find-nan and --extremes */
	struct corrupt corrupt;
	struct inject inject[INJECT_MAX];
	int ninject;
	double inject_begun; /* when the step or part under way was */
	int born;	     /* this process's rank in the first epoch of an elastic run */
	char *carried;	     /* of a card's elastic run: room in the host's memory (DT_B_CARRIED) */

	struct step_times t;
	bool agreed; /* every rank knows of the failure and ends by itself */
	int status;  /* exit status of a failure */
};

/* Whether this rank's stage is the one with the embedding, or with the head. */
static inline bool holds_embed(const struct trainer *t)
{
	return t->mesh.at.pp == 0;
}
static inline bool holds_head(const struct trainer *t)
{
	return t->mesh.at.pp == t->run.layout.pp - 1;
}

/* Whether the step under way is one that ranks take alone. */
static inline bool outer_alone(const struct trainer *t)
{
	return dt_run_alone(&t->run) && t->loop.step >= t->run.sync.from;
}

/* Whether it is trained on images of a data set. */
static inline bool trainer_images(const struct trainer *t)
{
	return t->source.images.data && !t->source.given.g;
}

/* The part of a round of microbatches, of dp, that is this rank's in the step under way. */
static inline int64_t trainer_part(const struct trainer *t)
{
	return t->backup.a ? backup_part(t) : t->servers.on ? t->servers.part : t->mesh.at.dp;
}

/* The first sample of this rank's microbatch mb of the step. */
static inline int64_t trainer_sample(const struct trainer *t, int64_t mb)
{
	const int64_t number = t->shares.n ? t->shares.first + mb : mb * t->run.layout.dp + trainer_part(t);

	return t->loop.cursor + number * t->run.microbatch;
}

/* The step after which this run ends. */
static inline int64_t trainer_end(const struct trainer *t)
{
	return t->run.stop_at && t->run.stop_at < t->run.steps ? t->run.stop_at : t->run.steps;
}

/* setup.c */
int trainer_init(struct trainer *t, const struct dt_run *r, const struct dt_given *given, struct dt_world *w,
		 const struct dt_log *log, struct dt_err *err);
void trainer_release(struct trainer *t);

/* loop.c: what is opened once the state is there: answers, the folder, metrics */
int trainer_begin(struct trainer *t, struct dt_err *err);
/* Says on the log what the run is: model, layout, batch, memory. */
void trainer_announce(struct trainer *t);

/*
 * agree.c: rc of every rank becomes one verdict, so that all stop together. The lowest failing rank keeps its
 * message, the others get -ECANCELED with an empty one, which is not printed.
 */
int trainer_agree(struct trainer *t, int rc, struct dt_err *err);

/*
 * room.c: whether memory and the folder of --offload-to hold what the plans of all ranks of a machine have
 * there, which none of them has taken yet. All ranks call. -ENOSPC where they do not.
 */
int trainer_check_room(struct trainer *t, struct dt_err *err);

/* device.c; device_choose: which card a rank of an elastic run has. Collective */
int device_choose(struct trainer *t, struct dt_err *err);
int device_open(struct trainer *t, int nthreads, struct dt_err *err);
int arena_open(struct trainer *t, struct dt_err *err);
void arena_close(struct trainer *t);
void arena_leave(struct trainer *t);			/* a card's memory alone is given back */
bool arena_has(const struct trainer *t, const void *p); /* the device's memory of it */
/*
 * A buffer of the plan that the processor works on: in the arena, or of a card's run in memory of the host,
 * where it begins as zeros. NULL: there is none.
 */
int host_buffer(struct trainer *t, enum dt_buf_id id, void *ret, struct dt_err *err);
/* The address of a buffer, in the arena or of those of host_buffer; NULL: there is none. */
void *buffer_at(const struct trainer *t, enum dt_buf_id id);
/* Between the host and the arena of a device that the host cannot reach; done when they return. */
int device_put(struct trainer *t, void *to, const void *from, size_t n, struct dt_err *err);
int device_get(struct trainer *t, void *to, const void *from, size_t n, struct dt_err *err);
/* Of the host, to the arena wherever that is. */
int state_put(struct trainer *t, void *to, const void *from, size_t n, struct dt_err *err);
/* Initial values of elements [first, first + n) of a parameter, to the arena. */
int device_init_param(struct trainer *t, const struct dt_local_param *lp, int64_t first, int64_t n, float *to,
		      struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
