#include "data/teacher.h"

#include "base/h5.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct list {
	int64_t offset; /* offset in the file */
	size_t bytes;	/* bytes of a value */
};

/* Values are read without HDF5, which is not thread-safe: a checkpoint may be written at the same time. */
struct dt_teacher {
	char *path, *hash, *teacher;
	struct dt_teacher_info i;
	int fd;
	struct list columns, logprobs, rest;
};

int dt_teacher_of(const struct dt_dataset *d, int64_t seq, struct dt_teacher_info *ret, struct dt_err *err)
{
	struct dt_dataset_info info;
	struct dt_sampler s;
	int rc = dt_sampler_init(&s, (struct dt_dataset *)d, seq, 0, false, err);

	if (rc < 0)
		return rc;
	dt_dataset_info(d, &info);
	*ret = (struct dt_teacher_info){.tokens = s.samples * seq,
					.seq = seq,
					.vocab = info.vocab,
					.apart = info.apart,
					.data_tokens = info.tokens,
					.data_crc = info.crc,
					.tokenizer_hash = info.tokenizer_hash};
	return 0;
}

/* Finds a list of n values in native format, stored contiguously. */
static int find(struct dt_teacher *t, hid_t f, const char *name, bool number, int64_t n, struct list *ret,
		struct dt_err *err)
{
	int64_t count;
	struct stat st;
	hid_t list, type;
	haddr_t at;
	bool plain;
	int rc = dt_h5_open_list(f, t->path, name, number ? H5T_FLOAT : H5T_INTEGER, &list, &count,
				 &ret->bytes, err);

	if (rc < 0)
		return rc;
	type = H5Dget_type(list);
	plain = H5Tequal(type, number		 ? H5T_NATIVE_FLOAT
			       : ret->bytes == 2 ? H5T_NATIVE_UINT16
						 : H5T_NATIVE_INT32) > 0;
	at = H5Dget_offset(list);
	H5Tclose(type);
	H5Dclose(list);
	ret->offset = (int64_t)at;
	if (!plain || at == HADDR_UNDEF || count != n)
		return dt_err_set(err, -EBADMSG, "'%s': '%s' is not a list of %lld values as dt writes it",
				  t->path, name, (long long)n);
	if (fstat(t->fd, &st) < 0)
		return dt_err_sys(err, -errno, "cannot open '%s'", t->path);
	if ((int64_t)at > st.st_size || n > (st.st_size - (int64_t)at) / (int64_t)ret->bytes)
		return dt_err_set(err, -EBADMSG, "'%s': the file is truncated", t->path);
	return 0;
}

static int read_numbers(struct dt_teacher *t, hid_t f, struct dt_err *err)
{
	const char *path = t->path;
	struct dt_teacher_info *i = &t->i;
	int64_t vocab = 0, apart = 0, crc = 0, version = 0;
	char *temperature = NULL;
	int rc;

	if ((rc = dt_h5_get_int(f, path, "version", 1, 1, &version, err)) < 0 ||
	    (rc = dt_h5_get_int(f, path, "tokens", 1, INT64_MAX / DT_TEACHER_MOST / 8, &i->tokens, err)) <
		    0 ||
	    (rc = dt_h5_get_int(f, path, "top_k", 1, DT_TEACHER_MOST, &i->k, err)) < 0 ||
	    (rc = dt_h5_get_int(f, path, "seq", 1, 1 << 24, &i->seq, err)) < 0 ||
	    (rc = dt_h5_get_int(f, path, "vocab", 1, INT32_MAX, &vocab, err)) < 0 ||
	    (rc = dt_h5_get_int(f, path, "apart", 0, 1, &apart, err)) < 0 ||
	    (rc = dt_h5_get_int(f, path, "data_tokens", 1, INT64_MAX, &i->data_tokens, err)) < 0 ||
	    (rc = dt_h5_get_int(f, path, "data_crc32", 0, UINT32_MAX, &crc, err)) < 0 ||
	    (rc = dt_h5_get_text(f, path, "tokenizer_hash", &t->hash, err)) < 0 ||
	    (rc = dt_h5_get_text(f, path, "teacher", &t->teacher, err)) < 0 ||
	    (rc = dt_h5_get_text(f, path, "temperature", &temperature, err)) < 0)
		return rc;
	i->vocab = (int32_t)vocab;
	i->apart = apart;
	i->data_crc = (uint32_t)crc;
	i->tokenizer_hash = t->hash;
	i->teacher = t->teacher;
	i->temperature = strtod(temperature, NULL);
	free(temperature);
	return isfinite(i->temperature) && i->temperature > 0 && i->k <= i->vocab
		       ? 0
		       : dt_err_set(err, -EBADMSG, "'%s': its temperature or top_k is invalid", path);
}

