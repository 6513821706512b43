/*
 * Packed token datasets in HDF5, and the sampler whose order depends on seed and epoch only, never on the
 * layout.
 *
 * File D.h5: /tokens (u16 or i32, one dimension, contiguous), attributes format ("dt-dataset"), version,
 * vocab, documents, crc32 (of /tokens), tokenizer_hash, source; /tokenizer (u8, the tokenizer's text).
 * Documents follow one another with the end-of-text token behind each. A set that keeps them apart (attribute
 * pack, "documents"; without it "stream") also has /document_starts (i64): the first token of each.
 * A set in which some tokens alone are targets has /target_starts and /target_ends (i64): runs of them. One
 * that is packed into samples has the attribute row, the tokens of each. One of preferences has
 * /document_kinds (u8). One of texts with a class or a score each has what data/doc_labels.h describes, and
 * documents without an end-of-text token.
 *
 * A sharded set is D-00000-of-00004.h5 ... beside D.h5. D.h5 then has /shards (names), /shard_tokens and
 * /shard_crc32, the tokenizer, and a virtual /tokens that joins the shards for h5py and h5dump; it is a view
 * for people, dt reads the shards.
 *
 * Sample i of an epoch is tokens [i * seq, i * seq + seq] (one more than seq: inputs and targets).
 */
#ifndef DT_DATA_DATASET_H
#define DT_DATA_DATASET_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dt_dataset;

/* Checks the length of every shard against its file: a truncated dataset is refused here. */
int dt_dataset_open(const char *path, struct dt_dataset **ret, struct dt_err *err);
void dt_dataset_close(struct dt_dataset *d);

struct dt_dataset_info {
	int64_t tokens, documents;
	int32_t vocab;
	const char *tokenizer_hash, *tokenizer_text;
	size_t tokenizer_bytes;
	int shards; /* files that hold tokens: 1 when not sharded */
	const char *source;
	int token_bytes; /* 2 or 4 */
	bool apart;	 /* where documents begin is known: attention and positions stay inside one */
	bool marked;	 /* some tokens alone are targets */
	int64_t row;	 /* tokens of the samples that it was packed into; 0: any */
	bool preferences;
	bool labelled;		       /* single answers with a label, good or bad, instead of pairs */
	bool labels;		       /* each document has a class, or a score */
	int classes;		       /* 0: scores */
	const char *const *class_name; /* [classes] */
	const char *chat_template;     /* by which its conversations were rendered; NULL: not known */
	uint32_t crc;		       /* checksum of the tokens as they are sharded; of a mixture 0 */
};

/*
 * Kinds of documents in a preference set. A chosen answer is followed by the rejected one. In a labelled set
 * a chosen or rejected answer is alone, followed by a mismatched one: its prompt with another prompt's
 * answer.
 */
enum dt_document_kind {
	DT_DOCUMENT_PLAIN, /* in a packed set also what fills a sample up */
	DT_DOCUMENT_CHOSEN,
	DT_DOCUMENT_REJECTED,
	DT_DOCUMENT_MISMATCHED,
	DT_DOCUMENT_KINDS,
};
void dt_dataset_info(const struct dt_dataset *d, struct dt_dataset_info *ret);

/*
 * Whether dt_dataset_read may be called by several threads at once, beside calls of HDF5: as dt writes it,
 * yes.
 */
bool dt_dataset_threads(const struct dt_dataset *d);
/* Tokens [first, first + n). Ids at or past vocab are -EBADMSG. */
int dt_dataset_read(const struct dt_dataset *d, int64_t first, int64_t n, int32_t *ret, struct dt_err *err);

/*
 * For tokens at .. at + n - 1: the first token of the document that each belongs to, counted from `at`, 0
 * where that is before it. All 0 in a set that does not keep documents apart.
 */
void dt_dataset_first(const struct dt_dataset *d, int64_t at, int64_t n, int32_t *ret);
/* Documents that begin at tokens at .. at + n - 1; 0 in a set that does not keep them apart. */
int64_t dt_dataset_starts(const struct dt_dataset *d, int64_t at, int64_t n);

