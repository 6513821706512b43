#include "eval/ppl.h"

#include "kernels/row_sums.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sums over one text: an element per window, and of kl per token. */
struct sums {
	double *nll[2]; /* [nwindow] per model */
	double *same;	/* [nwindow] tokens for which both models have the same likeliest token */
	float *kl;	/* [tokens scored], in text order; NULL: one model */
	int64_t *at;	/* [nwindow + 1] index of a window's first scored token */
};

struct text {
	int32_t *ids; /* [n], with a begin token first if the text has one */
	size_t n;
	struct dt_window *w;
	int64_t nwindow;
};

static void text_release(struct text *t)
{
	free(t->ids);
	free(t->w);
}

static int text_open(struct dt_eval_model *m, const struct dt_ppl_query *q, struct text *t,
		     struct dt_err *err)
{
	const int32_t bos = q->bos ? dt_tokenizer_bos(m->tok) : -1;
	int64_t stride = q->stride ? q->stride : q->windows == DT_WINDOWS_TRANSFORMERS ? m->len / 2 : m->len;
	int32_t *ids;
	size_t n = 0;
	int rc = dt_tokenizer_encode(m->tok, q->text, q->n, false, &ids, &n, err);

	if (rc < 0)
		return rc;
	t->ids = malloc((n + 1) * sizeof(*t->ids));
	if (t->ids) {
		if (bos >= 0)
			t->ids[t->n++] = bos;
		memcpy(t->ids + t->n, ids, n * sizeof(*ids));
		t->n += n;
	}
	free(ids);
	if (!t->ids)
		return dt_err_sys(err, -ENOMEM, "cannot read the text");
	if (stride > m->len)
		return dt_err_set(err, -EINVAL, "--stride %lld is larger than the window of %lld tokens",
				  (long long)stride, (long long)m->len);
	t->nwindow = dt_windows_cut(q->windows, (int64_t)t->n, m->len, stride > 0 ? stride : 1, &t->w, err);
	if (t->nwindow < 0)
		return (int)t->nwindow;
	if (q->limit > 0 && t->nwindow > q->limit)
		t->nwindow = q->limit;
	return 0;
}

static void sums_release(struct sums *s)
{
	free(s->nll[0]);
	free(s->nll[1]);
	free(s->same);
	free(s->kl);
	free(s->at);
}

static int sums_open(struct sums *s, const struct text *t, bool pair, struct dt_err *err)
{
	size_t n = (size_t)t->nwindow;

	s->nll[0] = calloc(n, sizeof(double));
	s->nll[1] = calloc(n, sizeof(double));
	s->same = calloc(n, sizeof(double));
	s->at = calloc(n + 1, sizeof(int64_t));
	if (!s->nll[0] || !s->nll[1] || !s->same || !s->at)
		return dt_err_sys(err, -ENOMEM, "cannot evaluate the text");
	for (int64_t i = 0; i < t->nwindow; i++)
		s->at[i + 1] = s->at[i] + t->w[i].last - t->w[i].first;
	s->kl = pair ? calloc((size_t)s->at[n], sizeof(float)) : NULL;
	return pair && !s->kl ? dt_err_sys(err, -ENOMEM, "cannot compare on the text") : 0;
}

/* KL(a || b) of two rows in nats, and whether both have the same likeliest token. */
static double divergence(const float *a, const float *b, int64_t vocab, double log_sum_a, double log_sum_b,
			 bool *ret_same)
{
	const double kl = dt_row_divergence(a, b, vocab, log_sum_a, log_sum_b);

	*ret_same = dt_row_argmax(a, vocab) == dt_row_argmax(b, vocab);
	return kl < 0 ? 0 : kl; /* not a number stays that */
}

