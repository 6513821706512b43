/*
 * Documents out of text and JSONL files, in order, with the last part marked for evaluation. Files may be
 * compressed by gzip or zstd (data/unpack.h); bytes below are those of the text. JSONL is read line by
 * line, a plain text file is mapped, a compressed one is held.
 *
 * The cut lies at floor(bytes * (100 - eval_percent) / 100) of all files end to end, as in nanoGPT. A text is
 * cut there (moved back to the start of a character), so that one document may become two. A line of JSONL is
 * never cut: it is for evaluation when it starts at or behind the cut.
 */
#ifndef DT_DATA_TEXT_SOURCE_H
#define DT_DATA_TEXT_SOURCE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dt_text_format { DT_TEXT_AUTO, DT_TEXT_PLAIN, DT_TEXT_JSONL };

/* Whether a file is read as JSONL. */
bool dt_text_is_jsonl(enum dt_text_format format, const char *path);

struct dt_text_source {
	/* set by the caller */
	enum dt_text_format format;
	const char *field, *separator; /* separator NULL: a file is one document */
	double eval_percent;	       /* 0: all is for training */
	uint64_t from;		       /* documents that begin before this byte are passed over */
	bool skip_bad;		       /* an invalid line is reported by told, and left out */
	void (*told)(void *ctx, const char *what);
	void *told_ctx;
	/* filled by open */
	const char *const *path;
	int paths;
	uint64_t
		total_bytes; /* known before reading where there is a cut to place; else a guess, for a bar */
	uint64_t cut;
	struct text_file *file; /* one a path */
	/* so far */
	uint64_t read_bytes;
	int64_t bad;   /* lines that were left out */
	int64_t empty; /* documents without text, which were passed over; a blank line is none */
};

/* "-" is standard input, "|COMMAND" what a command says. paths must outlive the source. */
int dt_text_source_open(struct dt_text_source *s, int n, const char *const *paths, struct dt_err *err);
void dt_text_source_close(struct dt_text_source *s);

/* eval: behind the cut. at: bytes of input before the document. Empty documents are left out. */
typedef int (*dt_document_fn)(void *ctx, const char *text, size_t n, bool eval, uint64_t at,
			      struct dt_err *err);
int dt_text_source_read(struct dt_text_source *s, dt_document_fn fn, void *ctx, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
