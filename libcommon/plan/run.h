/*
 * A training run: everything that defines it, in one struct. The option table (plan/run_options.h) fills it,
 * the memory plan, the step time and the trainer read it, the checkpoint's manifest stores it. A program that
 * asks about a run it does not start (dt-memest, dt-plan) leaves the groups at the end alone.
 */
#ifndef DT_PLAN_RUN_H
#define DT_PLAN_RUN_H

#include "base/opt.h"
#include "kernels/class_loss.h"
#include "kernels/dtype.h"
#include "kernels/optim.h"
#include "kernels/quant_formats.h"
#include "model/program.h"
#include "model/recompute.h"
#include "plan/compress.h"
#include "plan/layout.h"
#include "plan/lr.h"
#include "plan/ramp.h"
#include "plan/run_parts.h"
#include "plan/schedule.h"
#include "plan/shares.h"

#include <string.h>

#define DT_BN_MOMENTUM 0.1 /* PyTorch's of running statistics */

/* Losses of labels; after auto enum dt_class_loss. auto: the model's own, else mse of one label, else ce. */
#define DT_RUN_LABEL_LOSS_CHOICES "auto|" DT_CLASS_LOSSES

struct dt_run {
	/* The model, and the ranks it is cut over. */
	const char *model; /* as asked for: preset, config.json or checkpoint */
	enum dt_run_init init;
	const struct dt_config *config; /* not owned */
	struct dt_run_lora lora;
	const char *freeze;	  /* parameters that are not trained (model/freeze.h); NULL: none */
	const char *rope_scaling; /* "yarn:4": positions are stretched; NULL: as the model has them */
	int64_t vocab;		  /* tokens of a model without weights; 0: its own number */
	struct dt_layout layout;
	enum dt_pipeline pipeline;	    /* where pp > 1 */
	const struct dt_schedule *schedule; /* read from a file: instead of the pipeline's. Not owned; else
					       NULL */
	const char *schedule_file;

	/* The batch, in samples of seq tokens. global_batch = microbatch x accumulation x dp. */
	int64_t microbatch, seq;
	int64_t global_batch; /* of a step, over all ranks; 0: by accumulation */
	struct dt_ramp ramp;  /* it grows: until training begins it is that of the end */
	int64_t accumulation; /* microbatches a step; 0: by global_batch; 1 where that is 0 too */
	int64_t steps;
	int64_t stop_at; /* this run ends here already, with the course of all steps; 0: it does not */
	enum dt_run_documents documents; /* the trainer settles auto by the data set; else that is joined */

	/* Numbers. */
	enum dt_dtype compute;	 /* f32, bf16 or f16 */
	bool fp8;		 /* the linears of layers are computed in 8 bits */
	bool no_master;		 /* bf16: the weights are all there is, rounded at random */
	int qat;		 /* of DT_QAT_CHOICES: what matrices are rounded to for the products */
	bool reproducible;	 /* gradients are summed as integers: the order of sums does not matter */
	double loss_scale;	 /* of the loss before backward; 0: dynamic */
	double loss_scale_start; /* of a dynamic one */

	/* The update. */
	struct dt_optim optim; /* kind, betas, eps, weight decay */
	struct dt_lr lr;
	const char *no_decay;	  /* parameters without weight decay (dt_run_decay); NULL: norms and biases */
	bool momentum_correction; /* velocities that hold the rate follow it where it changes */
	double layer_decay;	  /* a layer's learning rate over that of the layer above; 0, 1: the same */
	const char *lr_scale; /* "REGEX:X[,REGEX:X...]": rates of parameters (dt_run_rates); NULL: one rate */
	const char *scale_lr; /* "linear:B" or "sqrt:B": lr is that of a batch of B; NULL: as it is */
	struct dt_run_sync sync;
	const char *shares; /* DT_SHARES: microbatches of the ranks; NULL: equal */
	double ema;	    /* of the averaged weights: what is kept of them a step; 0: none */
	int64_t mtp_layers; /* modules for further tokens that are trained, 0 or 1 */
	double mtp_weight;  /* weight of their loss */
	double mask_share;  /* of an encoder's tokens, that are predicted; 0: 15 % */
	int64_t mask_token; /* what stands in their place; 0: the model's */
	int64_t labels;	    /* classes of a text that an encoder learns, 1: a score; 0: the model's head */
	int label_loss;	    /* DT_RUN_LABEL_LOSS_CHOICES */
	double neftune;	    /* alpha of the noise on embeddings; 0: none */
	double label_smoothing; /* of a classifier's targets */
	double bn_momentum;	/* share of a step's statistics in running ones; 0: DT_BN_MOMENTUM */
	int64_t bn_span;	/* images a batch norm is over: DT_BN_DP, DT_BN_RANK, or so many */
	bool noise_scale;	/* the gradient noise scale is measured */
	double clip;		/* largest gradient norm; 0: off */

	struct dt_run_objective objective;
	struct dt_run_teacher teacher;
	struct dt_run_mixture mixture; /* where the model has experts */