/* Scores the rows of one pass of window k, from position `row` on, whose next token is to be scored. */
static void score_rows(struct dt_eval_model *const m[2], const struct text *t, struct sums *s, int64_t k,
		       int64_t row, int n)
{
	const struct dt_window *w = &t->w[k];
	const int64_t vocab = m[0]->vocab;
	double nll[2] = {0, 0}, same = 0;

#pragma omp parallel for schedule(static, 1) ordered
	for (int i = 0; i < n; i++) {
		const int32_t id = t->ids[row + i + 1];
		double log_sum[2], lp[2] = {0, 0}, kl = 0;
		bool top = false;

		for (int j = 0; j < 2 && m[j]; j++)
			lp[j] = dt_eval_logprob(m[j]->logits + (int64_t)i * vocab, vocab, id, &log_sum[j]);
		if (m[1])
			kl = divergence(m[0]->logits + (int64_t)i * vocab, m[1]->logits + (int64_t)i * vocab,
					vocab, log_sum[0], log_sum[1], &top);
#pragma omp ordered
		{
			nll[0] -= lp[0];
			nll[1] -= lp[1];
			same += top;
			if (s->kl)
				s->kl[s->at[k] + row + i + 1 - w->first] = (float)kl;
		}
	}
	s->nll[0][k] += nll[0];
	s->nll[1][k] += nll[1];
	s->same[k] += same;
}

static int score_window(struct dt_eval_model *const m[2], const struct dt_ppl_query *q, struct text *t,
			struct sums *s, int64_t k, struct dt_err *err)
{
	const struct dt_window *w = &t->w[k];
	const int32_t bos = q->windows == DT_WINDOWS_LLAMA ? dt_tokenizer_bos(m[0]->tok) : -1;
	const int64_t first = w->first - 1; /* the row that predicts the first scored token */
	const int32_t kept = t->ids[w->begin];
	int rc = 0, rows = m[1] && m[1]->rows < m[0]->rows ? m[1]->rows : m[0]->rows;

	if (bos >= 0)
		t->ids[w->begin] = bos;
	for (int64_t at = w->begin; at < w->end && rc == 0; at += rows) {
		const int n = (int)(w->end - at < rows ? w->end - at : rows);
		const int64_t end = at + n < w->last - 1 ? at + n : w->last - 1;
		const int64_t row = first > at ? first : at;
		const int skip = row < end ? (int)(row - at) : n;

		for (int j = 0; j < 2 && m[j] && rc == 0; j++)
			rc = dt_eval_extend(m[j], t->ids + w->begin, at - w->begin, n, skip, err);
		if (rc == 0 && row < end)
			score_rows(m, t, s, k, row, (int)(end - row));
	}
	t->ids[w->begin] = kept;
	return rc;
}

/* All-reduces the sums: each element is one rank's, and 0 on the others. */
static int share(const struct dt_ppl_query *q, struct sums *s, int64_t n, struct dt_err *err)
{
	int rc = 0;

	if (q->size == 1)
		return 0;
	for (int j = 0; j < 2 && rc == 0; j++)
		rc = dt_all_reduce(q->ranks, s->nll[j], NULL, n, DT_F64, DT_SUM, "losses of windows", err);
	if (rc == 0)
		rc = dt_all_reduce(q->ranks, s->same, NULL, n, DT_F64, DT_SUM, "tokens in common", err);
	if (rc == 0 && s->kl)
		rc = dt_all_reduce(q->ranks, s->kl, NULL, s->at[n], DT_F32, DT_SUM, "divergences", err);
	return rc;
}

/* Whether the losses of all windows, and the divergences, are numbers. */
static int check(struct dt_eval_model *const m[2], const struct sums *s, int64_t n, struct dt_err *err)
{
	for (int j = 0; j < 2 && m[j]; j++)
		for (int64_t k = 0; k < n; k++)
			if (!isfinite(s->nll[j][k]))
				return dt_err_set(err, -EDOM, "'%s' computes logits that are not finite",
						  m[j]->path);
	for (int64_t i = 0; s->kl && i < s->at[n]; i++)
		if (!isfinite(s->kl[i]))
			return dt_err_set(err, -EDOM, "'%s' or '%s' computes logits that are not finite",
					  m[0]->path, m[1]->path);
	return 0;
}

static int64_t bytes_of(const struct dt_eval_model *m, const struct text *t)
{
	int64_t bytes = 0;
	size_t n;

	for (int64_t k = 0; k < t->nwindow; k++)
		for (int64_t i = t->w[k].first; i < t->w[k].last; i++)
			if (dt_tokenizer_piece(m->tok, t->ids[i], true, &n))
				bytes += (int64_t)n;
	return bytes;
}

