/* Names of a checkpoint's folder in its root: "step-00001000". */
#ifndef DT_BASE_STEP_NAME_H
#define DT_BASE_STEP_NAME_H

#include <stdint.h>

enum { DT_STEP_NAME = 32 }; /* bytes of a name, with the 0 behind it */

void dt_step_name(char buf[DT_STEP_NAME], int64_t step);
/* The step that a name is of; -1: it is none of dt_step_name's, whatever it begins with. */
int64_t dt_step_of(const char *name);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
