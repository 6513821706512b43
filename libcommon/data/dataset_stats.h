/* Statistics of a token data set's documents: lengths, tokens used, duplicates. */
#ifndef DT_DATA_DATASET_STATS_H
#define DT_DATA_DATASET_STATS_H

#include "data/dataset.h"
#include "data/tokenizer.h"

struct dt_dataset_stats {
	int64_t tokens;	   /* of the set; what fills up samples included */
	int64_t bytes;	   /* of text, without special tokens */
	int64_t documents; /* found by their starts, or by the end-of-text token; -1: cannot be told */
	int64_t *length;   /* [documents] tokens of each with its special ones, rising */
	int64_t *used;	   /* [vocab] occurrences of each id */
	int32_t vocab;
	double entropy; /* bits of one token, from the share of each id alone */
	int64_t exact;	/* documents of the same text as an earlier one */
	int64_t near; /* others that share about 80% of their runs of 5 words with one; -1: not looked for */
};

/* Reads the whole set, a document at a time. near: also looks for near duplicates, 1.1 KB a document. */
int dt_dataset_stats(const struct dt_dataset *d, const struct dt_tokenizer *t, bool near,
		     struct dt_dataset_stats *ret, struct dt_err *err);
void dt_dataset_stats_release(struct dt_dataset_stats *s);

/* The length below which share (0 to 1) of the documents lie, nearest rank; 0 where there are none. */
int64_t dt_dataset_stats_quantile(const struct dt_dataset_stats *s, double share);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
