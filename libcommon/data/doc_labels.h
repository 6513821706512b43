/*
 * What a set of labelled texts says of each document: a class or a score, and where its second text begins.
 * In a file: /document_labels (f32, a class's number or a score), /second_starts (i32, counted from the
 * document's first token; 0: there is one text), and of classes /class_names (u8, a line each). Private to
 * the files of data/ that read and write sets.
 */
#ifndef DT_DATA_DOC_LABELS_H
#define DT_DATA_DOC_LABELS_H

#include "base/h5.h"

#include <stdbool.h>

#define DT_DOC_CLASSES_MAX 65536

struct dt_doc_labels {
	float *label;	 /* [n]; NULL: the set has none */
	int32_t *second; /* [n] */
	int64_t n, cap;
	int classes;	   /* 0: labels are scores */
	char *names;	   /* of the classes, a line each */
	const char **name; /* [classes] in names, whose newlines are then NULs; of an open set */
};

/* -ENOMEM. */
int dt_doc_labels_add(struct dt_doc_labels *l, float label, int32_t second);
/* Names the classes; label i of what was added becomes map[i]. -EINVAL for a name of several lines. */
int dt_doc_labels_name(struct dt_doc_labels *l, int classes, char *const *name, const int *map,
		       struct dt_err *err);
void dt_doc_labels_release(struct dt_doc_labels *l);

/* Nothing is written where there are none. */
int dt_doc_labels_put(const struct dt_doc_labels *l, hid_t f);
/* Reads them from f, a set of so many documents, start [documents] of their first tokens. -EBADMSG. */
int dt_doc_labels_read(struct dt_doc_labels *l, hid_t f, const char *path, const int64_t *start,
		       int64_t documents, int64_t tokens, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
