/* Printing a set of tokens, as text or JSON, for data/look.h. */
#ifndef DT_DATA_DATASET_LOOK_H
#define DT_DATA_DATASET_LOOK_H

#include "data/dataset.h"
#include "data/look.h"

int dt_dataset_print_info(struct dt_dataset *d, const char *path, const struct dt_data_look *how, FILE *f,
			  struct dt_err *err);
int dt_dataset_print_stats(struct dt_dataset *d, const char *path, const struct dt_data_look *how, FILE *f,
			   struct dt_err *err);
/* Each as text under a heading, as a line of ids, or as JSON (text only where it is UTF-8). */
int dt_dataset_print_samples(struct dt_dataset *d, const char *path, const struct dt_data_look *how, FILE *f,
			     struct dt_err *err);
/* As text, or ids a line each. */
int dt_dataset_print_tokens(struct dt_dataset *d, const char *path, const struct dt_data_look *how, FILE *f,
			    struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
