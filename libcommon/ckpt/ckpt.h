/*
 * Sharded, layout-free checkpoints: dt-checkpoint(5).
 *
 *   ROOT/step-00001000/{manifest.json, index.h5, shard-00000.h5, ...}   ROOT/latest -> step-00001000
 *
 * Tensors are named KIND/NAME: "model/layers.0.attn.q.weight" (the f32 master where there is one, else the
 * weight), "m/...", "v/..." (optimizer states 1 and 2). A piece is a box of a global tensor stored as one
 * contiguous dataset with a CRC-32; pieces of one tensor do not overlap and together cover it.
 *
 * This library does not communicate: every rank writes its own shard, and the caller gathers the piece lists
 * to one rank, which commits. Nothing is visible under the final name before the commit's rename.
 */
#ifndef DT_CKPT_CKPT_H
#define DT_CKPT_CKPT_H

#include "base/err.h"
#include "base/json.h"
#include "kernels/dtype.h"

#include <stdbool.h>
#include <stdint.h>

#define DT_CKPT_MAX_DIM 4

/* A box of a global tensor in memory, row-major and contiguous. */
struct dt_piece {
	char name[80];
	enum dt_dtype dtype;
	int ndim;
	int64_t global[DT_CKPT_MAX_DIM], off[DT_CKPT_MAX_DIM], shape[DT_CKPT_MAX_DIM];
	const void *data; /* writing: the elements; ignored in listings */
};

/*
 * Divides a range of elements [first, first + n) of a box into boxes that cover it exactly, because a ZeRO
 * shard is a flat range of a (cut) parameter. Writes at most 2 ndim + 1 pieces, with data pointers into
 * box->data; returns their number.
 */
int dt_pieces_of_range(const struct dt_piece *box, int64_t first, int64_t n, struct dt_piece *ret);

/* ---- writing ---- */

/*
 * Creates an empty ROOT/step-N.tmp, and removes every step-*.tmp and latest.tmp.* that a crash left in ROOT,
 * so a root may have only one writer at a time. One rank creates the folder before the others write to it.
 */
int dt_ckpt_begin(const char *root, int64_t step, char **ret_tmpdir, struct dt_err *err);
/* After a failure: removes tmpdir, and with `made` also ROOT if it is empty. */
void dt_ckpt_discard(const char *root, const char *tmpdir, bool made);

/*
 * Writes shard-RRRRR.h5, fsynced; *ret_list is the JSON array of its pieces for the commit. n may be 0,
 * pieces may be empty; without a single element no file is made. Pieces over 64 MiB are stored as several.
 * The HDF5 library (one global lock) is used for the metadata only; the elements go by pwrite, so a writer
 * thread does not hold up others. compress packs them outside the library too.
 */
int dt_ckpt_write_shard(const char *tmpdir, int rank, const struct dt_piece *p, int n, bool compress,
			json_t **ret_list, struct dt_err *err);

/*
 * The same for pieces that are not in memory. fill is called once for each piece of at most 64 MiB, and
 * returns its elements, which must stay valid until the next call. p[].data is not dereferenced, only
 * advanced: the piece passed to fill has the address of its first element.
 */
typedef int (*dt_ckpt_fill)(void *arg, const struct dt_piece *p, const void **ret_data, struct dt_err *err);
int dt_ckpt_write_shard_from(const char *tmpdir, int rank, const struct dt_piece *p, int n, bool compress,
			     dt_ckpt_fill fill, void *arg, json_t **ret_list, struct dt_err *err);

/*
 * meta: {"model": ..., "layout": "dp2", "step": N, "data": {...}, "optimizer": {...},
 * "tokenizer": ...}. lists: one array a rank. Checks that the pieces of each tensor cover it once, writes
 * index.h5 and manifest.json, renames, moves `latest`, and prunes to the newest keep checkpoints (0: all),
 * never the one just written and never one whose manifest cannot be read. An older checkpoint of the same
 * step is replaced.
 *
 * If the checkpoint is complete but an old one could not be removed, it returns 0 with err->code and err->msg
 * set (err->code is 0 otherwise).
 */
