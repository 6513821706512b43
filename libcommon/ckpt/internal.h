/* Shared by the files of ckpt/; private to it. */
#ifndef DT_CKPT_INTERNAL_H
#define DT_CKPT_INTERNAL_H

#include "base/crc.h"
#include "base/h5.h"
#include "ckpt/ckpt.h"

#include <limits.h>
#include <pthread.h>

#define CK_PATH		(PATH_MAX + 64)
#define CK_VERSION	1
#define CK_PIECE_BYTES	((int64_t)64 << 20) /* larger pieces are stored as several */
#define CK_PACK_BYTES	((int64_t)8 << 20)  /* packed ones sooner: a chunk of HDF5 is unpacked whole */
#define CK_BLOCK_BYTES	((size_t)256 << 10) /* read or written, and summed, while it is in the cache */
#define CK_MANIFEST_MAX ((size_t)1 << 30)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "stored elements are little-endian");

struct ck_file {
	char name[64];
	uint64_t bytes;
};

struct ck_piece {
	int file, tensor;
	bool packed;		    /* byte-shuffled, then deflated */
	uint32_t crc;		    /* of the elements, little-endian, row-major, unpacked */
	uint64_t at, stored, bytes; /* where in the file; bytes there; bytes unpacked */
	int64_t off[DT_CKPT_MAX_DIM], shape[DT_CKPT_MAX_DIM];
};

struct ck_tensor {
	char name[80];
	enum dt_dtype dtype;
	int ndim;
	int64_t shape[DT_CKPT_MAX_DIM];
	uint64_t bytes;
	int first, npieces; /* into the pieces */
};

struct ck_manifest {
	json_t *meta; /* everything but files and tensors */
	int64_t step;
	struct ck_file *file;
	struct ck_tensor *tensor;
	struct ck_piece *piece;
	const struct ck_tensor **by_name; /* sorted */
	int nfile, ntensor, npiece;
};

/* ---- manifest.c ---- */

/* Checks everything that can be checked without the shards. name is for messages. */
int ck_manifest_parse(const char *text, size_t n, const char *name, struct ck_manifest *ret,
		      struct dt_err *err);
void ck_manifest_release(struct ck_manifest *m);
/* root as text with the closing checksum; malloc'd. */
int ck_manifest_text(const json_t *root, char **ret, size_t *ret_n, struct dt_err *err);
/* n numbers of a tensor, one a dimension. */
json_t *ck_dims_json(int n, const int64_t *v);

/* ---- box.c ---- */

int64_t ck_numel(int ndim, const int64_t *shape);
/* Appends p as pieces of at most max bytes, each contiguous in p, to a growing array; skips empty ones. */
int ck_split(const struct dt_piece *p, int64_t max, struct dt_piece **v, int *n, int *cap);
/* Sorts the pieces of t by offset and checks that they cover it once. */
int ck_check_cover(const struct ck_tensor *t, struct ck_piece *p, struct dt_err *err);
/* "NAME@0,64": the dataset of a piece. */
void ck_dataset_name(char *buf, size_t n, const char *tensor, int ndim, const int64_t *off);
#define CK_DATASET_NAME 176
/* "[2, 3]" */
const char *ck_shape_text(char *buf, size_t n, int ndim, const int64_t *shape);

/* Copies the part of a piece that lies in a box, fed in flat order. */
struct ck_copy {
	int ndim; /* after joining the trailing dimensions that are copied whole */
	int64_t piece[DT_CKPT_MAX_DIM], first[DT_CKPT_MAX_DIM], count[DT_CKPT_MAX_DIM];
	int64_t dst_shape[DT_CKPT_MAX_DIM], dst_first[DT_CKPT_MAX_DIM];
	enum dt_dtype from, to;
};
/* false: they do not meet. */
bool ck_copy_plan(struct ck_copy *c, const struct ck_tensor *t, const struct ck_piece *p, const int64_t *off,
		  const int64_t *shape, enum dt_dtype as);
/* src holds the elements [first, first + n) of the piece. */
void ck_copy_feed(const struct ck_copy *c, int64_t first, int64_t n, const void *src, void *dst);
/* The byte offset in dst when the whole piece goes there unchanged in one run, else -1. */
int64_t ck_copy_direct(const struct ck_copy *c);

/* ---- direct.c ---- */

