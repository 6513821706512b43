#include "eval/task.h"

#include "base/jsonl.h"
#include "base/opt.h"
#include "base/room.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CHOICES 1024

/* The header of a task file, while the items are read. */
struct header {
	const char *template, *delimiter, *separator;
	const json_t *choices; /* of items without their own; with classify of all items. NULL: none */
};

static int want_string(const json_t *v, const char *what, const char **ret, struct dt_err *err)
{
	*ret = json_string_value(v);
	return *ret ? 0 : dt_err_set(err, -EINVAL, "%s is not a string", what);
}

/* Reads "x" or ["x", ...] as an array of copies. */
static int read_strings(const json_t *v, const char *key, char ***ret, int *ret_n, struct dt_err *err)
{
	size_t n = json_is_array(v) ? json_array_size(v) : 1;
	const char *s;
	int rc = 0;

	if (!v)
		return dt_err_set(err, -EINVAL, "'%s' is missing", key);
	if (n < 1 || n > MOST_CHOICES)
		return dt_err_set(err, -EINVAL, "'%s' has %zu entries; 1 to %d are allowed", key, n,
				  MOST_CHOICES);
	*ret = calloc(n, sizeof(**ret));
	if (!*ret)
		return dt_err_sys(err, -ENOMEM, "cannot read the task");
	for (*ret_n = 0; (size_t)*ret_n < n && rc == 0; ++*ret_n) {
		rc = want_string(json_is_array(v) ? json_array_get(v, (size_t)*ret_n) : v, key, &s, err);
		if (rc == 0 && !((*ret)[*ret_n] = strdup(s)))
			rc = dt_err_sys(err, -ENOMEM, "cannot read the task");
	}
	return rc;
}

/* "answer": a choice's index, or its text, which begins at byte `before` of the choice. */
static int find_answer(const json_t *o, char *const *choice, int n, size_t before, int *ret,
		       struct dt_err *err)
{
	const json_t *v = json_object_get(o, "answer");
	const char *s = json_string_value(v);

	if (json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) < n) {
		*ret = (int)json_integer_value(v);
		return 0;
	}
	for (int i = 0; s && i < n; i++)
		if (!strcmp(s, choice[i] + before)) {
			*ret = i;
			return 0;
		}
	return dt_err_set(err, -EINVAL,
			  v ? "'answer' is not one of the %d choices, which are numbered from 0"
			    : "'answer' is missing",
			  n);
}

static char *join(const char *a, const char *b)
{
	char *s = malloc(strlen(a) + strlen(b) + 1);

	if (s)
		strcat(strcpy(s, a), b);
	return s;
}

/* Reads choices, each with what stands before it. */
static int read_choices(const struct header *h, const json_t *list, char ***ret, int *ret_n,
			struct dt_err *err)
{
	int rc = read_strings(list, "choices", ret, ret_n, err);

	for (int i = 0; i < *ret_n && rc == 0; i++) {
		char *text = (*ret)[i], *whole = join(h->delimiter, text);

		if (!*text)
			rc = dt_err_set(err, -EINVAL, "choice %d is empty", i);
		else if (!whole)
			rc = dt_err_sys(err, -ENOMEM, "cannot read the task");
		if (rc < 0) {
			free(whole);
			break;
		}
		free(text);
		(*ret)[i] = whole;
	}
	return rc;
}

static int read_item(const struct dt_task *t, const struct header *h, const json_t *o,
		     struct dt_task_item *it, struct dt_err *err)
{
	int rc = 0;

	it->question = dt_task_fill(h->template, o, err);
	if (!it->question)
		return err->code;
	if (t->kind == DT_TASK_GENERATE)
		return read_strings(json_object_get(o, "answer"), "answer", &it->accepted, &it->naccepted,
				    err);
	if (h->choices && (t->kind == DT_TASK_CLASSIFY || !json_object_get(o, "choices"))) {
		it->choice = t->choice;
		it->nchoice = t->nchoice;
	} else {
		rc = read_choices(h, json_object_get(o, "choices"), &it->choice, &it->nchoice, err);
	}
	if (rc == 0)
		rc = find_answer(o, it->choice, it->nchoice, strlen(h->delimiter), &it->answer, err);
	if (rc == 0 && it->nchoice < 2)
		rc = dt_err_set(err, -EINVAL, "an item needs at least two choices");
	return rc;
}

