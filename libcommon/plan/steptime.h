/*
 * How long a training step takes: every node of the program by its roofline (max of arithmetic and memory)
 * or as measured, collectives by the links their group spans, the pipeline by running its schedule table on
 * paper.
 *
 *   operation  max(flops / (peak x efficiency), bytes / (bandwidth x efficiency)) + a fixed cost
 *   step       makespan of the schedule + what of the data-parallel traffic backward does not hide +
 * optimizer
 */
#ifndef DT_PLAN_STEPTIME_H
#define DT_PLAN_STEPTIME_H

#include "plan/cluster.h"
#include "plan/memory.h"
#include "plan/work.h"

enum dt_bound { DT_BOUND_COMPUTE, DT_BOUND_MEMORY, DT_BOUND_NETWORK, DT_BOUND_LATENCY };
#define DT_BOUND_CHOICES "compute|memory|network|latency"

struct dt_stack {	   /* properties of the training program */
	bool scores;	   /* attention writes its seq x seq scores; selective recomputes these alone */
	bool tp_hidden;	   /* tensor-parallel traffic of backward overlaps with weight gradients */
	bool shares;	   /* data-parallel ranks may compute unequal numbers of microbatches */
	bool dp_hidden;	   /* data-parallel traffic overlaps with the last microbatch's backward */
	double grad_bytes; /* an element of a reduced gradient */
};
extern const struct dt_stack dt_stack_dt, dt_stack_megatron;

struct dt_step_time { /* seconds of the slowest stage, of all microbatches unless said otherwise */
	double step;
	double matmul, attention, memory, recompute, head; /* its computation, forward and backward */
	double tp, ep, cp, pp;				   /* traffic in the pipeline's way */
	double dp, dp_exposed; /* gradients (and weights of ZeRO) over dp; the part not hidden */
	double optimizer, fixed;
	double offload_s, offload_exposed;    /* offload transfers; the part that is waited for */
	double offload_read, offload_written; /* bytes a rank */
	double bubble;			      /* share of the makespan that stages idle */
	double makespan;
	double mfu, hfu; /* of the devices' peak, under fp8 that of 8 bits; hfu counts recomputation */
	double tokens_per_s;
	enum dt_bound bound; /* what takes the most of the step */
};

int dt_step_time(const struct dt_cluster *c, const struct dt_run *s, const struct dt_stack *stack,
		 struct dt_step_time *ret, struct dt_err *err);

/* What a step's nodes cost, for the call below. Released by dt_work_release, also where it fails. */
int dt_step_work(const struct dt_run *s, const struct dt_stack *stack, struct dt_work *ret,
		 struct dt_err *err);
/* The same from a cache; NULL where it fails. */
const struct dt_work *dt_step_work_get(struct dt_work_cache *c, const struct dt_run *s,
				       const struct dt_stack *stack, struct dt_err *err);
/*
 * As dt_step_time, nodes given. table false: a first guess without building the table, exact where all stages
 * are alike, for ranking many layouts; the table decides among the best.
 */
int dt_step_time_of(const struct dt_cluster *c, const struct dt_run *s, const struct dt_stack *stack,
		    const struct dt_work *work, bool table, struct dt_step_time *ret, struct dt_err *err);

/* Parameters of a rank of stage p, a tied head once. */
double dt_stage_params(const struct dt_work *w, const struct dt_layout *l, int p, double *ret_experts);

/* Serving on tp ranks: seconds to prefill tokens new tokens of one sequence, and of one decode step of batch
 * sequences that have context tokens each. weight_bits an element of a matrix. -ENOMEM. */
int dt_prefill_time(const struct dt_cluster *c, const struct dt_config *m, int tp, int64_t tokens,
		    double weight_bits, double *ret, struct dt_err *err);
int dt_decode_time(const struct dt_cluster *c, const struct dt_config *m, int tp, int64_t batch,
		   int64_t context, double weight_bits, double cache_bits, double *ret, struct dt_err *err);

/* Flops and bytes of memory traffic of a phase on one device: the roofline's two axes. */
struct dt_intensity {
	double flops, bytes;
};
int dt_train_intensity(const struct dt_config *m, int64_t microbatch, int64_t seq, struct dt_intensity *ret,
		       struct dt_err *err);
int dt_prefill_intensity(const struct dt_config *m, int64_t tokens, double weight_bits,
			 struct dt_intensity *ret, struct dt_err *err);
int dt_decode_intensity(const struct dt_config *m, int64_t batch, int64_t context, double weight_bits,
			double cache_bits, struct dt_intensity *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
