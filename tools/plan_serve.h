/* dt-plan --serve: the requests that a server is planned for. */
#ifndef DT_TOOLS_PLAN_SERVE_H
#define DT_TOOLS_PLAN_SERVE_H

#include "serve/capacity/images.h"

#include <stdbool.h>

struct plan_serve_args {
	struct dt_serve_query q;
	const char *trace; /* NULL: as --rate, --prompt-len and --output-len say */
	int64_t requests;
	bool rate_given, requests_given;
	bool text_given; /* an option that goes with models of text alone */
};

/* Plans and prints; the exit status, -1: it failed, and err says why. */
int plan_serve(struct plan_serve_args *a, bool json, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
