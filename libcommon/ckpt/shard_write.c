/*
 * Writes one shard. HDF5 lays out the datasets and closes the file; the elements are then written to their
 * offsets with pwrite, block by block, each checksummed just before. So most of the work does not use HDF5's
 * global lock, its error handling on a full disk, or its caches. Large pieces are written with O_DIRECT: no
 * copy, and the page cache does not take memory from training.
 */
#include "ckpt/internal.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

#define PACK_MIN      4096 /* bytes: smaller pieces are not compressed */
#define DEFLATE_LEVEL 1

struct shard {
	char name[32], path[CK_PATH];
	struct dt_piece *p; /* split, without empty pieces */
	struct ck_piece *at;
	int n, cap;
	bool compress;
	dt_ckpt_fill fill;
	void *arg;
};

static uint64_t piece_bytes(const struct dt_piece *p)
{
	return (uint64_t)ck_numel(p->ndim, p->shape) * (uint64_t)dt_dtype_size(p->dtype);
}

static int fetch(const struct shard *s, int i, const void **ret, struct dt_err *err)
{
	if (s->fill)
		return s->fill(s->arg, &s->p[i], ret, err);
	*ret = s->p[i].data;
	return 0;
}

static hid_t create_list(const struct dt_piece *p, const hsize_t *dims, bool packed)
{
	hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);

	H5Pset_obj_track_times(dcpl, false);
	H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER);
	if (packed) { /* one chunk: the whole piece */
		H5Pset_chunk(dcpl, p->ndim, dims);
		H5Pset_shuffle(dcpl);
		H5Pset_deflate(dcpl, DEFLATE_LEVEL);
	} else {
		H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY);
	}
	return dcpl;
}

/* Shuffles bytes by significance, like HDF5's shuffle filter, then deflates. *ret is malloc'd. */
static int pack(const char *data, uint64_t bytes, size_t size, unsigned char **ret, uLong *ret_n)
{
	uint64_t n = bytes / size;
	uLong room = compressBound((uLong)bytes);
	unsigned char *mixed = malloc(bytes), *out = malloc(room);
	int rc = mixed && out ? 0 : -ENOMEM;

	for (size_t b = 0; b < size && rc == 0; b++)
		for (uint64_t i = 0; i < n; i++)
			mixed[b * n + i] = (unsigned char)data[i * size + b];
	if (rc == 0 && compress2(out, &room, mixed, (uLong)bytes, DEFLATE_LEVEL) != Z_OK)
		rc = -ENOMEM;
	free(mixed);
	if (rc < 0) {
		free(out);
		return rc;
	}
	*ret = out;
	*ret_n = room;
	return 0;
}

/* Writes the finished chunk: HDF5's own filters would run under its global lock. */
static int write_chunk(struct shard *s, hid_t set, int i, struct dt_err *err)
{
	static const hsize_t first[DT_CKPT_MAX_DIM];
	struct ck_piece *at = &s->at[i];
	unsigned char *out;
	const void *data;
	unsigned mask;
	haddr_t where;
	hsize_t size;
	uLong n;
	int rc = fetch(s, i, &data, err);

	if (rc < 0)
		return rc;
	at->crc = dt_crc32(0, data, at->bytes);
	rc = pack(data, at->bytes, (size_t)dt_dtype_size(s->p[i].dtype), &out, &n);
	if (rc < 0)
		return dt_err_sys(err, rc, "cannot write '%s'", s->path);
	if (H5Dwrite_chunk(set, H5P_DEFAULT, 0, first, n, out) < 0 ||
	    H5Dget_chunk_info_by_coord(set, first, &mask, &where, &size) < 0)
		rc = dt_h5_error(err, "cannot write '%s'", s->path);
	else
		at->at = where;
	at->stored = n;
	free(out);
	return rc;
}

static int place(struct shard *s, hid_t set, int i, struct dt_err *err)
{
	haddr_t where = H5Dget_offset(set);

	if (where == HADDR_UNDEF)
		return dt_h5_error(err, "cannot place '%s' in '%s'", s->p[i].name, s->path);
	s->at[i].at = where;
	return 0;
}

static int add_dataset(struct shard *s, hid_t file, int i, struct dt_err *err)
{
	const struct dt_piece *p = &s->p[i];
	struct ck_piece *at = &s->at[i];
	hid_t type = ck_h5_type(p->dtype), space, dcpl, set = -1;
	hsize_t dims[DT_CKPT_MAX_DIM];
	char name[CK_DATASET_NAME];
	int rc = 0;

	at->bytes = piece_bytes(p);
	at->packed = s->compress && at->bytes >= PACK_MIN;
	for (int d = 0; d < p->ndim; d++)
		dims[d] = (hsize_t)p->shape[d];
	ck_dataset_name(name, sizeof(name), p->name, p->ndim, p->off);
	space = H5Screate_simple(p->ndim, dims, NULL);
	dcpl = create_list(p, dims, at->packed);
	if (ck_h5_group(file, p->name) == 0)
		set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
	if (set < 0)
		rc = dt_h5_error(err, "cannot add '%s' to '%s'", name, s->path);
	else
		rc = at->packed ? write_chunk(s, set, i, err) : place(s, set, i, err);
	H5Tclose(type);
	H5Sclose(space);
	H5Pclose(dcpl);
	if (set >= 0 && H5Dclose(set) < 0 && rc == 0)
		rc = dt_h5_error(err, "cannot write '%s'", s->path);
	return rc;
}

