/* Printing a data set of tokens or images: its facts, training samples, its contents. */
#ifndef DT_DATA_LOOK_H
#define DT_DATA_LOOK_H

#include "base/plot.h"

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
	bool near;	   /* stats: near duplicates too */
	const char *svg;   /* stats: draws the lengths, or the classes, there; NULL: not */
};

/* -EBADMSG: damaged, or with verify not what the checksums say. */
int dt_data_info(const char *path, const struct dt_data_look *how, FILE *f, struct dt_err *err);
/* Statistics of documents or images: lengths, tokens, classes, duplicates. Reads the whole set. */
int dt_data_stats(const char *path, const struct dt_data_look *how, FILE *f, struct dt_err *err);
int dt_data_sample(const char *path, const struct dt_data_look *how, FILE *f, struct dt_err *err);
int dt_data_cat(const char *path, const struct dt_data_look *how, FILE *f, struct dt_err *err);

/* The picture of stats: as SVG in a file of its own, or behind an empty line as text of 80 columns. */
int dt_data_draw(const char *path, const struct dt_bars *bars, struct dt_err *err);
void dt_data_print_bars(const struct dt_bars *bars, FILE *f);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
