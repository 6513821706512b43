#include "base/recorder.h"

#include "base/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int dt_recorder_open(const char *path, int rank, int size, struct dt_recording **ret, struct dt_err *err)
{
	struct dt_recording *r = MAP_FAILED;
	char name[4096];
	int fd, rc;

	snprintf(name, sizeof(name), "%s.%d", path, rank);
	fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	/* reports a full disk now rather than by SIGBUS later */
	rc = fd < 0 ? -errno : -posix_fallocate(fd, 0, sizeof(*r));
	if (rc == 0) {
		r = mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		rc = r == MAP_FAILED ? -errno : 0;
	}
	if (rc < 0)
		dt_err_sys(err, rc, "cannot record to '%s'", name);
	if (fd >= 0)
		close(fd);
	if (rc == -ENOSPC)
		unlink(name); /* a partial file is of no use */
	if (rc < 0)
		return rc;
	r->magic = DT_RECORDER_MAGIC;
	r->record_bytes = sizeof(struct dt_record);
	r->rank = rank;
	r->size = size;
	r->pid = (int32_t)getpid();
	r->room = DT_RECORDER_ROOM;
	*ret = r;
	return 0;
}

void dt_recorder_close(struct dt_recording *r)
{
	if (r)
		munmap(r, sizeof(*r));
}

uint64_t dt_recorder_begin(struct dt_recording *f, const struct dt_record *r)
{
	struct dt_record *at;
	uint64_t no;

	if (!f)
		return 0;
	no = atomic_load_explicit(&f->next, memory_order_relaxed) + 1;
	at = &f->r[(no - 1) % DT_RECORDER_ROOM];
	*at = *r;
	at->no = no;
	at->began = dt_now();
	at->ended = 0;
	atomic_store_explicit(&f->next, no, memory_order_release);
	return no;
}

void dt_recorder_end(struct dt_recording *f, uint64_t no)
{
	struct dt_record *at = f && no ? &f->r[(no - 1) % DT_RECORDER_ROOM] : NULL;

	if (at && at->no == no) /* else the record has been overwritten */
		at->ended = dt_now();
}
/* SPDX-License-Identifier: Apache-2.0 */
