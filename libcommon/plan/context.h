/* Context parallelism of a run: the choice of the scheme, its traffic, and its constraints. */
#ifndef DT_PLAN_CONTEXT_H
#define DT_PLAN_CONTEXT_H

#include "plan/run.h"

/*
 * Bytes that a rank sends for a layer and a microbatch, forward and backward (cp - 1 over cp of it): gather
 * and ring 2 s g d e, and 2 s g d (e + 4) backward; Ulysses 2 t d (a + max(g, cp)) e each way. s: tokens of
 * the microbatch, t = s / cp, a and g: heads and kv heads of the rank, d: head size, e: bytes of an element.
 */
double dt_context_bytes(const struct dt_run *r, enum dt_cp_comm how);
/* Whether cp divides the heads as the scheme needs; only Ulysses does. */
bool dt_context_can(const struct dt_run *r, enum dt_cp_comm how);
/*
 * The run's scheme, with auto resolved to the one that sends the fewest bytes, which is the fastest over the
 * same links. A gather is preferred to a ring, because it waits once per layer and not cp - 1 times.
 */
enum dt_cp_comm dt_context_comm(const struct dt_run *r);
/* Tokens of a microbatch whose documents a rank must know: its own, under Ulysses all in their order. */
int64_t dt_context_firsts(const struct dt_run *r);
/* -EINVAL for a length or heads that cp does not divide, naming the nearest that it does. */
int dt_context_check(const struct dt_run *r, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
