/*
 * The rules of dt-doctor: each looks at the steps of a run and fills evidence and gain where it finds its
 * symptom. Thresholds are beside the rules; doctor.c has their table.
 */
#ifndef DT_BOARD_DOCTOR_RULES_H
#define DT_BOARD_DOCTOR_RULES_H

#include "board/doctor.h"

/* The steps of a run: lines of evaluations and events are left out, and so are steps done again later. */
struct steps {
	const struct dt_board_run *r;
	bool *again; /* [lines of the run] its run went back before this line's step and did it again */
	size_t *at;  /* [n] lines of the run */
	size_t n;
	size_t settled; /* steps at the beginning that times are not judged by */
	double *a, *b;	/* [n] room for rules */
	double seconds; /* of all settled steps */
};

/* Least steps for a rule about time, and about the loss. */
enum { TIME_STEPS = 10, LOSS_STEPS = 40 };

/* -ENOMEM; steps_release also then. */
int steps_of(struct steps *s, const struct dt_board_run *r);
void steps_release(struct steps *s);
/* The value of a key in step i; NAN: the line has none. */
double steps_get(const struct steps *s, const char *key, size_t i);
int steps_ascending(const void *a, const void *b); /* doubles, for qsort */
/* Of v[0 .. n), which is sorted by it. NAN without values. */
double steps_median(double *v, size_t n);
/* The values of a key in steps first .. end - 1 that have it, into s->a; their number. */
size_t steps_collect(const struct steps *s, const char *key, size_t first, size_t end);
double steps_median_of(const struct steps *s, const char *key, size_t first, size_t end);
/* Writes the evidence; true. */
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
