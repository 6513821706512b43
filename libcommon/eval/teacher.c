#include "eval/teacher.h"

#include "base/units.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* This rank's sample of a round, and all ranks' results. */
struct work {
	struct dt_dataset *data;
	struct dt_sampler s;
	struct dt_teacher_info i;
	int32_t *ids, *first;	     /* [seq + 1] */
	int32_t *columns;	     /* [1 + ranks, seq, k]: this rank's, then all ranks' */
	float *logprobs;	     /* likewise */
	float *rest;		     /* likewise, [1 + ranks, seq] */
	struct dt_teacher_writer *w; /* on rank 0 */
};

static void release(struct work *k)
{
	dt_teacher_abandon(k->w);
	if (k->data)
		dt_dataset_close(k->data);
	free(k->ids);
	free(k->first);
	free(k->columns);
	free(k->logprobs);
	free(k->rest);
}

/* Whether logit l[i] ranks before l[j]: larger or, if equal, of a lower index. */
static bool before(const float *l, int32_t i, int32_t j)
{
	return l[i] > l[j] || (l[i] == l[j] && i < j);
}

/* Restores the heap top, whose first element ranks last, from index `at` down. */
static void sift(const float *l, int32_t *top, int64_t n, int64_t at)
{
	for (int64_t child; (child = 2 * at + 1) < n; at = child) {
		const int32_t v = top[at];

		if (child + 1 < n && before(l, top[child], top[child + 1]))
			child++;
		if (!before(l, v, top[child]))
			return;
		top[at] = top[child];
		top[child] = v;
	}
}

/* The k likeliest columns of a row, in order; log-probabilities of these and of the rest at T. */
static void choose(const float *l, int64_t vocab, int64_t k, double temperature, int32_t *top, float *logprob,
		   float *rest)
{
	double sum = 0, others = 0, most;
	int32_t last;

	for (int64_t i = 0; i < k; i++)
		top[i] = (int32_t)i;
	for (int64_t i = k / 2; i-- > 0;)
		sift(l, top, k, i);
	for (int32_t i = (int32_t)k; i < vocab; i++)
		if (before(l, i, top[0])) {
			top[0] = i;
			sift(l, top, k, 0);
		}
	last = top[0];
	for (int64_t n = k; n-- > 1;) { /* the lowest-ranked goes to the end */
		const int32_t v = top[0];

		top[0] = top[n];
		top[n] = v;
		sift(l, top, n, 0);
	}
	most = (double)l[top[0]];
	for (int32_t i = 0; i < vocab; i++) {
		const double e = (double)expf((float)(((double)l[i] - most) / temperature));

		sum += e;
		others += before(l, last, i) ? e : 0;
	}
	for (int64_t c = 0; c < k; c++)
		logprob[c] = (float)(((double)l[top[c]] - most) / temperature - log(sum));
	*rest = (float)log(others / sum);
}

/* Runs positions from .. to - 1 of the sample as one sequence. */
static int run_document(struct dt_eval_model *m, struct work *k, int64_t from, int64_t to, struct dt_err *err)
{
	const struct dt_teacher_info *i = &k->i;

	for (int64_t at = from; at < to; at += m->rows) {
		const int n = (int)(to - at < m->rows ? to - at : m->rows);
		const int rc = dt_eval_extend(m, k->ids + from, at - from, n, 0, err);

		if (rc < 0)
			return rc;
#pragma omp parallel for schedule(static)
		for (int r = 0; r < n; r++)
			choose(m->logits + (int64_t)r * m->vocab, i->vocab, i->k, i->temperature,
			       k->columns + (at + r) * i->k, k->logprobs + (at + r) * i->k, k->rest + at + r);
	}
	return 0;
}

static int run_sample(struct dt_eval_model *m, struct work *k, int64_t n, struct dt_err *err)
{
	const int64_t seq = k->i.seq;
	int rc = dt_sampler_get(&k->s, n, k->ids, err);

	if (k->i.apart)
		dt_dataset_first(k->data, dt_sampler_at(&k->s, n), seq + 1, k->first);
	else
		memset(k->first, 0, (size_t)(seq + 1) * sizeof(*k->first));
	for (int64_t p = 0, end; p < seq && rc == 0; p = end) {
		for (end = p + 1; end < seq && k->first[end] == k->first[p];)
			end++;
		rc = run_document(m, k, p, end, err);
	}
	return rc;
}

