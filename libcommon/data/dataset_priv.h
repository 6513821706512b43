/* Shared by dataset_open.c and dataset_read.c alone. */
#ifndef DT_DATA_DATASET_PRIV_H
#define DT_DATA_DATASET_PRIV_H

#include "data/dataset.h"
#include "data/doc_labels.h"
#include "data/marks.h"
#include "data/shard_set.h"

struct dt_dataset_shard {
	char *path;
	hid_t file, tokens;
	int fd;		/* for reading tokens directly, if they are stored as they are used; else -1 */
	int64_t offset; /* of the tokens in it */
	int64_t first, n;
	uint32_t crc;
};

struct dt_dataset {
	char *path;
	struct dt_dataset_shard *shard;
	int shards, token_bytes;
	bool through_hdf5; /* one of the shards */
	int64_t tokens, documents;
	int32_t vocab;
	char *hash, *source, *text;
	char *chat; /* template of its conversations; NULL: none */
	int64_t text_n;
	int64_t *start; /* [documents] first token of each, ascending; NULL: they are not kept apart */
	int64_t starts;
	uint8_t *kind; /* [starts] of enum dt_document_kind; NULL: all are plain */
	bool labelled; /* one is mismatched */
	struct dt_marks marks;
	struct dt_doc_labels labels;
	int64_t row; /* tokens of a sample; 0: any */
};

#endif
/* SPDX-License-Identifier: Apache-2.0 */
