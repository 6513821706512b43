/* The state of one rank of a run; private to train/. */
#ifndef DT_TRAIN_TRAINER_H
#define DT_TRAIN_TRAINER_H

#include "base/arena.h"
#include "base/json.h"
#include "data/dataset.h"
#include "nn/transformer.h"
#include "train/train.h"

struct bucket {			   /* consecutive units whose gradients are reduced together */
	int first_unit, last_unit; /* inclusive */
	int64_t flat, numel;
	int pending; /* units whose backward has not finished */
	struct dt_req *req;
	char what[32];
};

struct step_times { /* seconds of the step under way */
	double start, data, compute, comm_exposed, optimizer, checkpoint;
};

struct trainer {
	const struct dt_train_opts *o;
	struct dt_world *world;
	struct dt_world_info info;
	const struct dt_log *log;
	struct dt_log root_log; /* speaks on rank 0 only */

	struct dt_config config;
	struct dt_layout layout;
	struct dt_mesh mesh;
	struct dt_mesh everyone; /* all ranks, before the layout is known to be right */
	struct dt_params table;
	struct dt_local local;
	struct dt_memory_plan plan;
	struct dt_arena arena;
	struct dt_dev *dev;
	struct dt_model model;
	struct dt_pass pass;
	void *weights;
	float *master, *grads, *state[2]; /* flat; master is weights when compute is f32 */

	struct dt_dataset *data, *eval_data;
	struct dt_sampler sampler, eval_sampler;
	struct dt_dataset_info data_info;

	int64_t accumulation, global_batch;
	int64_t step, steps; /* done so far; to do in all */
	int64_t cursor;	     /* global sample number of the next step's first sample */
	int64_t tokens;	     /* trained on so far */
	double matmul_rate;  /* of all ranks together, flop/s */

	struct bucket *bucket;
	int nbucket;
	int *unit_bucket; /* bucket of each local unit */
	const char *bad;  /* first parameter whose gradient is not finite on this rank */
	struct step_times t;
	bool agreed; /* every rank knows of the failure and ends by itself */
	int status;  /* exit status of a failure */
	FILE *metrics;
};

/*
 * agree.c: rc of every rank becomes one verdict, so that all stop together. The lowest failing rank keeps its
 * message, the others get -ECANCELED with an empty one, which is not printed.
 */
int trainer_agree(struct trainer *t, int rc, struct dt_err *err);

/* setup.c */
int trainer_init(struct trainer *t, const struct dt_train_opts *o, struct dt_world *w,
		 const struct dt_log *log, struct dt_err *err);
void trainer_release(struct trainer *t);

/* batch.c: samples n .. n + microbatch - 1 of the sampler into ids and targets; rows past end are ignored
 * targets. */
int trainer_load(struct trainer *t, struct dt_sampler *s, int64_t n, int64_t end, struct dt_err *err);

/* step.c */
struct step_result {
	double loss, grad_norm, lr;
	bool stop; /* some rank was asked to stop */
};
int trainer_step(struct trainer *t, bool stop_asked, struct step_result *ret, struct dt_err *err);
int trainer_eval(struct trainer *t, double *ret_loss, int64_t *ret_tokens, struct dt_err *err);

/* reduce.c: data-parallel gradients in buckets, started as soon as backward has filled them */
int reduce_init(struct trainer *t, struct dt_err *err);
void reduce_begin(struct trainer *t);
/* Unit u of the local units is complete: checks it for NaN and Inf, starts its bucket when it was the last.
 */
int reduce_unit(struct trainer *t, int unit, struct dt_err *err);
int reduce_finish(struct trainer *t, struct dt_err *err);
void reduce_release(struct trainer *t);

/* update.c */
int grad_norm(struct trainer *t, double *ret, struct dt_err *err);
int update(struct trainer *t, double lr, double norm, struct dt_err *err);

/* save.c */
int trainer_save(struct trainer *t, struct dt_err *err);
/* 1: resumed, 0: nothing to resume from. */
int trainer_resume(struct trainer *t, struct dt_err *err);

/* metrics.c */
int metrics_open(struct trainer *t, struct dt_err *err);
int metrics_step(struct trainer *t, const struct step_result *r, struct dt_err *err);
int metrics_eval(struct trainer *t, double loss, int64_t tokens, double seconds, struct dt_err *err);
int metrics_close(struct trainer *t, struct dt_err *err);

#endif
