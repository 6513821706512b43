/*
 * Cleaning of a text data set: filters on each document, and removal of duplicates.
 *
 * Words are runs of letters, digits and bytes from 128 on, ASCII in lower case. Near duplicates by MinHash
 * (Broder 1997) over 5 words, 128 hashes, found in 21 bands of 6 and compared by the share of equal hashes;
 * of two documents of Jaccard similarity 0.8 the bands find 99.8%. Contamination: 13 words in a row, as
 * GPT-3 (Brown 2020) has it. Repetition: the share of bytes in lines that came before in the document
 * (Gopher, Rae 2021: 0.2).
 */
#ifndef DT_DATA_CLEAN_H
#define DT_DATA_CLEAN_H

#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dt_clean_reason {
	DT_CLEAN_KEPT,
	DT_CLEAN_SHORT,
	DT_CLEAN_LONG,
	DT_CLEAN_SYMBOLS,
	DT_CLEAN_REPEATS,
	DT_CLEAN_NGRAMS,
	DT_CLEAN_SCRIPT,
	DT_CLEAN_EXCLUDED,
	DT_CLEAN_EXACT,
	DT_CLEAN_NEAR,
	DT_CLEAN_N,
};

struct dt_clean_options {
	bool exact;	    /* documents of the same bytes but the first */
	double near;	    /* documents of at least this similarity to one kept; 0: not looked for */
	int64_t min_chars;  /* code points; 0: any */
	int64_t max_chars;  /* 0: any */
	double max_symbols; /* share of characters but spaces that are ASCII, no letter or digit; 1: any */
	double max_repeats; /* share of bytes in lines that came before; 1: any */
	double max_ngrams;  /* share of the runs of 5 words that came before in the document; 1: any */
	const char *script; /* that letters are to be of, as dt_script_open; NULL: any */
};

struct dt_clean;
int dt_clean_open(const struct dt_clean_options *o, struct dt_clean **ret, struct dt_err *err);
void dt_clean_close(struct dt_clean *c);
/* Documents that share 13 words in a row with this text are left out from now on. */
int dt_clean_exclude(struct dt_clean *c, const char *text, size_t n, struct dt_err *err);
/*
 * A document is processed in two steps: dt_clean_look applies the filters to it alone, in parallel threads;
 * dt_clean_judge compares it with earlier documents, sequentially and in order.
 */
#define DT_CLEAN_HASHES 128
struct dt_clean_look {
	enum dt_clean_reason why; /* DT_CLEAN_KEPT: nothing against it so far */
	size_t bytes;
	uint64_t hash;			     /* with exact */
	uint32_t signature[DT_CLEAN_HASHES]; /* with near */
};
/* 0 or -ENOMEM. */
int dt_clean_look(const struct dt_clean *c, const char *text, size_t n, struct dt_clean_look *ret);
/* *ret: whether it is kept. *ret_like: the document, from 0, that it is a duplicate of; else -1. */
int dt_clean_judge(struct dt_clean *c, const struct dt_clean_look *l, enum dt_clean_reason *ret,
		   int64_t *ret_like, struct dt_err *err);
/* Both for the next document. */
int dt_clean_take(struct dt_clean *c, const char *text, size_t n, enum dt_clean_reason *ret,
		  int64_t *ret_like, struct dt_err *err);

struct dt_clean_counts {
	int64_t documents[DT_CLEAN_N], bytes[DT_CLEAN_N];
};
void dt_clean_counts(const struct dt_clean *c, struct dt_clean_counts *ret);
/* {"kept": {"documents": N, "bytes": N}, ...}; the caller's. */
json_t *dt_clean_json(const struct dt_clean *c);
/* "12 too short, 3 near duplicates": what was left out, empty when nothing was. */
void dt_clean_summary(const struct dt_clean *c, char *buf, size_t n);
/* A line on f of the document that was taken last: its number, why, of which it is like, how it begins. */
int dt_clean_note(const struct dt_clean *c, FILE *f, enum dt_clean_reason why, int64_t like, const char *text,
		  size_t n, struct dt_err *err);
/* Documents taken so far. */
int64_t dt_clean_seen(const struct dt_clean *c);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