#define CK_DIRECT_BLOCK ((size_t)4 << 20)   /* of one request, at most */
#define CK_DIRECT_MIN	((uint64_t)1 << 20) /* smaller pieces go through the page cache */
#define CK_DIRECT_ALIGN ((size_t)4096)	    /* of place and length */
#define CK_MEMORY_ALIGN ((size_t)512)	    /* of memory, for most disks; -EINVAL tells */

/* CK_DIRECT_BLOCK bytes for such transfers; free()d. */
char *ck_bounce_new(void);
/* From now on fd goes past the page cache; a negative errno where it cannot. */
int ck_set_direct(int fd);
/* Whether the page at this place is in the page cache already; true when that cannot be known. */
bool ck_cached(int fd, uint64_t at);
/*
 * Reads n bytes at any place through whole blocks: n + at % CK_DIRECT_ALIGN <= CK_DIRECT_BLOCK. Returns where
 * in bounce they begin; -EBADMSG: the file ends before.
 */
int64_t ck_direct_read(int fd, char *bounce, uint64_t at, size_t n);
/* at and n aligned. *ret_done: what was written; less than n without an error is for the page cache. */
int ck_direct_write(int fd, const char *data, size_t n, uint64_t at, size_t *ret_done);

/* ---- h5_shard.c ---- */

hid_t ck_h5_type(enum dt_dtype t);
/* A new HDF5 file in the empty file out->fd. Nothing that goes wrong there fails a call of HDF5. */
struct ck_h5_out {
	int fd;
	int error; /* after H5Fclose: the first failure of a write, as a negative errno */
};
hid_t ck_h5_create(struct ck_h5_out *out, int ndatasets);
int ck_h5_set_out(hid_t fapl, struct ck_h5_out *out);
/* The group for a tensor's kind, created on first use; negative on failure. */
int ck_h5_group(hid_t file, const char *tensor);
/*
 * Checks the dataset of a piece in a shard, its type, shape and place, against the manifest. -EBADMSG. HDF5
 * may crash on a damaged file, so only verify asks, in a process of its own: readers need the manifest alone.
 */
int ck_h5_check(hid_t file, const struct ck_tensor *t, const struct ck_piece *p, struct dt_err *err);

/* ---- folder.c ---- */

/* DIR/NAME, cut at CK_PATH; returns buf. */
const char *ck_join(char buf[CK_PATH], const char *dir, const char *name);
/* The steps in root with a folder, newest first; malloc'd. Returns their number. */
int ck_list_steps(const char *root, int64_t **ret, struct dt_err *err);
/* Reads DIR/manifest.json. */
int ck_load(const char *dir, struct ck_manifest *ret, struct dt_err *err);
/* Whether the files of m are all in dir with their sizes. */
int ck_check_files(const char *dir, const struct ck_manifest *m, struct dt_err *err);
/* Opens a shard for reading; regular files only. */
int ck_open_file(const char *dir, const struct ck_file *f, int *ret_fd, uint64_t *ret_bytes,
		 struct dt_err *err);
/* The step that the link `latest` of root names, whether that folder exists or not; -1: no such link. */
int64_t ck_latest(const char *root);
int ck_prune(const char *root, int64_t just_written, int keep, struct dt_err *err);

/* ---- index.c ---- */

int ck_index_write(const char *dir, const struct ck_manifest *m, struct dt_err *err);

/* ---- read.c ---- */

#define CK_BOUNCES 64

struct dt_ckpt {
	char *path, *note;
	struct ck_manifest m;
	pthread_mutex_t lock; /* over what follows */
	int *fd, nopen;	      /* two a file, the second past the page cache; -1: not open */
	bool once;	      /* nothing is read twice: reads bypass the page cache if that is faster */
	char *bounce[CK_BOUNCES];
	int nbounce; /* free ones */
};

/* Reads and sums piece p, all of it; copy may be NULL. -EBADMSG on a mismatch. */
int ck_read_piece(struct dt_ckpt *c, const struct ck_piece *p, const struct ck_copy *copy, void *dst,
		  struct dt_err *err);
int ck_open_dir(const char *dir, struct dt_ckpt **ret, struct dt_err *err);

/* ---- tensors.c ---- */

struct dt_tensor_desc;
void ck_describe(const struct dt_ckpt *c, int i, struct dt_tensor_desc *ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
