/*
 * Groups of the description of a run (run.h): each is what one section of the option table fills, with the
 * names of its choices.
 */
#ifndef DT_PLAN_RUN_PARTS_H
#define DT_PLAN_RUN_PARTS_H

#include "base/opt.h"
#include "kernels/quant_formats.h"
#include "plan/compress.h"

/* A batch norm is over all data-parallel ranks' images of a microbatch; over one rank's. */
enum { DT_BN_DP = 0, DT_BN_RANK = -1 };

/* Where a new run's weights come from: what `model` names where that holds some (auto), or a draw. */
enum dt_run_init { DT_RUN_INIT_AUTO, DT_RUN_INIT_RANDOM, DT_RUN_INIT_WEIGHTS };
#define DT_RUN_INIT_CHOICES "auto|random|weights"

/* How far a run is, for people, on standard error: one line drawn over and over, or a new one each time. */
enum dt_run_progress { DT_RUN_PROGRESS_AUTO, DT_RUN_PROGRESS_LINE, DT_RUN_PROGRESS_LOG, DT_RUN_PROGRESS_OFF };
#define DT_RUN_PROGRESS_CHOICES "auto|line|log|off"

/* Whether attention, positions and targets stay inside a document: as the data set keeps them (auto). */
enum dt_run_documents { DT_RUN_DOCUMENTS_AUTO, DT_RUN_DOCUMENTS_JOINED, DT_RUN_DOCUMENTS_APART };
#define DT_RUN_DOCUMENTS_CHOICES "auto|joined|apart"

/* Where data is: in device memory, in host memory beside a CUDA device, in a file. */
enum dt_place { DT_PLACE_DEVICE, DT_PLACE_HOST, DT_PLACE_DISK, DT_PLACE_N };
#define DT_PLACE_CHOICES "device|host|disk"

/* What may be offloaded; a bit set. */
enum {
	DT_OFFLOAD_OPTIMIZER = 1, /* states, and master weights where there are some */
	DT_OFFLOAD_WEIGHTS = 2,
	DT_OFFLOAD_ACTIVATIONS = 4,
};

struct dt_run_offload {
	const char *what_text, *to_text; /* as they were asked for; NULL: not */
	unsigned what;			 /* DT_OFFLOAD_* */
	enum dt_place to;		 /* host or disk */
	const char *dir;		 /* of disk; NULL: no folder is named, which is enough for a plan */
	double fraction;		 /* the fraction that is offloaded; the rest stays */
	double stay; /* of layers whose activations could be offloaded, the fraction that is not */
	double gbs;  /* 1e9 bytes a second of a machine's disk, read and written together; 0: the usual */
	int cores;   /* of a machine, for the choice between these and computing again; 0: this one's */
};

/* Reinforcement learning: the source of scored answers, and how they are learnt from. */
struct dt_run_rl {
	const char *rollouts;	 /* file of dt-rollout; NULL: none */
	const char *task;	 /* the task that prompts are of; NULL: none */
	const char *reward;	 /* command that scores answers; NULL: the task does */
	int64_t batch;		 /* prompts per step */
	int64_t group;		 /* answers per prompt */
	int64_t answer;		 /* maximum tokens of an answer */
	int64_t refresh;	 /* steps for which one set of weights samples */
	bool overlap;		 /* sample the answers of the next step during a step */
	int64_t actors;		 /* sampling processes per rank; 0: the rank samples itself */
	int64_t stale;		 /* maximum number of steps that they are ahead; 0: none */
	int64_t piece;		 /* tokens after which an answer continues with newer weights; 0: never */
	int64_t refill;		 /* rounds of further prompts in place of groups without variance */
	int kl;			 /* estimator of the divergence from the reference: enum dt_kl */
	int kl_in;		 /* 0: beta times it is a term of the loss, 1: of the reward */
	double discount, lambda; /* of rewards; of the traces that advantages are made of */
	double value_coef;	 /* of the loss of values */
	double low, high, ratio; /* of the clip, and the largest ratio; < 0: as the objective has them */
};

