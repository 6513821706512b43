/*
 * Servers that are reached by messages, for ranks on several machines (train/servers.h). Shards, updates and
 * clocks are the same as with shared memory. The difference: a server computes the updates of its shard
 * itself, one after another, beside its own gradients: between layers, and whenever it waits. The clocks are
 * in the memory of the first server, which is the first rank.
 *
 * Requests and answers are letters (struct mail_letter). GIVE is followed by the gradients of the shard, unit
 * by unit (with --delay-compensation also by the weights that they were computed at); its answer is followed
 * by the new weights, except with ssp. FETCH asks for weights, which follow the answer if they are new. A
 * rank asks one server at a time, with receives posted for everything that server may send, and a server
 * finishes one rank before it begins the next: so ranks cannot wait for each other in a cycle. BYE ends the
 * letters of a stretch, so that no message is in flight between two stretches.
 */
#ifndef DT_TRAIN_SERVERS_MAIL_H
#define DT_TRAIN_SERVERS_MAIL_H

#include "base/err.h"
#include "train/clocks.h"
#include "train/servers_give.h"

struct trainer;
struct mail;

/* Once memory is bound. *ret NULL: servers are reached by shared memory. */
int mail_open(struct trainer *t, struct mail **ret, struct dt_err *err);
void mail_close(struct mail *m); /* NULL is fine */

/* Begin and end of a stretch: a server answers letters in between, until all ranks have ended. Collective. */
int mail_begin(struct trainer *t, struct dt_err *err);
int mail_end(struct trainer *t, struct dt_err *err);

/* Sends this rank's gradient to server k on another rank. *ret_version: updates of its shard after that. */
int mail_give(struct trainer *t, const struct served_gift *g, int64_t *ret_version, int64_t *ret_age,
	      struct dt_err *err);
/* Reads server k's weights if they have more updates than `seen`. *ret_version: updates that they have. */
int mail_fetch(struct trainer *t, int k, int64_t seen, int64_t *ret_version, struct dt_err *err);

/*
 * clocks_take, clocks_turn, clocks_say and clocks_end, by message or directly if the clocks are in reach.
 * say: own: steps that this rank has completed with ssp; *ret: on the first rank, gradients sent by all
 * ranks.
 */
int mail_take(struct trainer *t, int64_t *ret, struct dt_err *err);
int mail_turn(struct trainer *t, int64_t own, struct clocks_turn *ret, struct dt_err *err);
int mail_say(struct trainer *t, int64_t line, const struct clocks_line *l, int64_t own, int64_t *ret,
	     struct dt_err *err);
int mail_stop(struct trainer *t, int64_t unit, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
