/*
 * Lines of JSON that hold conversations, in the forms in use:
 *
 *   messages       [{"role", "content", "tool_calls"}], and "tools"
 *   conversations  [{"from": "human" | "gpt" | "system" | "tool", "value"}] (ShareGPT)
 *   prompt, completion            texts, or messages; only the completion is learnt
 *   instruction, input, output    (Alpaca)
 *
 * and of preferences
 *
 *   chosen, rejected              beside a prompt, or as whole conversations that begin alike
 *   prompt, completion, label     one answer, true: good, false: bad
 */
#ifndef DT_DATA_CHAT_FORM_H
#define DT_DATA_CHAT_FORM_H

#include "data/chat.h"
#include "data/dataset.h"

struct dt_chat_example {
	json_t *messages;    /* owned */
	const json_t *tools; /* of the line; NULL: none */
	size_t from;	     /* messages before it are the prompt */
	bool texts;	     /* prompt and completion were texts, here one message each */
	enum dt_document_kind kind;
};

/* Whether a line of preferences is one answer with a label. */
static inline bool dt_chat_labelled(const json_t *line)
{
	return json_object_get(line, "label") != NULL;
}

/*
 * The examples of a line; returns their number. A conversation: 1. A pair: 2, chosen and rejected. An answer
 * with a label: 2, the answer, and its prompt with the mismatched answer of line `other`. -EINVAL with a
 * message. The caller releases the examples; line must outlive them.
 */
int dt_chat_examples(const json_t *line, bool preferences, const json_t *other, struct dt_chat_example ret[2],
		     struct dt_err *err);
void dt_chat_example_release(struct dt_chat_example *e);

/*
 * Its tokens, of which those that are learnt are marked. A prompt and a completion of texts are a turn each,
 * or, where the template is DT_CHAT_NONE, one text.
 */
int dt_chat_example_encode(const struct dt_chat *c, const struct dt_chat_example *e,
			   struct dt_chat_whole *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
