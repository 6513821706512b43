/* The state of one rank of a run; private to train/. */
#ifndef DT_TRAIN_TRAINER_H
#define DT_TRAIN_TRAINER_H

#include "base/arena.h"
#include "base/json.h"
#include "data/dataset.h"
#include "nn/exec.h"
#include "train/card.h"
#include "train/train.h"

enum { RUN_ID_LEN = 16 }; /* hexadecimal digits */

/*
 * A flat buffer of one value a parameter element. shared: it holds only this rank's share of every unit, one
 * dp-th each (ZeRO); else whole units.
 */
struct flat {
	char *p;
	enum dt_dtype dtype;
	bool shared;
};

/* One microbatch on its way through one chunk of the stage. */
struct flight {
	struct dt_flight f;
	int mb; /* -1: free */
	struct dt_comm_req *recv_grad, *send_out, *send_grad;
};

struct bucket {			   /* consecutive units whose gradients are reduced together */
	int first_unit, last_unit; /* inclusive */
	int64_t flat, numel;
	int pending; /* units whose backward has not finished */
	struct dt_comm_req *req;
	char what[32];
};

/* What ranks tell each other, by reason. */
enum traffic {
	TR_TENSOR,   /* inside layers, between tensor-parallel ranks */
	TR_PIPELINE, /* activations and their gradients between stages */
	TR_GRADS,
	TR_WEIGHTS, /* gathered for ZeRO */
	TR_OTHER,   /* loss, norm, signals */
	TR_N,
};

struct step_times { /* seconds of the step under way */
	double start, data, compute, optimizer, checkpoint;
	double comm[TR_N]; /* not hidden behind compute */
};

struct trainer {
	struct dt_run run; /* settled; its config and schedule are those below */
	struct dt_world *world;
	struct dt_world_info info;
	const struct dt_log *log;
	struct dt_log root_log; /* speaks on rank 0 only */

	struct dt_config config;
	struct dt_mesh mesh;
	struct dt_mesh everyone; /* all ranks, before the layout is known to be right */
	struct dt_params table;
	struct dt_local local;
	struct dt_memory_plan plan;
	struct dt_arena arena;	    /* on the device */
	struct dt_comm_card card;   /* its, where it is one */
	void *stage[2];		    /* where that is not the host's memory: pinned, for copies */
	struct dt_event *staged[2]; /* what used them is done */
	struct dt_dev *dev;
	struct dt_exec exec;
	struct flat weights, master, grads,
		state[2]; /* master is weights when compute is f32; p NULL: absent */
	struct flat wire; /* gradients as they travel, --grad-comm; p NULL: as they are */
	int64_t *fixed;	  /* --reproducible: sums of gradients in units of 2^-50, all units */

	void **unit_w; /* where each unit's weights and gradients are while it computes */
	float **unit_g;
	void **unit_wire;
	struct dt_comm *kv_group; /* ranks that hold the same key/value heads; NULL: each its own */

	struct dt_schedule sched, file_sched; /* file_sched: --schedule-file */
	struct flight *flight[DT_MAX_CHUNKS]; /* [plan.slots[chunk]] */
	int64_t done[DT_MAX_CHUNKS];	      /* microbatches whose gradients a chunk has added, this step */
	int64_t head_done;
	double loss_sum; /* of this rank, this step */

	struct dt_dataset *data, *eval_data;
	struct dt_sampler sampler, eval_sampler;
	struct dt_dataset_info data_info;

	int64_t step;			/* done so far */
	int64_t cursor;			/* global sample number of the next step's first sample */
	int64_t tokens;			/* trained on so far */
	double matmul_rate;		/* of all ranks together, flop/s */
	double sheet_rate;		/* likewise as the cards' data sheet has it; 0: not known */
	double peak_bytes;		/* of the rank whose plan is the largest */
	double cat_bytes[DT_MEM_CAT_N]; /* of that rank, by category at its peak */
	bool memory_said;		/* in the metrics */