static int open_all(struct dt_teacher *t, hid_t f, struct dt_err *err)
{
	char *format = NULL;
	int rc = dt_h5_get_text(f, t->path, "format", &format, err);

	if (rc < 0 || strcmp(format, "dt-teacher")) {
		free(format);
		rc = dt_err_set(err, -EBADMSG, "'%s' is not a file of teacher log-probabilities", t->path);
		dt_err_hint(err, "make it with 'dt-eval teacher'");
		return rc;
	}
	free(format);
	if ((rc = read_numbers(t, f, err)) < 0)
		return rc;
	t->fd = open(t->path, O_RDONLY | O_CLOEXEC);
	if (t->fd < 0)
		return dt_err_sys(err, -errno, "cannot open '%s'", t->path);
	if ((rc = find(t, f, "columns", false, t->i.tokens * t->i.k, &t->columns, err)) < 0 ||
	    (rc = find(t, f, "logprobs", true, t->i.tokens * t->i.k, &t->logprobs, err)) < 0)
		return rc;
	return find(t, f, "rest", true, t->i.tokens, &t->rest, err);
}

int dt_teacher_open(const char *path, struct dt_teacher **ret, struct dt_err *err)
{
	struct dt_teacher *t = calloc(1, sizeof(*t));
	hid_t f;
	int rc;

	if (t)
		t->path = strdup(path);
	if (!t || !t->path) {
		free(t);
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", path);
	}
	t->fd = -1;
	dt_h5_quiet();
	rc = dt_h5_open(path, &f, err);
	if (rc == 0) {
		rc = open_all(t, f, err);
		H5Fclose(f);
	}
	if (rc < 0)
		dt_teacher_close(t);
	else
		*ret = t;
	return rc;
}

void dt_teacher_close(struct dt_teacher *t)
{
	if (!t)
		return;
	if (t->fd >= 0)
		close(t->fd);
	free(t->path);
	free(t->hash);
	free(t->teacher);
	free(t);
}

const struct dt_teacher_info *dt_teacher_info(const struct dt_teacher *t)
{
	return &t->i;
}

int dt_teacher_check(const struct dt_teacher *t, const struct dt_dataset *d, const char *data, int64_t seq,
		     bool apart, struct dt_err *err)
{
	const struct dt_teacher_info *i = &t->i;
	struct dt_dataset_info info;

	dt_dataset_info(d, &info);
	if (strcmp(i->tokenizer_hash, info.tokenizer_hash) || i->data_tokens != info.tokens ||
	    i->data_crc != info.crc || i->vocab != info.vocab)
		return dt_err_set(err, -EINVAL, "'%s' was not made from the data set '%s'", t->path, data);
	if (i->seq != seq) {
		dt_err_set(err, -EINVAL, "'%s' was made for samples of %lld tokens, not %lld", t->path,
			   (long long)i->seq, (long long)seq);
		dt_err_hint(err, "--seq %lld", (long long)i->seq);
		return -EINVAL;
	}
	if (i->apart != apart)
		return dt_err_set(err, -EINVAL, "'%s' was made with documents %s", t->path,
				  i->apart ? "apart" : "joined");
	return 0;
}

