/* Shared by text_import.c and text_resume.c alone. */
#ifndef DT_DATA_TEXT_IMPORT_PRIV_H
#define DT_DATA_TEXT_IMPORT_PRIV_H

#include "base/tmpfile.h"
#include "data/dataset.h"
#include "data/text_import.h"
#include "data/text_journal.h"

#define BATCH 8192

/* Text that a thread encodes. */
struct piece {
	const char *text;
	size_t n, nids;
	int32_t *ids; /* malloc'd */
	int rc;
	struct dt_err err;
};

struct document {
	const char *text;
	size_t n;
	uint64_t at;	    /* byte of the input */
	int64_t bad, empty; /* lines left out and documents without text before it */
	bool eval;
	struct dt_clean_look look;
	int rc; /* of looking */
	enum dt_clean_reason why;
};

struct import {
	struct dt_text_import *im;
	struct dt_dataset_writer *out[2]; /* to train on, to evaluate */
	struct dt_tmpfile removed;	  /* f NULL: not written */
	struct journal *journal;	  /* NULL: none */
	FILE *notes;			  /* in memory: what a group writes to removed, for the journal */
	char *note;
	size_t note_n;
	struct journal_document entry[BATCH];
	/* documents that wait, to be looked at and encoded by threads side by side */
	int n;
	size_t bytes;
	char *text; /* BATCH_BYTES */
	struct document doc[BATCH];
	struct piece piece[BATCH]; /* n 0 of a document that is left out */
};

static inline void text_tell(const struct import *b, uint64_t at)
{
	if (b->im->progress)
		b->im->progress(b->im->ctx, at);
}

int text_begin_document(struct import *b, struct dt_dataset_writer *w, struct dt_err *err);

/* text_resume.c: opens the journal of --work, writes what it has, and lets the input begin behind it. */
int text_resume(struct import *b, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
