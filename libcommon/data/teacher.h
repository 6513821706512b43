/*
 * A teacher's predictions for a data set, in HDF5: for each position the k likeliest next tokens with their
 * log-probabilities, and the log of the total probability of all others. dt-eval teacher writes the file, and
 * dt-train --teacher reads it instead of running the teacher.
 *
 * File: /columns [tokens k] (u16, or i32 where the vocabulary is larger), the likeliest first; /logprobs
 * [tokens k] and /rest [tokens] (f32, natural logarithms), one dimension each, contiguous; attributes format
 * ("dt-teacher"), version, tokens, top_k, seq, vocab, apart, data_tokens, data_crc32, tokenizer_hash,
 * temperature, teacher. Position i is that behind token i of the set, in the sample of seq tokens that holds
 * it: the teacher has seen the sample's tokens up to it, or, where apart, those of its document in it.
 * Log-probabilities are those of softmax(logits / temperature) over the vocabulary of the set's tokenizer.
 */
#ifndef DT_DATA_TEACHER_H
#define DT_DATA_TEACHER_H

#include "data/dataset.h"

#define DT_TEACHER_MOST 1024 /* columns of a position */

struct dt_teacher_info {
	int64_t tokens; /* positions: of all whole samples of seq tokens */
	int64_t k, seq;
	int32_t vocab;
	bool apart;
	int64_t data_tokens; /* of the set, */
	uint32_t data_crc;   /* whose checksum this is */
	double temperature;
	const char *tokenizer_hash;
	const char *teacher; /* its name, for people */
};

/* Describes a set; -EINVAL where it has no sample of seq tokens. */
int dt_teacher_of(const struct dt_dataset *d, int64_t seq, struct dt_teacher_info *ret, struct dt_err *err);

struct dt_teacher;

int dt_teacher_open(const char *path, struct dt_teacher **ret, struct dt_err *err);
void dt_teacher_close(struct dt_teacher *t);
const struct dt_teacher_info *dt_teacher_info(const struct dt_teacher *t);
/*
 * Checks that the file was made for this data set and these samples; -EINVAL with a message on what differs.
 */
int dt_teacher_check(const struct dt_teacher *t, const struct dt_dataset *d, const char *data, int64_t seq,
		     bool apart, struct dt_err *err);
/*
 * Positions at .. at + n - 1: their k likeliest columns, at most as many as the file has, ascending; and
 * probabilities [n, k + 1] of these and of all others, which sum to 1. -EBADMSG for what is none.
 */
int dt_teacher_read(const struct dt_teacher *t, int64_t at, int64_t n, int64_t k, int32_t *columns,
		    float *probs, struct dt_err *err);

/* Writer: nothing under the final name until dt_teacher_finish. */
struct dt_teacher_writer;
int dt_teacher_create(const char *path, const struct dt_teacher_info *i, struct dt_teacher_writer **ret,
		      struct dt_err *err);
/* The next n positions: columns and logprobs [n, k], rest [n]. */
int dt_teacher_append(struct dt_teacher_writer *w, int64_t n, const int32_t *columns, const float *logprobs,
		      const float *rest, struct dt_err *err);
int dt_teacher_finish(struct dt_teacher_writer *w, struct dt_err *err); /* frees w in every case */
void dt_teacher_abandon(struct dt_teacher_writer *w);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
