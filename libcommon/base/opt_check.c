/* Checks across options and the command, after parsing. */
#include "base/opt_check.h"
#include "base/suggest.h"

#include <string.h>

/* Whether word is in the comma-separated list. */
static bool word_in(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
		if (!strncmp(p, word, n) && (p[n] == ',' || p[n] == '\0'))
			return true;
	return false;
}

static int unknown_command(const struct dt_program *p, const char *word, FILE *errout)
{
	struct dt_suggest s = dt_suggest(word);
	char text[128];

	for (const struct dt_command *c = p->commands; c->name; c++)
		dt_suggest_offer(&s, c->name);
	return dt_opt_usage_error(p, errout, "unknown command '%s'%s", word,
				  dt_suggest_text(&s, "", text, sizeof(text)));
}

int dt_opt_check_command(const struct dt_program *p, int nargs, char **argv, const bool *given, FILE *errout)
{
	const struct dt_command *c = p->commands;

	if (!c)
		return -1;
	if (nargs == 0)
		return dt_opt_usage_error(p, errout, "a command is missing");
	while (c->name && strcmp(c->name, argv[1]))
		c++;
	if (!c->name)
		return unknown_command(p, argv[1], errout);
	for (int i = 0; p->opts[i].name || p->opts[i].help; i++)
		if (given[i] && p->opts[i].commands && !word_in(p->opts[i].commands, argv[1]))
			return dt_opt_usage_error(p, errout, "option '--%s' cannot be combined with '%s'",
						  p->opts[i].name, argv[1]);
	return -1;
}

/* ---- .with and .without ---- */

enum presence { UNKNOWN, ABSENT, GIVEN };

static bool says(const struct dt_opt *o, const char *name, size_t n)
{
	return o->name && strlen(o->name) == n && !strncmp(o->name, name, n);
}

/* Whether the option "x" or "no-x", a name of n letters, was on the command line. */
static enum presence presence(const struct dt_opt *opts, const bool *given, const char *name, size_t n)
{
	for (int i = 0; opts[i].name || opts[i].help; i++) {
		bool flag = opts[i].type == DT_OPT_FLAG;

		if (says(&opts[i], name, n))
			return given[i] && (!flag || *(bool *)opts[i].dest) ? GIVEN : ABSENT;
		if (opts[i].negatable && n > 3 && !strncmp(name, "no-", 3) && says(&opts[i], name + 3, n - 3))
			return given[i] && !*(bool *)opts[i].dest ? GIVEN : ABSENT;
	}
	return UNKNOWN;
}

/* Writes "--kv-host or --kv-disk" for "kv-host,kv-disk" to text, only options that the program has. */
static void name_all(const struct dt_opt *opts, const bool *given, const char *list, char *text, size_t size)
{
	size_t len = 0;

	text[0] = '\0';
	for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
		size_t n = strcspn(p, ",");

		if (presence(opts, given, p, n) != UNKNOWN && len < size)
			len += (size_t)snprintf(text + len, size - len, "%s--%.*s", len ? " or " : "", (int)n,
						p);
	}
}

/* "no-" if the option is a flag that is off, as given by --no-x. */
static const char *negation(const struct dt_opt *o)
{
	return o->type == DT_OPT_FLAG && !*(bool *)o->dest ? "no-" : "";
}

static int check_with(const struct dt_program *p, const struct dt_opt *o, const bool *given, FILE *errout)
{
	enum presence found = UNKNOWN;
	char text[128];

	for (const char *w = o->with; w; w = strchr(w, ',') ? strchr(w, ',') + 1 : NULL) {
		enum presence one = presence(p->opts, given, w, strcspn(w, ","));

		found = one > found ? one : found;
	}
	if (found != ABSENT)
		return -1;
	name_all(p->opts, given, o->with, text, sizeof(text));
	return dt_opt_usage_error(p, errout, "--%s%s requires %s", negation(o), o->name, text);
}

static int check_without(const struct dt_program *p, const struct dt_opt *o, const bool *given, FILE *errout)
{
	for (const char *w = o->without; w; w = strchr(w, ',') ? strchr(w, ',') + 1 : NULL) {
		size_t n = strcspn(w, ",");

		if (presence(p->opts, given, w, n) == GIVEN)
			return dt_opt_usage_error(p, errout, "--%s%s cannot be combined with --%.*s",
						  negation(o), o->name, (int)n, w);
	}
	return -1;
}

int dt_opt_check_pairs(const struct dt_program *p, const bool *given, FILE *errout)
{
	int status = -1;

	for (int i = 0; status < 0 && (p->opts[i].name || p->opts[i].help); i++) {
		const struct dt_opt *o = &p->opts[i];

		if (!given[i] || (o->type == DT_OPT_FLAG && !*(bool *)o->dest && !dt_opt_is_set(o)))
			continue;
		if ((status = check_with(p, o, given, errout)) < 0)
			status = check_without(p, o, given, errout);
	}
	return status;
}
/* SPDX-License-Identifier: Apache-2.0 */
