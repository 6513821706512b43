/*
 * Counters of a CUDA device from NVIDIA's management library (libnvidia-ml.so.1, loaded at run time).
 * Source: docs.nvidia.com, NVML API reference.
 */
#ifndef DT_PLAN_NVML_H
#define DT_PLAN_NVML_H

#include "base/err.h"

struct dt_nvml;

/* NAN: not reported by this device. */
struct dt_nvml_now {
	double busy, memory_busy; /* share of the last sampling period in which a kernel ran; memory moved */
	double memory_bytes;	  /* in use, by all processes */
	double power_w;
	double received, sent; /* bytes a second over PCIe */
};

/* The card of this number for CUDA, found by its place on the bus. -ENODEV: no such library or card. */
int dt_nvml_open(int index, struct dt_nvml **ret, struct dt_err *err);
void dt_nvml_read(const struct dt_nvml *n, struct dt_nvml_now *ret);
void dt_nvml_close(struct dt_nvml *n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
