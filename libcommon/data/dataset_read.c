/* Reads tokens and documents of an open set. */
#include "base/crc.h"
#include "data/dataset_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define VERIFY_TOKENS (1 << 20)

/* The set's checksum: of the shards' checksums, or that of the only shard. */
static uint32_t checksum(const struct dt_dataset *d)
{
	uint32_t crc = 0;

	for (int i = 0; i < d->shards && d->shards > 1; i++)
		crc = dt_crc32(crc, &d->shard[i].crc, sizeof(d->shard[i].crc));
	return d->shards > 1 ? crc : d->shard[0].crc;
}

void dt_dataset_info(const struct dt_dataset *d, struct dt_dataset_info *ret)
{
	*ret = (struct dt_dataset_info){
		.tokens = d->tokens,
		.documents = d->documents,
		.vocab = d->vocab,
		.tokenizer_hash = d->hash,
		.tokenizer_text = d->text,
		.tokenizer_bytes = (size_t)d->text_n,
		.shards = d->shards,
		.source = d->source,
		.token_bytes = d->token_bytes,
		.apart = d->start != NULL,
		.marked = d->marks.n > 0,
		.row = d->row,
		.preferences = d->kind != NULL,
		.labelled = d->labelled,
		.labels = d->labels.n > 0,
		.classes = d->labels.classes,
		.class_name = d->labels.name,
		.chat_template = d->chat,
		.crc = checksum(d),
	};
}

struct dt_labelled_document dt_dataset_labelled(const struct dt_dataset *d, int64_t i)
{
	const int64_t end = i + 1 < d->starts ? d->start[i + 1] : d->tokens;

	return (struct dt_labelled_document){d->start[i], end - d->start[i], d->labels.label[i],
					     d->labels.second[i]};
}

/* Number of documents that begin before token at. */
static int64_t starts_before(const struct dt_dataset *d, int64_t at)
{
	int64_t lo = 0, hi = d->starts;

	while (lo < hi) {
		int64_t m = (lo + hi) / 2;

		if (d->start[m] < at)
			lo = m + 1;
		else
			hi = m;
	}
	return lo;
}

int64_t dt_dataset_starts(const struct dt_dataset *d, int64_t at, int64_t n)
{
	return d->start ? starts_before(d, at + n) - starts_before(d, at) : 0;
}

int64_t dt_dataset_targets(const struct dt_dataset *d, int64_t at, int64_t n)
{
	return dt_marks_count(&d->marks, at, n);
}

void dt_dataset_mask(const struct dt_dataset *d, int64_t at, int64_t n, uint8_t *ret)
{
	dt_marks_fill(&d->marks, at, n, ret);
}

enum dt_document_kind dt_dataset_kind(const struct dt_dataset *d, int64_t at)
{
	int64_t i = d->kind ? starts_before(d, at + 1) : 0;

	return i > 0 ? (enum dt_document_kind)d->kind[i - 1] : DT_DOCUMENT_PLAIN;
}

int64_t dt_dataset_document(const struct dt_dataset *d, int64_t at)
{
	return d->start ? starts_before(d, at + 1) - 1 : 0;
}

int64_t dt_dataset_documents(const struct dt_dataset *d)
{
	return d->starts;
}

int64_t dt_dataset_count(const struct dt_dataset *d, int64_t at, int64_t n, enum dt_document_kind kind)
{
	int64_t end = starts_before(d, at + n), sum = 0;

	for (int64_t i = starts_before(d, at); i < end; i++)
		sum += (d->kind ? d->kind[i] : DT_DOCUMENT_PLAIN) == kind;
	return sum;
}

void dt_dataset_first(const struct dt_dataset *d, int64_t at, int64_t n, int32_t *ret)
{
	int64_t next = d->start ? starts_before(d, at) : 0;
	int32_t first = 0;

	for (int64_t i = 0; i < n; i++) {
		if (next < d->starts && d->start[next] == at + i) {
			first = (int32_t)i;
			next++;
		}
		ret[i] = first;
	}
}

