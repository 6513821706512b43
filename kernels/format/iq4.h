/*
 * The table of values of iq4_nl and iq4_xs. No guard: a format's file for cards, which is compiled in its own
 * namespace, has its own copy.
 */
#include "kernels/format/format.h"

/* ggml's table, ascending */
DT_FORMAT_TABLE int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
					 1,    13,   25,  38,  53,  69,	 89,  113};

/* Code of the nearest value; of two at equal distance the smaller. */
static inline DT_FORMAT_CODE int iq4_code_of(float q)
{
	int ret = 0;

	for (int c = 0; c < 15; c++)
		ret += 2 * q > (float)(iq4_values[c] + iq4_values[c + 1]);
	return ret;
}

/* The same value as a sum of steps, each exact: loops with a table do not become vector instructions. */
static inline DT_FORMAT_CODE float iq4_value_of(float q)
{
	float ret = (float)iq4_values[0];

	for (int c = 0; c < 15; c++)
		ret += 2 * q > (float)(iq4_values[c] + iq4_values[c + 1])
			       ? (float)(iq4_values[c + 1] - iq4_values[c])
			       : 0;
	return ret;
}
/* SPDX-License-Identifier: Apache-2.0 */
