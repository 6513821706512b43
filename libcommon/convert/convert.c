#include "convert/convert.h"

#include "ckpt/adapter.h"
#include "ckpt/ckpt.h"
#include "ckpt/export.h"
#include "data/tokenizer.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#define MOST_SOURCES 64

static void __attribute__((format(printf, 2, 3))) note(struct dt_convert_job *job, const char *fmt, ...)
{
	char text[sizeof(((struct dt_err *)0)->msg) + 128];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	job->note(job->arg, text);
}

/* Notes what becomes of the tokenizer; returns its hash, which the trainer compares. */
static const char *tokenizer_hash(const struct dt_source *s, const struct dt_convert *c,
				  struct dt_convert_job *job, char hash[32])
{
	struct dt_tokenizer *tok;
	struct dt_err err = {0};
	const char *text;
	size_t n;

	text = dt_source_tokenizer(s, &n);
	if (dt_source_note(s))
		note(job, "%s", dt_source_note(s));
	else if (!text && !dt_source_images(s) && (!c->tokenizer || strcmp(c->tokenizer, "none")))
		note(job, "the source has no tokenizer");
	if (!text)
		return NULL;
	if (*text != '{' && c->to != DT_SOURCE_DT) /* not a tokenizer.json: the bytes themselves */
		note(job, "the tokenizer 'byte' is left out, since this format cannot hold it; give "
			  "--tokenizer byte with the result");
	if (dt_tokenizer_from_text(text, n, &tok, &err) < 0) {
		note(job, "the tokenizer is copied, but dt cannot use it: %s", err.msg);
		return NULL;
	}
	snprintf(hash, 32, "%s", dt_tokenizer_hash(tok));
	dt_tokenizer_close(tok);
	return hash;
}

static int64_t step_of(const struct dt_source *s, const struct dt_convert *c)
{
	return c->step >= 0 ? c->step : dt_source_step(s);
}

/* llama.cpp applies a window of some layers only, which is that of Gemma. */
static bool unseen_window(const struct dt_config *c)
{
	return c->window > 0 && c->global_every == 0;
}

/* Writes s to dst, and takes ownership of s. */
static int write_source(struct dt_source *s, const char *dst, const struct dt_convert *c,
			struct dt_convert_job *job, struct dt_err *err)
{
	const char *left = NULL;
	int unpacked = 0, smaller = 0, rc;
	char hash[32];
	struct stat st;
	struct dt_export x = {.to = c->to,
			      .packing = c->packing,
			      .format = c->format,
			      .mix = c->mix,
			      .ret_unpacked = &unpacked,
			      .ret_smaller = &smaller,
			      .step = step_of(s, c),
			      .compress = c->compress,
			      .max_file_bytes = c->max_file_bytes,
			      .progress = job->progress,
			      .arg = job->arg};

	rc = dt_export_check(s, dst, &x, job->made, sizeof(job->made), err);
	job->misused = rc == -EINVAL;
	if (rc == 0 && x.to == DT_SOURCE_GGUF)
		rc = dt_source_bare(&s, &left, err);
	if (rc == 0)
		x.tokenizer_hash = tokenizer_hash(s, c, job, hash);
	if (rc == 0 && c->change && lstat(job->made, &st) == 0) /* checked before the work */
		rc = dt_err_sys(err, -EEXIST, "cannot write '%s'", job->made);
	if (rc == 0 && c->change && (rc = c->change(c->change_arg, &s, err)) < 0)
		s = NULL;
	if (rc == 0)
		rc = dt_export(s, dst, &x, err);
	if (rc == 0 && left)
		note(job, "%s is left out, since GGUF has none", left);
	if (rc == 0 && unpacked)
		note(job, "%d matrices have %s and are written as f16", unpacked,
		     x.packing ? "sizes that cannot be packed" : "rows of a length that no block fits");
	if (rc == 0 && smaller)
		note(job, "%d matrices have rows of a length that no block of 256 fits and are written as %s",
		     smaller, dt_format_info(dt_format_info((enum dt_format)x.format)->narrow)->name);
	if (rc == 0 && x.to == DT_SOURCE_GGUF && unseen_window(dt_source_config(s)))
		note(job,
		     "other programs may ignore the sliding window of %lld tokens in GGUF files of this "
		     "architecture; llama.cpp does",
		     (long long)dt_source_config(s)->window);
	dt_source_close(s);
	return rc;
}

int dt_convert(const char *const *src, int n, const char *dst, const struct dt_convert *c,
	       struct dt_convert_job *job, struct dt_err *err)
{
	struct dt_source *v[MOST_SOURCES] = {NULL}, *s;
	int rc = n > MOST_SOURCES
			 ? dt_err_set(err, -EINVAL, "at most %d models can be averaged", MOST_SOURCES)
			 : 0,
	    k = 0;

