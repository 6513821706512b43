/*
 * Atomic files: written beside their final name, flushed, fsynced, renamed. A reader sees the old file or the
 * whole new one, never half.
 */
#ifndef DT_BASE_TMPFILE_H
#define DT_BASE_TMPFILE_H

#include "base/err.h"

#include <stdio.h>

struct dt_tmpfile {
	FILE *f;
	char *path; /* final name */
	char *tmp;  /* "PATH.tmp.PID"; NULL: PATH is a device or a FIFO, written in place */
};

int dt_tmpfile_open(struct dt_tmpfile *t, const char *path, struct dt_err *err);
/* Flush, fsync, rename, fsync of the folder. On failure the temporary is removed and the old file stays. */
int dt_tmpfile_commit(struct dt_tmpfile *t, struct dt_err *err);
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