/* All-gathers the results of a round; a single rank uses its own. */
static int share(const struct dt_teacher_query *q, struct work *k, struct dt_err *err)
{
	const size_t n = (size_t)k->i.seq, all = n * (size_t)k->i.k;
	int rc;

	if (q->size == 1)
		return 0;
	rc = dt_all_gather(q->ranks, k->columns + all, k->columns, all, DT_I32, "a teacher's columns", err);
	if (rc == 0)
		rc = dt_all_gather(q->ranks, k->logprobs + all, k->logprobs, all, DT_F32,
				   "a teacher's log-probabilities", err);
	return rc < 0 ? rc : dt_all_gather(q->ranks, k->rest + n, k->rest, n, DT_F32, "what is left", err);
}

void dt_teacher_count(struct dt_teacher_made *r, const struct dt_teacher_info *i, const float *logprobs,
		      const float *rest)
{
	for (int64_t p = 0; p < i->seq; p++) {
		const double others = exp((double)rest[p]);

		r->named += 1 - others;
		r->entropy -= others > 0 ? others * (double)rest[p] : 0;
		for (int64_t c = 0; c < i->k; c++) {
			const double lp = (double)logprobs[p * i->k + c];

			r->entropy -= lp > -INFINITY || isnan(lp) ? exp(lp) * lp : 0;
		}
	}
}

/* Writes the samples of a round, in order. */
static int take(const struct dt_teacher_query *q, struct work *k, int64_t first, struct dt_teacher_made *ret,
		struct dt_err *err)
{
	const int64_t n = k->i.seq, all = n * k->i.k;
	int rc = 0;

	for (int r = 0; r < q->size && first + r < k->s.samples && rc == 0; r++) {
		const int64_t slot = q->size > 1 ? r + 1 : 0;

		dt_teacher_count(ret, &k->i, k->logprobs + slot * all, k->rest + slot * n);
		if (k->w)
			rc = dt_teacher_append(k->w, n, k->columns + slot * all, k->logprobs + slot * all,
					       k->rest + slot * n, err);
	}
	return rc;
}

int dt_teacher_seq(const struct dt_teacher_query *q, int64_t *ret, struct dt_err *err)
{
	struct dt_dataset_info info;
	struct dt_dataset *d;
	int rc = dt_dataset_open(q->data, &d, err);

	if (rc < 0)
		return rc;
	dt_dataset_info(d, &info);
	*ret = q->seq ? q->seq : info.row;
	dt_dataset_close(d);
	if (*ret)
		return 0;
	dt_err_set(err, -EINVAL,
		   "'%s' is not packed into samples: give --seq, the sequence length of training", q->data);
	return -EINVAL;
}

static int open_work(struct dt_eval_model *m, const struct dt_teacher_query *q, struct work *k,
		     struct dt_err *err)
{
	size_t slots = q->size > 1 ? (size_t)q->size + 1 : 1, n, all;
	int rc = dt_dataset_open(q->data, &k->data, err);

	if (rc == 0)
		rc = dt_teacher_of(k->data, m->len, &k->i, err);
	if (rc == 0)
		rc = dt_sampler_init(&k->s, k->data, m->len, 0, false, err);
	if (rc < 0)
		return rc;
	if (strcmp(dt_tokenizer_hash(m->tok), k->i.tokenizer_hash) || m->vocab < k->i.vocab) {
		dt_err_set(err, -EINVAL, "'%s' and '%s' have different tokenizers", m->path, q->data);
		dt_err_hint(
			err,
			"the teacher must have the tokenizer of the data set that its student is trained on");
		return -EINVAL;
	}
	k->i.k = q->k < k->i.vocab ? q->k : k->i.vocab;
	k->i.temperature = q->temperature;
	k->i.teacher = m->path;
	n = (size_t)k->i.seq;
	all = n * (size_t)k->i.k;
	k->ids = calloc(n + 1, sizeof(*k->ids));
	k->first = calloc(n + 1, sizeof(*k->first));
	k->columns = calloc(slots * all, sizeof(*k->columns));
	k->logprobs = calloc(slots * all, sizeof(*k->logprobs));
	k->rest = calloc(slots * n, sizeof(*k->rest));
	if (!k->ids || !k->first || !k->columns || !k->logprobs || !k->rest)
		return dt_err_sys(err, -ENOMEM, "cannot run the teacher '%s'", m->path);
	return q->rank ? 0 : dt_teacher_create(q->out, &k->i, &k->w, err);
}

