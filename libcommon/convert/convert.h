/*
 * What dt-shard-ckpt makes: models of one format written in another, averaged, widened to experts, with an
 * adapter; checkpoints cut for another layout, by one process or several.
 */
#ifndef DT_CONVERT_CONVERT_H
#define DT_CONVERT_CONVERT_H

#include "ckpt/export.h"
#include "comm/comm.h"
#include "plan/layout.h"

#include <limits.h>

/* Who follows the work, and what came of it. */
struct dt_convert_job {
	void (*note)(void *arg, const char *text);		    /* a line for the user */
	bool (*progress)(void *arg, uint64_t done, uint64_t total); /* false: stop, -ECANCELED */
	void *arg;
	char made[PATH_MAX]; /* the result: the file or folder that was written; empty: a stream */
	bool misused;	     /* it failed because of what was asked for; nothing was written */
};

struct dt_convert {
	enum dt_source_kind from, to;
	enum dt_packing packing; /* as dt_export's */
	const char *tokenizer;	 /* as dt_source_open's */
	int format;		 /* of enum dt_format; -1: as stored */
	enum dt_format_mix mix;	 /* gguf: whose base format is */
	int64_t step;		 /* of a checkpoint that is made; -1: the source's, or 0 */
	bool compress;
	uint64_t max_file_bytes;
	bool any_base; /* take an adapter that was trained on other weights */
	/* What is done to the model before it is written: takes *s over, also when it fails. NULL: nothing */
	int (*change)(void *arg, struct dt_source **s, struct dt_err *err);
	void *change_arg;
};

/* The model at src[0]; of several, their mean. dst: as dt_export's. */
int dt_convert(const char *const *src, int n, const char *dst, const struct dt_convert *c,
	       struct dt_convert_job *job, struct dt_err *err);
/* dt_source_upcycle. */
int dt_convert_upcycle(const char *dense, int64_t experts, int64_t used, uint64_t seed, const char *dst,
		       const struct dt_convert *c, struct dt_convert_job *job, struct dt_err *err);
/* dt_source_add_tokens. */
int dt_convert_vocab(const char *src, int64_t vocab, const char *dst, const struct dt_convert *c,
		     struct dt_convert_job *job, struct dt_err *err);
/* base with the adapter added. Types of blocks, which round much of it away, are noted. */
int dt_convert_merge(const char *base, const char *adapter, const char *dst, const struct dt_convert *c,
		     struct dt_convert_job *job, struct dt_err *err);
/* The adapter alone, in another form: dt_adapter_write. Returns the number of its linears. */
int dt_convert_adapter(const char *base, const char *adapter, const char *dst, const struct dt_convert *c,
		       struct dt_err *err);

struct dt_recut {
	struct dt_layout layout;
	bool compress;
	int workers;
	int fd; /* for the tar stream that DST "-" stands for */
};

/*
 * The checkpoint src as the ranks of the layout would have written it, in dst: a root, or ROOT/step-N of the
 * same step. Every rank of all makes the same call; notes are given on rank 0 alone.
 */
int dt_recut(struct dt_comm *all, int rank, int size, const char *src, const char *dst,
	     const struct dt_recut *r, struct dt_convert_job *job, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