struct dt_run_data {
	const char *train, *eval; /* data sets; eval NULL: no evaluation */
	uint64_t seed;		  /* of initial weights, data order and random rounding */
	int64_t eval_every;	  /* steps; 0: only at the end */
	int64_t eval_tokens;	  /* of one evaluation at most; 0: the whole set */
};

/* Of classifiers of images. */
struct dt_run_image {
	int64_t size;	       /* side of a sample; 0: the data's, or the model's */
	const char *crop;      /* "none", "pad:N", "pad:N:reflect", "resized" or "resized:LEAST" */
	const char *normalize; /* "auto", "data", or a data set with published mean and deviation */
	bool flip, flip_alternate;
	int64_t cutout;	      /* side of the square that is cut out; 0: none */
	double mixup, cutmix; /* alpha of the share's distribution; 0: none */
	int64_t workers;      /* threads that decode; 0: the rank's own, when it asks */
	bool new_head;	      /* the last layer is drawn, with the data's classes */
};

struct dt_run_save {
	const char *dir;    /* root folder of checkpoints; NULL: none are written */
	const char *resume; /* NULL, "auto", or a checkpoint */
	const struct dt_strs
		*accept;	  /* options that may differ from those of resume; NULL: none. Not owned */
	int64_t every;		  /* steps; 0: only at the end */
	int64_t keep, keep_every; /* newest ones; and steps that are multiples of this (0: no) */
	bool async;		  /* write while training goes on, from a copy in memory */
	bool overwrite;		  /* dir may hold the checkpoints of another run */
	bool proceed;		  /* a checkpoint that cannot be written does not end the run */
	bool compress;
	bool grads; /* checkpoints also have the step's gradients, grad/NAME */
};

/* Whose choices are counted for the loss that balances experts; see kernels/moe.h. */
enum dt_over { DT_OVER_SEQUENCE, DT_OVER_MICROBATCH, DT_OVER_BATCH };
#define DT_OVER_CHOICES "sequence|microbatch|batch"

struct dt_run_mixture {
	double balance;	   /* of the loss that balances experts; 0: none */
	enum dt_over over; /* the batch: over all ranks, and the step's microbatches so far */
	double z;	   /* of the squared log-sum-exp of the router's scores; 0: none */
	double bias_rate;  /* by which biases of the choice move a step; 0: they stay */
	double capacity;   /* choices an expert takes, over an even share of them; 0: all */
	bool in_turn;	   /* nothing is computed while experts' rows are exchanged */
};

/* Whether products go beside the messages of a stream that is cut (s1); auto: on the processor. */
enum dt_run_overlap { DT_RUN_OVERLAP_AUTO, DT_RUN_OVERLAP_ON, DT_RUN_OVERLAP_OFF };
#define DT_RUN_OVERLAP_CHOICES "auto|on|off"

/* Steps unlike those before them (train/spike.h). */
enum dt_run_on_spike { DT_RUN_SPIKE_IGNORE, DT_RUN_SPIKE_SKIP, DT_RUN_SPIKE_ROLLBACK, DT_RUN_SPIKE_STOP };

#define DT_RUN_ELASTIC_CHOICES "none|dp"
enum dt_run_elastic { DT_RUN_ELASTIC_NONE, DT_RUN_ELASTIC_DP }; /* which axis may lose and gain ranks */

struct dt_run_watch {
	const char *on_spike_text; /* "ignore", "skip", "rollback:STEPS" or "stop" */
	enum dt_run_on_spike on_spike;
	int64_t back;	   /* steps, of a rollback */
	int64_t window;	   /* accepted steps that a step is compared with */
	double factor;	   /* of their spread that it may be above the median */
	int64_t nan_skips; /* steps in a row that may be not finite */
	bool find_nan;	   /* every value is looked at, and the first that is not finite is named */
	int64_t replicas;  /* every so many steps replicas are compared; 0: never */
	int elastic;	   /* enum dt_run_elastic */
	int64_t peer_copy; /* 1: the next rank keeps a copy of a rank's ZeRO states */
};

