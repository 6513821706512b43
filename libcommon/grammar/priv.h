/* Rules, and how they are built. Private to libcommon/grammar. */
#ifndef DT_GRAMMAR_PRIV_H
#define DT_GRAMMAR_PRIV_H

#include "grammar/grammar.h"

#include <pthread.h>
#include <stdatomic.h>

enum { DT_ELEM_END, DT_ELEM_CLASS, DT_ELEM_RULE, DT_ELEM_TOKEN };

#define DT_GR_ANY ((1 << 23) - 1)
struct dt_elem {
	uint8_t type;
	/*
	 * Of a rule of characters of a JSON string (dt_gr_characters), for strings.c; 0 of all others.
	 * exact: it is exactly, not at most, so many. left: 1 + their number; DT_GR_ANY: any.
	 */
	uint32_t exact : 1, left : 23;
	int32_t index; /* index of the class or the rule; of a token 2 id, + 1: every token but this one */
};

struct dt_class { /* a set of bytes */
	uint64_t bit[4];
};

struct dt_rule {
	int32_t *alt; /* index of the first element of each alternative */
	int n, cap;
};

struct dt_grammar {
	atomic_int refs;
	struct dt_elem *elem;
	struct dt_class *class;
	struct dt_rule *rule;
	int nelem, elem_cap, nclass, class_cap, nrule, rule_cap;
	int root;
	uint32_t *tokens; /* [ntokens / 32] ids that token elements may match; NULL: there are none */
	int ntokens;
	bool no_memory; /* an allocation failed: the grammar is incomplete */
	pthread_mutex_t mu;
	struct dt_parser *parser; /* behind mu; NULL: no text was read yet (matcher_priv.h) */
	atomic_size_t parser_bytes;
	_Atomic(struct dt_matcher *) gone; /* matchers freed while another thread had mu */
};

/* grammar.c: construction. These functions do not report errors; the caller checks no_memory at the end. */
struct dt_grammar *dt_grammar_new(void);
int dt_gr_rule(struct dt_grammar *g);
int dt_gr_add_class(struct dt_grammar *g, struct dt_class c);
int dt_gr_class(struct dt_grammar *g, const char *members);   /* "a-z_": ranges and single bytes */
int dt_gr_members(struct dt_grammar *g, const char *members); /* these bytes, literally */
struct dt_elem dt_gr_range(struct dt_grammar *g, int first, int last);
/* Adds an alternative of n elements to a rule. */
void dt_gr_alt(struct dt_grammar *g, int rule, const struct dt_elem *e, int n);
/*
 * wide.c. encode: a code point as UTF-8; returns its length. wide: adds code points lo to hi beyond ASCII to
 * a rule, without surrogates.
 */
int dt_gr_encode(uint32_t c, uint8_t out[4]);
void dt_gr_wide(struct dt_grammar *g, int rule, uint32_t lo, uint32_t hi);
/* A rule that matches these bytes. */
int dt_gr_literal(struct dt_grammar *g, const char *s, size_t n);
/* A rule that matches e min to max times (-1: no limit), separated by the rule sep (-1: none). */
int dt_gr_repeat(struct dt_grammar *g, struct dt_elem e, int sep, int min, int max);

/*
 * repeat.c: the same without a separator, for numbers up to DT_GR_MANY. Up to DT_GR_CHAIN a text has one
 * reading; above, two. dt_gr_many_rules: about how many rules it makes.
 */
enum { DT_GR_CHAIN = 65535, DT_GR_MANY = 1 << 24 };
int dt_gr_many(struct dt_grammar *g, struct dt_elem e, int min, int max);
int64_t dt_gr_many_rules(int64_t min, int64_t max);

/* Removes alternatives that no finite text can match. false: nothing matches at all, or no_memory. */
bool dt_gr_prune(struct dt_grammar *g);

struct dt_gr_json { /* the rules of JSON (RFC 8259) */
	int ws, colon, comma, character, characters /* any number */, string, number, integer, value, object,
		array;
};
void dt_gr_json(struct dt_grammar *g, struct dt_gr_json *ret);
/* Rules for '[' and ']', or '{' and '}', around the rule `inside`. */
int dt_gr_array(struct dt_grammar *g, const struct dt_gr_json *j, int inside);
int dt_gr_object(struct dt_grammar *g, const struct dt_gr_json *j, int inside);

#define DT_SEQ(...)                                                                                          \
	(struct dt_elem[]){__VA_ARGS__},                                                                     \
		(int)(sizeof((struct dt_elem[]){__VA_ARGS__}) / sizeof(struct dt_elem))

static inline struct dt_elem dt_gr_r(int rule)
{
	return (struct dt_elem){.type = DT_ELEM_RULE, .index = rule};
}

/* A rule of exactly, or at most, n characters of a JSON string; n -1: of any number. */
static inline struct dt_elem dt_gr_characters(int rule, int64_t n, bool exact)
{
	return (struct dt_elem){.type = DT_ELEM_RULE,
				.exact = exact,
				.left = (uint32_t)(n < 0 ? DT_GR_ANY : n + 1),
				.index = rule};
}

static inline struct dt_elem dt_gr_c(int class)
{
	return (struct dt_elem){.type = DT_ELEM_CLASS, .index = class};
}

/* Token elements. in_set: whether the grammar's set of tokens has this id. */
static inline bool dt_gr_in_set(const struct dt_grammar *g, int32_t id)
{
	return id >= 0 && id < g->ntokens && g->tokens[id / 32] >> id % 32 & 1;
}

static inline bool dt_gr_is_token(const struct dt_grammar *g, struct dt_elem e, int32_t id)
{
	return e.type == DT_ELEM_TOKEN && dt_gr_in_set(g, id) && (e.index / 2 == id) != (e.index & 1);
}

/* vocab.c: sets a level to the sorted tokens of o that have l->least bytes or more. -ENOMEM. */
int dt_vocab_level_init(const struct dt_vocab_order *o, struct dt_vocab_level *l);
void dt_vocab_level_release(struct dt_vocab_level *l);
int dt_vocab_by_bytes(const void *a, const void *b); /* for qsort of tokens */

/*
 * vocab_string.c: the tokens that fit inside a JSON string, between two characters, by how many characters of
 * it begin in them. 0.6 MB of 150,000 tokens.
 */
enum { DT_SHORT = 24 };
struct dt_vocab_string {
	uint32_t *inside; /* mask of those without the closing quote */
	uint32_t *upto;	  /* [DT_SHORT][words] masks of those with at most 0, 1, .. characters */
	struct dt_vocab_longer {
		int32_t id;
		uint32_t characters;
	} * longer; /* [nlonger] those with DT_SHORT or more, in descending order */
	int nlonger;
	struct dt_vocab_level rest; /* of those with the closing quote: their bytes after it */
};
int dt_vocab_string_new(const struct dt_vocab_order *o, struct dt_vocab_string **ret); /* -ENOMEM */
void dt_vocab_string_free(struct dt_vocab_string *s);				       /* NULL is allowed */
/* json.c: the grammar of any JSON string. NULL: out of memory. */
struct dt_grammar *dt_grammar_string(void);

static inline struct dt_elem dt_gr_byte(struct dt_grammar *g, int c)
{
	return dt_gr_range(g, c, c);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
