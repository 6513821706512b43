/*
 * One shard. HDF5 lays the datasets out and closes the file; the elements are then written into the places it
 * gave them with plain pwrite, block by block while the block is being summed. That keeps the library's
 * global lock, its error handling on a full disk and its caches out of the bulk of the work.
 */
#include "ckpt/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

#define PACK_MIN 4096 /* bytes: smaller pieces are not worth a chunk index */

struct shard {
	char name[32], path[CK_PATH];
	struct dt_piece *p; /* split, without empty ones */
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

static hid_t create_list(const struct dt_piece *p, bool packed)
{
	hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
	hsize_t chunk[DT_CKPT_MAX_DIM];
	uint64_t bytes = piece_bytes(p);

	H5Pset_obj_track_times(dcpl, false); /* the same checkpoint gives the same bytes */
	H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER);
	if (!packed) {
		H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY);
		return dcpl;
	}
	for (int d = 0; d < p->ndim; d++) /* halve the leading dimensions until a chunk is about 1 MiB */
		chunk[d] = (hsize_t)p->shape[d];
	for (int d = 0; d < p->ndim; d++)
		while (bytes > (1 << 20) && chunk[d] > 1) {
			bytes = bytes / chunk[d] * ((chunk[d] + 1) / 2);
			chunk[d] = (chunk[d] + 1) / 2;
		}
	H5Pset_chunk(dcpl, p->ndim, chunk);
	H5Pset_shuffle(dcpl);
	H5Pset_deflate(dcpl, 1);
	return dcpl;
}

