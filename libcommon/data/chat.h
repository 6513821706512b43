/*
 * Chat templates: how the messages of a conversation become one prompt. A model's own template is a program
 * in Jinja; the families that models in use belong to are written here, and recognised from the template's
 * text or from the tokenizer.
 *
 * Only the template writes special tokens: their text within a message stays text, so that nobody can end a
 * turn from inside.
 */
#ifndef DT_DATA_CHAT_H
#define DT_DATA_CHAT_H

#include "base/json.h"
#include "data/tokenizer.h"

enum dt_chat_kind {
	DT_CHAT_NONE, /* the contents, a line each */
	DT_CHAT_CHATML,
	DT_CHAT_LLAMA2,
	DT_CHAT_LLAMA3,
	DT_CHAT_MISTRAL,
	DT_CHAT_GEMMA,
	DT_CHAT_ZEPHYR,
	DT_CHAT_PHI3,
	DT_CHAT_DEEPSEEK2,
	DT_CHAT_DEEPSEEK3, /* R1 too */
	DT_CHAT_HARMONY,   /* gpt-oss */
	DT_CHAT_IDEFICS,   /* Idefics3, SmolVLM: the only one that takes images */
	DT_CHAT_N,
};
#define DT_CHAT_NAMES                                                                                        \
	"none|chatml|llama2|llama3|mistral|gemma|zephyr|phi3|deepseek2|deepseek3|harmony|idefics"

#define DT_CHAT_SPECIALS 12 /* tokens of a template */

/* An image of a conversation: rows and columns of tiles; 0: there is that of the whole image alone. */
struct dt_chat_image {
	int rows, cols;
};

struct dt_chat {
	enum dt_chat_kind kind;
	const struct dt_tokenizer *tok; /* outlives it */
	int32_t end;			/* the token that ends a turn, -1: none */
	int32_t call;			/* harmony's token that ends a turn with a call, -1: none */
	char system[512];		/* the template's default system prompt; "": none */
	bool thinks;   /* answers may begin with reasoning: <think>, or a channel of harmony */
	bool switches; /* the template can turn off reasoning (Qwen3's enable_thinking) */
	bool quiet;    /* turn it off: the answer's turn begins with an empty thought; false after init */
	bool dated;    /* Llama 3.1's lines about dates */
	const char *effort; /* of reasoning, as harmony has it: low, medium, high; NULL: medium */
	bool llama;	    /* a conversation begins with the token of Llama 3 (Idefics3) */
	bool v3;	    /* Mistral's form from v0.3 on, which knows tools */
	/*
	 * Images of the messages to be encoded, one for each part "image_url", in their order; and the tokens
	 * that a tile becomes. None after init.
	 */
	const struct dt_chat_image *image;
	int nimages, tile_rows;
	struct dt_chat_special {
		const char *text;
		int32_t id;
	} special[DT_CHAT_SPECIALS]; /* found once: looking for a token's text is slow */
	int nspecial;
};

/* The family of a Jinja template, or of the special tokens of tok (text NULL); -1: none is known. */
int dt_chat_recognise(const char *text, const struct dt_tokenizer *tok);
/* text: the model's template, from which the default system prompt is taken; may be NULL. */
void dt_chat_init(struct dt_chat *c, enum dt_chat_kind kind, const char *text,
		  const struct dt_tokenizer *tok);

/* How a family's models call tools. */
enum dt_tool_form {
	DT_TOOLS_NONE,
	DT_TOOLS_HERMES,   /* <tool_call>{"name", "arguments"}</tool_call>, any number: Hermes, Qwen */
	DT_TOOLS_LLAMA3,   /* the whole answer is {"name", "parameters"} */
	DT_TOOLS_MISTRAL,  /* [TOOL_CALLS] [{"name", "arguments"}, ...] */
	DT_TOOLS_HARMONY,  /* to=functions.NAME in a header, {...} as the text; one call: gpt-oss */
	DT_TOOLS_DEEPSEEK, /* a name and its arguments in a fenced block, any number: V3, R1 */
};
enum dt_tool_form dt_chat_tool_form(const struct dt_chat *c);

struct dt_chat_tools {
	const json_t *list; /* [{"type": "function", "function": {...}}, ...] */
	bool open; /* the prompt ends with the beginning of a call, so that the model must make one */
};

/*
 * messages [{"role", "content"}, ...] up to where the assistant speaks next. Roles: system (developer), user,
 * assistant, tool. Content: text, or an array of {"type": "text", "text"} and, if c has
 * images, {"type": "image_url"}. An assistant's message may have
 * tool_calls, and reasoning_content, which only harmony reads, before calls; a tool's has tool_call_id.
 * tools: NULL, or what the model may call. *ret is malloc'd. -EINVAL with what is wrong, -ENOMEM.
 */
int dt_chat_encode(const struct dt_chat *c, const json_t *messages, const struct dt_chat_tools *tools,
		   int32_t **ret, size_t *ret_n, struct dt_err *err);

/*
 * The same up to the end of the last message's content, which the assistant continues. It must be the
 * assistant's, without tool calls; tools->open must be false.
 */
int dt_chat_encode_open(const struct dt_chat *c, const json_t *messages, const struct dt_chat_tools *tools,
			int32_t **ret, size_t *ret_n, struct dt_err *err);

/*
 * A complete conversation, for training. mask: 1 for the assistant's tokens from message `from` on, including
 * the end-of-turn token. A token that spans the boundary of a turn counts as the assistant's.
 */
struct dt_chat_whole {
	int32_t *ids;
	uint8_t *mask;
	size_t n;
}; /* the caller frees both */
int dt_chat_encode_whole(const struct dt_chat *c, const json_t *messages, const struct dt_chat_tools *tools,
			 size_t from, struct dt_chat_whole *ret, struct dt_err *err);
/* The same for a prompt text and its completion; the completion and the end-of-text token are the targets. */
int dt_chat_encode_texts(const struct dt_chat *c, const char *prompt, size_t prompt_n, const char *answer,
			 size_t answer_n, struct dt_chat_whole *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
