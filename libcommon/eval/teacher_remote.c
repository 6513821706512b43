/*
 * A teacher on a server: log-probabilities of prompts, which are the documents of samples. A prompt has one
 * more token than is needed, as the alternatives to a token are given with that token. The probability of the
 * remaining tokens at one temperature does not follow from log-probabilities at another: the server is asked
 * for this temperature, and must confirm it in its reply.
 */
#include "bench/load/asks.h"
#include "data/tokenizer.h"
#include "eval/teacher.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_REPLY  ((size_t)1 << 30)
#define TEMPERATURE "prompt_logprobs_temperature"

/* Positions from .. to - 1 of sample `slot` of a round: one document. */
struct piece {
	int64_t slot, from, to;
};

struct column {
	int32_t id;
	float logprob;
};

struct work {
	struct dt_dataset *data;
	struct dt_sampler s;
	struct dt_teacher_info i;
	struct dt_asks *asks;
	int64_t slots;		/* samples of a round */
	int32_t *ids;		/* [slots, seq + 1] */
	int32_t *first;		/* [seq + 1] */
	int32_t *columns;	/* [slots, seq, k] */
	float *logprobs, *rest; /* [slots, seq, k], [slots, seq] */
	struct piece *piece;	/* [slots * seq] */
	int64_t npiece;
	struct column *column; /* [k + 1] of a position */
	struct dt_teacher_writer *w;
};

static void release(struct work *k)
{
	dt_teacher_abandon(k->w);
	dt_asks_close(k->asks);
	if (k->data)
		dt_dataset_close(k->data);
	free(k->ids);
	free(k->first);
	free(k->columns);
	free(k->logprobs);
	free(k->rest);
	free(k->piece);
	free(k->column);
}

/* ---- whether the server's tokens are the data set's ---- */

/* Words, numbers, symbols, white space and other scripts, which other tokenizers split differently. */
static const char probe[] = "The fox, 1984: na\xc3\xafve \xe6\x9d\xb1\n\tx[i] += 'q';";

static json_t *probe_body(void *arg, int64_t i, const char *model)
{
	return json_pack("{s:s, s:s, s:i, s:i, s:b}", "model", model, "prompt", probe, "max_tokens", 1,
			 "temperature", 0, "return_token_ids", 1);
}

/* Compares the server's ids of the probe with those of the data set's tokenizer; ids in front are allowed. */
static int take_probe(void *arg, int64_t i, const json_t *reply, struct dt_err *err)
{
	const struct work *k = arg;
	const json_t *choice = json_array_get(json_object_get(reply, "choices"), 0),
		     *list = json_object_get(choice, "prompt_token_ids"), *v;
	struct dt_dataset_info info;
	struct dt_tokenizer *tok;
	int32_t *ids = NULL;
	size_t n = 0, at, extra;
	bool same;
	int rc;

	if (!json_is_array(list))
		return dt_err_set(err, -ENOTSUP,
				  "'%s' does not return the token ids of a prompt (return_token_ids)",
				  dt_asks_url(k->asks));
	dt_dataset_info(k->data, &info);
	rc = dt_tokenizer_from_text(info.tokenizer_text, info.tokenizer_bytes, &tok, err);
	if (rc < 0)
		return rc;
	rc = dt_tokenizer_encode(tok, probe, strlen(probe), false, &ids, &n, err);
	dt_tokenizer_close(tok);
	if (rc < 0)
		return rc;
	same = json_array_size(list) >= n;
	extra = same ? json_array_size(list) - n : 0;
	json_array_foreach(list, at, v) same =
		same && (at < extra || json_integer_value(v) == ids[at - extra]);
	free(ids);
	if (same)
		return 0;
	dt_err_set(err, -EINVAL, "'%s' and the data set have different tokenizers", dt_asks_url(k->asks));
	dt_err_hint(err,
		    "the teacher must have the tokenizer of the data set that its student is trained on");
	return -EINVAL;
}

/* ---- the data set ---- */

