/*
 * A task: questions with known answers, JSON Lines. The first line may be a header, an object with the key
 * "task"; every other line is an item. dt-eval(1) describes both. Fields of an item are put into the
 * template, "{field}"; "{{" is a brace.
 */
#ifndef DT_EVAL_TASK_H
#define DT_EVAL_TASK_H

#include "base/json.h"

enum dt_task_kind {
	DT_TASK_CHOICE,	  /* which of an item's continuations is the likeliest */
	DT_TASK_CLASSIFY, /* the same choices for all items: labels */
	DT_TASK_GENERATE, /* the greedy continuation is the answer */
};
#define DT_TASK_KINDS "choice|classify|generate"

/*
 * What counts as the same text, of a generated answer: all but white space around it; without case,
 * punctuation, articles and runs of white space (SQuAD, Rajpurkar et al. 2016); the last number in it (GSM8K,
 * Cobbe et al. 2021).
 */
enum dt_task_match { DT_MATCH_EXACT, DT_MATCH_LOOSE, DT_MATCH_NUMBER };
#define DT_TASK_MATCHES "exact|loose|number"

struct dt_task_item {
	int64_t line;
	char *question; /* template with the item's fields; the task's examples stand before it */
	char **choice;	/* [nchoice] continuations, what stands before them included; may be the task's */
	int nchoice, answer;
	char **accepted; /* generate: [naccepted] */
	int naccepted;
};

struct dt_task {
	char *name;
	enum dt_task_kind kind;
	enum dt_task_match match;
	int max_tokens;
	char **stop; /* [nstop] */
	int nstop;
	char **label; /* [nlabel], classify */
	int nlabel;
	char *examples; /* few-shot examples, before every question */
	char **choice;	/* [nchoice] continuations that all items have; NULL: items have their own */
	int nchoice;
	size_t before; /* bytes of a choice that stand before its text: the delimiter's */
	struct dt_task_item *item;
	int64_t n;
};

/* Reads the task, the first limit items of it (0: all). Messages name the line. */
int dt_task_read(const char *path, int64_t limit, struct dt_task *ret, struct dt_err *err);
void dt_task_release(struct dt_task *t);

/* What the model is given of an item: the examples and the question. malloc'd; NULL: out of memory. */
char *dt_task_context(const struct dt_task *t, const struct dt_task_item *item);

/* Whether text is one of the accepted answers, as the task matches. */
bool dt_task_matches(const struct dt_task *t, const struct dt_task_item *item, const char *text);

/*
 * task_text.c: the template with o's fields, without any where o is NULL; malloc'd, NULL with err set
 * where it names one that o has not, or is no template.
 */
char *dt_task_fill(const char *template, const json_t *o, struct dt_err *err);
/* What two answers are compared by, malloc'd. */
char *dt_task_normal(enum dt_task_match how, const char *text);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
