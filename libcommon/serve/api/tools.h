/*
 * Tools of a chat: parses their declarations, builds the grammar that constrains a call's arguments to the
 * tool's schema, and finds calls in the text of an answer, also while it is being generated.
 */
#ifndef DT_SERVE_TOOLS_H
#define DT_SERVE_TOOLS_H

#include "data/chat.h"
#include "grammar/grammar.h"

#define DT_TOOLS_MAX   128 /* max tools of a body */
#define DT_TOOLS_FENCE "```json"
#define DT_CALLS_MAX   32 /* max calls of an answer */

struct dt_tool_calls {
	size_t from, content; /* bytes [from, content) of the text are content for the user */
	const char *thought;  /* [nthought] text between <think> and </think>, or of harmony's channels */
	size_t nthought;
	int n;
	struct dt_tool_call {
		const char *name; /* [nname] points into the text, as args does */
		size_t nname;
		const char *args; /* [nargs] JSON generated so far; whole: it is complete */
		size_t nargs;
		bool whole;
	} call[DT_CALLS_MAX];
};

/*
 * Finds the calls in s [n]. inside: the prompt ended inside a call. ended: the text is complete; otherwise
 * bytes at the end that may begin a call are not counted as content. A call is reported once its name and the
 * beginning of its arguments are there.
 */
void dt_tools_scan(enum dt_tool_form form, bool inside, const char *s, size_t n, bool ended,
		   struct dt_tool_calls *ret);

/*
 * Length of the JSON object at the beginning of s, blanks aside, as far as it is there; 0: there is none.
 * *ret: where it begins.
 */
size_t dt_tools_object(const char *s, size_t n, const char **ret, bool *whole);
/* Where mark begins in s, or may begin at the end of s unless it has ended; n: nowhere. */
size_t dt_tools_before(const char *s, size_t n, const char *mark, bool ended);
/* Number of blanks at the beginning of s; n without those at its end. */
size_t dt_tools_blanks(const char *s, size_t n);
size_t dt_tools_trimmed(const char *s, size_t n);
/*
 * Finds reasoning, content and calls in the channels of harmony. calls: text after "to=" in a header is the
 * name of a tool, otherwise such messages are reasoning. inside and ended: as above.
 */
void dt_tools_channels(bool calls, bool inside, const char *s, size_t n, bool ended,
		       struct dt_tool_calls *ret);
/*
 * Finds the reasoning text: if s begins with <think>, sets thought. Returns the offset of the answer; n while
 * that is not known.
 */
size_t dt_tools_thought(const char *s, size_t n, bool ended, struct dt_tool_calls *ret);

/* The texts that precede a call, as struct dt_ask has them (trigger, first, once). */
struct dt_tools_opening {
	const char *text[4];
	const char *first;
	bool once;
};
const struct dt_tools_opening *dt_tools_opening(enum dt_tool_form form);
/*
 * Builds the grammar of a call of one of the tools or (Mistral) of a list of calls. list: the declarations,
 * checked here. only: the single tool that may be called, NULL: any. tokens: of harmony, NULL: text. -EINVAL
 * with what is wrong; -ENOTSUP: a schema cannot be enforced.
 */
int dt_tools_grammar(enum dt_tool_form form, const json_t *list, const char *only, bool parallel,
		     const struct dt_grammar_tokens *tokens, struct dt_grammar **ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
