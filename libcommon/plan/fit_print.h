/* What dt-memest prints of a query and its answer, for people: plan/fit.h has both, and their JSON. */
#ifndef DT_PLAN_FIT_PRINT_H
#define DT_PLAN_FIT_PRINT_H

#include "model/file.h"
#include "plan/why.h"

#include <stdio.h>

struct dt_fit_view {
	const struct dt_fit_query *q;
	const struct dt_model_file *file; /* what was read of the model's files */
	const char *recompute;		  /* as it was asked for */
	bool bars;			  /* shares are drawn too */
	bool timeline;			  /* every category in each phase, instead of the phases' sums */
	bool lacks_scratch;		  /* perhaps for a processor, whose scratch memory is not counted */
	FILE *f;
};

void dt_fit_print_heading(const struct dt_fit_view *v, const struct dt_fit *r);
void dt_fit_print_categories(const struct dt_fit_view *v, const struct dt_estimate *e);
/* Of a pipeline: a line a stage. */
void dt_fit_print_stages(const struct dt_fit_view *v, const struct dt_fit *r);
/* cat < 0: all. Entries of the same kind (layers, microbatches in flight) share a line. */
void dt_fit_print_buffers(const struct dt_fit_view *v, const struct dt_estimate *e, int cat);
/* What a category holds, how its bytes come about, and its buffers. */
void dt_fit_print_category(const struct dt_fit_view *v, const struct dt_estimate *e, int cat);
/* The decision tree for devices with room bytes, node of them a machine. */
int dt_fit_print_why(const struct dt_fit_view *v, uint64_t room, int node, struct dt_err *err);

/*
 * fit_measured.c: prints the estimate of the measured rank beside the measurement in a file (plan/why.h:
 * dt_measurement_read takes constant off). 1: they agree within tolerance percent; 0: not. A category that is
 * off by more is a no, even where sums agree.
 */
int dt_fit_check_file(const struct dt_fit *fit, const char *path, uint64_t constant, double tolerance,
		      bool json, FILE *f, struct dt_err *err);

/* The models that are known by name, a line each. */
void dt_fit_print_models(FILE *f);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