/* Reads n values of a list, from index at, into `to`. */
static int get(const struct dt_teacher *t, const struct list *l, int64_t at, int64_t n, void *to,
	       struct dt_err *err)
{
	const size_t all = (size_t)n * l->bytes;
	const ssize_t got = dt_read_all(t->fd, to, all, l->offset + at * (int64_t)l->bytes);

	if (got < 0 || (size_t)got < all)
		return dt_err_sys(err, got < 0 ? (int)got : -EIO, "cannot read '%s'", t->path);
	return 0;
}

struct named {
	int32_t column;
	float prob;
};

static int ascending(const void *a, const void *b)
{
	const int32_t x = ((const struct named *)a)->column, y = ((const struct named *)b)->column;

	return (x > y) - (x < y);
}

/*
 * The first k columns of a position, ascending, with their probabilities; prob[k] is the rest. -EBADMSG: not
 * a distribution.
 */
static int settle(const struct dt_teacher *t, const int32_t *from, const float *logprob, float rest,
		  int64_t k, int32_t *column, float *prob)
{
	struct named named[DT_TEACHER_MOST];
	double others = exp((double)rest), sum = 0;

	for (int64_t c = 0; c < t->i.k; c++) {
		const double p = exp((double)logprob[c]);

		if (from[c] < 0 || from[c] >= t->i.vocab)
			return -EBADMSG;
		sum += p;
		others += c < k ? 0 : p;
		named[c] = (struct named){from[c], (float)p};
	}
	sum += exp((double)rest);
	if (!(sum > 0.5 && sum < 2)) /* written so that NaN fails too */
		return -EBADMSG;
	qsort(named, (size_t)k, sizeof(named[0]), ascending);
	for (int64_t c = 0; c < k; c++) {
		if (c && named[c].column == named[c - 1].column)
			return -EBADMSG;
		column[c] = named[c].column;
		prob[c] = (float)((double)named[c].prob / sum);
	}
	prob[k] = (float)(others / sum);
	return 0;
}

/* Widens 2-byte values in place. */
static void widen(int32_t *v, int64_t n)
{
	for (int64_t i = n; i-- > 0;) {
		uint16_t narrow;

		memcpy(&narrow, (const char *)v + 2 * i, sizeof(narrow));
		v[i] = narrow;
	}
}

int dt_teacher_read(const struct dt_teacher *t, int64_t at, int64_t n, int64_t k, int32_t *columns,
		    float *probs, struct dt_err *err)
{
	const int64_t all = t->i.k;
	float *logprob = malloc((size_t)(n * (all + 1)) * sizeof(*logprob)), *rest = logprob + n * all;
	int32_t *from = malloc((size_t)(n * all) * sizeof(*from));
	int rc = logprob && from ? 0 : dt_err_sys(err, -ENOMEM, "cannot read '%s'", t->path);

	if (rc == 0 && (at < 0 || n < 0 || at > t->i.tokens - n))
		rc = dt_err_set(err, -EBADMSG, "'%s' has nothing from token %lld on", t->path, (long long)at);
	if (rc == 0)
		rc = get(t, &t->columns, at * all, n * all, from, err);
	if (rc == 0 && t->columns.bytes == 2)
		widen(from, n * all);
	if (rc == 0)
		rc = get(t, &t->logprobs, at * all, n * all, logprob, err);
	if (rc == 0)
		rc = get(t, &t->rest, at, n, rest, err);
	for (int64_t i = 0; i < n && rc == 0; i++)
		if (settle(t, from + i * all, logprob + i * all, rest[i], k, columns + i * k,
			   probs + i * (k + 1)) < 0)
			rc = dt_err_set(err, -EBADMSG,
					"'%s': the probabilities of the token after token %lld are not a "
					"distribution",
					t->path, (long long)(at + i));
	free(logprob);
	free(from);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
