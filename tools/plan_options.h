/* The options of dt-plan. */
#ifndef DT_TOOLS_PLAN_OPTIONS_H
#define DT_TOOLS_PLAN_OPTIONS_H

#include "plan/machines.h"
#include "plan/run_options.h"
#include "plan/search.h"
#include "tools/plan_serve.h"

struct plan_args {
	struct dt_run_options o;
	struct dt_plan_query q;
	struct dt_config config;
	struct plan_serve_args server;
	struct dt_cluster cluster;
	struct dt_machines m;
	const char *calibrate, *validate, *compare;
	uint64_t tokens;
	bool serve, json, explain;
	int64_t top;
	int recompute, account, emit, kv;
	double mtbf_hours, save_s, restart_s, every_s, spot;
};

extern struct plan_args plan_args;
extern const struct dt_opt plan_opts[];

#endif
/* SPDX-License-Identifier: Apache-2.0 */