	/* Memory and messages. */
	struct dt_keep recompute;
	const char *ops;    /* times of operations from dt-calibrate, by which auto weighs; NULL: rooflines */
	int64_t loss_chunk; /* rows of logits at a time; 0: chosen */
	enum dt_dtype grad_comm; /* f32 or bf16: how gradients travel where they are not compressed */
	struct dt_run_compress compress;
	enum dt_cp_comm cp_comm; /* auto: dt_context_comm */
	int stream_overlap;	 /* enum dt_run_overlap */
	struct dt_run_offload offload;
	double bucket_bytes; /* gradients are reduced in buckets of about this size */

	struct dt_run_rl rl;
	struct dt_run_data data;
	struct dt_run_image image;
	struct dt_run_save save;
	struct dt_run_watch watch;

	/* The processes. */
	const char *device;  /* "cpu", "cuda", "cuda:N" or "auto"; NULL: the CPU */
	bool on_card;	     /* whether that is not the host */
	int64_t threads;     /* a rank; 0: cores over the ranks of this machine */
	uint64_t mem_limit;  /* bytes the plan may use; 0: no limit */
	const char *metrics; /* file, or "-"; NULL: none */
	enum dt_run_progress progress;
	const char *error_file;	 /* where a failure is written as JSON too; NULL: nowhere */
	const char *trace;	 /* a file of what ran and when; NULL: none */
	const char *tensorboard; /* folder of event files; NULL: none */
	const char *prometheus;	 /* page for a collector; NULL: none */
	int64_t details; /* every so many steps a line has norms of units and times of ranks; 0: none */
	bool extremes;	 /* lines with details have the largest activations of units too */
	bool measure_mfu;
	struct dt_scratch_on scratch; /* the device of the plan's scratch; threads 0: it has none */
	const struct dt_strs *inject; /* faults to be made; NULL: none. Not owned */
};

/*
 * Gives a description that was just loaded the adapters of the run, and what it freezes. -EINVAL where they
 * mean nothing.
 */
int dt_run_adapt(const struct dt_run *r, struct dt_config *c, struct dt_err *err);

/* Sets decay of each parameter as --no-decay says. -EINVAL where that is no expression or names nothing. */
int dt_run_decay(const struct dt_run *r, struct dt_params *p, struct dt_err *err);

/* Sets rate of each parameter as --lr-scale says. -EINVAL where that cannot be read or names nothing. */
int dt_run_rates(const struct dt_run *r, struct dt_params *p, struct dt_err *err);

/*
 * Works out what follows from the rest: seq where it is 0 and there is a model, global_batch and accumulation
 * from one another, one sample at a time where the run is reproducible. Settling twice changes nothing.
 * -EINVAL where the global batch is not a multiple of microbatch x dp, unless ranks may come and go: then the
 * last microbatch of some ranks is in part, or as a whole, of nothing.
 */
int dt_run_settle(struct dt_run *r, struct dt_err *err);

/*
 * A settled run whose batch grows, at the step that begins with this sample: global_batch, accumulation and
 * the scale of the rate. Without a ramp nothing changes.
 */
void dt_run_batch_at(struct dt_run *r, int64_t sample);

/*
 * Refuses a run that the trainer cannot do: -EINVAL for what contradicts itself or the model, -ENOTSUP for
 * what this version does not compute, -ERANGE for what is too large. The only place that refuses a
 * combination.
 */
int dt_run_check(const struct dt_run *r, struct dt_err *err);
/* Of that: what is offloaded to a host's memory is a card's. */
int dt_run_check_host(const struct dt_run *r, struct dt_err *err);
/* The length of a sample: an image is one, and a text ends at the model's last position. */
int dt_run_check_seq(const struct dt_run *r, struct dt_err *err);

/*
 * Whether scored answers are compared with a reference, the model that the run started from: the model
 * without its adapters, or, where all is trained, a copy of those weights.
 */
bool dt_run_asks_reference(const struct dt_run *r);
bool dt_run_reference_weights(const struct dt_run *r);

/* Whether ranks send their gradients to parameter servers (train/servers.h). */
static inline bool dt_run_served(const struct dt_run *r)
{
	return r->sync.kind >= DT_SYNC_SSP;
}

/* Whether by messages. A plan for no particular machine assumes shared memory. */
static inline bool dt_run_served_by_messages(const struct dt_run *r)
{
	return dt_run_served(r) && r->sync.over == DT_SERVER_MESSAGES && r->layout.dp > 1;
}

/* Whether there are f32 master weights beside the compute weights. */
static inline bool dt_run_masters(const struct dt_run *r)
{
	return r->qat || (r->compute != DT_F32 && !r->no_master) || dt_run_served(r);
}
/* Tokens of a sample that an encoder learns to predict. */
static inline int64_t dt_run_masked(const struct dt_run *r)
{
	const double share = r->mask_share > 0 ? r->mask_share : 0.15;
	const int64_t n = (int64_t)(share * (double)r->seq + 0.5);

	return n < 1 ? 1 : n < r->seq ? n : r->seq;
}
/* The format of r->qat, of which there is one. */
enum dt_format dt_run_qat(const struct dt_run *r);

