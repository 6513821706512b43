/*
 * How long a training step takes: every operation by its roofline (max of arithmetic and memory), collectives
 * by the links their group spans, the pipeline by running its schedule table on paper.
 *
 *   operation  max(flops / (peak x efficiency), bytes / (bandwidth x efficiency)) + a fixed cost
 *   step       makespan of the schedule + what of the data-parallel traffic backward does not hide +
 * optimizer
 */
#ifndef DT_PLAN_STEPTIME_H
#define DT_PLAN_STEPTIME_H

#include "plan/cluster.h"
#include "plan/memory.h"

enum dt_bound { DT_BOUND_COMPUTE, DT_BOUND_MEMORY, DT_BOUND_NETWORK, DT_BOUND_LATENCY };
#define DT_BOUND_CHOICES "compute|memory|network|latency"

struct dt_stack {    /* habits of the program that trains */
	bool scores; /* attention that writes its seq x seq scores, and recomputes them alone when selective
		      */
	bool tp_hidden;	   /* tensor-parallel traffic of backward overlaps with weight gradients */
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
	double bubble; /* share of the makespan that stages idle */
	double makespan;
	double mfu, hfu; /* of the devices' peak, under fp8 that of 8 bits; hfu counts recomputation */
	double tokens_per_s;
	enum dt_bound bound; /* what takes the most of the step */
};

int dt_step_time(const struct dt_cluster *c, const struct dt_run *s, const struct dt_stack *stack,
		 struct dt_step_time *ret, struct dt_err *err);

/*
 * A first guess without building the table: exact where all stages are alike. For ranking many layouts; the
 * table decides among the best.
 */
int dt_step_time_quick(const struct dt_cluster *c, const struct dt_run *s, const struct dt_stack *stack,
		       struct dt_step_time *ret, struct dt_err *err);

/* Matrix parameters of a rank of stage p, whole units, a tied head once. */
double dt_stage_params(const struct dt_config *c, const struct dt_layout *l, int p);

/* Serving on tp ranks: seconds to prefill tokens new tokens of one sequence, and of one decode step of batch
 * sequences that have context tokens each. weight_bits an element of a matrix. */
double dt_prefill_time(const struct dt_cluster *c, const struct dt_config *m, int tp, int64_t tokens,
		       double weight_bits);
double dt_decode_time(const struct dt_cluster *c, const struct dt_config *m, int tp, int64_t batch,
		      int64_t context, double weight_bits, double cache_bits);

/* Flops and bytes of memory traffic of a phase on one device: the roofline's two axes. */
struct dt_intensity {
	double flops, bytes;
};
struct dt_intensity dt_train_intensity(const struct dt_config *m, int64_t microbatch, int64_t seq);
struct dt_intensity dt_prefill_intensity(const struct dt_config *m, int64_t tokens, double weight_bits);
struct dt_intensity dt_decode_intensity(const struct dt_config *m, int64_t batch, int64_t context,
					double weight_bits, double cache_bits);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