int dt_ckpt_commit(const char *root, int64_t step, const json_t *meta, json_t *const *lists, int nlists,
		   int keep, struct dt_err *err);

/* ---- root.c: the root folder of a run's checkpoints ---- */

enum { DT_CKPT_RUN_ID = 17 }; /* bytes of a run's name, with the 0 behind it */
/* A new name for a run. */
int dt_ckpt_new_run_id(char ret[DT_CKPT_RUN_ID], struct dt_err *err);
/*
 * Makes root where it is missing and locks it; *ret_fd holds the lock. -EBUSY: another job has it. wait: the
 * file is opened nevertheless, and the caller takes the lock later.
 */
int dt_ckpt_lock(const char *root, bool wait, int *ret_fd, struct dt_err *err);
/* Removes all checkpoints of root, and `latest`. */
int dt_ckpt_empty(const char *root, struct dt_err *err);

/* The largest step <= most whose checkpoint in root has all its files; -1: there is none. */
int64_t dt_ckpt_newest(const char *root, int64_t most);

/*
 * Removes complete checkpoints of root beyond the newest `keep` (0: none is removed for its age), except
 * those whose step is a multiple of `every` (0: no such rule), step `safe` (-1: the newest one) and the one
 * that the link `latest` names, which is not the newest after a resume from an older one. Incomplete ones
 * stay. report is called for each that is removed (may be NULL); dry: nothing is removed. Returns their
 * number; without `safe`, -ENOENT if root has no complete checkpoint.
 */
int dt_ckpt_prune(const char *root, int64_t safe, int keep, int64_t every, bool dry,
		  void (*report)(void *arg, const char *folder), void *arg, struct dt_err *err);

/*
 * DST of a command that makes a checkpoint: ROOT, or ROOT/step-N of just this step. -EINVAL when it names
 * another step, -EEXIST when the step is already there. made: the step folder.
 */
int dt_ckpt_split_path(const char *dst, int64_t step, char *root, char *made, size_t n, struct dt_err *err);

/* ---- reading ---- */

struct dt_ckpt;

struct dt_ckpt_tensor {
	const char *name;
	enum dt_dtype dtype;
	int ndim;
	int64_t shape[DT_CKPT_MAX_DIM];
	int npieces;
	uint64_t bytes;
};

/*
 * path: a step folder, or a root (its latest, falling back to the newest complete step; dt_ckpt_note then
 * says why). A manifest that is damaged or lies is -EBADMSG, one from a newer format -ENOTSUP.
 */
int dt_ckpt_open(const char *path, struct dt_ckpt **ret, struct dt_err *err);
void dt_ckpt_close(struct dt_ckpt *c);
const char *dt_ckpt_path(const struct dt_ckpt *c); /* the step folder */
const char *dt_ckpt_note(const struct dt_ckpt *c); /* one line when `latest` was not used, else NULL */
int64_t dt_ckpt_step(const struct dt_ckpt *c);
const json_t *dt_ckpt_meta(const struct dt_ckpt *c); /* the manifest less its files and tensors; borrowed */
int dt_ckpt_ntensors(const struct dt_ckpt *c);
void dt_ckpt_tensor(const struct dt_ckpt *c, int i, struct dt_ckpt_tensor *ret);
int dt_ckpt_find(const struct dt_ckpt *c, const char *name); /* -1: absent */

/* Piece k of tensor i, sorted by offset: its box, and the shard that holds it. */
struct dt_ckpt_piece {
	int64_t off[DT_CKPT_MAX_DIM], shape[DT_CKPT_MAX_DIM];
	const char *file;
	uint32_t crc32;
	bool packed; /* shuffle and deflate */
};
void dt_ckpt_piece(const struct dt_ckpt *c, int i, int k, struct dt_ckpt_piece *ret);

/*
 * Declares that no process of this machine is going to read the checkpoint again soon: data that is not in
 * the page cache is then read past it, which is faster and does not evict other data. Before the first read.
 */
void dt_ckpt_read_once(struct dt_ckpt *c);