static int write_structure(struct shard *s, int fd, struct dt_err *err)
{
	struct ck_h5_out out = {.fd = fd};
	hid_t file = ck_h5_create(&out, s->n);
	int rc = 0;

	if (file < 0)
		return dt_h5_error(err, "cannot create '%s'", s->path);
	for (int i = 0; i < s->n && rc == 0 && !out.error; i++)
		rc = add_dataset(s, file, i, err);
	if (H5Fclose(file) < 0 && rc == 0)
		rc = dt_h5_error(err, "cannot write '%s'", s->path);
	if (rc == 0 && out.error)
		rc = dt_err_sys(err, out.error, "cannot write '%s'", s->path);
	return rc;
}

/* Output files: fd uses the page cache, direct O_DIRECT (-1: not available). */
struct out {
	int fd, direct;
	char *bounce;
};

/*
 * Checksums and writes n bytes with O_DIRECT, whole blocks only; through bounce if data is not aligned.
 * *ret_done: bytes written; the rest, without an error, is left to the page cache.
 */
static int write_direct(struct out *o, const char *data, size_t n, uint64_t at, uint32_t *crc,
			size_t *ret_done)
{
	bool bounce = (uintptr_t)data % CK_MEMORY_ALIGN;
	int rc;

	for (size_t done = 0, k; done < n; done += k) {
		k = n - done < CK_BLOCK_BYTES ? n - done : CK_BLOCK_BYTES;
		*crc = dt_crc32(*crc, data + done, k);
		if (bounce)
			memcpy(o->bounce + done, data + done, k);
	}
	rc = ck_direct_write(o->direct, bounce ? o->bounce : data, n, at, ret_done);
	if (rc == -EINVAL && !bounce) {
		memcpy(o->bounce, data, n); /* all of it is written again */
		rc = ck_direct_write(o->direct, o->bounce, n, at, ret_done);
	}
	return rc;
}

static int write_piece(struct out *o, const char *data, struct ck_piece *p)
{
	uint64_t whole = p->bytes / CK_DIRECT_ALIGN * CK_DIRECT_ALIGN, done = 0;
	int rc = 0;

	p->crc = 0;
	while (o->direct >= 0 && p->bytes >= CK_DIRECT_MIN && p->at % CK_DIRECT_ALIGN == 0 && done < whole) {
		size_t k = whole - done < CK_DIRECT_BLOCK ? (size_t)(whole - done) : CK_DIRECT_BLOCK, put;

		rc = write_direct(o, data + done, k, p->at + done, &p->crc, &put);
		if (rc == -EINVAL || (rc == 0 && put < k)) { /* this disk needs another alignment */
			close(o->direct);
			o->direct = -1;
			rc = dt_write_all(o->fd, data + done + put, k - put, (int64_t)(p->at + done + put));
		}
		if (rc < 0)
			return rc;
		done += k;
	}
	for (; done < p->bytes && rc == 0; done += CK_BLOCK_BYTES) {
		size_t k = p->bytes - done < CK_BLOCK_BYTES ? (size_t)(p->bytes - done) : CK_BLOCK_BYTES;

		p->crc = dt_crc32(p->crc, data + done, k);
		rc = dt_write_all(o->fd, data + done, k, (int64_t)(p->at + done));
	}
	return rc;
}

static int write_pieces(struct shard *s, struct out *o, struct dt_err *err)
{
	const void *data;
	int rc;

	for (int i = 0; i < s->n; i++) {
		if (s->at[i].packed)
			continue;
		rc = fetch(s, i, &data, err);
		if (rc < 0)
			return rc;
		rc = write_piece(o, data, &s->at[i]);
		if (rc < 0)
			return dt_err_sys(err, rc, "cannot write '%s'", s->path);
		/* start writing this piece while the next one is filled; fsync below makes it durable */
		if (o->direct < 0 && s->at[i].bytes >= 1 << 20)
			sync_file_range(o->fd, (off_t)s->at[i].at, (off_t)s->at[i].bytes,
					SYNC_FILE_RANGE_WRITE);
	}
	return 0;
}

static int write_elements(struct shard *s, int fd, struct dt_err *err)
{
	struct out o = {.fd = fd, .direct = open(s->path, O_WRONLY | O_CLOEXEC), .bounce = ck_bounce_new()};
	int rc;

	if (o.direct >= 0 && (!o.bounce || ck_set_direct(o.direct) < 0)) {
		close(o.direct);
		o.direct = -1;
	}
	rc = write_pieces(s, &o, err);
	if (o.direct >= 0)
		close(o.direct);
	free(o.bounce);
	return rc;
}

