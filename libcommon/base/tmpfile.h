/*
 * Atomic files: written to a temporary beside the final name, flushed, fsynced, renamed. A reader sees the
 * old file or the whole new one, never a partial one.
 *
 * Every output path of every program is resolved here, by one rule:
 *
 *   missing, regular file                replaced by a rename; the permissions of a file stay
 *   symbolic link to an existing file    the target is replaced, the link stays
 *   symbolic link to a missing file      refused
 *   device, FIFO                         written as a stream (dt_tmpfile_open, dt_out_stream) without a
 *   rename;
 *                                        refused by writers that need a file (dt_out_path)
 *   folder, socket                       refused
 */
#ifndef DT_BASE_TMPFILE_H
#define DT_BASE_TMPFILE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>

/*
 * Resolves symbolic links of path and returns the final name, malloc'd, to which a writer renames its
 * temporary. Anything but a missing or regular file is refused by its kind (-EISDIR, -EINVAL).
 */
int dt_out_path(const char *path, char **ret, struct dt_err *err);
/*
 * An early check for programs that work for minutes before they write path with dt_tmpfile_open: fails now if
 * that would fail, also when the folder is missing or not writable (-ENOENT, -ENOTDIR, -EACCES).
 */
int dt_out_check(const char *path, struct dt_err *err);
/*
 * The same for a folder that dt_mkdir_p makes later: an existing one has to be a writable folder (-ENOTDIR,
 * -EACCES), of a missing one the nearest existing parent.
 */
int dt_out_check_dir(const char *path, struct dt_err *err);
/*
 * Whether path names a file directly in folder dir, which may be missing. Compares names after the working
 * folder is put in front of relative ones; symbolic links and ".." are not resolved.
 */
bool dt_out_in(const char *path, const char *dir);
/*
 * Whether writing `out` would overwrite `in`: both name the same regular file, or neither exists and the
 * names are equal. in "-" is standard input.
 */
bool dt_out_is(const char *out, const char *in);

/*
 * Opens path itself (no temporary) for a stream that is written during a run, such as metrics and traces. A
 * file is truncated, or appended to if `append`. A device or a FIFO is opened as it is. A FIFO waits for its
 * reader; a signal that ends the program (dt_signals_ending) ends the wait (-EINTR).
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
/* The same without fsync, for files that describe a running process and are replaced often. */
int dt_tmpfile_publish(struct dt_tmpfile *t, struct dt_err *err);
/* Removes the temporary. Does nothing after a commit. */
void dt_tmpfile_abort(struct dt_tmpfile *t);

/* fsync of a folder, so that a rename inside it survives power loss. */
int dt_fsync_dir(const char *path, struct dt_err *err);
/* fsync of a file by name. */
int dt_fsync_path(const char *path, struct dt_err *err);
/* Like mkdir -p. */
int dt_mkdir_p(const char *path, struct dt_err *err);
/* The same; a new folder is its owner's alone (0700), its parents are not. */
int dt_mkdir_own(const char *path, struct dt_err *err);
/* Atomically replaces a symbolic link. */
int dt_symlink_replace(const char *target, const char *linkpath, struct dt_err *err);
/* Like rm -r; a missing folder is no error. */
int dt_remove_tree(const char *path, struct dt_err *err);
/*
 * Makes the folder `path`, which does not exist or is empty: fill writes its files into a temporary folder
 * beside it, which is then renamed. On failure nothing is left.
 */
int dt_tmpfolder_write(const char *path, int (*fill)(void *arg, const char *folder, struct dt_err *err),
		       void *arg, struct dt_err *err);

/* Memory was too little for something that was to be printed: dt_close_stdout will fail. From any thread. */
void dt_output_lost(void);
/*
 * Flushes and closes stdout at exit: -EPIPE, -ENOSPC ... if buffered output could not be written, -ENOMEM
 * after dt_output_lost.
 */
int dt_close_stdout(struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
