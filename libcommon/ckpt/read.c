/* Reads boxes of a checkpoint's tensors. */
#include "ckpt/internal.h"

#include "base/io.h"

#include "kernels/quant_formats.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define READ_AHEAD     (1 << 20) /* bytes; for smaller pieces the kernel's own read-ahead is used */
#define OPEN_MAX_FILES 256	 /* file descriptors kept open; checkpoints may have thousands of shards */

struct src {
	int fd;
	bool own; /* to be closed after use */
};

/* The descriptor of a shard; direct: with O_DIRECT. */
static int get_fd(struct dt_ckpt *c, int file, bool direct, struct src *ret, struct dt_err *err)
{
	int *kept = &c->fd[2 * file + direct], rc = 0;
	uint64_t bytes;

	pthread_mutex_lock(&c->lock);
	*ret = (struct src){*kept, false};
	if (*kept < 0) {
		rc = ck_open_file(c->path, &c->m.file[file], &ret->fd, &bytes, err);
		if (rc == 0 && direct && (rc = ck_set_direct(ret->fd)) < 0) {
			close(ret->fd);
			ret->fd = -1;
		}
		ret->own = rc == 0 && c->nopen >= OPEN_MAX_FILES;
		if (rc == 0 && !ret->own) {
			*kept = ret->fd;
			c->nopen++;
		}
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

static void put_fd(struct src *s)
{
	if (s->own && s->fd >= 0)
		close(s->fd);
}

static char *get_bounce(struct dt_ckpt *c)
{
	char *p = NULL;

	pthread_mutex_lock(&c->lock);
	if (c->nbounce)
		p = c->bounce[--c->nbounce];
	pthread_mutex_unlock(&c->lock);
	return p ? p : ck_bounce_new();
}

static void put_bounce(struct dt_ckpt *c, char *p)
{
	pthread_mutex_lock(&c->lock);
	if (p && c->nbounce < CK_BOUNCES) {
		c->bounce[c->nbounce++] = p;
		p = NULL;
	}
	pthread_mutex_unlock(&c->lock);
	free(p);
}

void dt_ckpt_read_once(struct dt_ckpt *c)
{
	c->once = true;
}

static const char *where(const struct dt_ckpt *c, const struct ck_piece *p, char *buf, size_t n)
{
	const struct ck_tensor *t = &c->m.tensor[p->tensor];
	char at[96];

	snprintf(buf, n, "'%s/%s': tensor '%s', piece at %s", c->path, c->m.file[p->file].name, t->name,
		 ck_shape_text(at, sizeof(at), t->ndim, p->off));
	return buf;
}

static int check_sum(const struct dt_ckpt *c, const struct ck_piece *p, uint32_t crc, struct dt_err *err)
{
	char at[480];

	if (crc == p->crc)
		return 0;
	return dt_err_set(err, -EBADMSG, "%s: checksum mismatch (%08x stored, %08x read)",
			  where(c, p, at, sizeof(at)), p->crc, crc);
}

static int read_full(int fd, char *buf, size_t n, uint64_t at)
{
	ssize_t got = dt_read_all(fd, buf, n, (int64_t)at);

	return got < 0 ? (int)got : (size_t)got < n ? -EBADMSG : 0;
}

static void read_failed(const struct dt_ckpt *c, const struct ck_piece *p, int code, struct dt_err *err)
{
	char at[480];

	if (code == -EBADMSG)
		dt_err_set(err, code, "%s: the file ends early", where(c, p, at, sizeof(at)));
	else
		dt_err_sys(err, code, "%s", where(c, p, at, sizeof(at)));
}

/* The read of a piece from a shard into its destination. */
struct reading {
	struct dt_ckpt *c;
	const struct ck_piece *p;
	const struct ck_copy *copy; /* NULL: only checksummed */
	char *dst;
	int64_t direct; /* offset in dst to read into directly; -1: copied */
	size_t elem;
	uint32_t crc;
	struct src file, past; /* opened with O_DIRECT; fd -1: not used */
	char *bounce;
};

/* Checksums and copies n elements' bytes of the piece, from `done` on, while they are in the CPU cache. */
static void take(struct reading *r, uint64_t done, const char *data, size_t n)
{
	for (size_t k; n; n -= k, data += k, done += k) {
		k = n < CK_BLOCK_BYTES ? n : CK_BLOCK_BYTES;
		r->crc = dt_crc32(r->crc, data, k);
		if (r->direct >= 0 && data != r->dst + r->direct + done)
			memcpy(r->dst + r->direct + done, data, k);
		else if (r->copy && r->direct < 0)
			ck_copy_feed(r->copy, (int64_t)(done / r->elem), (int64_t)(k / r->elem), data,
				     r->dst);
	}
}

/* Reads one large block with O_DIRECT. Returns its length; 0: use the page cache. */
static int64_t read_past(struct reading *r, uint64_t done)
{
	uint64_t at = r->p->at + done, left = r->p->bytes - done;
	size_t k = CK_DIRECT_BLOCK - CK_DIRECT_ALIGN; /* leaves room for alignment */
	int64_t from;

	if (r->past.fd < 0 || left < CK_DIRECT_ALIGN || ck_cached(r->file.fd, at))
		return 0;
	k = left < k ? (size_t)left : at % CK_DIRECT_ALIGN ? k : CK_DIRECT_BLOCK;
	k = left < k ? (size_t)left : k;
	from = ck_direct_read(r->past.fd, r->bounce, at, k);
	if (from == -EINVAL)
		return 0;
	if (from < 0)
		return from;
	take(r, done, r->bounce + from, k);
	return (int64_t)k;
}

static int64_t read_cached(struct reading *r, uint64_t done)
{
	uint64_t left = r->p->bytes - done;
	size_t k = left < CK_BLOCK_BYTES ? (size_t)left : CK_BLOCK_BYTES;
	char *to = r->direct < 0 ? r->bounce : r->dst + r->direct + done;
	int rc = read_full(r->file.fd, to, k, r->p->at + done);

	if (rc < 0)
		return rc;
	take(r, done, to, k);
	return (int64_t)k;
}

static int read_plain(struct dt_ckpt *c, const struct ck_piece *p, const struct ck_copy *copy, void *dst,
		      struct dt_err *err)
{
	struct reading r = {.c = c,
			    .p = p,
			    .copy = copy,
			    .dst = dst,
			    .direct = copy ? ck_copy_direct(copy) : -1,
			    .elem = (size_t)dt_dtype_size(c->m.tensor[p->tensor].dtype),
			    .past = {.fd = -1}};
	int rc;

	r.bounce = get_bounce(c);
	if (!r.bounce)
		return dt_err_sys(err, -ENOMEM, "cannot read '%s'", c->path);
	rc = get_fd(c, p->file, false, &r.file, err);
	if (rc == 0 && c->once && p->bytes >= CK_DIRECT_MIN)
		get_fd(c, p->file, true, &r.past, NULL);
	/* buffered: the disk reads ahead while the start is checksummed */
	if (rc == 0 && r.past.fd < 0 && p->bytes >= READ_AHEAD)
		posix_fadvise(r.file.fd, (off_t)p->at, (off_t)p->bytes, POSIX_FADV_WILLNEED);
	for (uint64_t done = 0; done < p->bytes && rc == 0;) {
		uint64_t stop = done + CK_DIRECT_BLOCK;
		int64_t k = read_past(&r, done);

		if (k > 0)
			done += (uint64_t)k;
		for (; k == 0 && done < p->bytes && done < stop; k = 0) {
			k = read_cached(&r, done);
			if (k < 0)
				break;
			done += (uint64_t)k;
		}
		if (k < 0) {
			rc = (int)k;
			read_failed(c, p, rc, err);
		}
	}
	put_fd(&r.file);
	put_fd(&r.past);
	put_bounce(c, r.bounce);
	return rc < 0 ? rc : check_sum(c, p, r.crc, err);
}

/* Inflates, and undoes the shuffle of each element's bytes. */
static int unpack(const struct ck_piece *p, size_t size, const unsigned char *in, unsigned char *mixed,
		  unsigned char *out)
{
	uint64_t n = p->bytes / size;
	uLong got = (uLong)p->bytes;

	if (uncompress(mixed, &got, in, (uLong)p->stored) != Z_OK || got != p->bytes)
		return -EBADMSG;
	for (size_t b = 0; b < size; b++)
		for (uint64_t i = 0; i < n; i++)
			out[i * size + b] = mixed[b * n + i];
	return 0;
}

static int read_packed(struct dt_ckpt *c, const struct ck_piece *p, const struct ck_copy *copy, void *dst,
		       struct dt_err *err)
{
	size_t size = (size_t)dt_dtype_size(c->m.tensor[p->tensor].dtype);
	unsigned char *in = malloc(p->stored), *mixed = malloc(p->bytes), *out = malloc(p->bytes);
	char at[480];
	struct src file = {.fd = -1};
	int rc;

	if (in && mixed && out)
		rc = get_fd(c, p->file, false, &file, err);
	else
		rc = dt_err_sys(err, -ENOMEM, "cannot read '%s'", c->path);
	if (rc == 0) {
		rc = read_full(file.fd, (char *)in, p->stored, p->at);
		if (rc < 0)
			read_failed(c, p, rc, err);
		else if (unpack(p, size, in, mixed, out) < 0)
			rc = dt_err_set(err, -EBADMSG, "%s: cannot be decompressed",
					where(c, p, at, sizeof(at)));
		else
			rc = check_sum(c, p, dt_crc32(0, out, p->bytes), err);
	}
	if (rc == 0 && copy)
		ck_copy_feed(copy, 0, (int64_t)(p->bytes / size), out, dst);
	put_fd(&file);
	free(in);
	free(mixed);
	free(out);
	return rc;
}

int ck_read_piece(struct dt_ckpt *c, const struct ck_piece *p, const struct ck_copy *copy, void *dst,
		  struct dt_err *err)
{
	return p->packed ? read_packed(c, p, copy, dst, err) : read_plain(c, p, copy, dst, err);
}

int dt_ckpt_read(struct dt_ckpt *c, int i, const int64_t *off, const int64_t *shape, enum dt_dtype as,
		 void *dst, struct dt_err *err)
{
	const struct ck_tensor *t = &c->m.tensor[i];
	int rc = 0;

	if (as != t->dtype && (dt_format_of_dtype(as) < 0 || dt_format_of_dtype(t->dtype) < 0))
		return dt_err_set(err, -EINVAL, "tensor '%s' is %s and cannot be read as %s", t->name,
				  dt_dtype_name(t->dtype), dt_dtype_name(as));
	for (int d = 0; d < t->ndim; d++)
		if (off[d] < 0 || shape[d] < 0 || off[d] > t->shape[d] || shape[d] > t->shape[d] - off[d])
			return dt_err_set(err, -EINVAL, "the requested box extends beyond tensor '%s'",
					  t->name);
	for (int k = 0; k < t->npieces && rc == 0; k++) {
		struct ck_copy copy;

		if (ck_copy_plan(&copy, t, &c->m.piece[t->first + k], off, shape, as))
			rc = ck_read_piece(c, &c->m.piece[t->first + k], &copy, dst, err);
	}
	return rc;
}

int dt_ckpt_read_run(struct dt_ckpt *c, int i, int64_t first, int64_t n, void *dst, struct dt_err *err)
{
	const struct ck_tensor *t = &c->m.tensor[i];
	struct dt_piece whole = {.dtype = t->dtype, .ndim = t->ndim}, part[2 * DT_CKPT_MAX_DIM + 1];
	char *to = dst;
	int np, rc = 0;

	memcpy(whole.shape, t->shape, sizeof(t->shape));
	np = dt_pieces_of_range(&whole, first, n, part);
	for (int k = 0; k < np && rc == 0; k++) {
		rc = dt_ckpt_read(c, i, part[k].off, part[k].shape, t->dtype, to, err);
		to += ck_numel(t->ndim, part[k].shape) * dt_dtype_size(t->dtype);
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
