#include "serve/engine/kvdisk.h"

#include "base/crc.h"
#include "base/io.h"
#include "base/progress.h"
#include "base/tmpfile.h"
#include "base/units.h"
#include "serve/engine/kvroom.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PROBE_BYTES ((size_t)8 << 20) /* bytes read for the measurement; at least one block */
#define SAID	    20		      /* max bad files that are logged */

struct head {
	char magic[8];
	uint64_t name;
	struct dt_kvkey key;
	uint64_t bytes;
	uint32_t tokens;
	uint32_t crc; /* of head with crc 0, tokens, keys and values */
};

static const char magic[8] = {'d', 't', '-', 'k', 'v', '\n', '1', '\n'};

struct dt_kvdisk {
	struct dt_kvdisk_params p;
	char root[PATH_MAX - 64]; /* DIR/NAME */
	struct dt_kvroom room;
	double read_s;
	int said;
	bool full; /* a write has failed, and that was logged */
};

static void path_of(const struct dt_kvdisk *d, struct dt_kvkey key, char to[PATH_MAX])
{
	snprintf(to, PATH_MAX, "%s/%02x/%014" PRIx64 "%016" PRIx64 ".kv", d->root, (unsigned)(key.w[0] >> 56),
		 key.w[0] & 0xffffffffffffffu, key.w[1]);
}

static size_t token_bytes(const struct dt_kvdisk *d)
{
	return (size_t)d->p.block_size * sizeof(int32_t);
}

static size_t file_bytes(const struct dt_kvdisk *d)
{
	return sizeof(struct head) + token_bytes(d) + d->p.block_bytes;
}

static struct head head_of(const struct dt_kvdisk *d, struct dt_kvkey key)
{
	struct head h = {.name = d->p.name,
			 .key = key,
			 .bytes = d->p.block_bytes,
			 .tokens = (uint32_t)d->p.block_size};

	memcpy(h.magic, magic, sizeof(magic));
	return h;
}

static uint32_t crc_of(const struct dt_kvdisk *d, const struct head *h, const int32_t *tokens,
		       const void *data)
{
	struct head plain = *h;

	plain.crc = 0;
	return dt_crc32(dt_crc32(dt_crc32(0, &plain, sizeof(plain)), tokens, token_bytes(d)), data,
			d->p.block_bytes);
}

/* ---- reading ---- */

/* Reads all parts from the beginning of the file. 0, -EBADMSG: the file is shorter, or another errno. */
static int read_parts(int fd, struct iovec *v, int n)
{
	off_t at = 0;

	while (n > 0) {
		ssize_t got = preadv(fd, v, n, at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -EBADMSG;
		at += got;
		for (; n > 0 && (size_t)got >= v->iov_len; v++, n--)
			got -= (ssize_t)v->iov_len;
		if (n > 0) {
			v->iov_base = (char *)v->iov_base + got;
			v->iov_len -= (size_t)got;
		}
	}
	return 0;
}

/* Returns what is wrong with an open file; NULL: it holds the block, which was read into `to`. */
static const char *read_block(struct dt_kvdisk *d, int fd, struct dt_kvkey key, const int32_t *tokens,
			      void *to, bool *is_block)
{
	struct head h = {0}, want = head_of(d, key);
	int32_t *ids = malloc(token_bytes(d));
	struct iovec part[3] = {{&h, sizeof(h)}, {ids, token_bytes(d)}, {to, d->p.block_bytes}};
	const char *bad = NULL;
	struct stat st;
	int rc = 0;

	*is_block = false;
	if (!ids || fstat(fd, &st) < 0) {
		free(ids);
		return "it cannot be looked at";
	}
	if (pread(fd, &h, sizeof(h), 0) == sizeof(h))
		*is_block = !memcmp(h.magic, magic, sizeof(magic));
	if (!S_ISREG(st.st_mode) || (!*is_block && st.st_size >= (off_t)sizeof(h)))
		bad = "it is not a cache block";
	else if ((size_t)st.st_size != file_bytes(d))
		bad = "it has another size";
	else if ((rc = read_parts(fd, part, 3)) < 0)
		bad = strerror(-rc);
	else if (h.name != want.name || !dt_kvkey_equal(h.key, key) || h.bytes != want.bytes ||
		 h.tokens != want.tokens)
		bad = "it is the block of another cache";
	else if (h.crc != crc_of(d, &h, ids, to))
		bad = "its checksum is wrong";
	else if (memcmp(ids, tokens, token_bytes(d)) != 0)
		bad = "its tokens are others";
	free(ids);
	return bad;
}

int dt_kvdisk_get(struct dt_kvdisk *d, struct dt_kvkey key, const int32_t *tokens, void *to)
{
	char path[PATH_MAX];
	const char *bad;
	bool is_block;
	int fd;

	path_of(d, key, path);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT)
		return -ENOENT;
	bad = fd < 0 ? strerror(errno) : read_block(d, fd, key, tokens, to, &is_block);
	if (!bad) {
		(void)futimens(fd, NULL); /* time of last use */
		close(fd);
		return 0;
	}
	if (d->said++ < SAID)
		dt_log_msg(d->p.log, "cannot use '%s': %s; its tokens are computed again", path, bad);
	if (fd >= 0 && is_block)
		unlink(path);
	if (fd >= 0)
		close(fd);
	return -EBADMSG;
}

/* ---- writing ---- */

static int write_parts(int fd, struct iovec *v, int n)
{
	while (n > 0) {
		ssize_t did = writev(fd, v, n);

		if (did < 0 && errno == EINTR)
			continue;
		if (did < 0)
			return -errno;
		for (; n > 0 && (size_t)did >= v->iov_len; v++, n--)
			did -= (ssize_t)v->iov_len;
		if (n > 0) {
			v->iov_base = (char *)v->iov_base + did;
			v->iov_len -= (size_t)did;
		}
	}
	return 0;
}

