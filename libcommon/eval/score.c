#include "eval/score.h"

#include "base/json.h"
#include "base/table.h"
#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 64 /* items processed at a time */

static int64_t questions_of(const struct dt_task_item *it)
{
	return it->nchoice ? it->nchoice : 1;
}

static void put_questions(const struct dt_task *t, const struct dt_task_item *it, const char *context,
			  struct dt_question *q)
{
	if (it->nchoice == 0)
		q[0] = (struct dt_question){.context = context,
					    .line = it->line,
					    .max_tokens = t->max_tokens,
					    .stop = t->stop,
					    .nstop = t->nstop};
	for (int i = 0; i < it->nchoice; i++)
		q[i] = (struct dt_question){
			.context = context, .continuation = it->choice[i], .line = it->line};
}

/* The divisor of a choice's log-probability: none, the characters of its text, or their bytes. */
enum over { OVER_NOTHING, OVER_CHARACTERS, OVER_BYTES };

/* The first choice with the largest score. */
static int best_choice(const struct dt_task *t, const struct dt_task_item *it, const struct dt_question *q,
		       enum over over)
{
	double most = -INFINITY;
	int best = 0;

	for (int i = 0; i < it->nchoice; i++) {
		const char *text = it->choice[i] + t->before;
		const size_t n = over == OVER_NOTHING ? 1
				 : over == OVER_BYTES ? strlen(text)
						      : dt_utf8_count(text, strlen(text));
		const double x = q[i].logprob / (double)n;

		if (x > most) {
			most = x;
			best = i;
		}
	}
	return best;
}

static int predict(const struct dt_task *t, const struct dt_task_item *it, const struct dt_question *q,
		   bool right, FILE *f, struct dt_err *err)
{
	json_t *o = json_pack("{s:I, s:b}", "line", (json_int_t)it->line, "right", right),
	       *list = json_array();
	char *text = NULL;
	size_t n;
	int rc;

	if (it->nchoice == 0) {
		text = dt_utf8_clean(q->text ? q->text : "", q->text ? strlen(q->text) : 0, &n);
		json_object_set_new(o, "text", json_string(text));
		free(text);
	} else {
		json_object_set_new(o, "given", json_integer(best_choice(t, it, q, OVER_NOTHING)));
		json_object_set_new(o, "answer", json_integer(it->answer));
		for (int i = 0; i < it->nchoice; i++)
			json_array_append_new(list, dt_json_number(q[i].logprob));
		json_object_set(o, "logprobs", list);
	}
	json_decref(list);
	rc = dt_json_write_line(f, o, err);
	json_decref(o);
	return rc;
}

static int judge(const struct dt_task *t, int64_t i, const struct dt_question *q, struct dt_score *s, FILE *f,
		 struct dt_err *err)
{
	const struct dt_task_item *it = &t->item[i];

	for (int64_t k = 0; k < questions_of(it); k++) {
		if (isnan(q[k].logprob))
			return dt_err_set(
				err, -EDOM,
				"line %lld of the task: the model's log-probability of choice %lld is "
				"not a number",
				(long long)it->line, (long long)k);
		if (q[k].cut)
			s->cut[i] = 1;
	}
	if (it->nchoice == 0) {
		s->right[i] = dt_task_matches(t, it, q->text ? q->text : "");
	} else {
		s->given[i] = best_choice(t, it, q, OVER_NOTHING);
		s->right[i] = (int)s->given[i] == it->answer;
		s->norm[i] = best_choice(t, it, q, OVER_CHARACTERS) == it->answer;
		s->bytes[i] = best_choice(t, it, q, OVER_BYTES) == it->answer;
	}
	return f ? predict(t, it, q, s->right[i] > 0, f, err) : 0;
}

/* Asks at most BATCH items first, first + size, ... of this rank; returns the next batch's first item. */
static int64_t ask_batch(const struct dt_task *t, struct dt_asker *a, const struct dt_score_query *sq,
			 int64_t first, struct dt_score *s, struct dt_err *err)
{
	char *context[BATCH] = {0};
	struct dt_question *q;
	int64_t n = 0, end = first, at = 0;
	int rc = 0, items = 0;

	for (int k = 0; k < BATCH && end < t->n; k++, end += sq->size)
		n += questions_of(&t->item[end]);
	q = calloc((size_t)n, sizeof(*q));
	if (!q)
		return dt_err_sys(err, -ENOMEM, "cannot query the model");
	for (int64_t i = first; i < end && rc == 0; at += questions_of(&t->item[i]), i += sq->size) {
		context[items] = dt_task_context(t, &t->item[i]);
		if (!context[items])
			rc = dt_err_sys(err, -ENOMEM, "cannot query the model");
		else
			put_questions(t, &t->item[i], context[items++], q + at);
	}
	if (rc == 0)
		rc = dt_asker_ask(a, q, n, err);
	at = 0;
	for (int64_t i = first; i < end && rc == 0; at += questions_of(&t->item[i]), i += sq->size)
		rc = judge(t, i, q + at, s, sq->predictions, err);
	for (int64_t i = 0; i < n; i++)
		free(q[i].text);
	while (items > 0)
		free(context[--items]);
	free(q);
	return rc < 0 ? rc : end;
}

