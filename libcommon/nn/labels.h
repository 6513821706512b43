/*
 * The classes of a text, of an encoder with a head for them: labels.weight tanh(pooler.weight x +
 * pooler.bias) + labels.bias, of the first token's final hidden state x. In f32 on the host: it is one row a
 * text.
 */
#ifndef DT_NN_LABELS_H
#define DT_NN_LABELS_H

#include "base/err.h"

#include <stdint.h>

struct dt_source;
struct dt_labels;

/* *ret NULL: the model has no such head. */
int dt_labels_open(struct dt_source *src, struct dt_labels **ret, struct dt_err *err);
void dt_labels_close(struct dt_labels *l);
/* [labels], of l; NULL: the source does not name them. */
const char *const *dt_labels_names(const struct dt_labels *l);
/* x [hidden], ret [labels]. -ENOMEM. */
int dt_labels_of(const struct dt_labels *l, const float *x, float *ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
