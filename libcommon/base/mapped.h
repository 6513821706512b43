/*
 * Mapped files that other programs may change. A read beyond the end of a file that has become shorter, or of
 * a part that its disk cannot read, raises SIGBUS. The process then ends with status 1 and a line that names
 * the file.
 */
#ifndef DT_BASE_MAPPED_H
#define DT_BASE_MAPPED_H

#include <stddef.h>

/*
 * Notes that [at, at + bytes) maps the file. Not after dt_mapped_drop(at). Of more than 1024 files at a time
 * the others end the process by the signal itself, as without this call.
 */
void dt_mapped_note(const void *at, size_t bytes, const char *path);
/* Unmaps it. at NULL: nothing. */
void dt_mapped_drop(void *at, size_t bytes);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
