/*
 * Grammars over bytes, for constrained sampling: rules of alternatives, each a sequence of byte classes and
 * rules. A parser state is the set of all stacks of elements that may still follow (as in llama.cpp's GBNF).
 * Stacks share their tails, and equal stacks are one node, so a state is a short list of numbers.
 *
 * dt_grammar_json and dt_grammar_schema build the grammar of JSON texts. Schema keywords that are not
 * enforced are refused by name, except those that only describe.
 */
#ifndef DT_GRAMMAR_GRAMMAR_H
#define DT_GRAMMAR_GRAMMAR_H

#include "base/json.h"

/*
 * Reference-counted and immutable, except for what its matchers remember of parser states: they share it, and
 * may be in different threads.
 */
struct dt_grammar;

/* Any JSON object. NULL: out of memory. */
struct dt_grammar *dt_grammar_json(void);
/*
 * Grammar of the texts that a JSON schema (draft 2020-12) accepts: objects with their properties in the
 * schema's order, and others only where it says so (additionalProperties, patternProperties, or no properties
 * at all). Every complete text satisfies the schema; strings have only one notation, as have bounded numbers.
 * Refused: keywords that are not enforced, except those that only describe (table in schema_keys.c); oneOf
 * and not, where it cannot be decided in advance that they hold; schemas that no value satisfies or that take
 * too many steps. -ENOTSUP, -EINVAL, -E2BIG, -ENOMEM.
 */
int dt_grammar_schema(const json_t *schema, struct dt_grammar **ret, struct dt_err *err);
/*
 * Grammar of any of n texts: `before`, a value of the schema, `after`. head: a grammar of the text before,
 * which may have tokens, in place of `before`; NULL: none. Errors as above.
 */
struct dt_grammar_framed {
	const char *before, *after;
	const json_t *schema;
	const struct dt_grammar *head;
};
int dt_grammar_framed(const struct dt_grammar_framed *f, int n, struct dt_grammar **ret, struct dt_err *err);
/* Grammar of the plain texts that match a regular expression (dt_auto_regex) as a whole; of n listed ones. */
int dt_grammar_regex(const char *pattern, struct dt_grammar **ret, struct dt_err *err);
int dt_grammar_words(const char *const *word, int n, struct dt_grammar **ret, struct dt_err *err);
/*
 * Grammar of the plain texts that a context-free grammar in llama.cpp's notation (GBNF) describes, n bytes of
 * UTF-8. Errors name line and column. Refused: left recursion, names that are undefined or defined twice, and
 * grammars that are too large. A reference <text> or <[id]> matches this token as a whole, !<text> any other
 * one; tokens NULL: they are refused. -EINVAL, -ENOTSUP, -E2BIG, -ENOMEM.
 */
struct dt_grammar_tokens {
	int vocab;						   /* number of ids */
	int32_t (*find)(const void *arg, const char *s, size_t n); /* the token that is this text; -1: none */
	bool (*fits)(const void *arg, int32_t id);		   /* may occur within an answer */
	const void *arg;
};
int dt_grammar_gbnf(const char *text, size_t n, const struct dt_grammar_tokens *tokens,
		    struct dt_grammar **ret, struct dt_err *err);
struct dt_grammar *dt_grammar_ref(struct dt_grammar *g);
void dt_grammar_drop(struct dt_grammar *g); /* NULL is allowed */
/* Memory of the grammar and of what its matchers remember. */
size_t dt_grammar_bytes(struct dt_grammar *g);

/*
 * The grammars used last, by keys of the caller. Later texts of a kept grammar find their masks done. Any
 * thread may call; find and add return without effect when c is NULL.
 */
struct dt_grammars;
/* Before one is added, the oldest go until the others have at most `bytes`. NULL: out of memory. */
struct dt_grammars *dt_grammars_new(size_t bytes);
void dt_grammars_free(struct dt_grammars *c); /* NULL is allowed */
/* Returns a new reference, or NULL. */
struct dt_grammar *dt_grammars_find(struct dt_grammars *c, const char *key);
/* Takes a reference, unless there is no memory. */
void dt_grammars_add(struct dt_grammars *c, const char *key, struct dt_grammar *g);

