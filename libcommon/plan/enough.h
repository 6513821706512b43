/* The named models that fit into a given memory, trained and served in several ways. */
#ifndef DT_PLAN_ENOUGH_H
#define DT_PLAN_ENOUGH_H

#include "base/json.h"

#include <stdio.h>

/* For each way the largest model, on one device or in one process with room bytes. */
void dt_enough_print(uint64_t room, FILE *f);
json_t *dt_enough_json(uint64_t room);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