/* Writes a new file of these parts at path; on failure leaves none. */
static int write_file(const char *path, struct iovec *part, int n)
{
	char tmp[PATH_MAX + 32];
	struct timespec now;
	int fd, rc;

	clock_gettime(CLOCK_REALTIME, &now);
	snprintf(tmp, sizeof(tmp), "%s.%d.%ld", path, (int)getpid(), now.tv_nsec);
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	rc = write_parts(fd, part, n);
	if (close(fd) < 0 && rc == 0)
		rc = -errno;
	if (rc == 0 && rename(tmp, path) < 0)
		rc = -errno;
	if (rc < 0)
		unlink(tmp);
	return rc;
}

int dt_kvdisk_put(struct dt_kvdisk *d, struct dt_kvkey key, const int32_t *tokens, const void *from)
{
	struct head h = head_of(d, key);
	struct iovec part[3] = {{&h, sizeof(h)},
				{(void *)(uintptr_t)tokens, token_bytes(d)},
				{(void *)(uintptr_t)from, d->p.block_bytes}};
	char path[PATH_MAX], *slash;
	int rc;

	path_of(d, key, path);
	if (access(path, F_OK) == 0)
		return 0;
	h.crc = crc_of(d, &h, tokens, from);
	slash = strrchr(path, '/');
	*slash = '\0';
	rc = mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
	*slash = '/';
	if (rc == 0)
		rc = write_file(path, part, 3);
	if (rc < 0) {
		if (!d->full)
			dt_log_msg(d->p.log,
				   "cannot write '%s': %s; no blocks are kept on disk until writing succeeds",
				   path, strerror(-rc));
		d->full = true;
		return rc;
	}
	d->full = false;
	dt_kvroom_add(&d->room, file_bytes(d));
	return 0;
}

/* ---- the folder ---- */

/*
 * Measures the seconds to read a block that is not in the page cache: writes a file, drops it from the page
 * cache and reads it.
 */
static double measure(struct dt_kvdisk *d)
{
	size_t n = d->p.block_bytes > PROBE_BYTES ? d->p.block_bytes : PROBE_BYTES, got = 0;
	struct iovec part = {calloc(1, n), n};
	char *buf = part.iov_base, path[PATH_MAX];
	double t0, took = 0;
	int fd = -1;

	snprintf(path, sizeof(path), "%s/probe.%d", d->root, (int)getpid());
	if (buf && write_file(path, &part, 1) == 0)
		fd = open(path, O_RDONLY | O_CLOEXEC);
	unlink(path);
	if (fd >= 0 && fdatasync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0) {
		t0 = dt_now();
		while (got < n) {
			size_t want = n - got < d->p.block_bytes ? n - got : d->p.block_bytes;

			if (dt_read_all(fd, buf, want, (int64_t)got) < (ssize_t)want)
				break;
			got += want;
		}
		took = dt_now() - t0;
	}
	if (fd >= 0)
		close(fd);
	free(buf);
	return got == n ? took * (double)d->p.block_bytes / (double)n : 0;
}

static int write_about(struct dt_kvdisk *d, struct dt_err *err)
{
	char path[PATH_MAX];
	struct dt_tmpfile t;
	int rc;

	snprintf(path, sizeof(path), "%s/about.json", d->root);
	if (access(path, F_OK) == 0)
		return 0;
	rc = dt_tmpfile_open(&t, path, err);
	if (rc < 0)
		return rc;
	fprintf(t.f, "%s\n", d->p.about);
	return dt_tmpfile_publish(&t, err);
}

int dt_kvdisk_open(struct dt_kvdisk **ret, const struct dt_kvdisk_params *p, struct dt_err *err)
{
	struct dt_kvdisk *d = calloc(1, sizeof(*d));
	char have[32], need[32];
	struct dt_err why;
	int rc = d ? 0 : dt_err_sys(err, -ENOMEM, "cannot keep blocks in '%s'", p->dir);

	if (rc < 0)
		return rc;
	d->p = *p;
	if (snprintf(d->root, sizeof(d->root), "%s/%016" PRIx64, p->dir, p->name) >= (int)sizeof(d->root))
		rc = dt_err_set(err, -ENAMETOOLONG, "the path '%s' is too long", p->dir);
	else if (p->size < file_bytes(d))
		rc = dt_err_set(err, -ENOSPC, "%s in '%s' are too small for one cache block, which takes %s",
				dt_format_size(p->size, have, sizeof(have)), p->dir,
				dt_format_size_up(file_bytes(d), need, sizeof(need)));
	else if ((rc = dt_mkdir_p(p->dir, err)) == 0 && mkdir(d->root, 0700) < 0 && errno != EEXIST)
		rc = dt_err_sys(err, -errno, "cannot make '%s'", d->root);
	if (rc < 0) {
		free(d);
		return rc;
	}
	if (write_about(d, &why) < 0) /* existing files can still be read */
		dt_log_err(p->log, &why);
	dt_kvroom_open(&d->room, p->dir, p->size);
	d->read_s = measure(d);
	*ret = d;
	return 0;
}

void dt_kvdisk_close(struct dt_kvdisk *d)
{
	free(d);
}

const struct dt_kvdisk_params *dt_kvdisk_params(const struct dt_kvdisk *d)
{
	return &d->p;
}

double dt_kvdisk_read_s(const struct dt_kvdisk *d)
{
	return d->read_s;
}
/* SPDX-License-Identifier: Apache-2.0 */
