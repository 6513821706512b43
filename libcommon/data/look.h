/* What is printed of a data set, of tokens or of images: what it holds, samples of training, its content. */
#ifndef DT_DATA_LOOK_H
#define DT_DATA_LOOK_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct dt_data_look {
	bool json;
	bool verify;	      /* info: everything is read and compared with the checksums */
	int64_t first, count; /* samples; of cat tokens or images. count negative: all */
	int64_t seq;	      /* tokens of a sample; 0: 64, or what the set was packed into */
	int64_t seed, epoch;
	bool in_order;	   /* samples in file order */
	bool ids, special; /* of tokens: ids in place of text; text of special tokens too */
};

/* -EBADMSG: damaged, or with verify not what the checksums say. */
int dt_data_info(const char *path, const struct dt_data_look *how, FILE *f, struct dt_err *err);
int dt_data_sample(const char *path, const struct dt_data_look *how, FILE *f, struct dt_err *err);
int dt_data_cat(const char *path, const struct dt_data_look *how, FILE *f, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