/* Mean per token and its standard error, from the windows' sums x. */
static double mean_of(const double *x, const struct sums *s, int64_t n, double *ret_error)
{
	double total = 0, mean, square = 0;

	for (int64_t k = 0; k < n; k++)
		total += x[k];
	mean = total / (double)s->at[n];
	for (int64_t k = 0; k < n; k++) {
		double tokens = (double)(s->at[k + 1] - s->at[k]), d = x[k] - tokens * mean;

		square += d * d;
	}
	/* Of a ratio of sums (Cochran 1977, 6.4); undefined for one window. */
	*ret_error = n > 1 ? sqrt(square * (double)n / (double)(n - 1)) / (double)s->at[n] : NAN;
	return mean;
}

static void fill(struct dt_ppl *p, const struct dt_eval_model *m, const struct text *t, const struct sums *s,
		 int j)
{
	p->nll = mean_of(s->nll[j], s, t->nwindow, &p->error);
	p->tokens = s->at[t->nwindow];
	p->bytes = bytes_of(m, t);
	p->windows = t->nwindow;
	p->count = (int64_t)t->n;
}

static int run(struct dt_eval_model *const m[2], const struct dt_ppl_query *q, struct text *t, struct sums *s,
	       struct dt_err *err)
{
	int rc = text_open(m[0], q, t, err);

	if (rc == 0)
		rc = sums_open(s, t, m[1] != NULL, err);
	for (int64_t k = q->rank; k < t->nwindow && rc == 0; k += q->size) {
		rc = score_window(m, q, t, s, k, err);
		if (rc == 0 && q->progress)
			q->progress(q->arg, k + 1, t->nwindow);
	}
	if (q->size > 1)
		rc = dt_comm_agree(q->ranks, rc, NULL, err);
	rc = rc < 0 ? rc : share(q, s, t->nwindow, err);
	return rc < 0 ? rc : check(m, s, t->nwindow, err);
}

int dt_ppl_run(struct dt_eval_model *m, const struct dt_ppl_query *q, struct dt_ppl *ret, struct dt_err *err)
{
	struct dt_eval_model *const both[2] = {m, NULL};
	struct text t = {0};
	struct sums s = {0};
	int rc = run(both, q, &t, &s, err);

	if (rc == 0)
		fill(ret, m, &t, &s, 0);
	sums_release(&s);
	text_release(&t);
	return rc;
}

static int ascending(const void *a, const void *b)
{
	const float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

static void fill_pair(struct dt_ppl_pair *p, struct sums *s, int64_t nwindow)
{
	const int64_t n = s->at[nwindow];
	double same = 0, kl = 0;

	for (int64_t k = 0; k < nwindow; k++) {
		same += s->same[k];
		s->nll[1][k] -= s->nll[0][k];
	}
	for (int64_t i = 0; i < n; i++)
		kl += (double)s->kl[i];
	qsort(s->kl, (size_t)n, sizeof(*s->kl), ascending);
	p->difference = mean_of(s->nll[1], s, nwindow, &p->error);
	p->same_top = same / (double)n;
	p->kl = kl / (double)n;
	p->kl_median = (double)s->kl[n / 2];
	p->kl_99 = (double)s->kl[n - 1 - n / 100];
	p->kl_most = (double)s->kl[n - 1];
}

int dt_ppl_compare(struct dt_eval_model *a, struct dt_eval_model *b, const struct dt_ppl_query *q,
		   struct dt_ppl_pair *ret, struct dt_err *err)
{
	struct dt_eval_model *const both[2] = {a, b};
	struct text t = {0};
	struct sums s = {0};
	int rc;

	if (strcmp(dt_tokenizer_hash(a->tok), dt_tokenizer_hash(b->tok)) || a->vocab != b->vocab) {
		dt_err_set(err, -EINVAL,
			   "'%s' and '%s' have different tokenizers: compare their bits per byte", a->path,
			   b->path);
		return -EINVAL;
	}
	if (a->len != b->len) /* both use the same windows */
		a->len = b->len = a->len < b->len ? a->len : b->len;
	rc = run(both, q, &t, &s, err);
	if (rc == 0) {
		fill(&ret->a, a, &t, &s, 0);
		fill(&ret->b, b, &t, &s, 1);
		fill_pair(ret, &s, t.nwindow);
	}
	sums_release(&s);
	text_release(&t);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
