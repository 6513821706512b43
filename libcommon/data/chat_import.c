#include "data/chat_import.h"

#include "base/jsonl.h"
#include "data/chat_pack.h"
#include "data/chat_spool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct example {
	int64_t at;	 /* first token in the spool */
	int32_t n[2];	 /* tokens of the example and of its pair, if it has one */
	uint8_t kind[2]; /* enum dt_document_kind */
};

struct pool {
	struct dt_chat_import *im;
	struct dt_chat_spool tokens;
	struct example *example;
	int64_t examples, examples_cap;
	json_t *first, *before; /* lines with a label: the first, not processed yet, and the previous one */
	bool pairs;
};

static int no_memory(struct dt_err *err)
{
	return dt_err_sys(err, -ENOMEM, "cannot hold the examples");
}

static int64_t targets_of(const uint8_t *mask, int64_t n)
{
	int64_t sum = 0;

	for (int64_t i = 1; i < n; i++) /* the first token is not predicted */
		sum += mask[i];
	return sum;
}

static int show(struct dt_chat_import *im, const struct dt_chat_whole *w, struct dt_err *err)
{
	struct dt_chat_whole *s = &im->shown;

	s->ids = malloc((w->n + 1) * sizeof(*s->ids));
	s->mask = malloc(w->n + 1);
	if (!s->ids || !s->mask)
		return no_memory(err);
	memcpy(s->ids, w->ids, w->n * sizeof(*s->ids));
	memcpy(s->mask, w->mask, w->n);
	s->n = w->n;
	return 0;
}

/* Stores a line's encoded examples, truncated to fit. Returns 1 if kept, 0 if left out. */
static int keep(struct pool *p, const struct dt_chat_whole w[2], int count,
		const enum dt_document_kind kind[2], struct dt_err *err)
{
	struct dt_chat_import *im = p->im;
	struct example e = {.at = p->tokens.tokens, .kind = {(uint8_t)kind[0], (uint8_t)kind[1]}};
	int64_t room = im->seq, lost = 0, total = 0;
	bool empty = false;
	int rc = 0;

	for (int i = 0; i < count; i++)
		total += (int64_t)w[i].n;
	if (total > im->seq && im->drop_long)
		return im->left_out++, 0;
	if (total > im->seq && count == 2) /* one shorter than half a sample is kept whole */
		room = im->seq / 2;
	for (int i = 0; i < count; i++) {
		int64_t n = (int64_t)w[i].n, other = count == 2 ? (int64_t)w[!i].n : 0;
		int64_t mine = total <= im->seq ? n : other < room ? im->seq - other : room;

		e.n[i] = (int32_t)(n < mine ? n : mine);
		lost += targets_of(w[i].mask, n) - targets_of(w[i].mask, e.n[i]);
		empty |= !targets_of(w[i].mask, e.n[i]);
	}
	if (empty)
		return im->left_out++, 0;
	im->cut += total > im->seq;
	im->cut_targets += lost;
	if (p->examples == p->examples_cap) {
		int64_t cap = 2 * p->examples_cap + 256;
		struct example *bigger = realloc(p->example, (size_t)cap * sizeof(e));

		if (!bigger)
			return no_memory(err);
		p->example = bigger;
		p->examples_cap = cap;
	}
	for (int i = 0; i < count && rc == 0; i++)
		rc = dt_chat_spool_put(&p->tokens, w[i].ids, w[i].mask, e.n[i], err);
	if (rc == 0)
		p->example[p->examples++] = e;
	return rc < 0 ? rc : 1;
}

/* Encodes and stores a line. other: for a labelled line, the line whose answer serves as a mismatched one. */
static int take(struct pool *p, const json_t *line, const json_t *other, struct dt_err *err)
{
	struct dt_chat_example e[2];
	struct dt_chat_whole w[2] = {0};
	enum dt_document_kind kind[2] = {DT_DOCUMENT_PLAIN, DT_DOCUMENT_PLAIN};
	int n = dt_chat_examples(line, p->im->preferences, other, e, err), rc = n < 0 ? n : 0;

	for (int i = 0; i < n; i++) {
		if (rc == 0)
			rc = dt_chat_example_encode(p->im->chat, &e[i], &w[i], err);
		if (rc == 0 && !targets_of(w[i].mask, (int64_t)w[i].n))
			rc = dt_err_set(err, -EINVAL,
					"the example has no target: it has no text of the assistant");
		kind[i] = e[i].kind;
		dt_chat_example_release(&e[i]);
	}
	if (rc == 0 && !p->im->shown.ids)
		rc = show(p->im, &w[0], err);
	if (rc == 0)
		rc = keep(p, w, n, kind, err);
	for (int i = 0; i < 2; i++) {
		free(w[i].ids);
		free(w[i].mask);
	}
	return rc < 0 ? rc : 0;
}