static json_t *body(void *arg, int64_t i, const char *model)
{
	const struct work *k = arg;
	const struct piece *p = &k->piece[i];
	const int32_t *ids = k->ids + p->slot * (k->i.seq + 1);
	json_t *list = json_array(), *o;

	for (int64_t at = p->from; at <= p->to; at++)
		json_array_append_new(list, json_integer(ids[at]));
	o = json_pack("{s:s, s:o, s:i, s:i, s:I}", "model", model, "prompt", list, "max_tokens", 1,
		      "temperature", 0, "prompt_logprobs", (json_int_t)k->i.k);
	if (k->i.temperature != 1)
		json_object_set_new(o, TEMPERATURE, json_real(k->i.temperature));
	return o;
}

static int by_logprob(const void *x, const void *y)
{
	const struct column *a = x, *b = y;

	return a->logprob > b->logprob ? -1 : a->logprob < b->logprob ? 1 : a->id - b->id;
}

/* Takes a position's k likeliest columns and the rest. The actual token may be an extra column. */
static int take_place(struct work *k, const json_t *o, int64_t at, struct dt_err *err)
{
	double named = 0;
	const char *key;
	json_t *v;
	int64_t n = 0;

	json_object_foreach((json_t *)o, key, v)
	{
		const json_t *lp = json_object_get(v, "logprob");
		const long id = strtol(key, NULL, 10);

		if (n > k->i.k || !json_is_number(lp) || id < 0 || id >= k->i.vocab)
			return dt_err_set(err, -EINVAL,
					  "'%s': prompt_logprobs has more tokens than asked for, or tokens "
					  "that the data set's "
					  "tokenizer does not have",
					  dt_asks_url(k->asks));
		k->column[n++] = (struct column){(int32_t)id, (float)json_number_value(lp)};
	}
	if (n < k->i.k)
		return dt_err_set(err, -ENOTSUP,
				  "'%s' returns %lld log-probabilities of a prompt token, not %lld",
				  dt_asks_url(k->asks), (long long)n, (long long)k->i.k);
	qsort(k->column, (size_t)n, sizeof(*k->column), by_logprob);
	for (int64_t c = 0; c < k->i.k; c++) {
		k->columns[at * k->i.k + c] = k->column[c].id;
		k->logprobs[at * k->i.k + c] = k->column[c].logprob;
		named += exp((double)k->column[c].logprob);
	}
	k->rest[at] = k->i.k == k->i.vocab || named >= 1 ? -INFINITY : (float)log1p(-named);
	return 0;
}

static int take(void *arg, int64_t i, const json_t *reply, struct dt_err *err)
{
	struct work *k = arg;
	const struct piece *p = &k->piece[i];
	const json_t *choice = json_array_get(json_object_get(reply, "choices"), 0),
		     *list = json_object_get(choice, "prompt_logprobs"),
		     *temperature = json_object_get(choice, TEMPERATURE);
	const double is = temperature ? json_number_value(temperature) : 1;
	int rc = 0;

	if (json_array_size(list) != (size_t)(p->to - p->from + 1))
		return dt_err_set(err, -ENOTSUP,
				  "'%s' returns no log-probabilities of the prompt (prompt_logprobs)",
				  dt_asks_url(k->asks));
	if (fabs(is - k->i.temperature) > 1e-9 * k->i.temperature)
		return dt_err_set(err, -ENOTSUP,
				  "'%s' returns log-probabilities at temperature %g, not %g (" TEMPERATURE
				  ")",
				  dt_asks_url(k->asks), is, k->i.temperature);
	for (int64_t at = p->from; at < p->to && rc == 0; at++)
		rc = take_place(k, json_array_get(list, (size_t)(at - p->from + 1)), p->slot * k->i.seq + at,
				err);
	return rc;
}

static int add_sample(struct work *k, int64_t n, int64_t slot, struct dt_err *err)
{
	const int64_t seq = k->i.seq;
	int rc = dt_sampler_get(&k->s, n, k->ids + slot * (seq + 1), err);

	if (k->i.apart)
		dt_dataset_first(k->data, dt_sampler_at(&k->s, n), seq + 1, k->first);
	for (int64_t p = 0, end; p < seq && rc == 0; p = end) {
		for (end = p + 1; end < seq && k->first[end] == k->first[p];)
			end++;
		k->piece[k->npiece++] = (struct piece){slot, p, end};
	}
	return rc;
}

