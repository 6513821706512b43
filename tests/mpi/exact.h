/*
 * What the tests of collectives share: calls that must succeed, and elements of every type with exact values.
 */
#ifndef DT_TESTS_MPI_EXACT_H
#define DT_TESTS_MPI_EXACT_H

#include "comm/comm.h"

#include <math.h>
#include <stdio.h>

static struct dt_world *w;
static struct dt_err err;
static int me, np;

#define OK(expr)                                                                                             \
	do {                                                                                                 \
		int rc_ = (expr);                                                                            \
		if (rc_) {                                                                                   \
			fprintf(stderr, "rank %d: line %d: %s = %d: %s\n", me, __LINE__, #expr, rc_,         \
				err.msg);                                                                    \
			dt_world_abort(w, 1);                                                                \
		}                                                                                            \
	} while (0)

/* An f16 from its definition: sign, exponent, 10 bits, to nearest even. */
static inline uint16_t f16_of(double v)
{
	int sign = signbit(v) ? 0x8000 : 0, e;
	double a = fabs(v), units;

	frexp(a, &e);
	e = e - 1 < -14 || a == 0 ? -14 : e - 1;
	units = nearbyint(
		ldexp(a, 10 - e)); /* may round up into the next exponent, which the sum below carries */
	return (uint16_t)(sign | (int)(units + (e + 14) * 1024.0));
}

static inline void put(void *buf, size_t i, enum dt_dtype t, double v)
{
	switch (t) {
	case DT_F32:
		((float *)buf)[i] = (float)v;
		break;
	case DT_BF16:
		((uint16_t *)buf)[i] = dt_f32_to_bf16((float)v);
		break;
	case DT_F16:
		((uint16_t *)buf)[i] = f16_of(v);
		break;
	case DT_F64:
		((double *)buf)[i] = v;
		break;
	case DT_I32:
		((int32_t *)buf)[i] = (int32_t)v;
		break;
	case DT_I64:
		((int64_t *)buf)[i] = (int64_t)v;
		break;
	case DT_U8:
		((uint8_t *)buf)[i] = (uint8_t)v;
		break;
	case DT_U16:
		((uint16_t *)buf)[i] = (uint16_t)v;
		break;
	default:
		((int8_t *)buf)[i] = (int8_t)v;
		break;
	}
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
