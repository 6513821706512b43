/* A prompt while it is written. Private to chat*.c. */
#ifndef DT_DATA_CHAT_PRIV_H
#define DT_DATA_CHAT_PRIV_H

#include "data/chat.h"

#define DT_CHAT_DEEPSEEK_EOS	 "<｜end▁of▁sentence｜>"
#define DT_CHAT_DEEPSEEK_CALLS	 "<｜tool▁calls▁begin｜>"
#define DT_CHAT_DEEPSEEK_CALL	 "<｜tool▁call▁begin｜>"
#define DT_CHAT_DEEPSEEK_SEP	 "<｜tool▁sep｜>"
#define DT_CHAT_DEEPSEEK_CALLED	 "<｜tool▁call▁end｜>"
#define DT_CHAT_DEEPSEEK_END	 "<｜tool▁calls▁end｜>"
#define DT_CHAT_DEEPSEEK_RESULTS "<｜tool▁outputs▁begin｜>"
#define DT_CHAT_DEEPSEEK_RESULT	 "<｜tool▁output▁begin｜>"
#define DT_CHAT_DEEPSEEK_GIVEN	 "<｜tool▁output▁end｜>"
#define DT_CHAT_DEEPSEEK_TOLD	 "<｜tool▁outputs▁end｜>"

struct dt_chat_out {
	const struct dt_chat *c;
	const struct dt_chat_tools *tools; /* NULL: none */
	int32_t *ids;
	size_t n, cap;
	uint8_t *mask; /* [n] whether it is a target */
	char *text;    /* not yet encoded */
	uint8_t *flag; /* [text_n] whether an assistant says it */
	size_t text_n, text_cap;
	bool strip; /* the blanks that follow belong to the token before */
	/* for a complete conversation, without an open turn of the assistant */
	bool whole, target;
	const struct dt_chat_message *messages;
	const struct dt_chat_message *open; /* nothing is written behind its content; NULL: none */
	bool in_open, closed;		    /* its content is being written; it has been written */
	int images;			    /* that were read so far */
	size_t from;			    /* assistants before this message are no targets */
	struct dt_err *err;
	int rc;
};

struct dt_chat_message {
	const char *role; /* system, user, assistant, tool */
	char *s;	  /* its text, without a NUL; not NULL */
	size_t n;
	const json_t *calls; /* the assistant's tool_calls; NULL: none */
	bool tool;	     /* a tool's result, of the call call_id */
	const char *call_id;
	size_t *image_at;	  /* [nimages] bytes of text in front of its images */
	int nimages, first_image; /* and the index of the first among those of the conversation */
	bool image_first;	  /* its content begins with one */
	const char *thought;	  /* an assistant's reasoning, which only harmony reads; NULL: none */
};

/* chat_templates.c: n messages as the family writes them. */
extern void (*const dt_chat_template[DT_CHAT_N])(struct dt_chat_out *, const struct dt_chat_message *,
						 size_t n);

/* chat_out.c */
void dt_chat_put_n(struct dt_chat_out *o, const char *s, size_t n);
void dt_chat_put(struct dt_chat_out *o, const char *s);
/* A special token of the template; its text where the tokenizer has no such token. */
void dt_chat_special(struct dt_chat_out *o, const char *s);
/* The token that starts a text, and the one that ends it, where the tokenizer has them. */
void dt_chat_begin(struct dt_chat_out *o);
void dt_chat_end_of_text(struct dt_chat_out *o);
/* The text of m, with its images. */
void dt_chat_content(struct dt_chat_out *o, const struct dt_chat_message *m);
/* Sets the author of the text that follows: m's role; NULL: the template. */
void dt_chat_turn(struct dt_chat_out *o, const struct dt_chat_message *m);
void dt_chat_flush(struct dt_chat_out *o);
int dt_chat_no_memory(struct dt_chat_out *o); /* sets o->rc, -ENOMEM */

/* chat_json.c: JSON as Python's json.dumps writes it, with a space after colons and commas. */
void dt_chat_json(struct dt_chat_out *o, const json_t *v, size_t flags);
char *dt_chat_json_text(const json_t *v, size_t flags); /* the caller frees it; NULL: out of memory */

/* chat_tools.c: what the families write of tools, of calls, and of results. */
int dt_chat_check_calls(const struct dt_chat_message *m, size_t at, struct dt_err *err);
void dt_chat_hermes_tools(struct dt_chat_out *o, bool more);
void dt_chat_hermes_calls(struct dt_chat_out *o, const struct dt_chat_message *m);
void dt_chat_hermes_result(struct dt_chat_out *o, const struct dt_chat_message *m);
void dt_chat_llama3_tools(struct dt_chat_out *o);
void dt_chat_llama3_result(struct dt_chat_out *o, const struct dt_chat_message *m);
void dt_chat_llama3_calls(struct dt_chat_out *o, const struct dt_chat_message *m);
void dt_chat_mistral_tools(struct dt_chat_out *o);
void dt_chat_mistral_calls(struct dt_chat_out *o, const struct dt_chat_message *m);
void dt_chat_mistral_result(struct dt_chat_out *o, const struct dt_chat_message *m);
void dt_chat_deepseek_tools(struct dt_chat_out *o, bool more);
void dt_chat_deepseek_open(struct dt_chat_out *o); /* up to where a call's name stands */
void dt_chat_deepseek_calls(struct dt_chat_out *o, const struct dt_chat_message *m);
/* first, last: of results in a row */
void dt_chat_deepseek_result(struct dt_chat_out *o, const struct dt_chat_message *m, bool first, bool last);

/* chat_harmony.c, chat_harmony_tools.c */
void dt_chat_harmony(struct dt_chat_out *o, const struct dt_chat_message *m, size_t n);
void dt_chat_harmony_tools(struct dt_chat_out *o);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
