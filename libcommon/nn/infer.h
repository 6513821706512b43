/*
 * Inference: the forward pass over a ragged batch of new tokens against a paged KV cache. Who is in the
 * batch and which blocks they own is the scheduler's business (serve/).
 */
#ifndef DT_NN_INFER_H
#define DT_NN_INFER_H

#include "base/err.h"
#include "kernels/device.h"
#include "kernels/quant_formats.h"
#include "kernels/sample.h"
#include "plan/weights_disk.h"

struct dt_infer;
struct dt_infer_adapter;
struct dt_source;
struct dt_comm;
struct dt_world;

/*
 * A model over several ranks: each has its part of the weights and of the cache, and every forward pass
 * and copy of a block is called by all of them with the same batch. Rank 0 gets logits, draws and
 * pooled states; the others' logits may be NULL, and their batches have no draws. On cards, a card for each
 * rank, dt_infer_reach comes between dt_infer_open and the first pass.
 */
struct dt_infer_ranks {
	struct dt_layout layout; /* tp, pp, cp, and of replicas dp and ep */
	struct dt_coords at;
	struct dt_comm *tp, *pp, *cp, *ep; /* this rank's groups; NULL where the axis is 1 */
	struct dt_world *world;
};

struct dt_infer_params {
	enum dt_dtype dtype; /* activations: f32 or bf16 */
	enum dt_dtype cache; /* keys and values: dtype, f32, or i8 (kernels/attention.h) */
	int weights;	/* enum dt_format of the matrices; -1: blocks as they are stored, else as dtype */
	int max_tokens; /* new tokens of one forward pass */
	int max_seqs;	/* sequences of one forward pass */
	int max_len;	/* tokens of a sequence, 0: the model's positions */
	int blocks, block_size;		    /* the KV pool */
	int64_t adapters;		    /* the largest rank that sequences' adapters may have; 0: none */
	const struct dt_infer_ranks *ranks; /* copied; NULL: one rank */
	int part_rows;			    /* of a part of a pass over stages, at least; 0: the usual */
	/*
	 * What training rounds to dtype, the scales of norms and what stands between a product and its
	 * activation, is rounded here too: log-probabilities are those of training.
	 */
	bool as_trained;
	bool name; /* weights are read for dt_infer_cache_name */
	/*
	 * Not 0: weights that this memory, bytes of this rank, does not hold lie in a file in this folder
	 * and are read when they are needed (plan/weights_disk.h). NULL: in the memory of a card's host.
	 */
	uint64_t disk_memory;
	const char *disk_dir;
};

/*
 * Takes the weights of a source (ckpt/source.h), which may be closed afterwards. The products are those of
 * kernels/quant.h. -ENOTSUP for what cannot be computed, by name.
 */
int dt_infer_open(struct dt_infer **ret, struct dt_dev *dev, struct dt_source *src,
		  const struct dt_infer_params *p, struct dt_err *err);
/* Collective over the ranks where there are several on cards. */
void dt_infer_close(struct dt_infer *m);
/*
 * Over ranks on cards: what they tell each other goes from card to card from now on (dt_world_device).
 * Nothing elsewhere. Collective over the world: dt_infer_open has succeeded on every rank.
 */
int dt_infer_reach(struct dt_infer *m, struct dt_err *err);
/* Why it goes through host memory instead, a clause; NULL: it does not. */
const char *dt_infer_staged(const struct dt_infer *m);
/*
 * Takes the weights of one layer anew, from a source of the same configuration; those of experts and of
 * latents' keys and values stay. Or all weights, which overwrite the old ones: nothing is allocated
 * where formats are the same, on the processor. What the cache holds is of the old weights. One layer: on
 * the processor only. After an error the model can only be closed.
 */
int dt_infer_reload_layer(struct dt_infer *m, struct dt_source *src, int layer, struct dt_err *err);
int dt_infer_reload(struct dt_infer *m, struct dt_source *src, struct dt_err *err);
const struct dt_config *dt_infer_config(const struct dt_infer *m);
struct dt_infer_memory {  /* bytes */
	uint64_t weights; /* as laid out */
	uint64_t cache, work;
	uint64_t scratch; /* the device's, for its largest operation so far */
};
/* All but scratch are what plan/inferplan.h says. */
struct dt_infer_memory dt_infer_bytes(const struct dt_infer *m);

