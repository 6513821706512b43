/*
 * Atomic files: written beside their final name, flushed, fsynced, renamed. A reader sees the old file or the
 * whole new one, never half.
 *
 * Every output path of every program is resolved here, by one rule:
 *
 *   missing, regular file                the new file replaces it by a rename
 *   symbolic link to one that exists     the target is replaced, the link stays
 *   symbolic link to a missing file      refused
 *   device, FIFO                         a stream (dt_tmpfile_open, dt_out_stream) is written to it, nothing
 *                                        is renamed over it; a writer that needs a file (dt_out_path)
 *                                        refuses it
 *   folder, socket                       refused
 */
#ifndef DT_BASE_TMPFILE_H
#define DT_BASE_TMPFILE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>

/*
 * The name a writer of a whole file renames its temporary to: path with symbolic links resolved, malloc'd.
 * Anything but a missing or regular file is refused by its kind (-EISDIR, -EINVAL).
 */
int dt_out_path(const char *path, char **ret, struct dt_err *err);
/*
 * For a program that works for minutes before it writes path with dt_tmpfile_open: what that would refuse is
 * refused now, also a folder that is missing or that this user cannot write to (-ENOENT, -ENOTDIR, -EACCES).
 */
int dt_out_check(const char *path, struct dt_err *err);
/*
 * Whether writing out would replace in: one regular file under two names, or, while neither exists, the same
 * name. in "-" is standard input.
 */
bool dt_out_is(const char *out, const char *in);

/*
 * Opens a stream that is written as a run goes on, metrics and traces, at path in place: emptied, or kept and
 * appended to. A device or a FIFO is written to as it is.
 */
int dt_out_stream(const char *path, bool append, FILE **ret, struct dt_err *err);

struct dt_tmpfile {
	FILE *f;
	char *path; /* final name, symbolic links resolved */
	char *tmp;  /* "PATH.tmp.PID"; NULL: PATH is a device or a FIFO, written in place */
};

/* path: see the rule above. */
int dt_tmpfile_open(struct dt_tmpfile *t, const char *path, struct dt_err *err);
/* Flush, fsync, rename, fsync of the folder. On failure the temporary is removed and the old file stays. */
int dt_tmpfile_commit(struct dt_tmpfile *t, struct dt_err *err);
/* The same without waiting for the disk: for what describes a running process, again and again. */
int dt_tmpfile_publish(struct dt_tmpfile *t, struct dt_err *err);
/* Removes the temporary. Does nothing after a commit. */
void dt_tmpfile_abort(struct dt_tmpfile *t);

/* fsync of a folder, so that a rename inside it survives power loss. */
int dt_fsync_dir(const char *path, struct dt_err *err);
/* fsync of a file by name. */
int dt_fsync_path(const char *path, struct dt_err *err);
/* mkdir -p. */
int dt_mkdir_p(const char *path, struct dt_err *err);
/* Atomic replacement of a symbolic link. */
int dt_symlink_replace(const char *target, const char *linkpath, struct dt_err *err);
/* rm -r of a folder; a missing one is no error. */
int dt_remove_tree(const char *path, struct dt_err *err);

/* Closes stdout at exit as util-linux does: -EPIPE, -ENOSPC ... when buffered output could not be written. */
int dt_close_stdout(struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