static void strings_release(char **v, int n)
{
	for (int i = 0; i < n; i++)
		free(v[i]);
	free(v);
}

static void item_release(const struct dt_task *t, struct dt_task_item *it)
{
	if (it->choice != t->choice)
		strings_release(it->choice, it->nchoice);
	strings_release(it->accepted, it->naccepted);
	free(it->question);
}

/* Appends s to *text. */
static int extend(char **text, const char *s, struct dt_err *err)
{
	char *all = join(*text ? *text : "", s);

	if (!all)
		return dt_err_sys(err, -ENOMEM, "cannot read the task");
	free(*text);
	*text = all;
	return 0;
}

/* Formats the header's few-shot examples, each as an item followed by its answer. */
static int make_examples(struct dt_task *t, const struct header *h, const json_t *shots, struct dt_err *err)
{
	const json_t *o;
	size_t i;

	if (shots && !json_is_array(shots))
		return dt_err_set(err, -EINVAL, "'shots' is not a list of items");
	json_array_foreach(shots, i, o)
	{
		struct dt_task_item it = {0};
		int rc = read_item(t, h, o, &it, err);

		if (rc == 0)
			rc = extend(&t->examples, it.question, err);
		if (rc == 0 && !it.nchoice)
			rc = extend(&t->examples, h->delimiter, err);
		if (rc == 0)
			rc = extend(&t->examples, it.nchoice ? it.choice[it.answer] : it.accepted[0], err);
		if (rc == 0)
			rc = extend(&t->examples, h->separator, err);
		item_release(t, &it);
		if (rc < 0)
			return dt_err_prefix(err, "'shots': item %zu", i + 1);
	}
	return 0;
}

static int read_word(const json_t *o, const char *key, const char *words, int usual, int *ret,
		     struct dt_err *err)
{
	const char *s = NULL;
	int rc = dt_json_str(o, key, false, &s, err);

	*ret = s ? dt_opt_choice_index(words, s) : usual;
	if (rc >= 0 && *ret < 0)
		return dt_err_set(err, -EINVAL, "'%s' is '%s', not one of %s", key, s, words);
	return rc < 0 ? rc : 0;
}

static int check_keys(const json_t *o, struct dt_err *err)
{
	static const char *const known[] = {"task",	 "kind",       "template", "delimiter",
					    "separator", "choices",    "shots",	   "match",
					    "stop",	 "max_tokens", "source"};
	const char *key;
	json_t *v;

	json_object_foreach((json_t *)o, key, v)
	{
		size_t i = 0;

		while (i < sizeof(known) / sizeof(*known) && strcmp(known[i], key))
			i++;
		if (i == sizeof(known) / sizeof(*known))
			return dt_err_set(err, -EINVAL, "unknown key '%s' in the task header", key);
	}
	return 0;
}

static int check_template(const char *template, struct dt_err *err)
{
	char *s = dt_task_fill(template, NULL, err);

	free(s);
	return s ? 0 : err->code;
}