struct dt_infer_batch {
	int nseq, ntokens;
	const int32_t *ids;	    /* [ntokens] */
	const int32_t *pos;	    /* [ntokens] position in its sequence */
	const int64_t *slot;	    /* [ntokens] cache row: block * block_size + offset */
	const int32_t *q_start;	    /* [nseq + 1] */
	const int32_t *kv_len;	    /* [nseq] keys of the sequence, new ones included */
	const int32_t *block_table; /* [nseq, max_blocks] */
	int max_blocks;
	const int32_t *want;	/* [nwant] token rows whose logits are wanted */
	int nwant;		/* at most max_seqs */
	const int32_t *replica; /* [nseq] which replica has each, ascending; a model on its own has all */
	/*
	 * Over ep: [dt_layout_joined] tokens that the replicas which compute together have in this pass. All
	 * of them make it, also the one that has none: nseq, ntokens and nwant are then 0.
	 */
	const int32_t *tokens_of;
	/*
	 * dt_infer_forward sets these: rows that the ranks of cp have, and those of ep; and over cp the slots
	 * of all its ranks' rows, to which every rank writes.
	 */
	const int32_t *rows_of_cp, *rows_of_ep;
	const int64_t *all_slots;
	/*
	 * NULL: logits come back. Else [nwant] of kernels/sample.h: tokens are drawn where the model is
	 * computed, into drawn [nwant], and nothing can be said of logits. Edits are those of all rows.
	 */
	const struct dt_draw *draw;
	const struct dt_edit *edit;
	int nedits;
	struct dt_drawn *drawn;
	/*
	 * NULL: the base alone. Else [nseq] of each sequence, NULL: none (nn/infer_adapter.h); those of one
	 * adapter stand next to each other. Rows without one have the bits of a batch without any.
	 */
	const struct dt_infer_adapter *const *adapter;
	float *const *pool; /* [nseq], each NULL or [hidden]: the final hidden states of its rows are added */
};
/* false: all weights are in memory. */
struct dt_infer_disk_facts {
	struct dt_weights_disk plan;
	double bw;	       /* bytes a second that the disk gave when weights were loaded */
	const char *how;       /* transfers are done, for people */
	uint64_t read_bytes;   /* while serving */
	double wait_s;	       /* for them */
	uint64_t hits, misses; /* experts that were chosen for a pass, and in memory, and not */
};
bool dt_infer_disk_told(const struct dt_infer *m, struct dt_infer_disk_facts *ret);
/* Copies the keys and values of one cache block to another. */
int dt_infer_copy_block(struct dt_infer *m, int32_t from, int32_t to);
/*
 * What one cache block has, bytes, and copies of it to and from the host's memory. Nothing else may use the
 * block meanwhile. Equal names and equal tokens mean equal bytes: a name stands for the weights (with
 * params.name only), the configuration, types, the block's size, this rank's part, and what computes.
 */
size_t dt_infer_block_bytes(const struct dt_infer *m);
int dt_infer_read_block(struct dt_infer *m, int32_t block, void *to);
int dt_infer_write_block(struct dt_infer *m, int32_t block, const void *from);
uint64_t dt_infer_cache_name(const struct dt_infer *m);
/* The same whatever the layout: of weights told by a text, with which a block of all ranks goes. */
uint64_t dt_infer_model_name(const struct dt_infer *m, const char *weights);
/* How a block lies: layers, of each the pieces (keys, values), of these `outer` runs of all heads, of each
 * head inner bytes. A rank of tp has some of the heads, one of pp some of the layers. */
struct dt_block_form {
	int pieces, outer, heads; /* heads of the whole model */
	size_t inner;
};
struct dt_block_form dt_infer_block_form(const struct dt_infer *m);
/* Steps that ran as they had been recorded (a card's graphs); 0 on the CPU. */
uint64_t dt_infer_replayed(const struct dt_infer *m);
/* logits [nwant, vocab] f32, the host's memory, also where tokens are drawn. With dev->batch_invariant a
 * row's logits do not depend on its batch neighbours.
 */
int dt_infer_forward(struct dt_infer *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err);
/*
 * Over stages (pp): this rank's stage of a pass alone, so that stages compute several batches at once; each
 * rank makes the passes in the same order. The last stage's first rank has the logits [nwant, vocab] in made
 * and the pooled states; made of the others is left alone, and nobody draws.
 */
int dt_infer_stage(struct dt_infer *m, const struct dt_infer_batch *b, float *made, struct dt_err *err);
/* The draws of b from its logits, which are on the host. */
int dt_infer_draw(struct dt_infer *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
