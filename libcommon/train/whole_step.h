/*
 * Steps of optimizers that need whole tensors (kernels/optim.h: DT_OPTIM_NORMS, DT_OPTIM_DIRECTION), of which
 * several ranks may hold parts. The functions of struct whole_ranks communicate; NULL: all parts are whole.
 *
 *   lars       trust = eta |p| / (|g| + wd |p|), eta 0.001: You et al. 2017
 *   lamb       p -= lr |p| / |u| u with u the direction; 1 where either norm is 0: You et al. 2019
 *   adafactor  Shazeer & Stern 2018, algorithm 4, as PyTorch has it: R and C are averages of row and
 *              column sums of g^2 + 1e-30 with beta2 = 1 - t^-0.8; u = g / sqrt(R C / sum R), divided by
 *              max(1, rms(u)); p -= min(lr, 1 / sqrt t) max(1e-3, rms(p)) u
 *   muon       Jordan et al. 2024, with the scale of Liu et al. 2025 (Moonlight), so that rate and decay are
 *              adamw's: p -= lr 0.2 sqrt(max(rows, cols)) NS(u); what is not adapted takes a step of adamw
 */
#ifndef DT_TRAIN_WHOLE_STEP_H
#define DT_TRAIN_WHOLE_STEP_H

#include "base/err.h"
#include "kernels/ops.h"
#include "nn/exec.h"

struct whole_part {
	struct dt_tensor p, copy, g; /* this rank's elements, none perhaps: [n] */
	struct dt_tensor state[DT_OPTIM_STATES];
	int64_t rows, cols; /* of this tensor-parallel rank's box of the tensor */
	int64_t first;	    /* the element of the box at which p begins */
	int cut;	    /* the dimension that tp divides; -1: none */
	int64_t numel;	    /* of the whole tensor */
	int64_t longer;	    /* its longer side */
	bool adapted;	    /* lars, lamb: scaled by norms; muon: orthogonalised */
	float decay;
	double sums[2];	 /* of squares of the whole tensor: of p, and of g or of the direction */
	double *factors; /* adafactor: rows sums and cols sums of g^2 over the whole box, then over the cut */
};

struct whole_ranks {
	void *arg;
	/* Turns each part's sums over this rank's elements into those over the whole tensor. One message. */
	int (*norms)(void *arg, struct whole_part *part, int n, struct dt_err *err);
	/* The same for factors. */
	int (*factors)(void *arg, struct whole_part *part, int n, struct dt_err *err);
	/* Orthogonalises g of part i. */
	int (*orthogonal)(void *arg, struct whole_part *part, int i, struct dt_err *err);
};

/*
 * One step of optimizer o->kind. Each part has its own decay. o->trust: lars, lamb: the ratio; 0: from norms.
 */
int whole_step(struct dt_dev *dev, const struct dt_optim *o, struct whole_part *part, int n,
	       const struct whole_ranks *ranks, struct dt_err *err);

/*
 * x [rows, cols] becomes nearly orthogonal by five steps of Newton-Schulz with Jordan's coefficients: its
 * singular values end between about 0.7 and 1.2. Iterates and products are of type t, f32 or bf16 (Jordan et
 * al. and PyTorch: bf16). room has dt_whole_room(rows, cols, t) bytes (plan/states.h).
 */
int whole_orthogonal(struct dt_dev *dev, struct dt_tensor x, enum dt_dtype t, void *room, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