static int add_dataset(struct shard *s, hid_t file, hid_t lcpl, int i, struct dt_err *err)
{
	const struct dt_piece *p = &s->p[i];
	struct ck_piece *at = &s->at[i];
	hid_t type = ck_h5_type(p->dtype), space, dcpl, set;
	hsize_t dims[DT_CKPT_MAX_DIM];
	char name[CK_DATASET_NAME];
	const void *data;
	int rc = 0;

	at->bytes = piece_bytes(p);
	at->packed = s->compress && at->bytes >= PACK_MIN;
	for (int d = 0; d < p->ndim; d++)
		dims[d] = (hsize_t)p->shape[d];
	ck_dataset_name(name, sizeof(name), p->name, p->ndim, p->off);
	space = H5Screate_simple(p->ndim, dims, NULL);
	dcpl = create_list(p, at->packed);
	set = H5Dcreate2(file, name, type, space, lcpl, dcpl, H5P_DEFAULT);
	if (set < 0) {
		rc = ck_h5_err(err, "cannot add '%s' to '%s'", name, s->path);
	} else if (at->packed) {
		rc = fetch(s, i, &data, err);
		if (rc == 0) {
			at->crc = (uint32_t)crc32_z(0, data, at->bytes);
			if (H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
				rc = ck_h5_err(err, "cannot write '%s'", s->path);
		}
	} else {
		haddr_t where = H5Dget_offset(set);

		if (where == HADDR_UNDEF)
			rc = ck_h5_err(err, "cannot place '%s' in '%s'", name, s->path);
		at->at = where;
	}
	H5Tclose(type);
	H5Sclose(space);
	H5Pclose(dcpl);
	if (set >= 0 && H5Dclose(set) < 0 && rc == 0)
		rc = ck_h5_err(err, "cannot write '%s'", s->path);
	return rc;
}

static int write_structure(struct shard *s, struct dt_err *err)
{
	hid_t file = ck_h5_create(s->path, s->n), lcpl;
	int rc = 0;

	if (file < 0)
		return ck_h5_err(err, "cannot create '%s'", s->path);
	lcpl = H5Pcreate(H5P_LINK_CREATE);
	H5Pset_create_intermediate_group(lcpl, 1);
	for (int i = 0; i < s->n && rc == 0; i++)
		rc = add_dataset(s, file, lcpl, i, err);
	H5Pclose(lcpl);
	if (H5Fclose(file) < 0 && rc == 0)
		rc = ck_h5_err(err, "cannot write '%s'", s->path);
	return rc;
}

static int write_piece(int fd, const char *data, struct ck_piece *p)
{
	uLong crc = 0;

	for (uint64_t done = 0; done < p->bytes;) {
		size_t k = p->bytes - done < CK_BLOCK_BYTES ? (size_t)(p->bytes - done) : CK_BLOCK_BYTES,
		       w = 0;

		crc = crc32_z(crc, (const void *)(data + done), k);
		while (w < k) {
			ssize_t got = pwrite(fd, data + done + w, k - w, (off_t)(p->at + done + w));

			if (got < 0 && errno == EINTR)
				continue;
			if (got <= 0)
				return got < 0 ? -errno : -EIO;
			w += (size_t)got;
		}
		done += k;
	}
	p->crc = (uint32_t)crc;
	return 0;
}

static int write_elements(struct shard *s, int fd, struct dt_err *err)
{
	const void *data;
	int rc;

	for (int i = 0; i < s->n; i++) {
		if (s->at[i].packed)
			continue;
		rc = fetch(s, i, &data, err);
		if (rc < 0)
			return rc;
		rc = write_piece(fd, data, &s->at[i]);
		if (rc < 0)
			return dt_err_sys(err, rc, "cannot write '%s'", s->path);
		/* let the disk work on this piece while we fill the next; fsync below is what counts */
		if (s->at[i].bytes >= 1 << 20)
			sync_file_range(fd, (off_t)s->at[i].at, (off_t)s->at[i].bytes, SYNC_FILE_RANGE_WRITE);
	}
	return 0;
}

static int write_file(struct shard *s, struct dt_err *err)
{
	int fd, rc = write_structure(s, err);
	off_t size;

	if (rc < 0)
		return rc;
	fd = open(s->path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return dt_err_sys(err, -errno, "cannot open '%s'", s->path);
	size = lseek(fd, 0, SEEK_END);
	/* a full disk is known before the work starts, where the file system can say so */
	if (fallocate(fd, 0, 0, size) < 0 && errno != EOPNOTSUPP && errno != ENOSYS)
		rc = dt_err_sys(err, -errno, "cannot write '%s'", s->path);
	if (rc == 0)
		rc = write_elements(s, fd, err);
	if (rc == 0 && fsync(fd) < 0)
		rc = dt_err_sys(err, -errno, "cannot flush '%s' to disk", s->path);
	if (close(fd) < 0 && rc == 0)
		rc = dt_err_sys(err, -errno, "cannot write '%s'", s->path);
	return rc;
}

static json_t *dims_json(int n, const int64_t *v)
{
	json_t *a = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(a, json_integer(v[i]));
	return a;
}

/* where: NULL for a piece without elements, which only makes its tensor known. */
static json_t *entry(const struct dt_piece *p, const char *file, const struct ck_piece *where)
{
	json_t *o = json_pack("{s:s, s:s, s:o, s:o, s:o}", "name", p->name, "dtype", dt_dtype_name(p->dtype),
			      "global", dims_json(p->ndim, p->global), "offset", dims_json(p->ndim, p->off),
			      "shape", dims_json(p->ndim, p->shape));
	char hex[9];

	if (!o || !where)
		return o;
	snprintf(hex, sizeof(hex), "%08x", where->crc);
	json_object_set_new(o, "file", json_string(file));
	json_object_set_new(o, "crc32", json_string(hex));
	if (where->packed)
		json_object_set_new(o, "filter", json_string("shuffle+deflate"));
	else
		json_object_set_new(o, "at", json_integer((json_int_t)where->at));
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
			return dt_err_set(err, -EINVAL, "a piece of '%s' reaches out of the tensor", p->name);
	return 0;
}

int dt_ckpt_write_shard_from(const char *tmpdir, int rank, const struct dt_piece *p, int n, bool compress,
			     dt_ckpt_fill fill, void *arg, json_t **ret_list, struct dt_err *err)
{
	struct shard s = {.compress = compress, .fill = fill, .arg = arg};
	json_t *list = json_array();
	int rc = list ? 0 : dt_err_sys(err, -ENOMEM, "cannot write a shard");

	ck_h5_quiet();
	snprintf(s.name, sizeof(s.name), "shard-%05d.h5", rank);
	if ((size_t)snprintf(s.path, sizeof(s.path), "%s/%s", tmpdir, s.name) >= sizeof(s.path))
		rc = dt_err_sys(err, -ENAMETOOLONG, "cannot create '%s'", tmpdir);
	for (int i = 0; i < n && rc == 0; i++) {
		rc = check_piece(&p[i], err);
		if (rc == 0 && ck_split(&p[i], &s.p, &s.n, &s.cap) < 0)
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
