#include "supervise/priv.h"

#include "ckpt/ckpt.h"
#include "plan/run_rows.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Binds every option of a run: each may rule out a layout, or change its memory. */
static int bind_options(struct sup_command *c)
{
	const int n = dt_run_row_count();

	c->table = calloc((size_t)n + 1, sizeof(*c->table));
	for (int i = 0; i < n && c->table; i++) {
		c->table[i] = dt_run_row_bound(&c->o, i);
		c->table[i].given = &c->o.given[i];
	}
	return c->table ? 0 : -ENOMEM;
}

void sup_words_add(struct sup_words *w, const char *fmt, ...)
{
	char **grown = realloc(w->v, ((size_t)w->n + 2) * sizeof(*grown));
	va_list ap;

	if (!grown)
		return;
	w->v = grown;
	va_start(ap, fmt);
	if (vasprintf(&w->v[w->n], fmt, ap) >= 0)
		w->n++;
	va_end(ap);
	w->v[w->n] = NULL;
}

void sup_words_free(struct sup_words *w)
{
	for (int i = 0; i < w->n; i++)
		free(w->v[i]);
	free(w->v);
	*w = (struct sup_words){0};
}

static bool is_program(const char *word, const char *name)
{
	return !strncmp(basename(word), name, strlen(name));
}

/* The option that a word of the command line names; *ret_arg: its argument, in the same word or the next. */
static const struct dt_opt *find(const struct dt_opt *table, const char *word, const char *next, bool *ret_no,
				 const char **ret_arg, int *ret_words)
{
	bool no = !strncmp(word, "--no-", 5);

	*ret_words = 1;
	for (const struct dt_opt *o = table; o->name || o->help; o++) {
		size_t n = o->name ? strlen(o->name) : 0;
		const char *rest = NULL;

		if (n && !strncmp(word, "--", 2) && !strncmp(word + 2, o->name, n) &&
		    (!word[2 + n] || word[2 + n] == '='))
			rest = word + 2 + n;
		else if (n && no && o->negatable && !strcmp(word + 5, o->name))
			return *ret_no = true, *ret_arg = NULL, o;
		else if (n && o->short_name && word[0] == '-' && word[1] == o->short_name)
			rest = word + 2;
		if (!rest)
			continue;
		*ret_no = false;
		*ret_arg = o->type == DT_OPT_FLAG ? NULL : *rest == '=' ? rest + 1 : *rest ? rest : next;
		*ret_words = o->type != DT_OPT_FLAG && !*rest ? 2 : 1;
		return o;
	}
	return NULL;
}

/* Reads a run's options from the command; all other words are ignored. */
static int scan(struct sup_command *c, struct dt_err *err)
{
	int words;

	for (int i = c->program + 1; c->argv[i]; i += words) {
		const char *arg;
		bool no;
		const struct dt_opt *o = find(c->table, c->argv[i], c->argv[i + 1], &no, &arg, &words);

		if (!o)
			continue;
		if (o->type != DT_OPT_FLAG && !arg)
			return dt_err_set(err, -EINVAL, "'%s' needs an argument", c->argv[i]);
		if (no)
			*(bool *)o->dest = false;
		else if (dt_opt_set(o, arg, err) < 0)
			return dt_err_prefix(err, "option '--%s' of dt-train", o->name);
		if (o->given)
			*o->given = true;
	}
	return 0;
}

int sup_command_read(struct sup_command *c, char *const *argv, struct dt_err *err)
{
	const struct dt_run_save *s = &c->o.run.save;
	int rc;

	*c = (struct sup_command){.argv = argv};
	while (argv[c->program] && !is_program(argv[c->program], "dt-train") &&
	       !is_program(argv[c->program], "dt-serve"))
		c->program++;
	if (!argv[c->program])
		return dt_err_set(err, -EINVAL, "the command runs neither dt-train nor dt-serve");
	c->serves = is_program(argv[c->program], "dt-serve");
	c->resumes = c->serves;
	if (c->serves)
		return 0;
	if (bind_options(c) < 0)
		return dt_err_sys(err, -ENOMEM, "options");
	for (const struct dt_opt *o = c->table; o->name || o->help; o++)
		if (o->def && (rc = dt_opt_set(o, o->def, err)) < 0)
			return rc;
	if ((rc = scan(c, err)) < 0)
		return rc;
	if (!s->dir)
		return dt_err_set(err, -EINVAL,
				  "dt-train needs --save: a restart without a checkpoint loses all progress");
	if (s->resume && strcmp(s->resume, "auto"))
		return dt_err_set(err, -EINVAL, "dt-run needs --resume auto, not '%s'", s->resume);
	if (s->overwrite)
		return dt_err_set(
			err, -EINVAL,
			"with --overwrite every restart would begin at step 0: remove '%s' first, or change "
			"--save",
			s->dir);
	c->resumes = s->resume != NULL;
	return 0;
}

void sup_command_release(struct sup_command *c)
{
	json_decref(c->saved);
	free(c->table);
	*c = (struct sup_command){0};
}

static void say_nothing(void *arg, const char *text)
{
}

int sup_command_refresh(struct sup_command *c, int64_t *ret_step, struct dt_err *err)
{
	struct dt_ckpt *ck;
	int rc = c->serves ? -ENOENT : dt_ckpt_open(c->o.run.save.dir, &ck, err);

	*ret_step = -1;
	if (rc == -ENOENT)
		return 0;
	if (rc < 0)
		return rc;
	*ret_step = dt_ckpt_step(ck);
	if (!c->saved && (c->saved = json_deep_copy(json_object_get(dt_ckpt_meta(ck), "run")))) {
		/* dt-train reports the same errors itself. */
		(void)dt_run_options_resume(&c->o, c->saved, say_nothing, NULL, NULL);
	}
	dt_ckpt_close(ck);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