	struct bucket *bucket; /* z0 */
	int nbucket;
	struct unit_state {
		int bucket;
		int64_t left;		 /* microbatches until the gradients are complete */
		bool begun, summed;	 /* z2: the share has a first microbatch's gradients */
		struct dt_comm_req *req; /* z1 and up: reduce-scatter */
	} * unit;
	int held[DT_UNIT_SLOTS];		   /* z3: which unit's weights a slot has, -1: none */
	struct dt_comm_req *gather[DT_UNIT_SLOTS]; /* z3: under way, for held */
	int grad_held[2];			   /* z2: which layer unit's gradients a slot has */
	const char *bad;      /* first parameter whose gradient is not finite on this rank */
	double loss_scale;    /* gradients are this much too large until the update */
	int64_t good_steps;   /* since the scale last changed */
	struct save_job *job; /* the checkpoint being written behind our back, NULL: none */
	struct step_times t;
	char run_id[RUN_ID_LEN + 1]; /* in every checkpoint and line of metrics */
	int lock;		     /* descriptor of the folder's lock, 0: none */
	bool agreed;		     /* every rank knows of the failure and ends by itself */
	int status;		     /* exit status of a failure */
	FILE *metrics;
};

/*
 * agree.c: rc of every rank becomes one verdict, so that all stop together. The lowest failing rank keeps its
 * message, the others get its code with an empty one, which is not printed.
 */
int trainer_agree(struct trainer *t, int rc, struct dt_err *err);

/* setup.c */
int trainer_init(struct trainer *t, const struct dt_run *r, struct dt_world *w, const struct dt_log *log,
		 struct dt_err *err);
void trainer_release(struct trainer *t);
/* In which the products are that MFU is measured by. */
enum dt_dtype trainer_rate_type(const struct trainer *t);

/* device.c */
int device_open(struct trainer *t, int nthreads, struct dt_err *err);
int arena_open(struct trainer *t, struct dt_err *err);
void arena_close(struct trainer *t);
/* Between the host and the arena of a device that the host cannot reach; done when they return. */
int device_put(struct trainer *t, void *to, const void *from, size_t n, struct dt_err *err);
int device_get(struct trainer *t, void *to, const void *from, size_t n, struct dt_err *err);
/* Initial values of elements [first, first + n) of a parameter, to the arena. */
int device_init_param(struct trainer *t, const struct dt_local_param *lp, int64_t first, int64_t n, float *to,
		      struct dt_err *err);

/* units.c: where a unit's values are, and bringing weights together (z3) */
int units_bind(struct trainer *t, struct dt_err *err);
void units_release(struct trainer *t);
/* This rank's share of unit u: elements [first, first + n) of the unit; without ZeRO the whole. */
int64_t share_first(const struct trainer *t, int u);
int64_t share_n(const struct trainer *t, int u);
/* Address of element i of unit u, which must be in the share of a shared buffer. */
void *flat_at(const struct trainer *t, const struct flat *f, int u, int64_t i);
/* This rank's share of the reduced gradients of unit u. */
float *grad_share(const struct trainer *t, int u);
int units_gather(struct trainer *t, int u, bool backward, struct dt_err *err);
/* Weights from this rank's share of the masters, and from the other ranks'. */
int units_publish(struct trainer *t, struct dt_err *err);

/* batch.c: samples n .. n + microbatch - 1 of the sampler into p; rows past end are ignored targets. */
int trainer_load(struct trainer *t, const struct dt_flight *f, struct dt_sampler *s, int64_t n, int64_t end,
		 struct dt_err *err);

/* pipeline.c: the schedule of one step, or the forward pass of one evaluation microbatch */
int pipeline_init(struct trainer *t, struct dt_err *err);
int pipeline_step(struct trainer *t, float scale, struct dt_err *err);
int pipeline_eval(struct trainer *t, int64_t first, int64_t end, double *loss_sum, struct dt_err *err);
void pipeline_release(struct trainer *t);

/* step.c */
struct step_result {
	double loss, grad_norm, lr, loss_scale;
	bool skipped; /* gradients overflowed under the loss scale: no update */
	bool stop;    /* some rank was asked to stop */
};
int trainer_step(struct trainer *t, bool stop_asked, struct step_result *ret, struct dt_err *err);
int trainer_eval(struct trainer *t, double *ret_loss, int64_t *ret_tokens, struct dt_err *err);