static int agree(const struct dt_teacher_query *q, int rc, struct dt_err *err)
{
	return q->size > 1 ? dt_comm_agree(q->ranks, rc, NULL, err) : rc;
}

struct dt_teacher_made dt_teacher_begin(const struct dt_teacher_info *i)
{
	return (struct dt_teacher_made){.samples = i->seq ? i->tokens / i->seq : 0,
					.tokens = i->tokens,
					.seq = i->seq,
					.k = i->k,
					.bytes = i->tokens * (i->k * (i->vocab <= 65536 ? 6 : 8) + 4)};
}

int dt_teacher_end(struct dt_teacher_made *r, const char *teacher, struct dt_teacher_writer **w,
		   struct dt_err *err)
{
	struct dt_teacher_writer *file = *w;

	r->named /= (double)(r->tokens > 0 ? r->tokens : 1);
	r->entropy /= (double)(r->tokens > 0 ? r->tokens : 1);
	if (!isfinite(r->entropy))
		return dt_err_set(err, -EDOM, "'%s' computes logits that are not finite", teacher);
	*w = NULL;
	return file ? dt_teacher_finish(file, err) : 0;
}

int dt_teacher_run(struct dt_eval_model *m, const struct dt_teacher_query *q, struct dt_teacher_made *ret,
		   struct dt_err *err)
{
	struct work k = {0};
	int rc = agree(q, open_work(m, q, &k, err), err);

	*ret = dt_teacher_begin(&k.i);
	for (int64_t first = 0; first < k.s.samples && rc == 0; first += q->size) {
		if (first + q->rank < k.s.samples)
			rc = run_sample(m, &k, first + q->rank, err);
		rc = agree(q, rc, err);
		if (rc == 0)
			rc = share(q, &k, err);
		if (rc == 0)
			rc = agree(q, take(q, &k, first, ret, err), err);
		if (rc == 0 && q->progress)
			q->progress(q->arg, first + q->size < k.s.samples ? first + q->size : k.s.samples,
				    k.s.samples);
	}
	rc = agree(q, rc < 0 ? rc : dt_teacher_end(ret, m->path, &k.w, err), err);
	release(&k);
	return rc;
}

json_t *dt_teacher_made_json(const char *model, const struct dt_teacher_query *q,
			     const struct dt_teacher_made *r)
{
	return json_pack("{s:i, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:I, s:f, s:f}", "schema", 1, "model",
			 model, "data", q->data, "out", q->out, "samples", (json_int_t)r->samples, "tokens",
			 (json_int_t)r->tokens, "seq", (json_int_t)r->seq, "top_k", (json_int_t)r->k,
			 "temperature", q->temperature, "bytes", (json_int_t)r->bytes, "named", r->named,
			 "entropy", r->entropy);
}

void dt_teacher_made_print(const struct dt_teacher_query *q, const struct dt_teacher_made *r, FILE *f)
{
	char size[32];

	fprintf(f, "%s: top %lld log-probabilities for each of %lld tokens in %lld samples, %s\n", q->out,
		(long long)r->k, (long long)r->tokens, (long long)r->samples,
		dt_format_size((uint64_t)r->bytes, size, sizeof(size)));
	fprintf(f,
		"they hold %.2f%% of the probability on average; mean entropy %.4f nats (all other tokens as "
		"one)\n",
		100 * r->named, r->entropy);
}
/* SPDX-License-Identifier: Apache-2.0 */