/* Adapters, as they were asked for; they become part of the model's description (dt_run_adapt). */
struct dt_run_lora {
	int64_t rank; /* 0: none */
	double alpha, dropout;
	int kind; /* enum dt_lora_kind */
	int base; /* enum dt_block_kind */
	bool dora;
	const char *targets, *modules_to_save;
};

/* What is minimised (plan/objective.h). */
struct dt_run_objective {
	int kind;
	double beta, gamma;    /* < 0: the objective's own, until the run is settled */
	double weight[2];      /* of bad and of good answers, of kto */
	const char *reference; /* file of the reference's log-probabilities; NULL: none */
};

/* Distillation: a divergence from a teacher beside the cross-entropy (kernels/distill.h). */
struct dt_run_teacher {
	const char *file; /* of dt-eval teacher; NULL: there is none */
	double weight;	  /* of the divergence; the cross-entropy has the rest of 1 */
	int64_t top_k;	  /* columns of a token; 0: as many as the file has, which the trainer settles */
};

/*
 * How data-parallel ranks are synchronized: every step; after many local steps; with neighbours; every step
 * without the slowest; or by parameter servers, to which each rank sends its gradients (train/servers.h).
 */
enum dt_sync {
	DT_SYNC_ALL,
	DT_SYNC_LOCAL,
	DT_SYNC_DILOCO,
	DT_SYNC_GOSSIP,
	DT_SYNC_BACKUP,
	DT_SYNC_SSP,
	DT_SYNC_ASYNC,
	DT_SYNC_HOGWILD,
};
#define DT_SYNC "all|local:H|diloco:H|gossip|backup:B|ssp:S|async|hogwild"
/* Most steps that a rank may be ahead of the slowest: sums of so many more are kept. */
#define DT_SYNC_AHEAD 64

struct dt_run_sync {
	const char *text; /* as asked for; NULL: all */
	enum dt_sync kind;
	int64_t every;	     /* steps between two merges */
	int64_t backup;	     /* backup: so many ranks of a step may be dropped */
	int64_t ahead;	     /* ssp: steps that a rank may be ahead of the slowest */
	int64_t servers;     /* ssp, async, hogwild: ranks that serve; 0: all along dp */
	int over;	     /* enum dt_server_comm: how servers are reached */
	bool slower;	     /* async, hogwild: the rate of a gradient is divided by its age */
	double compensation; /* of a gradient for what the weights moved since it was begun; 0: none */
	int64_t from;	     /* steps at the start that are synchronous */
	/* diloco: */
	double lr, momentum; /* of the outer step */
	int64_t fragments;   /* groups of units; each is merged in a step of its own */
	int64_t delay;	     /* steps that the reduction of a fragment may take */
	double mix;	     /* share of a rank's own weights in the merged ones */
	int comm;	     /* enum dt_outer_comm */
};

/* How gradients reach servers. AUTO: by memory that all ranks map, where there is such; else by messages. */
enum dt_server_comm { DT_SERVER_AUTO, DT_SERVER_MEMORY, DT_SERVER_MESSAGES };
#define DT_SERVER_COMM_CHOICES "auto|memory|messages"

/* What diloco's outer gradients are sent as. */
enum dt_outer_comm { DT_OUTER_F32, DT_OUTER_BF16, DT_OUTER_E3M0 };
#define DT_OUTER_COMM_CHOICES "fp32|bf16|e3m0"

/*
 * Quantisation-aware training (Jacob et al. 2018): products use matrices rounded to blocks, and their
 * gradients are applied to the masters as if nothing were rounded (straight-through estimator).
 */
#define DT_QAT_CHOICES "none" DT_BLOCK_CHOICES

#define DT_GRAD_COMM "fp32|bf16|int8|powersgd:R|topk:P|onebit|auto"
/* Gradient compression with error feedback. */
struct dt_run_compress {
	const char *text; /* all of --grad-comm, as asked for; NULL: fp32 */
	bool on, automatic;
	struct dt_compress_opts o;
};

#endif
/* SPDX-License-Identifier: Apache-2.0 */
