/* Context parallelism of a run: which scheme, what it sends, and what cannot be cut. */
#ifndef DT_PLAN_CONTEXT_H
#define DT_PLAN_CONTEXT_H

#include "plan/run.h"

/*
 * Bytes that a rank sends for a layer and a microbatch, forward and backward (cp - 1 over cp of it): gather
 * and ring 2 s g d e, and 2 s g d (e + 4) backward; Ulysses 2 t d (a + max(g, cp)) e each way. s: tokens of
 * the microbatch, t = s / cp, a and g: heads and kv heads of the rank, d: head size, e: bytes of an element.
 */
double dt_context_bytes(const struct dt_run *r, enum dt_cp_comm how);
/* Whether heads divide: only Ulysses can say no. */
bool dt_context_can(const struct dt_run *r, enum dt_cp_comm how);
/*
 * The run's scheme. auto: the fewest bytes, which is the least time where the same links carry them; a gather
 * rather than a ring, as it waits once a layer and not cp - 1 times. Not auto.
 */
enum dt_cp_comm dt_context_comm(const struct dt_run *r);
/* Tokens of a microbatch whose documents a rank must know: its own, under Ulysses all in their order. */
int64_t dt_context_firsts(const struct dt_run *r);
/* -EINVAL for a length or heads that cp does not divide, naming the nearest that it does. */
int dt_context_check(const struct dt_run *r, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
