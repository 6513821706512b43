/* What a set of tokens holds, for people and as JSON. */
#ifndef DT_DATA_DATASET_LOOK_H
#define DT_DATA_DATASET_LOOK_H

#include "base/json.h"
#include "base/table.h"
#include "data/dataset.h"

json_t *dt_dataset_json(const struct dt_dataset *d, const char *path);
/* property|value */
struct dt_table *dt_dataset_table(const struct dt_dataset *d);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
