/*
 * Inside a matcher. Its parser states are sets of stacks (stacks.c). Each state that was reached once has a
 * number and remembers where each byte leads (states.c), as the tokens of a vocabulary share most of their
 * bytes and neighbouring states their futures.
 */
#ifndef DT_GRAMMAR_MATCHER_PRIV_H
#define DT_GRAMMAR_MATCHER_PRIV_H

#include "grammar/priv.h"

#define DT_MAX_STACKS 256 /* of a state; each optional property that may come next is one */

struct dt_stacks {
	int n;
	int32_t top[DT_MAX_STACKS]; /* nodes at a byte class; -1: the text may end */
};

struct dt_stack_node {	     /* a stack: the element to read, and what follows its alternative */
	int32_t pos, parent; /* parent -1: bottom of the stack */
	uint32_t in;	     /* number of the last state to which it was added */
};

struct dt_known_state {
	int first, n; /* its stacks: tops[first .. first + n) */
};

struct dt_mask {
	int32_t state; /* -1: unused */
	uint32_t *bits;
	uint64_t used;
};

enum { DT_MASKS = 8 };

struct dt_matcher {
	struct dt_grammar *g;
	/* stacks.c */
	struct dt_stack_node *node;
	int nnode, node_cap;
	int32_t *table;	   /* hash table of nodes (open addressing), -1: free; twice node_cap */
	uint32_t building; /* number of the state being built */
	int64_t work;	   /* steps left for the current mask or text */
	bool failed;	   /* out of memory, or too many steps */
	/* states.c */
	uint8_t class_of[256]; /* bytes that no class of the grammar tells apart have the same number */
	uint8_t byte_of[256];  /* [nclass] a byte of each number */
	int nclass;
	struct dt_known_state *known; /* [nknown] */
	int nknown, known_cap;
	int32_t *next; /* [known_cap, nclass]: 0: not known, 1: not allowed, else the state + 2 */
	int32_t *tops;
	int ntops, tops_cap;
	int32_t *number; /* hash table of states (open addressing), -1: free; twice known_cap */
	/* matcher.c */
	int32_t now;	/* state */
	int32_t *depth; /* [longest + 1] states, used while a mask is computed */
	struct dt_mask mask[DT_MASKS];
	uint64_t clock;
};

/* The stacks before the first byte. */
void dt_stacks_begin(struct dt_matcher *m, struct dt_stacks *ret);
/* Sets `to` to the stacks after one more byte; false: the byte is not allowed, or failed. */
bool dt_stacks_advance(struct dt_matcher *m, const struct dt_stacks *from, unsigned char byte,
		       struct dt_stacks *to);
/* Whether it is time for that; drops the nodes that those of `keep` do not need, and renumbers the others. */
bool dt_stacks_many(const struct dt_matcher *m);
void dt_stacks_tidy(struct dt_matcher *m, struct dt_stacks *keep);

/* Groups bytes, and adds the first state. -ENOMEM. */
int dt_states_open(struct dt_matcher *m);
void dt_states_close(struct dt_matcher *m);
/* The number of a state; -1: failed. */
int32_t dt_state_number(struct dt_matcher *m, const struct dt_stacks *s);
void dt_state_stacks(const struct dt_matcher *m, int32_t state, struct dt_stacks *ret);
/* As dt_state_next, for a byte that the state has not met yet. */
int32_t dt_state_find(struct dt_matcher *m, int32_t state, unsigned char byte);
/*
 * Whether it is time to forget; forgets all states but those of ids [n], which get new numbers, and all
 * masks. tidy: dt_stacks_tidy too, for n = 1.
 */
bool dt_states_many(const struct dt_matcher *m);
void dt_states_forget(struct dt_matcher *m, int32_t *ids, int n, bool tidy);

/* The state after one more byte; -1: the byte is not allowed, or failed. */
static inline int32_t dt_state_next(struct dt_matcher *m, int32_t state, unsigned char byte)
{
	const int32_t known = m->next[(size_t)state * (size_t)m->nclass + m->class_of[byte]];

	return known ? known - 2 : dt_state_find(m, state, byte);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
