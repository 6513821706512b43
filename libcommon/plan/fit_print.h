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
	FILE *f;
};

void dt_fit_print_heading(const struct dt_fit_view *v, const struct dt_fit *r);
void dt_fit_print_categories(const struct dt_fit_view *v, const struct dt_estimate *e);
/* Of a pipeline: a line a stage. */
void dt_fit_print_stages(const struct dt_fit_view *v, const struct dt_fit *r);
/* cat < 0: all. Entries of the same kind (layers, microbatches in flight) share a line. */
void dt_fit_print_buffers(const struct dt_fit_view *v, const struct dt_estimate *e, int cat);
/* The decision tree for devices with room bytes, node of them a machine. */
int dt_fit_print_why(const struct dt_fit_view *v, uint64_t room, int node, struct dt_err *err);

/* An estimate beside a measurement; off and cat: as dt_fit_check says. */
void dt_fit_print_measured(const struct dt_estimate *e, const struct dt_measurement *m, double off, int cat,
			   FILE *f);
json_t *dt_fit_measured_json(const struct dt_estimate *e, const struct dt_measurement *m);

/* The models that are known by name, a line each. */
void dt_fit_print_models(FILE *f);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
