/* dt-plan --serve: the requests that servers are planned for. */
#ifndef DT_TOOLS_PLAN_SERVE_H
#define DT_TOOLS_PLAN_SERVE_H

#include "serve/capacity/images.h"

#include <stdbool.h>

struct plan_serve_args {
	struct dt_serve_query q;
	const char *trace; /* NULL: requests from --rate, --prompt-len and --output-len */
	int64_t requests;
	bool rate_given, requests_given;
	bool text_given; /* an option for text models only */
};

/* Plans and prints. Returns the exit status; -1: failed, see err. */
int plan_serve(struct plan_serve_args *a, bool json, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
