/* The state of resharding: reshard_cut.c lists the pieces, reshard.c writes them. */
#ifndef DT_CKPT_RESHARD_H
#define DT_CKPT_RESHARD_H

#include "ckpt/internal.h"
#include "plan/layout.h"

struct reshard {
	struct dt_ckpt *src;
	const struct dt_layout *l;
	struct dt_config config;
	struct dt_params params;
	struct dt_local *local; /* [pp * ep * tp]: dp and cp affect only which experts a rank holds */
	struct {
		struct dt_piece *v;
		int n, cap;
		uint64_t bytes;
	} * rank;
	bool (*progress)(void *arg, uint64_t done, uint64_t total);
	void *arg;
	const struct dt_ckpt_team *team; /* NULL: alone */
	int part, parts;		 /* of the shards: this process writes every parts-th from part on */
	char tmp[CK_PATH];
	bool made; /* the folder above tmp was not there */
	bool compress;
	json_t **lists;
	pthread_mutex_t lock; /* over what follows and progress */
	uint64_t done, total;
	int next, failed; /* the next rank to write; the first failure */
	struct dt_err err;
};

static inline uint64_t reshard_piece_bytes(const struct dt_piece *p)
{
	return (uint64_t)ck_numel(p->ndim, p->shape) * (uint64_t)dt_dtype_size(p->dtype);
}

/* Fills rank and total from the tensors of src. */
int reshard_cut(struct reshard *r, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
