/* Folder names of checkpoints: "step-00001000". */
#ifndef DT_BASE_STEP_NAME_H
#define DT_BASE_STEP_NAME_H

#include <stdint.h>

enum { DT_STEP_NAME = 32 }; /* bytes of a name, with the terminating 0 */

void dt_step_name(char buf[DT_STEP_NAME], int64_t step);
/* The step of a checkpoint folder's name; -1: not a name that dt_step_name writes. */
int64_t dt_step_of(const char *name);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