/* Whether weights are offloaded, and read unit by unit to compute. */
static inline bool dt_run_streams(const struct dt_run *r)
{
	return r->offload.what & DT_OFFLOAD_WEIGHTS;
}
/*
 * Whether tiles of optimizer states are updated while backward computes the layers below. Requires that the
 * gradients' scale does not depend on their norm, and that no check at the end of backward can skip the
 * update.
 */
bool dt_run_updates_behind(const struct dt_run *r);
/* Whether a rank keeps only its share of the weights, and units are gathered to compute. */
static inline bool dt_run_cuts_weights(const struct dt_run *r)
{
	return r->layout.zero >= 3 || (r->layout.zero && dt_run_streams(r));
}

/* The table of the run's pipeline (1 stage: trivial). */
int dt_run_schedule(const struct dt_run *r, struct dt_schedule *ret, struct dt_err *err);
/* The same with the actions of only one stage, which is cheaper: pipelines can have millions of actions. */
int dt_run_stage_schedule(const struct dt_run *r, int stage, struct dt_schedule *ret, struct dt_err *err);

/* Reads schedule_file, where there is one, into ret, which r then points to. r is settled. */
int dt_run_read_schedule(struct dt_run *r, struct dt_schedule *ret, struct dt_err *err);

/* Whether products overlap with the sequence-parallel gathers and scatters of the residual stream. */
static inline bool dt_run_overlaps_stream(const struct dt_run *r)
{
	return r->layout.seq_parallel && r->layout.tp > 1 &&
	       (r->stream_overlap == DT_RUN_OVERLAP_ON ||
		(r->stream_overlap == DT_RUN_OVERLAP_AUTO && !r->on_card));
}

/* Whether backward is split into input and weight gradients. */
static inline bool dt_run_splits(const struct dt_run *r)
{
	if (r->layout.pp == 1)
		return false;
	return r->schedule ? r->schedule->split : r->pipeline == DT_PIPE_ZB_H1;
}

/* Whether the update leaves its direction in the place of the gradient. */
static inline bool dt_run_overwrites_grads(const struct dt_run *r)
{
	return dt_optim_rule(r->optim.kind)->flags & (DT_OPTIM_DIRECTION | DT_OPTIM_FACTORED);
}

/* Whether update directions need a buffer of their own, because checkpoints store the gradients. */
static inline bool dt_run_parts_directions(const struct dt_run *r)
{
	return r->save.grads && dt_run_overwrites_grads(r);
}

/* Kinds of values (weights, moments, gradients) an asynchronous checkpoint copies in host memory; 0: none. */
static inline int dt_run_snapshot_kinds(const struct dt_run *r)
{
	return r->save.async && !r->on_card ? 1 + dt_optim_states(r->optim.kind) + r->save.grads +
						      (r->sync.kind == DT_SYNC_DILOCO) + (r->ema > 0)
					    : 0;
}

/* Groups of images in a microbatch that batch norms are over, and ranks that one is over. */
static inline int64_t dt_run_bn_groups(const struct dt_run *r)
{
	return r->bn_span > 0 && r->bn_span < r->microbatch ? r->microbatch / r->bn_span : 1;
}
static inline int dt_run_bn_ranks(const struct dt_run *r)
{
	if (r->bn_span == DT_BN_DP)
		return r->layout.dp;
	return r->bn_span > r->microbatch ? (int)(r->bn_span / r->microbatch) : 1;
}
/* Whether ranks take steps without synchronizing, each with its own weights (local, diloco, gossip). */
static inline bool dt_run_alone(const struct dt_run *r)
{
	return r->sync.kind > DT_SYNC_ALL && r->sync.kind < DT_SYNC_BACKUP;
}

static inline bool dt_run_apart(const struct dt_run *r)
{
	return r->documents == DT_RUN_DOCUMENTS_APART;
}

/* Whether data-parallel ranks compute unequal numbers of microbatches. */
static inline bool dt_run_unequal(const struct dt_run *r)
{
	return r->shares && strcmp(r->shares, "equal") != 0 && r->layout.dp > 1;
}

/* Whether gradients are compressed; not with one data-parallel rank. */
static inline bool dt_run_compresses(const struct dt_run *r)
{
	return r->compress.on && r->layout.dp > 1;
}

/* Whether a rank keeps a copy of the previous rank's states; not with one data-parallel rank. */
static inline bool dt_run_copies_peer(const struct dt_run *r)
{
	return r->watch.peer_copy && r->layout.zero && r->layout.dp > 1;
}

/* Tokens of a sequence that are on one rank. */
static inline int64_t dt_run_local_seq(const struct dt_run *r)
{
	return r->seq / r->layout.cp;
}

/* Microbatches a step. */
static inline int64_t dt_run_accumulation(const struct dt_run *r)
{
	return r->accumulation > 0 ? r->accumulation : 1;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
