/*
 * Microbatches in flight: the pipeline schedule of one step, or the forward pass of one evaluation
 * microbatch.
 */
#ifndef DT_TRAIN_FLOW_H
#define DT_TRAIN_FLOW_H

#include "nn/exec.h"

struct trainer;

/* One microbatch on its way through one chunk of the stage. */
struct flight {
	struct dt_flight f;
	int mb; /* -1: free */
	struct dt_comm_req *recv_grad, *send_out, *send_grad;
};

struct flow {
	struct dt_schedule sched;
	int64_t microbatches;		      /* with pp: the number that the schedule's table is for */
	struct flight *flight[DT_MAX_CHUNKS]; /* [plan.slots[chunk]] */
	int64_t done[DT_MAX_CHUNKS];	      /* microbatches whose gradients a chunk has added, this step */
	int64_t head_done;
	double loss_sum;  /* of this rank, this step */
	double ahead_sum; /* likewise of a module for a further token, or of an evaluation */
};

int pipeline_init(struct trainer *t, struct dt_err *err);
/* scale: of the loss before backward. ret_loss: the sum over this rank's targets. */
int pipeline_step(struct trainer *t, float scale, double *ret_loss, struct dt_err *err);
/* Runs one microbatch forward, of the evaluation or the training set, and adds its loss to *loss_sum. */
int pipeline_forward(struct trainer *t, bool eval, int64_t first, int64_t end, double *loss_sum,
		     struct dt_err *err);
void pipeline_release(struct trainer *t);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
