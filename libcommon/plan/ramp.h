/*
 * A batch that grows while a run trains, for the noise scale grows as the loss falls (McCandlish et al.
 * 2018): from `from` samples to `to`, by `from` at a time, with the tokens trained on. With n = to / from - 1
 * increments the batch is from (1 + k) from token k tokens / n on, so that it is `to` from token `tokens` on.
 * It depends on where the data cursor is and on nothing else: neither on the layout nor on how often the run
 * was stopped.
 */
#ifndef DT_PLAN_RAMP_H
#define DT_PLAN_RAMP_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dt_ramp {
	int64_t from, to; /* samples of a step */
	int64_t tokens;	  /* until it is `to`; 0: no ramp */
};

/*
 * "SAMPLES", or "FROM..TO:TOKENS" with TO a multiple of FROM. ret_batch: SAMPLES or TO. -EINVAL or -ERANGE,
 * and nothing is stored.
 */
int dt_ramp_parse(const char *text, struct dt_ramp *ret, int64_t *ret_batch, struct dt_err *err);
/* Samples of the step whose first token has this number. */
int64_t dt_ramp_at(const struct dt_ramp *r, int64_t token);
/* As dt_ramp_parse reads it. */
const char *dt_ramp_format(const struct dt_ramp *r, int64_t batch, char *buf, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
