/*
 * The parser of a grammar, which all its matchers share. A parser state is a set of stacks (stacks.c). Each
 * state that was reached once has a number and remembers where each byte leads (states.c) and which tokens
 * may come next (masks.c): texts of one grammar pass through the same states, and so do the tokens of a
 * vocabulary. A matcher is little more than the number of its state.
 *
 * All of it is behind the grammar's mutex, which a thread holds for as long as it computes a mask. What has
 * grown too large is forgotten, except what the states of the matchers need.
 */
#ifndef DT_GRAMMAR_MATCHER_PRIV_H
#define DT_GRAMMAR_MATCHER_PRIV_H

#include "grammar/priv.h"

#include <sys/queue.h>

#define DT_MAX_STACKS 256 /* of a state; each optional property that may come next is one */

struct dt_stacks {
	int n;
	int32_t top[DT_MAX_STACKS]; /* nodes at a byte class or token; -1: the text may end */
};

struct dt_stack_node {	     /* a stack: the element to read, and what follows its alternative */
	int32_t pos, parent; /* parent -1: bottom of the stack */
	uint32_t in;	     /* number of the last state to which it was added */
};

struct dt_known_state {
	int first, n; /* its stacks: tops[first .. first + n) */
	int mask;     /* index of its mask; -1: none */
};

struct dt_mask {
	int32_t state;	/* -1: unused */
	uint32_t *bits; /* NULL: not allocated yet */
	uint64_t used;	/* parser.clock at its last use */
};

enum { DT_MASKS = 512, DT_MASKS_KEPT = 64, DT_LATE = 4 };

struct dt_parser {
	const struct dt_grammar *g;
	LIST_HEAD(, dt_matcher) matchers;
	int nmatchers;
	int64_t work; /* steps left for the current mask or text */
	bool failed;  /* the current call is out of memory or takes too many steps */
	/* stacks.c */
	struct dt_stack_node *node;
	int nnode, node_cap, node_limit;
	int32_t *table;	   /* hash table of nodes (open addressing), -1: free; twice node_cap */
	uint32_t building; /* number of the state being built */
	/* states.c */
	uint8_t class_of[256]; /* bytes that no class of the grammar tells apart have the same number */
	uint8_t byte_of[256];  /* [nclass] a byte of each number */
	int nclass;
	struct dt_known_state *known; /* [nknown] */
	int nknown, known_cap, known_limit;
	int32_t *next; /* [known_cap, nclass]: 0: not known, 1: not allowed, else the state + 2 */
	int32_t *tops;
	int ntops, tops_cap, tops_limit;
	int32_t *number; /* hash table of states (open addressing), -1: free; twice known_cap */
	int32_t start;	 /* state before the first byte */
	/* masks.c */
	const struct dt_vocab_order *order; /* of the masks; NULL: there are none */
	uint64_t serial;		    /* of order, which may have been released since */
	size_t mask_words;		    /* of each mask */
	int32_t *depth;			    /* [order->longest + 1] states, used while a mask is computed */
	struct dt_mask mask[DT_MASKS];
	int late[DT_LATE]; /* indices of the last masks that took long */
	unsigned nlate;
	uint64_t clock;
};

struct dt_matcher {
	struct dt_grammar *g;
	LIST_ENTRY(dt_matcher) link;
	struct dt_matcher *next_gone; /* in g->gone */
	int32_t now;		      /* state */
	bool complete, done;	      /* of state now: the text may end, must end */
	bool failed;		      /* a call failed: the state may be behind the text */
};

void dt_parser_free(struct dt_parser *p);		   /* NULL is allowed */
void dt_matchers_sweep(struct dt_grammar *g, bool unlink); /* frees g->gone; unlink: with g->mu locked */

/* The stacks before the first byte. */
void dt_stacks_begin(struct dt_parser *p, struct dt_stacks *ret);
/* Sets `to` to the stacks after one more byte; false: the byte is not allowed, or failed. */
bool dt_stacks_advance(struct dt_parser *p, const struct dt_stacks *from, unsigned char byte,
		       struct dt_stacks *to);
/* Adds to `to` the stacks after token id, where a token element is next; false: `to` is empty, or failed. */
bool dt_stacks_token(struct dt_parser *p, const struct dt_stacks *from, int32_t id, struct dt_stacks *to);
/* Sets `ret` to the stacks in which element pos, or also element `other` (-1: none), is next; then parent. */
void dt_stacks_at(struct dt_parser *p, int32_t pos, int32_t other, int32_t parent, struct dt_stacks *ret);
/* Whether it is time for that; drops the nodes that keep [n] do not need, and renumbers the others. */
bool dt_stacks_many(const struct dt_parser *p);
void dt_stacks_tidy(struct dt_parser *p, struct dt_stacks *keep, int n);

/* Groups bytes, and adds the first state. -ENOMEM. */
int dt_states_open(struct dt_parser *p);
void dt_states_close(struct dt_parser *p);
/* The number of a state; -1: failed. */
int32_t dt_state_number(struct dt_parser *p, const struct dt_stacks *s);
void dt_state_stacks(const struct dt_parser *p, int32_t state, struct dt_stacks *ret);
/* As dt_state_next, for a byte that the state has not met yet. */
int32_t dt_state_find(struct dt_parser *p, int32_t state, unsigned char byte);
/*
 * Whether it is time to forget; forgets all states and masks but the states of ids [n], of the matchers, of
 * the masks used last and the first one, which get new numbers.
 */
bool dt_states_many(const struct dt_parser *p);
void dt_states_forget(struct dt_parser *p, int32_t *ids, int n);

/* The state after one more byte; -1: the byte is not allowed, or failed. */
static inline int32_t dt_state_next(struct dt_parser *p, int32_t state, unsigned char byte)
{
	const int32_t known = p->next[(size_t)state * (size_t)p->nclass + p->class_of[byte]];

	return known ? known - 2 : dt_state_find(p, state, byte);
}

/*
 * strings.c. Whether a state is inside a JSON string, between two characters, and has no other reading.
 * `least` to `most` (DT_GR_ANY: no limit) more characters come next, then the quote, then `after`.
 */
struct dt_in_string {
	uint32_t least, most;
	struct dt_stacks after;
};
bool dt_state_in_string(struct dt_parser *p, int32_t state, struct dt_in_string *ret);
/* Completes a mask, of which only the tokens are set whose bytes after the closing quote fit. */
void dt_string_mask(const struct dt_vocab_string *v, size_t words, const struct dt_in_string *s,
		    uint32_t *bits);

/* The mask of a state, for dt_matcher_mask. dt_masks_forget: when the states get new numbers. */
const uint32_t *dt_mask_of(struct dt_parser *p, struct dt_matcher *m, const struct dt_vocab_order *o);
/* It, if it is remembered; else NULL. */
const uint32_t *dt_mask_known(struct dt_parser *p, const struct dt_matcher *m,
			      const struct dt_vocab_order *o);
void dt_masks_forget(struct dt_parser *p);
/* The indices of the masks used last, ret [DT_MASKS_KEPT]; returns their number. */
int dt_masks_used_last(const struct dt_parser *p, int *ret);
void dt_masks_close(struct dt_parser *p);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
