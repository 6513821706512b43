/* Grammars of plain texts: of a regular expression, of listed texts, of a grammar in GBNF. */
#include "grammar/gbnf.h"
#include "grammar/schema.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STEPS (1 << 26)

/* The grammar of the automaton's texts; rc: what making the automaton returned. Frees it. */
static int finish(struct dt_schema *b, struct dt_auto *a, int rc, const char *what, struct dt_grammar **ret)
{
	if (rc == 0)
		b->g->root = dt_schema_emit(b, a);
	dt_auto_free(a);
	rc = rc < 0 ? rc : b->rc;
	if (b->g->no_memory || rc == -ENOMEM)
		rc = dt_err_sys(b->err, -ENOMEM, "cannot read %s", what);
	else if (rc == -E2BIG)
		dt_err_set(b->err, rc, "%s is too large", what);
	else if (rc == 0 && !dt_gr_prune(b->g))
		rc = b->g->no_memory ? dt_err_sys(b->err, -ENOMEM, "cannot read %s", what)
				     : dt_err_set(b->err, -EINVAL, "no text can match %s", what);
	if (rc == 0) {
		struct dt_matcher *m = dt_matcher_new(b->g);

		if (!m)
			rc = dt_err_set(b->err, -E2BIG, "%s is too large: too much may come first", what);
		dt_matcher_free(m);
	}
	if (rc < 0)
		dt_grammar_drop(b->g);
	else
		*ret = b->g;
	return rc;
}

int dt_grammar_regex(const char *pattern, struct dt_grammar **ret, struct dt_err *err)
{
	struct dt_schema b = {.g = dt_grammar_new(), .work = {MAX_STEPS}, .err = err, .raw = true};
	struct dt_auto *a = NULL;
	int rc;

	if (!b.g)
		return dt_err_sys(err, -ENOMEM, "cannot read the regular expression");
	rc = dt_auto_regex_whole(pattern, &b.work, &a, err);
	return finish(&b, a, rc, "the regular expression", ret);
}

int dt_grammar_words(const char *const *word, int n, struct dt_grammar **ret, struct dt_err *err)
{
	struct dt_schema b = {.g = dt_grammar_new(), .work = {MAX_STEPS}, .err = err, .raw = true};
	struct dt_auto *a = NULL;
	int rc;

	if (!b.g)
		return dt_err_sys(err, -ENOMEM, "cannot read the list of texts");
	rc = dt_auto_words(word, n, &b.work, &a);
	return finish(&b, a, rc, "the list of texts", ret);
}

static bool is_utf8(const char *text, size_t n)
{
	size_t m;
	char *clean = dt_utf8_clean(text, n, &m);
	const bool same = clean && m == n && !memcmp(clean, text, n);

	free(clean);
	return same;
}

int dt_grammar_gbnf(const char *text, size_t n, const struct dt_grammar_tokens *tokens,
		    struct dt_grammar **ret, struct dt_err *err)
{
	struct dt_gbnf x = {
		.text = text, .end = text + n, .at = text, .tokens = tokens, .work = MAX_STEPS, .err = err};
	struct dt_grammar *g = dt_grammar_new();
	struct dt_matcher *m = NULL;

	if (!g)
		x.rc = dt_err_sys(err, -ENOMEM, "cannot read the grammar");
	else if (!is_utf8(text, n))
		x.rc = dt_err_set(err, -EINVAL, "the grammar is not UTF-8");
	else if (dt_gbnf_read(&x) && dt_gbnf_rules(&x, g) && dt_gbnf_set_tokens(&x, g) && !dt_gr_prune(g) &&
		 !g->no_memory)
		x.rc = dt_err_set(err, -EINVAL, "no text can match the grammar: its rules never end");
	dt_gbnf_release(&x);
	if (x.rc == 0 && g->no_memory)
		x.rc = dt_err_sys(err, -ENOMEM, "cannot read the grammar");
	if (x.rc == 0 && !(m = dt_matcher_new(g)))
		x.rc = dt_err_set(err, -E2BIG, "the grammar is too large: too much may come first");
	dt_matcher_free(m);
	if (x.rc < 0)
		dt_grammar_drop(g);
	else
		*ret = g;
	return x.rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