static double share_of(const double *x, int64_t n, double *ret_error)
{
	double sum = 0, p;

	for (int64_t i = 0; i < n; i++)
		sum += x[i];
	p = sum / (double)n;
	*ret_error = n > 1 ? sqrt(p * (1 - p) / (double)(n - 1)) : NAN;
	return p;
}

static int confuse(const struct dt_task *t, struct dt_score *s, struct dt_err *err)
{
	const size_t n = (size_t)t->nlabel;

	s->confusion = calloc(n * n, sizeof(*s->confusion));
	s->precision = calloc(n, sizeof(*s->precision));
	s->recall = calloc(n, sizeof(*s->recall));
	s->f1 = calloc(n, sizeof(*s->f1));
	if (!s->confusion || !s->precision || !s->recall || !s->f1)
		return dt_err_sys(err, -ENOMEM, "cannot count");
	for (int64_t i = 0; i < t->n; i++)
		s->confusion[(size_t)t->item[i].answer * n + (size_t)s->given[i]]++;
	for (size_t k = 0; k < n; k++) {
		double both = (double)s->confusion[k * n + k], right = 0, given = 0;

		for (size_t j = 0; j < n; j++) {
			right += (double)s->confusion[k * n + j];
			given += (double)s->confusion[j * n + k];
		}
		s->precision[k] = given > 0 ? both / given : 0;
		s->recall[k] = right > 0 ? both / right : 0;
		s->f1[k] = given + right > 0 ? 2 * both / (given + right) : 0;
		s->macro_f1 += s->f1[k] / (double)n;
	}
	return 0;
}

int dt_score_run(const struct dt_task *t, struct dt_asker *a, const struct dt_score_query *q,
		 struct dt_score *ret, struct dt_err *err)
{
	const size_t n = (size_t)t->n;
	struct dt_score s = {.n = t->n,
			     .right = calloc(n, sizeof(double)),
			     .norm = calloc(n, sizeof(double)),
			     .bytes = calloc(n, sizeof(double)),
			     .given = calloc(n, sizeof(double)),
			     .cut = calloc(n, sizeof(double))};
	int64_t at = q->rank;
	int rc = s.right && s.norm && s.bytes && s.given && s.cut
			 ? 0
			 : dt_err_sys(err, -ENOMEM, "cannot query the model");

	while (rc == 0 && at < t->n) {
		at = ask_batch(t, a, q, at, &s, err);
		rc = at < 0 ? (int)at : 0;
		if (rc == 0 && q->progress)
			q->progress(q->arg, at < t->n ? at : t->n, t->n);
	}
	if (q->size > 1) {
		double *list[] = {s.right, s.norm, s.bytes, s.given, s.cut};

		rc = dt_comm_agree(q->ranks, rc, NULL, err);
		/* each item is one rank's; the others add 0 */
		for (size_t i = 0; i < sizeof(list) / sizeof(*list) && rc == 0; i++)
			rc = dt_all_reduce(q->ranks, list[i], NULL, t->n, DT_F64, DT_SUM, "answers", err);
	}
	if (rc == 0 && t->kind == DT_TASK_CLASSIFY)
		rc = confuse(t, &s, err);
	if (rc < 0) {
		dt_score_release(&s);
		return rc;
	}
	for (int64_t i = 0; i < s.n; i++)
		s.ncut += s.cut[i] > 0;
	s.acc = share_of(s.right, s.n, &s.acc_error);
	s.norm_acc = share_of(s.norm, s.n, &s.norm_error);
	s.bytes_acc = share_of(s.bytes, s.n, &s.bytes_error);
	*ret = s;
	return 0;
}

void dt_score_release(struct dt_score *s)
{
	free(s->right);
	free(s->norm);
	free(s->bytes);
	free(s->given);
	free(s->cut);
	free(s->confusion);
	free(s->precision);
	free(s->recall);
	free(s->f1);
	memset(s, 0, sizeof(*s));
}

/* Two-sided sign test: twice P(at most k heads in n tosses of a fair coin), at most 1. */
static double two_sided(int64_t k, int64_t n)
{
	double p = 0;

	for (int64_t i = 0; i <= k; i++)
		p += exp(lgamma((double)n + 1) - lgamma((double)i + 1) - lgamma((double)(n - i) + 1) -
			 (double)n * M_LN2);
	return 2 * p < 1 ? 2 * p : 1;
}