/* Returns the bytes of a token, borrowed; NULL or *ret_n 0: the token has no text. */
typedef const char *dt_token_bytes(const void *arg, int32_t id, size_t *ret_n);

enum { DT_VOCAB_LEVELS = 8 };
/* The tokens of a vocabulary, sorted by their bytes: all, and only those of `least` bytes or more. */
struct dt_vocab_order {
	uint64_t serial; /* unlike that of any other */
	int n;		 /* tokens that have bytes */
	int vocab;	 /* number of ids */
	int longest;	 /* bytes of the longest token */
	struct dt_vocab_token {
		const char *s;
		int32_t len, id;
	} * token; /* [n] */
	struct dt_vocab_level {
		int least, n;
		struct dt_vocab_own {
			int32_t id, shared, /* bytes shared with the token before it */
				at,	    /* where its others begin in rest */
				over;	    /* the next token that shares fewer bytes, or n */
		} * own;		    /* [n + 1]; the last is no token */
		uint8_t *rest;		    /* the others, of all its tokens */
		uint32_t *shorter;	/* mask of the tokens with fewer bytes: bit id % 32 of word id / 32 */
	} level[DT_VOCAB_LEVELS];	/* level[0].least is 1 */
	struct dt_vocab_string *string; /* what is the same inside all JSON strings */
};
/* Sorts the tokens with ids 0 to vocab - 1; their bytes must outlive o. -ENOMEM. */
int dt_vocab_order_init(struct dt_vocab_order *o, int vocab, dt_token_bytes *bytes, const void *arg);
void dt_vocab_order_release(struct dt_vocab_order *o);

/* The parser state of one text. */
struct dt_matcher;
struct dt_matcher *dt_matcher_new(struct dt_grammar *g); /* takes a reference; NULL: out of memory */
void dt_matcher_free(struct dt_matcher *m);

/* Advances by n bytes. false: they do not fit or out of memory; the state is unchanged. */
bool dt_matcher_push(struct dt_matcher *m, const char *s, size_t n);
/* The same by a token, of which s [n] is the text: it may also match as a token. */
bool dt_matcher_push_token(struct dt_matcher *m, int32_t id, const char *s, size_t n);
/* Goes back to the state before the first byte. */
void dt_matcher_restart(struct dt_matcher *m);
/* Whether the text may end here. */
bool dt_matcher_complete(const struct dt_matcher *m);
/* Whether nothing may follow. */
bool dt_matcher_done(const struct dt_matcher *m);
/*
 * The mask of tokens that may come next: bit id % 32 of word id / 32. Borrowed until the next mask of a
 * matcher of this grammar. NULL: out of memory, or the grammar is so ambiguous that it would take too many
 * steps.
 */
const uint32_t *dt_matcher_mask(struct dt_matcher *m, const struct dt_vocab_order *o);
/* Copies that mask to `to`; other threads may work on matchers of this grammar. false: as NULL above. */
bool dt_matcher_copy_mask(struct dt_matcher *m, const struct dt_vocab_order *o, uint32_t *to);

/*
 * The same for a thread that must not wait. -EAGAIN: the matcher is unchanged, because another thread works
 * on its grammar, or because the result is not remembered and must be computed. push: 1, or 0 where the above
 * returns false; copy_mask: 0 or -ENOMEM. dt_matcher_complete, done and free never wait for other threads.
 */
int dt_matcher_push_now(struct dt_matcher *m, int32_t id, const char *s, size_t n);
int dt_matcher_restart_now(struct dt_matcher *m);
int dt_matcher_copy_mask_now(struct dt_matcher *m, const struct dt_vocab_order *o, uint32_t *to);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
