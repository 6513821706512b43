/* --mirror, private to the files mirror*.c. */
#ifndef DT_SUPERVISE_MIRROR_H
#define DT_SUPERVISE_MIRROR_H

#include "supervise/state.h"

/* ---- mirror_child.c ---- */

/*
 * A command of the mirror: %s becomes the path (NULL: it stays), %n the name, each quoted for a shell.
 * -ENAMETOOLONG.
 */
int sup_mirror_words(char *buf, size_t size, const char *command, const char *path, const char *name);
/* SAVE.mirror/folder/name, as a path from the root. */
int sup_mirror_place(const struct sup *s, const char *folder, const char *name, char *ret, size_t n);
/* SAVE.mirror/folder, with nothing in it. */
int sup_mirror_fresh(const struct sup *s, const char *folder);
/* Marks the mirror as idle, and removes SAVE.mirror. */
void sup_mirror_put_away(struct sup *s);
/*
 * Adds to *ret, as incomplete, the checkpoint that a killed dt-run had begun to send, if SAVE.mirror still
 * has one. -ENOMEM.
 */
int sup_mirror_left(const struct sup *s, struct sup_mirror_list *ret);
/* A child for a command. */
int sup_mirror_command(struct sup *s, const char *command, const char *path, const char *name);
/* Starts a child that checks the checkpoint at path, which must equal the one at sent (NULL: any). */
int sup_mirror_check(struct sup *s, const char *path, const char *sent);
/* 1: the child has ended, *ret_status is its exit status; 0: not yet. */
int sup_mirror_ended(struct sup *s, int *ret_status);

/* ---- mirror_list.c: what the mirror has, in the file "mirrored.json" of its folder "latest" ---- */

/* Adds the checkpoint, or updates whether it is complete. */
int sup_mirror_list_set(struct sup_mirror_list *l, int64_t step, bool whole);
void sup_mirror_list_drop(struct sup_mirror_list *l, int64_t step);
/*
 * The oldest checkpoint after step `after` that may be removed once `newest` is complete. Among those before
 * newest these are the incomplete ones, and the complete ones except the newest `keep` (newest included) and
 * multiples of `every` (0: no such rule). -1: none. Checkpoints after newest belong to another history, and
 * stay.
 */
int64_t sup_mirror_list_old(const struct sup_mirror_list *l, int64_t newest, int64_t keep, int64_t every,
			    int64_t after);
int sup_mirror_list_write(const struct sup_mirror_list *l, const char *folder);
/* In place of what l has; nothing where there is no file. -EINVAL: it is no list, and l has nothing. */
int sup_mirror_list_read(struct sup_mirror_list *l, const char *folder, struct dt_err *err);

/* ---- mirror.c ---- */

/* The list in a folder "latest" that was fetched; one that cannot be read is reported and replaced. */
void sup_mirror_listed(struct sup *s, const char *folder);
/* Reports that the transfer under way has failed, and drops it. */
void sup_mirror_fail(struct sup *s, int status);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
