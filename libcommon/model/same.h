#ifndef DT_MODEL_SAME_H
#define DT_MODEL_SAME_H

#include "model/config.h"

/*
 * Whether two configurations compute the same numbers from the same weights. Names, special tokens and the
 * storage order of rotary rows and norms may differ. *ret_what (may be NULL) names the first difference.
 */
bool dt_config_same(const struct dt_config *a, const struct dt_config *b, const char **ret_what);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
