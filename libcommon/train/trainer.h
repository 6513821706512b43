/*
 * One rank of a run; private to train/. Model, mesh, plan and device are set up once and stay. Each part of
 * the state that changes has an owner, and the owner's files alone write its fields:
 *   store   parameters           units.c, round.c
 *   grads   gradients            reduce.c, fixed.c, replicas.c
 *   compressed  their compression  compressed.c
 *   source  samples              source.c
 *   optim   states, the update   optim.c, whole.c
 *   peer    another's states     peer.c
 *   outer   merges of weights    outer.c
 *   backup  the slowest ranks    backup.c
 *   pace    a card's queue       pace.c
 *   ema     averaged weights     ema.c
 *   noise   gradient noise scale noise.c
 *   offload offloaded states     offload.c
 *   stash   offloaded activations stash.c
 *   flow    microbatches         pipeline.c
 *   objective  answers, references  objective.c, reference.c
 *   taught  a teacher's outputs  taught.c
 *   loop    progress of the run  loop.c, step.c
 *   buffers running statistics   buffers.c
 *   experts choices, biases      experts.c
 *   save    checkpoints          save.c, folder.c
 *   report  metrics              metrics.c, trace.c
 *   details norms, ranks' times  details.c
 *   export  metrics elsewhere    export.c, histogram.c
 *   spike   loss spikes          spike.c, rollback.c
 *   inject  injected faults      inject.c
 *   corrupt silent corruption    check.c
 *   born    its first rank       elastic.c
 *   carried state on the host    elastic.c
 */
#ifndef DT_TRAIN_TRAINER_H
#define DT_TRAIN_TRAINER_H

#include "base/arena.h"
#include "nn/card.h"
#include "nn/exec.h"
#include "nn/watch.h"
#include "plan/draws.h"
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

/* Communication between ranks, by purpose. */
enum traffic {
	TR_TENSOR,   /* inside layers, between tensor-parallel ranks */
	TR_PIPELINE, /* activations and their gradients between stages */
	TR_GRADS,
	TR_WEIGHTS, /* gathered for ZeRO */
	TR_OTHER,   /* loss, norm, signals */
	TR_N,
};

struct step_times { /* seconds of the step under way; every file adds its own */
	double start, data, compute, optimizer, checkpoint;
	double comm[TR_N]; /* not overlapped with compute */
};

struct trainer {
	struct dt_run run; /* all options resolved; its config and schedule are those below */
	struct dt_config config;
	struct dt_source *init;	       /* weights that a new run starts from; NULL: random */
	char base[40];		       /* identifies a base or reference (init_name_base); empty: none */
	struct dt_schedule file_sched; /* --schedule-file */

	struct dt_world *world;
	struct dt_world_info info;
	struct dt_mesh mesh;
	struct dt_mesh everyone; /* all ranks, for use before the layout has been checked */
	const struct dt_log *log;
	struct dt_log root_log; /* logs on rank 0 only */

	struct dt_params table;
	struct dt_local local;
	struct dt_memory_plan plan;
	struct dt_draws draws; /* memory outside the plan, for sampling answers */

	int turn; /* this rank's number among the machine's ranks, which share out CUDA devices in turn */
	struct dt_dev *dev;
	struct dt_exec exec;
	struct dt_arena arena;	    /* on the device */
	struct dt_arena host[12];   /* with a CUDA device: buffers that the CPU works on, */
	enum dt_buf_id host_id[12]; /* and which buffer of the plan each is */
	int nhost;
	struct dt_comm_card card;   /* the CUDA device, as comm/ sees it */
	void *stage[2];		    /* with a CUDA device: pinned host buffers for copies */
	struct dt_event *staged[2]; /* the last copy through each buffer */
	bool staged_said;	    /* it has been logged that messages are staged in host memory */

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
	double inject_begun; /* when the step or part under way began */
	int born;	     /* this process's rank in the first epoch of an elastic run */
	char *carried;	     /* elastic run with CUDA devices: host copy of the state (DT_B_CARRIED) */

	struct step_times t;
	bool agreed; /* every rank knows of the failure, and ends by itself */
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

/* Whether ranks take the step under way without reducing gradients (--sync local, diloco, gossip). */
static inline bool outer_alone(const struct trainer *t)
{
	return dt_run_alone(&t->run) && t->loop.step >= t->run.sync.from;
}

/* Whether the run trains on images of a data set. */
static inline bool trainer_images(const struct trainer *t)
{
	return t->source.images.data && !t->source.given.g;
}

/* Whether it trains on texts with labels. */
static inline bool trainer_labels(const struct trainer *t)
{
	return t->source.labelled.data && !t->source.given.g;
}

/* Whether an evaluation counts samples whose class, or side of a score of 1/2, is right. */
static inline bool trainer_classifies(const struct trainer *t)
{
	return trainer_images(t) || (trainer_labels(t) && t->config.label_loss != DT_CLASS_LOSS_MSE);
}

/* Which of the dp parts of a round of microbatches this rank computes in the step under way. */
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

/* loop.c: once the state is there, opens what needs it: answers, the folder, metrics */
int trainer_begin(struct trainer *t, struct dt_err *err);
/* Logs a description of the run: model, layout, batch, memory. */
void trainer_announce(struct trainer *t);
/* Logs the gradient noise scale at the end, if it is known. */
void trainer_say_noise(const struct trainer *t);

/*
 * agree.c: combines rc of all ranks, so that all stop together. The lowest failing rank keeps its message;
 * the others get -ECANCELED with an empty one, which is not printed.
 */
int trainer_agree(struct trainer *t, int rc, struct dt_err *err);

/*
 * room.c: -ENOSPC unless memory and the folder of --offload-to have room for the plans of all ranks of a
 * machine, none of which is allocated yet. All ranks call it.
 */
int trainer_check_room(struct trainer *t, struct dt_err *err);

/* device.c; device_choose: assigns CUDA devices to the ranks of an elastic run. Collective */
int device_choose(struct trainer *t, struct dt_err *err);
int device_open(struct trainer *t, int nthreads, struct dt_err *err);
int arena_open(struct trainer *t, struct dt_err *err);
void arena_close(struct trainer *t);
void arena_lend(struct trainer *t);	      /* scratch of the plan to the device */
uint64_t arena_lent(const struct trainer *t); /* what operations have taken of it, as a plan counts */
void arena_leave(struct trainer *t);	      /* frees the CUDA device's memory alone */
bool arena_has(const struct trainer *t, const void *p); /* whether p is in the arena's device memory */
/*
 * A buffer of the plan that the CPU works on: in the arena, or with a CUDA device in zeroed host memory.
 * NULL: the plan has no such buffer.
 */
int host_buffer(struct trainer *t, enum dt_buf_id id, void *ret, struct dt_err *err);
/* The address of a buffer, in the arena or from host_buffer; NULL: there is none. */
void *buffer_at(const struct trainer *t, enum dt_buf_id id);
/* Copies between host memory and the arena of a device that the host cannot access; complete on return. */
int device_put(struct trainer *t, void *to, const void *from, size_t n, struct dt_err *err);
int device_get(struct trainer *t, void *to, const void *from, size_t n, struct dt_err *err);
/* Copies from host memory to the arena, wherever that is. */
int state_put(struct trainer *t, void *to, const void *from, size_t n, struct dt_err *err);
/* Writes the initial values of elements [first, first + n) of a parameter to the arena. */
int device_init_param(struct trainer *t, const struct dt_local_param *lp, int64_t first, int64_t n, float *to,
		      struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
