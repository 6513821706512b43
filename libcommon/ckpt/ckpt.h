/*
 * Sharded, layout-free checkpoints: dt-checkpoint(5).
 *
 *   ROOT/step-00001000/{manifest.json, index.h5, shard-00000.h5, ...}   ROOT/latest -> step-00001000
 *
 * Tensors are named KIND/NAME: "model/layers.0.attn.q.weight" (the f32 master where there is one, else the
 * weight), "m/...", "v/..." (optimizer states 1 and 2). A piece is a box of a global tensor stored as one
 * contiguous dataset with a CRC-32; pieces of one tensor do not overlap and together cover it.
 *
 * This row knows no communicator: every rank writes its own shard, the caller gathers the piece lists to one
 * rank, which commits. Nothing is visible under the final name before the commit's rename.
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
 * A run of elements [first, first + n) of a box, as the boxes that cover it exactly: a ZeRO shard is a flat
 * range of a (cut) parameter. Writes at most 2 ndim + 1 pieces with data pointers into base; returns their
 * number.
 */
int dt_pieces_of_range(const struct dt_piece *box, int64_t first, int64_t n, struct dt_piece *ret);

/* ---- writing ---- */

/* Creates ROOT/step-N.tmp afresh (a stale one from a crash is removed). One rank calls it, the others after
 * it. */
int dt_ckpt_begin(const char *root, int64_t step, char **ret_tmpdir, struct dt_err *err);

/* Writes shard-RRRRR.h5, fsynced; *ret_list is the JSON array of its pieces for the commit. n may be 0. */
int dt_ckpt_write_shard(const char *tmpdir, int rank, const struct dt_piece *p, int n, bool compress,
			json_t **ret_list, struct dt_err *err);

/*
 * meta: {"model": ..., "layout": "dp2", "step": N, "data": {...}, "rng": {...}, "optimizer": {...},
 * "tokenizer": ...}. lists: one array a rank. Checks that the pieces of each tensor cover it once, writes
 * index.h5 and manifest.json, renames, moves `latest`, and prunes to the newest keep checkpoints (0: all),
 * never the one just written.
 */
int dt_ckpt_commit(const char *root, int64_t step, const json_t *meta, json_t *const *lists, int nlists,
		   int keep, struct dt_err *err);

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

/* path: a step folder, or a root (its latest, falling back to the newest complete step). */
int dt_ckpt_open(const char *path, struct dt_ckpt **ret, struct dt_err *err);
void dt_ckpt_close(struct dt_ckpt *c);
const char *dt_ckpt_path(const struct dt_ckpt *c);
const json_t *dt_ckpt_meta(const struct dt_ckpt *c); /* borrowed */
int dt_ckpt_ntensors(const struct dt_ckpt *c);
void dt_ckpt_tensor(const struct dt_ckpt *c, int i, struct dt_ckpt_tensor *ret);
int dt_ckpt_find(const struct dt_ckpt *c, const char *name); /* -1: absent */

/*
 * Reads the box [off, off + shape) of tensor i as dtype `as` (f32 <-> bf16 converted, others must match) into
 * dst, contiguous. Every stored byte used is checked against its CRC first; a mismatch is -EBADMSG and dst is
 * undefined.
 */
int dt_ckpt_read(struct dt_ckpt *c, int i, const int64_t *off, const int64_t *shape, enum dt_dtype as,
		 void *dst, struct dt_err *err);

/*
 * Reads everything, checks structure and every CRC. report is called for each finding (may be NULL); returns
 * the number of findings, or a negative errno when the checkpoint cannot be opened at all.
 */
int dt_ckpt_verify(const char *path, int workers, void (*report)(void *arg, const char *text), void *arg,
		   void (*progress)(void *arg, uint64_t done, uint64_t total), struct dt_err *err);

#endif
