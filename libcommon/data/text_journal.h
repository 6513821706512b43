/*
 * The journal of a data set build, so that a build that was killed can resume: groups of documents with their
 * dt_clean_look results, their ids, and notes on documents left out. A group counts once its mark is written.
 * Records have a checksum (CRC-32); anything after the last complete mark is truncated. The journal is not
 * synced: after a loss of power the checksums show how far it is valid.
 */
#ifndef DT_DATA_TEXT_JOURNAL_H
#define DT_DATA_TEXT_JOURNAL_H

#include "data/clean.h"

struct journal_document {
	uint64_t at;	/* byte of the input */
	uint32_t eval;	/* it is of the set for evaluation */
	uint32_t large; /* the only one of its group, whose ids come in pieces; else in one, if it is kept */
	struct dt_clean_look look;
};

struct journal_mark {
	uint64_t from; /* documents that begin before this byte of the input are done */
	int64_t bad;   /* lines before it that were left out */
	int64_t empty; /* documents before it without text */
};

struct journal;

/*
 * DIR/journal; DIR is made where it is missing. identity: JSON on one line of all that the documents and ids
 * depend on; -EEXIST: there is one of another build.
 */
int journal_open(const char *dir, const char *identity, struct journal **ret, struct dt_err *err);
void journal_close(struct journal *j);
/* The build is complete: removes the file, and DIR where nothing else is in it. */
void journal_remove(struct journal *j);

/* One group: its documents, then ids and notes in any number of pieces, then its mark. */
int journal_documents(struct journal *j, const struct journal_document *d, size_t n, struct dt_err *err);
int journal_ids(struct journal *j, const int32_t *ids, size_t n, struct dt_err *err);
int journal_notes(struct journal *j, const char *text, size_t n, struct dt_err *err);
int journal_end(struct journal *j, const struct journal_mark *m, struct dt_err *err);

/* Called in the order of what was written; a negative return ends the reading and is its result. */
struct journal_sink {
	int (*documents)(void *ctx, const struct journal_document *d, size_t n, struct dt_err *err);
	int (*ids)(void *ctx, const int32_t *ids, size_t n, struct dt_err *err);
	int (*notes)(void *ctx, const char *text, size_t n, struct dt_err *err);
	int (*end)(void *ctx, const struct journal_mark *m, struct dt_err *err);
	void *ctx;
};
/* Before anything is written: all groups there are. */
int journal_replay(struct journal *j, const struct journal_sink *to, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