/* Among tokens at .. at + n - 1: the number of targets, and a mask of them; all are if the set marks none. */
int64_t dt_dataset_targets(const struct dt_dataset *d, int64_t at, int64_t n);
void dt_dataset_mask(const struct dt_dataset *d, int64_t at, int64_t n, uint8_t *ret);
/* The kind of the document that holds token at. */
enum dt_document_kind dt_dataset_kind(const struct dt_dataset *d, int64_t at);
/* Its number, among dt_dataset_documents that begin somewhere; of a set that keeps them apart. */
int64_t dt_dataset_document(const struct dt_dataset *d, int64_t at);
int64_t dt_dataset_documents(const struct dt_dataset *d);
/*
 * Document i of a set with labels: its first token and their number, its class or score, and where its second
 * text begins, from the document's first token on; 0: it has one.
 */
struct dt_labelled_document {
	int64_t at, n;
	float label;
	int32_t second;
};
struct dt_labelled_document dt_dataset_labelled(const struct dt_dataset *d, int64_t i);
/* Documents of a kind that begin at tokens at .. at + n - 1. */
int64_t dt_dataset_count(const struct dt_dataset *d, int64_t at, int64_t n, enum dt_document_kind kind);

/* Reads every token and compares with the checksums: 0, or -EBADMSG naming the file. */
int dt_dataset_verify(struct dt_dataset *d, struct dt_err *err);

/* The index within its epoch of global sample n; shuffle: permuted by seed and epoch n / samples. */
int64_t dt_sample_at(uint64_t seed, bool shuffle, int64_t n, int64_t samples);

struct dt_sampler {
	struct dt_dataset *data;
	uint64_t seed;
	int64_t seq;
	bool shuffle;	 /* false: in file order (evaluation) */
	int64_t samples; /* an epoch */
	bool marked;	 /* some tokens alone are targets */
};
/* -EINVAL also where the set was packed into samples of another length. */
int dt_sampler_init(struct dt_sampler *s, struct dt_dataset *d, int64_t seq, uint64_t seed, bool shuffle,
		    struct dt_err *err);
/* Global sample number n (epoch n / samples): seq + 1 tokens. */
int dt_sampler_get(const struct dt_sampler *s, int64_t n, int32_t *ret, struct dt_err *err);
/* The first of them in the set; n >= 0. */
int64_t dt_sampler_at(const struct dt_sampler *s, int64_t n);

/*
 * Writer: atomic; nothing under the final names until dt_dataset_finish, D.h5 last. max_shard_tokens 0: one
 * file. Tokens wait in an unlinked file beside path, so it takes about twice their bytes for a moment, and a
 * process that is killed leaves nothing behind. A path that is not a file is refused (base/tmpfile.h).
 */
struct dt_dataset_writer;
struct dt_tokenizer;
int dt_dataset_create(const char *path, const struct dt_tokenizer *t, int64_t max_shard_tokens,
		      const char *source, struct dt_dataset_writer **ret, struct dt_err *err);
/* Instead of max_shard_tokens: n files, equal in length but for one token. 1: one file. */
void dt_dataset_set_shards(struct dt_dataset_writer *w, int n);
/* Records where documents begin. To be called before the first token. */
void dt_dataset_keep_apart(struct dt_dataset_writer *w);
/* -EINVAL for an id at or past the vocabulary. */
int dt_dataset_append(struct dt_dataset_writer *w, const int32_t *ids, size_t n, struct dt_err *err);
int dt_dataset_end_document(struct dt_dataset_writer *w, struct dt_err *err);
/*
 * For documents packed into samples of `tokens` tokens, with a target mask and without end-of-text tokens
 * added. mask NULL: no token is a target; such documents pad a sample.
 */
void dt_dataset_set_row(struct dt_dataset_writer *w, int64_t tokens);
/* The template they were rendered by; it must outlive the writer. */
void dt_dataset_set_chat(struct dt_dataset_writer *w, const char *text);
int dt_dataset_append_marked(struct dt_dataset_writer *w, const int32_t *ids, const uint8_t *mask, size_t n,
			     enum dt_document_kind kind, struct dt_err *err);
/* A document with a label, a class's number or a score, and where its second text begins; 0: it has none. */
int dt_dataset_append_labelled(struct dt_dataset_writer *w, const int32_t *ids, size_t n, float label,
			       int32_t second, struct dt_err *err);
/* The classes; label i of what was appended becomes map[i]. */
int dt_dataset_set_classes(struct dt_dataset_writer *w, int classes, char *const *name, const int *map,
			   struct dt_err *err);
/* So far, for a report. */
int64_t dt_dataset_written(const struct dt_dataset_writer *w, int64_t *ret_documents);
int dt_dataset_finish(struct dt_dataset_writer *w, struct dt_err *err); /* frees w in every case */
void dt_dataset_abandon(struct dt_dataset_writer *w);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
