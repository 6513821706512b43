#include "eval/windows.h"

#include <errno.h>
#include <stdlib.h>

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* A window reads the tokens that predict its scored ones: the last scored token is not read. */
static int64_t rolling(int64_t n, int64_t seq, int64_t stride, struct dt_window *w)
{
	int64_t k = 0;

	for (int64_t next = 1; next < n; k++) {
		int64_t last = k ? least(next + stride, n) : least(seq + 1, n), begin = last - 1 - seq;

		w[k] = (struct dt_window){begin > 0 ? begin : 0, last - 1, next, last};
		next = last;
	}
	return k;
}

static int64_t transformers(int64_t n, int64_t seq, int64_t stride, struct dt_window *w)
{
	int64_t k = 0, before = 0;

	for (int64_t begin = 0; begin < n && before < n; begin += stride) {
		int64_t end = least(begin + seq, n), first = before > begin ? before : begin + 1;

		before = end;
		if (first < end)
			w[k++] = (struct dt_window){begin, end, first, end};
	}
	return k;
}

static int64_t llama(int64_t n, int64_t seq, struct dt_window *w)
{
	int64_t k = 0;

	for (; (k + 1) * seq <= n; k++)
		w[k] = (struct dt_window){k * seq, (k + 1) * seq, k * seq + seq / 2 + 1, (k + 1) * seq};
	return k;
}

int64_t dt_windows_cut(enum dt_windows how, int64_t n, int64_t seq, int64_t stride, struct dt_window **ret,
		       struct dt_err *err)
{
	struct dt_window *w;
	int64_t k;

	if (how == DT_WINDOWS_LLAMA && seq < 3)
		return dt_err_set(
			err, -EINVAL,
			"--windows llama.cpp scores nothing in windows of %lld tokens: --seq must be at "
			"least 3",
			(long long)seq);
	w = malloc((size_t)(n / stride + 2) * sizeof(*w));
	if (!w)
		return dt_err_sys(err, -ENOMEM, "cannot cut the text into windows");
	k = how == DT_WINDOWS_ROLLING	     ? rolling(n, seq, stride, w)
	    : how == DT_WINDOWS_TRANSFORMERS ? transformers(n, seq, stride, w)
					     : llama(n, seq, w);
	if (k > 0) {
		*ret = w;
		return k;
	}
	free(w);
	if (how == DT_WINDOWS_LLAMA)
		return dt_err_set(err, -EINVAL,
				  "the text has %lld tokens, fewer than one window of %lld (--seq)",
				  (long long)n, (long long)seq);
	return dt_err_set(err, -EINVAL, "the text has %lld token%s: there is nothing to predict",
			  (long long)n, n == 1 ? "" : "s");
}
/* SPDX-License-Identifier: Apache-2.0 */