/*
 * Reads the box [off, off + shape) of tensor i as dtype `as` (f32, bf16 and f16 converted, others must match)
 * into dst, contiguous. Every piece used is read whole and checked against its CRC; a mismatch is -EBADMSG
 * and dst is undefined. Several threads may read from one struct dt_ckpt.
 */
int dt_ckpt_read(struct dt_ckpt *c, int i, const int64_t *off, const int64_t *shape, enum dt_dtype as,
		 void *dst, struct dt_err *err);

/* The elements [first, first + n) of tensor i in row-major order, of its own type. */
int dt_ckpt_read_run(struct dt_ckpt *c, int i, int64_t first, int64_t n, void *dst, struct dt_err *err);

/*
 * Reads everything, checks structure and every CRC. report is called for each finding (may be NULL); returns
 * the number of findings, or a negative errno when the checkpoint cannot be opened at all. report and
 * progress are called one at a time, also from worker threads. It forks before it starts these threads, since
 * HDF5 may crash on a damaged file: not for MPI processes.
 */
int dt_ckpt_verify(const char *path, int workers, void (*report)(void *arg, const char *text), void *arg,
		   void (*progress)(void *arg, uint64_t done, uint64_t total), struct dt_err *err);

/* ---- looking inside ---- */

/* n elements as doubles. */
void dt_ckpt_to_f64(enum dt_dtype t, const void *src, int64_t n, double *dst);

/* ---- recutting ---- */

struct dt_layout;

/*
 * Processes that reshard together: all make the same call, each with its own rank. This library does not
 * communicate, so the caller supplies these functions; every rank calls them in the same order.
 */
struct dt_ckpt_team {
	int rank, size;
	void *arg;
	/* Combines rc of all ranks: < 0 on all if it is < 0 on any. The rank that failed keeps its message,
	 * the others have none. */
	int (*agree)(void *arg, int rc, struct dt_err *err);
	/* Gathers the texts of all ranks to rank 0, concatenated; text and lengths are malloc'd there. */
	int (*gather)(void *arg, const char *text, size_t n, char **ret, size_t **ret_lens,
		      struct dt_err *err);
};

/*
 * Reshards src: writes it as the ranks of layout would have, one shard a rank, into ROOT/step-N of the same
 * step. Parameters are cut by the layout; replicas are written once, balanced by bytes; m/ and v/ are flat
 * ranges over dp if zero >= 1, model/ too if zero is 3. Tensors that are not in the parameter table stay
 * whole. Each process of the team (NULL: this one alone) has `workers` threads, which write one shard at a
 * time; the result depends on neither number. Memory: one piece per worker. progress, of this process's part,
 * may return false to stop (-ECANCELED). On failure nothing is left behind.
 */
int dt_ckpt_reshard(struct dt_ckpt *src, const struct dt_layout *layout, const char *root, bool compress,
		    int workers, const struct dt_ckpt_team *team,
		    bool (*progress)(void *arg, uint64_t done, uint64_t total), void *arg,
		    struct dt_err *err);

/*
 * Repairs the checkpoint at path from a replica that holds the same elements, in any layout. Shards that are
 * missing or damaged are rewritten from their intact pieces and the replica's; each piece must get its old
 * checksum and place. Then the index is rewritten. The manifest must be readable. report is called for each
 * file repaired (may be NULL). Returns their number; -EBADMSG if the replica does not have what is missing.
 * It forks, as dt_ckpt_verify does.
 */
int dt_ckpt_repair(const char *path, const char *replica, void (*report)(void *arg, const char *text),
		   void *arg, struct dt_err *err);

/*
 * Reshards src for layout and writes it to fd as a tar stream: step-N/... and latest. Shards need random
 * access while they are written, so they go to a temporary folder under $TMPDIR first. After this call
 * SIGPIPE is ignored.
 */
int dt_ckpt_reshard_tar(struct dt_ckpt *src, const struct dt_layout *layout, bool compress, int workers,
			int fd, bool (*progress)(void *arg, uint64_t done, uint64_t total), void *arg,
			struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