static int open_work(const struct dt_teacher_server *s, const struct dt_teacher_query *q, struct work *k,
		     struct dt_err *err)
{
	const struct dt_asks_opts o = {s->model, s->key, s->parallel, .most_reply = MOST_REPLY};
	size_t n, slots;
	int rc = dt_dataset_open(q->data, &k->data, err);

	if (rc == 0)
		rc = dt_teacher_of(k->data, q->seq, &k->i, err);
	if (rc == 0)
		rc = dt_sampler_init(&k->s, k->data, q->seq, 0, false, err);
	if (rc == 0)
		rc = dt_asks_open(s->url, &o, &k->asks, err);
	if (rc == 0)
		rc = dt_asks_run(k->asks, &(struct dt_asks_list){probe_body, take_probe, k}, 1, err);
	if (rc < 0)
		return rc;
	k->i.k = q->k < k->i.vocab ? q->k : k->i.vocab;
	k->i.temperature = q->temperature;
	k->i.teacher = s->url;
	k->slots = k->s.samples < 2 * s->parallel ? k->s.samples : 2 * s->parallel;
	n = (size_t)k->i.seq;
	slots = (size_t)k->slots;
	k->ids = calloc(slots * (n + 1), sizeof(*k->ids));
	k->first = calloc(n + 1, sizeof(*k->first));
	k->columns = calloc(slots * n * (size_t)k->i.k, sizeof(*k->columns));
	k->logprobs = calloc(slots * n * (size_t)k->i.k, sizeof(*k->logprobs));
	k->rest = calloc(slots * n, sizeof(*k->rest));
	k->piece = calloc(slots * n, sizeof(*k->piece));
	k->column = calloc((size_t)k->i.k + 1, sizeof(*k->column));
	if (!k->ids || !k->first || !k->columns || !k->logprobs || !k->rest || !k->piece || !k->column)
		return dt_err_sys(err, -ENOMEM, "cannot query '%s'", s->url);
	return dt_teacher_create(q->out, &k->i, &k->w, err);
}

/* Runs samples first .. first + n - 1. */
static int run_round(struct work *k, int64_t first, int64_t n, struct dt_teacher_made *ret,
		     struct dt_err *err)
{
	const int64_t seq = k->i.seq, all = seq * k->i.k;
	int rc = 0;

	k->npiece = 0;
	for (int64_t i = 0; i < n && rc == 0; i++)
		rc = add_sample(k, first + i, i, err);
	if (rc == 0)
		rc = dt_asks_run(k->asks, &(struct dt_asks_list){body, take, k}, k->npiece, err);
	for (int64_t i = 0; i < n && rc == 0; i++) {
		dt_teacher_count(ret, &k->i, k->logprobs + i * all, k->rest + i * seq);
		rc = dt_teacher_append(k->w, seq, k->columns + i * all, k->logprobs + i * all,
				       k->rest + i * seq, err);
	}
	return rc;
}

int dt_teacher_ask(const struct dt_teacher_server *s, const struct dt_teacher_query *q,
		   struct dt_teacher_made *ret, struct dt_err *err)
{
	struct work k = {0};
	int rc;

	if (q->size > 1)
		return dt_err_set(err, -ENOTSUP, "a teacher on a server needs one process, not %d ranks",
				  q->size);
	rc = open_work(s, q, &k, err);
	*ret = dt_teacher_begin(&k.i);
	for (int64_t first = 0; first < k.s.samples && rc == 0; first += k.slots) {
		const int64_t left = k.s.samples - first, n = left < k.slots ? left : k.slots;

		rc = run_round(&k, first, n, ret, err);
		if (rc == 0 && q->progress)
			q->progress(q->arg, first + n, k.s.samples);
	}
	if (rc == 0)
		rc = dt_teacher_end(ret, s->url, &k.w, err);
	release(&k);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
