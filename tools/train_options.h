/* The options of dt-train. */
#ifndef DT_TOOLS_TRAIN_OPTIONS_H
#define DT_TOOLS_TRAIN_OPTIONS_H

#include "plan/run_options.h"
#include "train/verify.h"

struct train_args {
	struct dt_run_options o;
	struct dt_strs accept, inject;
	int transport;
	bool schedule_table, print_program;
	int64_t rank;
	struct dt_verify_opts verify;
	bool json;
	double timeout;
	const char *recorder;
};

extern struct train_args train_args;
extern const struct dt_opt train_opts[];

#endif
/* SPDX-License-Identifier: Apache-2.0 */
