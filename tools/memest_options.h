/* The options of dt-memest. */
#ifndef DT_TOOLS_MEMEST_OPTIONS_H
#define DT_TOOLS_MEMEST_OPTIONS_H

#include "plan/fit_print.h"
#include "plan/room.h"
#include "plan/run_options.h"

struct memest_args {
	struct dt_run_options o;
	struct dt_fit_query q;
	struct dt_schedule schedule;
	struct dt_config config;
	struct dt_model_file file;
	bool train, list, json, buffers, bars, bars_given;
	bool why, timeline, precision_given;
	const char *explain, *svg, *check;
	int precision, account, solve, kv, activations;
	int base, attention;
	bool base_given;
	const char *device;
	int64_t classes, channels;
	uint64_t params, constant; /* constant: the framework's bytes, subtracted by --check */
	struct dt_room room;
	double tolerance;
};

extern struct memest_args memest_args;
extern const struct dt_opt memest_opts[];

#endif
/* SPDX-License-Identifier: Apache-2.0 */