/* Pairs each labelled line with the answer of the line before, and the first with that of the last. */
static int take_line(struct pool *p, json_t *line, struct dt_err *err)
{
	const bool label = p->im->preferences && dt_chat_labelled(line);
	struct dt_chat_example e[2];
	int rc;

	if (p->im->preferences && (label ? p->pairs : p->first != NULL))
		return dt_err_set(err, -EINVAL, "pairs and labelled answers cannot be in the same dataset");
	if (!label) {
		p->pairs = p->im->preferences;
		return take(p, line, NULL, err);
	}
	if (p->before) {
		rc = take(p, line, p->before, err);
	} else if ((rc = dt_chat_examples(line, true, line, e, err)) > 0) {
		dt_chat_example_release(&e[0]);
		dt_chat_example_release(&e[1]);
		p->first = json_incref(line);
	}
	if (rc < 0)
		return rc;
	json_decref(p->before);
	p->before = json_incref(line);
	return 0;
}

static int take_first(struct pool *p, struct dt_err *err)
{
	if (p->first == p->before)
		return dt_err_set(err, -EINVAL,
				  "a single labelled answer is not enough: it is compared with the answer of "
				  "another line");
	return take(p, p->first, p->before, err);
}

static int read_file(struct pool *p, const char *path, struct dt_err *err)
{
	struct dt_chat_import *im = p->im;
	struct dt_jsonl j;
	json_t *line;
	int rc = dt_jsonl_open(&j, path, err), got;

	if (rc < 0)
		return rc;
	j.skip_bad = im->skip_bad;
	while (rc == 0 && (got = dt_jsonl_next(&j, &line, err)) != 0) {
		struct dt_err why = {0};

		if (got < 0) {
			rc = got;
			break;
		}
		rc = take_line(p, line, &why);
		json_decref(line);
		if (rc < 0)
			dt_err_prefix(&why, "%s:%zu", j.name, j.line);
		if (rc == -EINVAL && im->skip_bad) {
			im->bad++;
			if (im->told)
				im->told(im->ctx, why.msg);
			rc = 0;
		} else if (rc < 0 && err) {
			*err = why;
		}
	}
	im->bad += (int64_t)j.bad;
	dt_jsonl_close(&j);
	return rc;
}

static int64_t length_of(const struct example *e)
{
	return (int64_t)e->n[0] + e->n[1];
}

/* What is needed to write samples: examples one after another, and padding. */
struct writing {
	struct pool *p;
	struct dt_dataset_writer *w;
	int32_t *fill, *ids; /* [seq] padding tokens; an example's */
	uint8_t *mask;	     /* [seq] */
	struct dt_chat_counts *count;
};

static int write_example(const struct writing *o, const struct example *e, struct dt_err *err)
{
	int64_t at = e->at;
	int rc = 0;

	for (int i = 0; i < 2 && rc == 0; at += e->n[i++]) {
		if (!e->n[i])
			continue;
		rc = dt_chat_spool_get(&o->p->tokens, at, e->n[i], o->ids, o->mask, err);
		if (rc < 0)
			break;
		rc = dt_dataset_append_marked(o->w, o->ids, o->mask, (size_t)e->n[i],
					      (enum dt_document_kind)e->kind[i], err);
		o->count->tokens += e->n[i];
		o->count->targets += targets_of(o->mask, e->n[i]);
	}
	return rc;
}

static int fill_up(const struct writing *o, int64_t n, struct dt_err *err)
{
	return n ? dt_dataset_append_marked(o->w, o->fill, NULL, (size_t)n, DT_DOCUMENT_PLAIN, err) : 0;
}

