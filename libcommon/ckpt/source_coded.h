/* A quantised matrix that source_coded.c finds and source_coded_fill.c dequantises. */
#ifndef DT_CKPT_SOURCE_CODED_H
#define DT_CKPT_SOURCE_CODED_H

#include "ckpt/source_bnb.h"

#include <pthread.h>
#include <stdatomic.h>

enum src_method { SRC_GPTQ, SRC_AWQ, SRC_FP8, SRC_BNB, SRC_MXFP4 };

struct src_scheme { /* quantization_config */
	enum src_method method;
	int bits;
	int add; /* to a stored z */
	int64_t group, block[2];
};

struct src_coded {
	struct src_scheme scheme;
	enum dt_format format;
	uint8_t *data; /* the matrix, in format */
	size_t bytes;
	int64_t rows, cols, groups;
	int64_t stack; /* > 0: experts, of rows / stack rows each */
	const uint8_t *q, *zeros, *scales;
	enum dt_format scale_type;
	struct src_bnb bnb;	 /* instead of these */
	const int32_t *group_of; /* NULL: group k holds columns [k group, (k + 1) group) */
	pthread_mutex_t lock;
	atomic_bool filled;
};

/* 32-bit word i of p; the zero point, which is subtracted from the codes of a group and row. */
uint32_t src_coded_word(const uint8_t *p, int64_t i);
int src_coded_zero(const struct src_coded *c, int64_t group, int64_t row);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
