/*
 * The training loop: data, forward and backward over microbatches, reduction, clipping, optimizer,
 * evaluation, checkpoints, one JSON line a step.
 */
#ifndef DT_TRAIN_TRAIN_H
#define DT_TRAIN_TRAIN_H

#include "comm/comm.h"
#include "kernels/optim.h"
#include "plan/memory.h"
#include "train/lr.h"

struct dt_train_opts {
	const char *model; /* preset, config.json or checkpoint */
	const char *data, *eval_data;
	const char *layout;
	enum dt_pipeline pipeline;	       /* where pp > 1 */
	int chunks;			       /* of an interleaved pipeline; 0: as the layout says */
	int64_t seq, microbatch, global_batch; /* samples; global_batch 0: microbatch x dp */
	int64_t steps;
	struct dt_lr lr;
	struct dt_optim optim; /* kind, betas, eps, weight decay */
	double clip;	       /* gradient norm; 0: off */
	enum dt_dtype compute;
	bool fp8; /* linears of layers in 8 bits */
	struct dt_keep recompute;
	int64_t loss_chunk;
	uint64_t seed;
	const char *save;	  /* root folder of checkpoints; NULL: none */
	int64_t save_every;	  /* steps; 0: only at the end */
	int64_t keep, keep_every; /* newest ones; and steps that are multiples of this (0: no) */
	bool save_async;	  /* write while training goes on, from a copy */
	bool save_continue;	  /* a checkpoint that cannot be written does not end the run */
	bool compress;
	const char *resume;  /* NULL, "auto", or a checkpoint */
	const char *metrics; /* file, or "-" */
	int64_t eval_every, eval_tokens;
	const char *device;  /* "cpu", "cuda", "cuda:N" or "auto"; NULL: the CPU */
	int64_t threads;     /* 0: cores over the ranks of this machine */
	uint64_t mem_limit;  /* bytes the plan may use; 0: no limit */
	double bucket_bytes; /* gradients are reduced in buckets of about this size */
	bool measure_mfu;
	bool no_master;		   /* bf16 weights without f32 masters, rounded at random */
	enum dt_dtype grad_comm;   /* f32 or bf16: how gradients travel */
	bool reproducible;	   /* sums of gradients do not depend on the order, see train/fixed.c */
	const char *schedule_file; /* a pipeline's table; NULL: made by name */
	double loss_scale;	   /* of the loss before backward; 0: dynamic */
	double loss_scale_start;   /* of a dynamic one */
	bool save_grads;	   /* checkpoints also have the step's gradients, grad/NAME */
};

/* Trains. Returns an exit status (enum dt_exit); messages go to log, metrics to their file. */
int dt_train_run(const struct dt_train_opts *o, struct dt_world *w, const struct dt_log *log);

#endif