/* Writes examples by sample: order[first[s] .. first[s + 1]) are those of sample s, in order. */
static int write_samples(const struct writing *o, const struct example *e, const int64_t *sample, int64_t n,
			 int64_t samples, struct dt_err *err)
{
	int64_t *first = calloc((size_t)samples + 2, sizeof(*first)), *order = malloc((size_t)(n + 1) * 8);
	int rc = first && order ? 0 : no_memory(err);

	for (int64_t i = 0; i < n && rc == 0; i++)
		first[sample[i] + 2]++;
	for (int64_t s = 2; s <= samples && rc == 0; s++)
		first[s + 1] += first[s];
	for (int64_t i = 0; i < n && rc == 0; i++)
		order[first[sample[i] + 1]++] = i;
	for (int64_t s = 0; s < samples && rc == 0; s++) {
		int64_t room = o->p->im->seq;

		for (int64_t k = first[s]; k < first[s + 1] && rc == 0; k++) {
			rc = write_example(o, &e[order[k]], err);
			room -= length_of(&e[order[k]]);
		}
		if (rc == 0)
			rc = fill_up(o, room, err);
	}
	if (rc == 0)
		rc = fill_up(o, 1, err); /* a sample is seq tokens and the next one */
	free(first);
	free(order);
	return rc;
}

static int write_set(struct pool *p, const char *path, int64_t first, int64_t n, struct dt_chat_counts *count,
		     struct dt_err *err)
{
	const struct dt_chat_import *im = p->im;
	int32_t eot = dt_tokenizer_eot(im->tok);
	struct writing o = {.p = p,
			    .fill = malloc((size_t)im->seq * sizeof(*o.fill)),
			    .ids = malloc((size_t)im->seq * sizeof(*o.ids)),
			    .mask = malloc((size_t)im->seq),
			    .count = count};
	int64_t *length = malloc((size_t)(n + 1) * 16), *sample = length + n, samples;
	int rc = o.fill && o.ids && o.mask && length
			 ? dt_dataset_create(path, im->tok, 0, im->source, &o.w, err)
			 : no_memory(err);

	if (rc == 0) {
		dt_dataset_set_shards(o.w, im->shards);
		dt_dataset_set_row(o.w, im->seq);
		dt_dataset_set_chat(o.w, im->template);
		for (int64_t i = 0; i < im->seq; i++)
			o.fill[i] = eot < 0 ? 0 : eot;
		for (int64_t i = 0; i < n; i++)
			length[i] = length_of(&p->example[first + i]);
		samples = dt_pack_best_fit(length, n, im->seq, sample, err);
		count->examples = n;
		count->samples = samples;
		rc = samples < 0 ? (int)samples
				 : write_samples(&o, p->example + first, sample, n, samples, err);
		if (rc == 0)
			rc = dt_dataset_finish(o.w, err);
		else
			dt_dataset_abandon(o.w);
	}
	free(o.fill);
	free(o.ids);
	free(o.mask);
	free(length);
	return rc;
}

int dt_chat_import(struct dt_chat_import *im, int n, const char *const *paths, const char *const out[2],
		   struct dt_err *err)
{
	struct pool p = {.im = im};
	int64_t eval = 0;
	int rc = dt_chat_spool_open(&p.tokens, out[0], err);

	for (int i = 0; i < n && rc == 0; i++)
		rc = read_file(&p, paths[i], err);
	if (rc == 0 && p.first)
		rc = take_first(&p, err);
	if (rc == 0 && out[1])
		eval = (int64_t)((double)p.examples * im->eval_percent / 100);
	if (rc == 0 && (p.examples - eval < 1 || (out[1] && eval < 1)))
		rc = dt_err_set(err, -EINVAL, "%lld examples are too few%s%s", (long long)p.examples,
				im->left_out ? ": the others are longer than a sample" : "",
				out[1] ? " for two datasets" : "");
	/* The evaluation set first: whoever sees train.h5 finds eval.h5 too. */
	if (rc == 0 && out[1])
		rc = write_set(&p, out[1], p.examples - eval, eval, &im->set[1], err);
	if (rc == 0)
		rc = write_set(&p, out[0], 0, p.examples - eval, &im->set[0], err);
	json_decref(p.first);
	json_decref(p.before);
	dt_chat_spool_close(&p.tokens);
	free(p.example);
	return rc;
}

void dt_chat_import_release(struct dt_chat_import *im)
{
	free(im->shown.ids);
	free(im->shown.mask);
	im->shown = (struct dt_chat_whole){0};
}

int dt_chat_open(struct dt_chat *c, int kind, const char *text, const struct dt_tokenizer *tok,
		 const char *whose, struct dt_err *err)
{
	if (kind < 0 && text)
		kind = dt_chat_recognise(text, tok);
	if (kind < 0)
		kind = dt_chat_recognise(NULL, tok);
	if (kind < 0) {
		dt_err_set(err, -EINVAL, "'%s' has no known chat template", whose);
		dt_err_hint(err, "choose one with --chat-template: " DT_CHAT_NAMES);
		return -EINVAL;
	}
	dt_chat_init(c, (enum dt_chat_kind)kind, text, tok);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