static int write_file(struct shard *s, struct dt_err *err)
{
	int fd = open(s->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666), rc;

	if (fd < 0)
		return dt_err_sys(err, -errno, "cannot create '%s'", s->path);
	rc = write_structure(s, fd, err);
	/* a full disk fails here already, if the file system can reserve space */
	if (rc == 0 && fallocate(fd, 0, 0, lseek(fd, 0, SEEK_END)) < 0 && errno != EOPNOTSUPP &&
	    errno != ENOSYS)
		rc = dt_err_sys(err, -errno, "cannot write '%s'", s->path);
	if (rc == 0)
		rc = write_elements(s, fd, err);
	if (rc == 0 && fsync(fd) < 0)
		rc = dt_err_sys(err, -errno, "cannot flush '%s' to disk", s->path);
	if (close(fd) < 0 && rc == 0)
		rc = dt_err_sys(err, -errno, "cannot write '%s'", s->path);
	return rc;
}

/* where: NULL for a piece without elements, which only declares its tensor. */
static json_t *entry(const struct dt_piece *p, const char *file, const struct ck_piece *where)
{
	json_t *o = json_pack("{s:s, s:s, s:o, s:o, s:o}", "name", p->name, "dtype", dt_dtype_name(p->dtype),
			      "global", ck_dims_json(p->ndim, p->global), "offset",
			      ck_dims_json(p->ndim, p->off), "shape", ck_dims_json(p->ndim, p->shape));
	char hex[9];

	if (!o || !where)
		return o;
	snprintf(hex, sizeof(hex), "%08x", where->crc);
	json_object_set_new(o, "file", json_string(file));
	json_object_set_new(o, "crc32", json_string(hex));
	json_object_set_new(o, "at", json_integer((json_int_t)where->at));
	if (where->packed) {
		json_object_set_new(o, "filter", json_string("shuffle+deflate"));
		json_object_set_new(o, "stored_bytes", json_integer((json_int_t)where->stored));
	}
	return o;
}

static int check_piece(const struct dt_piece *p, struct dt_err *err)
{
	int64_t bytes = dt_dtype_size(p->dtype);

	if (p->ndim < 1 || p->ndim > DT_CKPT_MAX_DIM)
		return dt_err_set(err, -EINVAL, "tensor '%s' has %d dimensions, not 1 to %d", p->name,
				  p->ndim, DT_CKPT_MAX_DIM);
	for (int d = 0; d < p->ndim; d++)
		if (p->off[d] < 0 || p->shape[d] < 0 || p->off[d] > p->global[d] ||
		    p->shape[d] > p->global[d] - p->off[d] ||
		    __builtin_mul_overflow(bytes, p->shape[d], &bytes))
			return dt_err_set(err, -EINVAL, "a piece of '%s' extends beyond the tensor", p->name);
	return 0;
}

int dt_ckpt_write_shard_from(const char *tmpdir, int rank, const struct dt_piece *p, int n, bool compress,
			     dt_ckpt_fill fill, void *arg, json_t **ret_list, struct dt_err *err)
{
	struct shard s = {.compress = compress, .fill = fill, .arg = arg};
	json_t *list = json_array();
	int rc = list ? 0 : dt_err_sys(err, -ENOMEM, "cannot write a shard");

	dt_h5_quiet();
	snprintf(s.name, sizeof(s.name), "shard-%05d.h5", rank);
	if ((size_t)snprintf(s.path, sizeof(s.path), "%s/%s", tmpdir, s.name) >= sizeof(s.path))
		rc = dt_err_sys(err, -ENAMETOOLONG, "cannot create '%s'", tmpdir);
	for (int i = 0; i < n && rc == 0; i++) {
		rc = check_piece(&p[i], err);
		if (rc == 0 &&
		    ck_split(&p[i], compress ? CK_PACK_BYTES : CK_PIECE_BYTES, &s.p, &s.n, &s.cap) < 0)
			rc = dt_err_sys(err, -ENOMEM, "cannot write '%s'", s.path);
		if (rc == 0 && ck_numel(p[i].ndim, p[i].shape) == 0)
			json_array_append_new(list, entry(&p[i], NULL, NULL));
	}
	if (rc == 0 && s.n) {
		s.at = calloc((size_t)s.n, sizeof(*s.at));
		rc = s.at ? write_file(&s, err) : dt_err_sys(err, -ENOMEM, "cannot write '%s'", s.path);
		if (rc < 0)
			unlink(s.path);
	}
	for (int i = 0; i < s.n && rc == 0; i++)
		if (json_array_append_new(list, entry(&s.p[i], s.name, &s.at[i])) < 0)
			rc = dt_err_sys(err, -ENOMEM, "cannot write '%s'", s.path);
	free(s.p);
	free(s.at);
	if (rc < 0)
		json_decref(list);
	else
		*ret_list = list;
	return rc;
}

int dt_ckpt_write_shard(const char *tmpdir, int rank, const struct dt_piece *p, int n, bool compress,
			json_t **ret_list, struct dt_err *err)
{
	return dt_ckpt_write_shard_from(tmpdir, rank, p, n, compress, NULL, NULL, ret_list, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