/* The shard that holds token at. */
static const struct dt_dataset_shard *find_shard(const struct dt_dataset *d, int64_t at)
{
	int lo = 0, hi = d->shards - 1;

	while (lo < hi) {
		int m = (lo + hi + 1) / 2;

		if (d->shard[m].first <= at)
			lo = m;
		else
			hi = m - 1;
	}
	return &d->shard[lo];
}

/* u16 tokens are read into the upper half of ret and widened in place from the front. */
static int read_shard(const struct dt_dataset *d, const struct dt_dataset_shard *s, int64_t first, int64_t n,
		      int32_t *ret, struct dt_err *err)
{
	char *half = (char *)ret + 2 * n;
	bool narrow = d->token_bytes == 2;

	if (s->fd >= 0) {
		int rc = set_read(s->fd, narrow ? (void *)half : ret, (size_t)n * (size_t)d->token_bytes,
				  s->offset + first * d->token_bytes);

		if (rc < 0)
			return dt_err_sys(err, rc, "cannot read '%s'", s->path);
	} else if (set_read_list(s->tokens, first, n, narrow ? H5T_NATIVE_UINT16 : H5T_NATIVE_INT32,
				 narrow ? (void *)half : ret) < 0) {
		return dt_h5_error(err, "cannot read '%s'", s->path);
	}
	for (int64_t i = 0; i < n; i++) {
		if (narrow) {
			uint16_t v;

			memcpy(&v, half + 2 * i, 2);
			ret[i] = v;
		}
		if (ret[i] < 0 || ret[i] >= d->vocab)
			return dt_err_set(err, -EBADMSG,
					  "'%s': token %lld is %d, outside the vocabulary of %d", s->path,
					  (long long)(first + i), ret[i], d->vocab);
	}
	return 0;
}

bool dt_dataset_threads(const struct dt_dataset *d)
{
	return !d->through_hdf5;
}

int dt_dataset_read(const struct dt_dataset *d, int64_t first, int64_t n, int32_t *ret, struct dt_err *err)
{
	if (first < 0 || n < 0 || first > d->tokens || n > d->tokens - first)
		return dt_err_set(err, -ERANGE,
				  "'%s' has %lld tokens: cannot read %lld tokens from token %lld on", d->path,
				  (long long)d->tokens, (long long)n, (long long)first);
	if (d->through_hdf5)
		dt_h5_quiet();
	while (n) {
		const struct dt_dataset_shard *s = find_shard(d, first);
		int64_t at = first - s->first, part = s->n - at < n ? s->n - at : n;
		int rc = read_shard(d, s, at, part, ret, err);

		if (rc < 0)
			return rc;
		first += part;
		ret += part;
		n -= part;
	}
	return 0;
}

int dt_dataset_verify(struct dt_dataset *d, struct dt_err *err)
{
	int32_t *buf = malloc(VERIFY_TOKENS * sizeof(*buf));
	int rc = buf ? 0 : dt_err_sys(err, -ENOMEM, "cannot read '%s'", d->path);

	dt_h5_quiet();
	for (int k = 0; k < d->shards && rc == 0; k++) {
		struct dt_dataset_shard *s = &d->shard[k];
		uint32_t crc = 0;

		for (int64_t at = 0; at < s->n && rc == 0; at += VERIFY_TOKENS) {
			int64_t n = s->n - at < VERIFY_TOKENS ? s->n - at : VERIFY_TOKENS;

			rc = read_shard(d, s, at, n, buf, err);
			for (int64_t i = 0; i < n && d->token_bytes == 2; i++) {
				uint16_t v = (uint16_t)buf[i];

				memcpy((char *)buf + 2 * i, &v, 2);
			}
			crc = dt_crc32(crc, buf, (size_t)(n * d->token_bytes));
		}
		if (rc == 0 && crc != s->crc)
			rc = dt_err_set(err, -EBADMSG, "'%s': the tokens do not have the checksum %08x",
					s->path, s->crc);
	}
	free(buf);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
