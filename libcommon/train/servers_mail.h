/*
 * Servers that are reached by messages, for ranks of several machines (train/servers.h). What is the same:
 * who serves what, the updates, the clocks, and what they say. What differs: a server computes the updates
 * of its share itself, one after another, while it computes gradients of its own: between layers, and
 * whenever it waits. The clocks are the first server's, which is the first rank.
 *
 * A letter asks; the answer is a letter. GIVE is followed by the gradients of the share, unit by unit (and
 * the weights that they are of, for --delay-compensation), and, but with ssp, its answer by the new weights.
 * FETCH asks for weights, which follow its answer if they are new. A rank asks one server at a time and is
 * ready for all that it may get from that one, and a server ends with one rank before it begins with the
 * next: so nobody waits in a ring. The letters of a stretch end with BYE, so that nothing is under way
 * between two.
 */
#ifndef DT_TRAIN_SERVERS_MAIL_H
#define DT_TRAIN_SERVERS_MAIL_H

#include "base/err.h"
#include "train/clocks.h"
#include "train/servers_give.h"

struct trainer;
struct mail;

/* Once memory is bound. *ret NULL: servers are reached by memory. */
int mail_open(struct trainer *t, struct mail **ret, struct dt_err *err);
void mail_close(struct mail *m); /* NULL is fine */

/* A stretch: letters are taken from here, until all ranks have ended it. Collective. */
int mail_begin(struct trainer *t, struct dt_err *err);
int mail_end(struct trainer *t, struct dt_err *err);

/* The gradient of this rank to server k, another rank. *ret_version: updates of its share by then. */
int mail_give(struct trainer *t, const struct served_gift *g, int64_t *ret_version, int64_t *ret_age,
	      struct dt_err *err);
/* Its weights, where they have more updates than so many; how many they have. */
int mail_fetch(struct trainer *t, int k, int64_t seen, int64_t *ret_version, struct dt_err *err);

/*
 * Calls of the clocks, wherever they are: in memory too. say: steps that this rank has given with ssp; *ret:
 * gradients given by all, on the first rank.
 */
int mail_take(struct trainer *t, int64_t *ret, struct dt_err *err);
int mail_turn(struct trainer *t, int64_t own, struct clocks_turn *ret, struct dt_err *err);
int mail_say(struct trainer *t, int64_t line, const struct clocks_line *l, int64_t own, int64_t *ret,
	     struct dt_err *err);
int mail_stop(struct trainer *t, int64_t unit, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
