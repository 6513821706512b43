/*
 * Tools of a chat: what a body says of them, the grammar that holds a call's arguments to the tool's
 * schema, and calls found in the text of an answer, while it comes too.
 */
#ifndef DT_SERVE_TOOLS_H
#define DT_SERVE_TOOLS_H

#include "data/chat.h"
#include "grammar/grammar.h"

#define DT_TOOLS_MAX 128 /* of a body */
#define DT_CALLS_MAX 32	 /* of an answer */

struct dt_tool_calls {
	size_t from, content; /* bytes [from, content) are text for the user */
	const char *thought;  /* [nthought] what the model wrote between <think> and </think> */
	size_t nthought;
	int n;
	struct dt_tool_call {
		const char *name; /* [nname], into the text, as args */
		size_t nname;
		const char *args; /* [nargs] JSON as far as it has come; whole: to its end */
		size_t nargs;
		bool whole;
	} call[DT_CALLS_MAX];
};

/*
 * The calls in s [n]. inside: the prompt ended where a call begins. ended: nothing more comes; before that,
 * bytes at the end that may become a call's opening are no content yet. A call counts once its name and the
 * beginning of its arguments are there.
 */
void dt_tools_scan(enum dt_tool_form form, bool inside, const char *s, size_t n, bool ended,
		   struct dt_tool_calls *ret);

/*
 * What a model thinks before it answers: where s begins with <think>, fills thought. Returns where the
 * answer begins; n while that is not known.
 */
size_t dt_tools_thought(const char *s, size_t n, bool ended, struct dt_tool_calls *ret);

/* The text behind which a call comes; NULL: the whole answer is one. */
const char *dt_tools_opening(enum dt_tool_form form);
/*
 * The grammar of a call of one of the tools, or (Mistral) of a list of them. list: checked here. only: the
 * one tool that may be called, NULL: any. -EINVAL with what is wrong, -ENOTSUP for a schema that cannot be
 * held to.
 */
int dt_tools_grammar(enum dt_tool_form form, const json_t *list, const char *only, bool parallel,
		     struct dt_grammar **ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
