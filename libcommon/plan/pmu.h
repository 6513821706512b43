/*
 * Counters of a machine's memory controllers, as the kernel describes them in
 * /sys/bus/event_source/devices/PMU: its events, the bits of an event's fields (format/), the processors that
 * count for a socket (cpumask), bytes a count (events/NAME.scale and .unit). Intel's have them; AMD's data
 * fabric has no such description.
 * Source: perf_event_open(2), "dynamic PMU"; Documentation/ABI/testing/sysfs-bus-event_source-devices-*
 */
#ifndef DT_PLAN_PMU_H
#define DT_PLAN_PMU_H

#include "base/err.h"

#include <stdint.h>

enum { DT_PMU_CPUS = 64 };

struct dt_pmu_event {
	uint32_t type;
	uint64_t config;
	double bytes;		    /* a count */
	int cpu[DT_PMU_CPUS], cpus; /* one a socket */
};

/* -ENOENT: the PMU has no such event. -ENOTSUP: its description is not as above. */
int dt_pmu_event(const char *root, const char *pmu, const char *event, struct dt_pmu_event *ret);

struct dt_pmu_counters;
/* All that count bytes between memory and processors. -ENOENT: there are none; -EACCES: not for us. */
int dt_pmu_open(const char *root, struct dt_pmu_counters **ret, struct dt_err *err);
/* Bytes since it was opened. */
double dt_pmu_read(const struct dt_pmu_counters *c);
void dt_pmu_close(struct dt_pmu_counters *c);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