/* reduce.c: gradients over the data-parallel ranks, started as soon as backward has completed them */
int reduce_init(struct trainer *t, struct dt_err *err);
int reduce_begin(struct trainer *t, struct dt_err *err);
/* Before backward of a unit: z2 takes a slot for its gradients. */
int reduce_before(struct trainer *t, int unit, struct dt_err *err);
/* After it: checks for NaN and Inf, starts what is complete. */
int reduce_after(struct trainer *t, int unit, struct dt_err *err);
int reduce_finish(struct trainer *t, struct dt_err *err);
/* Whether this rank's stage is the one with the embedding, or with the head. */
static inline bool holds_embed(const struct trainer *t)
{
	return t->mesh.at.pp == 0;
}
static inline bool holds_head(const struct trainer *t)
{
	return t->mesh.at.pp == t->run.layout.pp - 1;
}
/* The gradient of the embedding, or of its copy on a last stage that is not the first. */
struct dt_tensor *embed_grad(const struct trainer *t);
/* Whether the unit holds one of the two copies of an embedding tied across stages. */
bool tied_apart(const struct trainer *t, int u);
void reduce_release(struct trainer *t);

/* fixed.c: gradients of each sample in fixed point, so that their sum does not depend on any order */
int fixed_begin(struct trainer *t, struct dt_err *err);
/* Adds the f32 gradients of a unit; last: it is complete, its sum over the data-parallel ranks starts. */
int fixed_add(struct trainer *t, int unit, bool last, struct dt_err *err);
/* After the head's backward, where the embedding it is tied to lies in another unit. */
int fixed_add_head(struct trainer *t, struct dt_err *err);
int fixed_finish(struct trainer *t, struct dt_err *err);
/* value, rounded so that sums of such values are exact in any order when the run is reproducible. */
double loss_part(const struct trainer *t, double value);

/* replicas.c: parameters that several tensor-parallel ranks hold */
int replicas_init(struct trainer *t, struct dt_err *err);
/* Adds up the gradients of a unit of which each tensor-parallel rank has only its rows' or its heads' part.
 */
int replicas_sum(struct trainer *t, int unit, struct dt_err *err);
/* Whether this rank is the one that counts, writes and norms parameter lp (replicas do not). */
bool counts(const struct trainer *t, const struct dt_local_param *lp);

/* round.c: bf16 weights without masters. Elements [first, first + n) of parameter lp. */
int round_init(struct trainer *t, const struct dt_local_param *lp, int64_t first, int64_t n,
	       struct dt_err *err);
int round_update(struct trainer *t, const struct dt_local_param *lp, const struct dt_optim *o, int64_t first,
		 int64_t n, struct dt_err *err);

/* update.c */
/* Elements [first, first + n) of unit u in a flat buffer; DT_NONE where the run has no such buffer. */
struct dt_tensor flat_part(const struct trainer *t, const struct flat *f, int u, int64_t first, int64_t n);
/* The reduced gradients of the same; they must be in this rank's share. */
struct dt_tensor grad_part(const struct trainer *t, int u, int64_t first, int64_t n);
int grad_norm(struct trainer *t, double *ret, struct dt_err *err);
int update(struct trainer *t, double lr, double norm, struct dt_err *err);

/*
 * save.c: final: the run ends after it, so it is waited for and its failure is one of the run. Otherwise what
 * fails is reported and forgotten where --save-errors says so.
 */
int trainer_save(struct trainer *t, bool final, struct dt_err *err);
/* Takes an asynchronous checkpoint further where all ranks can; wait: to its end. Every rank calls it. */
int trainer_drain(struct trainer *t, bool wait, struct dt_err *err);
/* Before parameters and states change: saves from that what a checkpoint on its way has not written. */
void trainer_before_update(struct trainer *t);
/* After a failure elsewhere: waits for this rank's writer, and drops the checkpoint. */
void trainer_drop_save(struct trainer *t);
/* 1: resumed, 0: nothing to resume from. */
int trainer_resume(struct trainer *t, struct dt_err *err);

/* folder.c: the folder of --save */
/* Refuses a folder with the checkpoints of another run, unless the run goes on from there or --overwrite. */
int folder_check(struct trainer *t, struct dt_err *err);
/* From now on no other job saves there. The run's name, new or that of the checkpoint it goes on from. */
int folder_lock(struct trainer *t, struct dt_err *err);
void folder_release(struct trainer *t);

/* metrics.c */
int metrics_open(struct trainer *t, struct dt_err *err);
int metrics_step(struct trainer *t, const struct step_result *r, struct dt_err *err);
int metrics_eval(struct trainer *t, double loss, int64_t tokens, double seconds, struct dt_err *err);
int metrics_close(struct trainer *t, struct dt_err *err);

#endif