static int read_header(struct dt_task *t, struct header *h, const json_t *o, struct dt_err *err)
{
	const char *name = "task";
	int64_t most = 64;
	int rc = check_keys(o, err), kind = 0, match = 0;

	if (rc < 0 || (rc = dt_json_str(o, "task", true, &name, err)) < 0 ||
	    (rc = dt_json_str(o, "template", false, &h->template, err)) < 0 ||
	    (rc = check_template(h->template, err)) < 0 ||
	    (rc = dt_json_str(o, "delimiter", false, &h->delimiter, err)) < 0 ||
	    (rc = dt_json_str(o, "separator", false, &h->separator, err)) < 0 ||
	    (rc = dt_json_int(o, "max_tokens", false, 1, 1 << 20, &most, err)) < 0 ||
	    (rc = read_word(o, "kind", DT_TASK_KINDS, DT_TASK_CHOICE, &kind, err)) < 0 ||
	    (rc = read_word(o, "match", DT_TASK_MATCHES, DT_MATCH_EXACT, &match, err)) < 0)
		return rc;
	t->name = strdup(name);
	t->kind = (enum dt_task_kind)kind;
	t->match = (enum dt_task_match)match;
	t->max_tokens = (int)most;
	h->choices = json_object_get(o, "choices");
	if (t->kind == DT_TASK_CLASSIFY && !h->choices)
		return dt_err_set(err, -EINVAL, "a task of kind 'classify' needs 'choices', its labels");
	if (t->kind == DT_TASK_CLASSIFY)
		rc = read_strings(h->choices, "choices", &t->label, &t->nlabel, err);
	if (rc >= 0 && h->choices && t->kind != DT_TASK_GENERATE)
		rc = read_choices(h, h->choices, &t->choice, &t->nchoice, err);
	if (rc >= 0 && json_object_get(o, "stop"))
		rc = read_strings(json_object_get(o, "stop"), "stop", &t->stop, &t->nstop, err);
	return rc < 0 ? rc : make_examples(t, h, json_object_get(o, "shots"), err);
}

/* A text without a number can never be matched. */
static int check_numbers(const struct dt_task_item *it, struct dt_err *err)
{
	for (int i = 0; i < it->naccepted; i++)
		if (!it->accepted[i][strcspn(it->accepted[i], "0123456789")])
			return dt_err_set(err, -EINVAL, "'answer' is '%.40s', but 'match' compares numbers",
					  it->accepted[i]);
	return 0;
}

static int append(struct dt_task *t, const struct header *h, const json_t *o, int64_t line, int64_t *cap,
		  struct dt_err *err)
{
	int rc;

	if (!DT_ROOM(t->item, t->n, *cap, 256))
		return dt_err_sys(err, -ENOMEM, "cannot read the task");
	t->item[t->n] = (struct dt_task_item){.line = line};
	rc = read_item(t, h, o, &t->item[t->n++], err);
	return rc == 0 && t->match == DT_MATCH_NUMBER ? check_numbers(&t->item[t->n - 1], err) : rc;
}

int dt_task_read(const char *path, int64_t limit, struct dt_task *ret, struct dt_err *err)
{
	struct header h = {.template = "{question}", .delimiter = " ", .separator = "\n\n"};
	struct dt_jsonl in;
	json_t *o = NULL, *head = NULL;
	int64_t cap = 0;
	int rc = dt_jsonl_open(&in, path, err), more = 0;

	if (rc < 0)
		return rc;
	*ret = (struct dt_task){.max_tokens = 64};
	while (rc == 0 && (!limit || ret->n < limit) && (more = dt_jsonl_next(&in, &o, err)) == 1) {
		if (!head && !ret->n && json_object_get(o, "task"))
			rc = read_header(ret, &h, head = json_incref(o), err);
		else
			rc = append(ret, &h, o, (int64_t)in.line, &cap, err);
		if (rc < 0)
			dt_err_prefix(err, "%s:%zu", path, in.line);
		json_decref(o);
	}
	if (rc == 0 && more < 0)
		rc = more;
	if (rc == 0 && !ret->n)
		rc = dt_err_set(err, -EINVAL, "'%s' has no items", path);
	if (rc == 0 && !ret->name && !(ret->name = strdup(path)))
		rc = dt_err_sys(err, -ENOMEM, "cannot read '%s'", path);
	ret->before = strlen(h.delimiter);
	dt_jsonl_close(&in);
	json_decref(head);
	if (rc < 0)
		dt_task_release(ret);
	return rc;
}

char *dt_task_context(const struct dt_task *t, const struct dt_task_item *item)
{
	return join(t->examples ? t->examples : "", item->question);
}

void dt_task_release(struct dt_task *t)
{
	for (int64_t i = 0; i < t->n; i++)
		item_release(t, &t->item[i]);
	strings_release(t->stop, t->nstop);
	strings_release(t->label, t->nlabel);
	strings_release(t->choice, t->nchoice);
	free(t->item);
	free(t->examples);
	free(t->name);
	memset(t, 0, sizeof(*t));
}
/* SPDX-License-Identifier: Apache-2.0 */