void dt_score_compare(const struct dt_score *a, const struct dt_score *b, struct dt_score_pair *ret)
{
	double sum = 0, square = 0, mean;

	*ret = (struct dt_score_pair){0};
	for (int64_t i = 0; i < a->n; i++) {
		const double d = b->right[i] - a->right[i];

		sum += d;
		square += d * d;
		ret->only_a += d < 0;
		ret->only_b += d > 0;
	}
	mean = sum / (double)a->n;
	ret->difference = mean;
	ret->error = a->n > 1 ? sqrt((square / (double)a->n - mean * mean) / (double)(a->n - 1)) : NAN;
	ret->p = two_sided(ret->only_a < ret->only_b ? ret->only_a : ret->only_b, ret->only_a + ret->only_b);
}

/* ---- output ---- */

static json_t *labels_json(const struct dt_task *t, const struct dt_score *s)
{
	json_t *list = json_array();

	for (int k = 0; k < t->nlabel; k++) {
		json_t *row = json_array();

		for (int j = 0; j < t->nlabel; j++)
			json_array_append_new(row, json_integer(s->confusion[k * t->nlabel + j]));
		json_array_append_new(list, json_pack("{s:s, s:f, s:f, s:f, s:o}", "label", t->label[k],
						      "precision", s->precision[k], "recall", s->recall[k],
						      "f1", s->f1[k], "given", row));
	}
	return list;
}

json_t *dt_score_json(const struct dt_task *t, const char *model, const struct dt_score *s)
{
	json_t *o = json_pack("{s:i, s:s, s:s, s:I}", "schema", 1, "model", model, "task", t->name, "items",
			      (json_int_t)s->n);

	json_object_set_new(o, "truncated", json_integer(s->ncut));
	if (t->kind == DT_TASK_GENERATE) {
		json_object_set_new(o, "exact_match", json_real(s->acc));
		json_object_set_new(o, "exact_match_stderr", dt_json_number(s->acc_error));
		return o;
	}
	json_object_set_new(o, "acc", json_real(s->acc));
	json_object_set_new(o, "acc_stderr", dt_json_number(s->acc_error));
	json_object_set_new(o, "acc_norm", json_real(s->norm_acc));
	json_object_set_new(o, "acc_norm_stderr", dt_json_number(s->norm_error));
	json_object_set_new(o, "acc_bytes", json_real(s->bytes_acc));
	json_object_set_new(o, "acc_bytes_stderr", dt_json_number(s->bytes_error));
	if (t->kind == DT_TASK_CLASSIFY) {
		json_object_set_new(o, "macro_f1", json_real(s->macro_f1));
		json_object_set_new(o, "labels", labels_json(t, s));
	}
	return o;
}

static void print_labels(const struct dt_task *t, const struct dt_score *s, FILE *f)
{
	struct dt_table *table;
	char head[2048] = "label|>precision|>recall|>F1";
	size_t n = strlen(head);

	if (t->nlabel <= 10)
		for (int k = 0; k < t->nlabel && n < sizeof(head); k++)
			n += (size_t)snprintf(head + n, sizeof(head) - n, "|>%.12s", t->label[k]);
	table = dt_table_new(head);
	for (int k = 0; k < t->nlabel; k++) {
		dt_table_cell(table, "%s", t->label[k]);
		dt_table_cell(table, "%.3f", s->precision[k]);
		dt_table_cell(table, "%.3f", s->recall[k]);
		dt_table_cell(table, "%.3f", s->f1[k]);
		for (int j = 0; j < t->nlabel && t->nlabel <= 10; j++)
			dt_table_cell(table, "%lld", (long long)s->confusion[k * t->nlabel + j]);
	}
	fputc('\n', f);
	dt_table_print(table, f);
	dt_table_free(table);
	if (t->nlabel <= 10)
		fputs("\nRows are labels, columns are predictions.\n", f);
}

/* " +- 0.0123"; empty for one item. */
static const char *error_of(double x, char text[32])
{
	*text = '\0';
	if (isfinite(x))
		snprintf(text, 32, " +- %.4f", x);
	return text;
}

static void print_cut(const struct dt_score *s, FILE *f)
{
	if (s->ncut)
		fprintf(f, "%lld of them longer than the context: the model was given only the end\n",
			(long long)s->ncut);
}

void dt_score_print(const struct dt_task *t, const struct dt_score *s, FILE *f)
{
	const char *items = s->n == 1 ? "item" : "items";
	char a[32], b[32];

	if (t->kind == DT_TASK_GENERATE) {
		fprintf(f, "%s: exact match %.4f%s, %lld %s\n", t->name, s->acc, error_of(s->acc_error, a),
			(long long)s->n, items);
		print_cut(s, f);
		return;
	}
	fprintf(f, "%s: acc %.4f%s, acc_norm %.4f%s, %lld %s\n", t->name, s->acc, error_of(s->acc_error, a),
		s->norm_acc, error_of(s->norm_error, b), (long long)s->n, items);
	print_cut(s, f);
	if (t->kind == DT_TASK_CLASSIFY) {
		fprintf(f, "macro F1 %.4f\n", s->macro_f1);
		print_labels(t, s, f);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
