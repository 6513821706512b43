/*
 * The rules of dt-doctor: each examines the steps of a run and fills evidence and gain if it finds its
 * symptom. Thresholds are beside the rules; their table is in doctor.c.
 */
#ifndef DT_BOARD_DOCTOR_RULES_H
#define DT_BOARD_DOCTOR_RULES_H

#include "board/doctor.h"

/* The steps of a run, without lines of evaluations and events, and without steps that were redone later. */
struct steps {
	const struct dt_board_run *r;
	/* [lines of the run] the run was resumed from before this line's step, which it then repeated */
	bool *again;
	size_t *at; /* [n] line numbers in the run */
	size_t n;
	size_t settled; /* number of warm-up steps, which rules about time ignore */
	double *a, *b;	/* [n] scratch arrays for rules */
	double seconds; /* total seconds of the steps after warm-up */
};

/* Returns 0 or -ENOMEM; call steps_release in both cases. */
int steps_of(struct steps *s, const struct dt_board_run *r);
void steps_release(struct steps *s);
/* The value of a key in step i; NAN if the line lacks it. */
double steps_get(const struct steps *s, const char *key, size_t i);
/* Median of v[0 .. n), which it sorts. NAN if n is 0. */
double steps_median(double *v, size_t n);
/* Copies the values of a key in steps first .. end - 1 that have it to s->a; returns their number. */
size_t steps_collect(const struct steps *s, const char *key, size_t first, size_t end);
double steps_median_of(const struct steps *s, const char *key, size_t first, size_t end);
/* Writes the evidence and returns true. */
bool doctor_say(struct dt_finding *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

typedef bool doctor_rule(const struct steps *s, struct dt_finding *f);
/* doctor_time.c */
doctor_rule doctor_data_bound, doctor_comm_bound, doctor_bubble, doctor_slow_saves, doctor_low_mfu,
	doctor_slows_down, doctor_uneven, doctor_straggler;
/* doctor_loss.c */
doctor_rule doctor_not_finite, doctor_overflow, doctor_diverges, doctor_learns_nothing, doctor_spikes,
	doctor_not_shuffled, doctor_repeats, doctor_overfits;
/* doctor_changes.c */
doctor_rule doctor_batch_changed, doctor_rate_jumps, doctor_steps_missing, doctor_memory_grows,
	doctor_experts_uneven;

#endif
/* SPDX-License-Identifier: Apache-2.0 */