	for (; k < n && rc == 0;
	     k++) /* what runs the model, or packs its layers, has no modules beside them */
		rc = (c->change || c->packing ? dt_source_open : dt_source_open_all)(
			src[k], c->from, c->tokenizer, &v[k], err);
	if (rc < 0) {
		for (k -= 2; k >= 0; k--)
			dt_source_close(v[k]);
		return rc;
	}
	s = v[0];
	if (n > 1)
		rc = dt_source_average(v, n, &s, err);
	return rc == 0 ? write_source(s, dst, c, job, err) : rc;
}

int dt_convert_upcycle(const char *dense, int64_t experts, int64_t used, uint64_t seed, const char *dst,
		       const struct dt_convert *c, struct dt_convert_job *job, struct dt_err *err)
{
	struct dt_source *d, *s;
	int rc = dt_source_open(dense, c->from, c->tokenizer, &d, err);

	if (rc == 0)
		rc = dt_source_upcycle(d, experts, used, seed, &s, err);
	return rc == 0 ? write_source(s, dst, c, job, err) : rc;
}

/* -EINVAL if the source's tokenizer has more tokens than the model. */
static int check_tokens(const struct dt_source *s, int64_t vocab, struct dt_err *err)
{
	struct dt_tokenizer *tok;
	size_t n;
	const char *text = dt_source_tokenizer(s, &n);
	int most;

	if (!text || dt_tokenizer_from_text(text, n, &tok, NULL) < 0)
		return 0; /* noted where it is converted */
	most = dt_tokenizer_vocab(tok);
	dt_tokenizer_close(tok);
	return most <= vocab
		       ? 0
		       : dt_err_set(err, -EINVAL, "--vocab %lld is too small: the tokenizer has %d tokens",
				    (long long)vocab, most);
}

int dt_convert_vocab(const char *src, int64_t vocab, const char *dst, const struct dt_convert *c,
		     struct dt_convert_job *job, struct dt_err *err)
{
	struct dt_source *old, *s;
	int rc = dt_source_open(src, c->from, c->tokenizer, &old, err);

	if (rc < 0)
		return rc;
	if ((rc = check_tokens(old, vocab, err)) < 0)
		dt_source_close(old);
	else
		rc = dt_source_add_tokens(old, vocab, &s, err);
	return rc == 0 ? write_source(s, dst, c, job, err) : rc;
}

static int open_adapter(const char *base, const char *adapter, const struct dt_convert *c,
			struct dt_source **ret_base, struct dt_adapter **ret, struct dt_err *err)
{
	struct dt_source *s;
	int rc = dt_source_open(base, c->from, c->tokenizer, &s, err);

	if (rc < 0)
		return rc;
	rc = dt_adapter_open_for(adapter, s, c->any_base, ret, err);
	if (rc < 0)
		dt_source_close(s);
	else
		*ret_base = s;
	return rc;
}

/* Notes how much of a small update is lost by rounding to blocks. */
static int warn_of_blocks(struct dt_source *s, const struct dt_convert *c, struct dt_convert_job *job,
			  struct dt_err *err)
{
	enum dt_format f = (enum dt_format)c->format;
	double lost = 0;
	int rc = 0;

	if (c->format < 0 || dt_format_info(f)->dtype >= 0)
		return 0;
	rc = dt_adapted_loss(s, f, &lost, err);
	if (rc == 0 && lost > 0)
		note(job,
		     "the rounding error of %s is %.2g times the adapter's update; a 16-bit --type preserves "
		     "the update",
		     dt_format_info(f)->name, lost);
	return rc;
}

int dt_convert_merge(const char *base, const char *adapter, const char *dst, const struct dt_convert *c,
		     struct dt_convert_job *job, struct dt_err *err)
{
	struct dt_source *b, *s;
	struct dt_adapter *a;
	int rc = open_adapter(base, adapter, c, &b, &a, err);

	if (rc == 0)
		rc = dt_source_adapted(b, a, &s, err);
	if (rc == 0 && (rc = warn_of_blocks(s, c, job, err)) < 0)
		dt_source_close(s);
	return rc == 0 ? write_source(s, dst, c, job, err) : rc;
}

int dt_convert_adapter(const char *base, const char *adapter, const char *dst, const struct dt_convert *c,
		       struct dt_err *err)
{
	struct dt_source *b;
	struct dt_adapter *a;
	int rc = open_adapter(base, adapter, c, &b, &a, err);

	if (rc < 0)
		return rc;
	rc = dt_adapter_measure(a, b, err);
	if (rc == 0)
		rc = dt_adapter_write(a, b, dst, err);
	if (rc == 0)
		rc = a->n;
	dt_adapter_close(a);
	dt_source_close(b);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
