/*
 * Inference: the forward pass over a ragged batch of new tokens against a paged KV cache. The scheduler
 * (serve/) decides which sequences are in the batch and which cache blocks they own.
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
 * A model over several ranks: each has its part of the weights and of the cache, and all of them call every
 * forward pass and block copy with the same batch. Rank 0 gets logits, sampled tokens and pooled states; the
 * other ranks' logits may be NULL, and their batches have no draws. With one CUDA device per rank, call
 * dt_infer_reach between dt_infer_open and the first pass.
 */
struct dt_infer_ranks {
	struct dt_layout layout; /* tp, pp, cp; dp and ep over replicas */
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
	int blocks, block_size; /* the KV pool */
	int states;		/* slots for sequences' states; read if the model has layers of Mamba-2 */
	int64_t adapters;	/* the largest rank of adapters that sequences may have; 0: none */
	const struct dt_infer_ranks *ranks; /* copied; NULL: one rank */
	int part_rows;			    /* pp: minimum rows of a micro-batch of a pass; 0: the default */
	/*
	 * Rounds to dtype what training rounds (scales of norms, products before their activation), so that
	 * log-probabilities equal those of training.
	 */
	bool as_trained;
	bool embeds;	  /* the caller wants final hidden states alone, so that encoders can be opened */
	bool pools_first; /* of an encoder: batch.pool gets the first row's state, not the sum of all */
	bool name;	  /* hash the weights for dt_infer_cache_name */
	/*
	 * Not 0: weights beyond this many bytes of the rank's memory are in a file in disk_dir, and are read
	 * when they are needed (plan/weights_disk.h). disk_dir NULL: in host memory, with a CUDA device.
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
 * With several ranks on CUDA devices: from now on messages go directly between devices (dt_world_device).
 * Otherwise does nothing. Collective over the world, after dt_infer_open has succeeded on every rank.
 */
int dt_infer_reach(struct dt_infer *m, struct dt_err *err);
/* The reason why messages go through host memory instead, as a clause; NULL: they do not. */
const char *dt_infer_staged(const struct dt_infer *m);
/*
 * Reloads the weights of one layer (CPU only; weights of experts and of latent keys and values stay), or all
 * weights, from a source of the same configuration. Weights are overwritten in place: on the CPU nothing is
 * allocated if formats are the same. The cache keeps keys and values of the old weights. After an error the
 * model can only be closed.
 */
int dt_infer_reload_layer(struct dt_infer *m, struct dt_source *src, int layer, struct dt_err *err);
int dt_infer_reload(struct dt_infer *m, struct dt_source *src, struct dt_err *err);
const struct dt_config *dt_infer_config(const struct dt_infer *m);
struct dt_infer_memory {  /* bytes */
	uint64_t weights; /* as laid out */
	uint64_t cache, work;
	uint64_t scratch; /* reserved for passes; a card's: for its largest operation so far */
};
/* All equal the plan of plan/inferplan.h, but for a card's scratch. */
struct dt_infer_memory dt_infer_bytes(const struct dt_infer *m);
/* The scratch that m has reserved of its device, which engines on the same device share. */
const struct dt_scratch *dt_infer_reserved(const struct dt_infer *m);

/* Rows of a tower for batch rows [first, first + n). */
struct dt_infer_seen {
	int first, n;
	const void *rows; /* [n, hidden] */
};

/* Of an encoder, sequences are whole: it has no cache, and slot, kv_len and block_table are not read. */
struct dt_infer_batch {
	int nseq, ntokens;
	const int32_t *ids;	    /* [ntokens] */
	const int32_t *pos;	    /* [ntokens] position in its sequence */
	const int64_t *slot;	    /* [ntokens] cache row: block * block_size + offset */
	const int32_t *types;	    /* encoders: [ntokens] token types; NULL: all are 0 */
	const int32_t *q_start;	    /* [nseq + 1] */
	const int32_t *kv_len;	    /* [nseq] keys of the sequence, new ones included */
	const int32_t *block_table; /* [nseq, max_blocks] */
	int max_blocks;
	const int32_t *want;	/* [nwant] token rows whose logits are wanted */
	int nwant;		/* at most max_seqs */
	const int32_t *replica; /* [nseq] the replica that has each sequence, ascending */
	const int32_t *state;	/* [nseq] slot of each sequence's states; read like params.states */
	/*
	 * With ep: [dt_layout_joined] tokens of each of the replicas that compute together in this pass. All
	 * of them call it, also one without tokens: nseq, ntokens and nwant are then 0.
	 */
	const int32_t *tokens_of;
	/*
	 * Set by dt_infer_forward: rows of each rank of cp, and of ep; with cp the cache slots of all ranks'
	 * rows, to which every rank writes.
	 */
	const int32_t *rows_of_cp, *rows_of_ep;
	const int64_t *all_slots;
	/*
	 * NULL: logits are returned. Else [nwant] (kernels/sample.h): tokens are sampled on the device into
	 * drawn [nwant], and the contents of logits are undefined. edit [nedits]: the logit edits of all
	 * rows.
	 */
	const struct dt_draw *draw;
	const struct dt_edit *edit;
	int nedits;
	struct dt_drawn *drawn;
	/*
	 * NULL: the base model alone. Else [nseq] each sequence's adapter, NULL: none (nn/infer_adapter.h).
	 * Sequences of one adapter are adjacent. Rows without one get the same bits as in a batch without
	 * any.
	 */
	const struct dt_infer_adapter *const *adapter;
	/*
	 * NULL: nothing is pooled, on any rank. Else [nseq], each NULL or [hidden]: receives the sum of its
	 * rows' final hidden states. On ranks that do not receive them, entries are NULL.
	 */
	float *const *pool;
	/*
	 * Rows [ntokens, hidden] in params.dtype, on the CPU with one rank. hidden: receives the final
	 * hidden states, after the last norm, of all rows; NULL: not wanted. given: for a module for a
	 * further token (dt_config_module), which needs them, those that its rows read; for a tower of
	 * vision (dt_config_tower) rows of pixels [ntokens, dt_tower_pixels], where hidden receives the
	 * decoder's rows; NULL for other models.
	 */
	void *hidden;
	const void *given;
	/*
	 * Of a model that reads images: rows of its tower, in params.dtype, that stand in the places of
	 * tokens; on the CPU with one rank. None: the tokens are embedded as they are.
	 */
	const struct dt_infer_seen *seen; /* [nseen] */
	int nseen;
};
/* Statistics of weights on disk; dt_infer_disk_told returns false if all weights are in memory. */
struct dt_infer_disk_facts {
	struct dt_weights_disk plan;
	double bw;	       /* bandwidth of the disk, bytes/s, measured when weights were loaded */
	const char *how;       /* how transfers are done, for messages */
	uint64_t read_bytes;   /* while serving */
	double wait_s;	       /* waiting for these reads */
	uint64_t hits, misses; /* experts used by a pass that were in memory, and that were not */
};
bool dt_infer_disk_told(const struct dt_infer *m, struct dt_infer_disk_facts *ret);
/* Copies the keys and values of one cache block to another. */
int dt_infer_copy_block(struct dt_infer *m, int32_t from, int32_t to);
/* Copies the states of one slot to another, of a model with layers of Mamba-2. */
int dt_infer_copy_state(struct dt_infer *m, int32_t from, int32_t to);
/*
 * The size of a cache block in bytes; copies of a block to and from host memory, while nothing else uses it.
 * dt_infer_cache_name is a hash of the weights (with params.name only), configuration, types, block size,
 * this rank's part, and device: equal names and equal tokens mean equal bytes.
 */
size_t dt_infer_block_bytes(const struct dt_infer *m);
int dt_infer_read_block(struct dt_infer *m, int32_t block, void *to);
int dt_infer_write_block(struct dt_infer *m, int32_t block, const void *from);
uint64_t dt_infer_cache_name(const struct dt_infer *m);
/*
 * A name that does not depend on the layout, for blocks of all ranks together; weights: identifies the
 * weights.
 */
uint64_t dt_infer_model_name(const struct dt_infer *m, const char *weights);
/* The layout of a block: [layers, pieces (keys, values), outer, heads, inner bytes]. A rank of tp has some of
 * the heads, one of pp some of the layers. */
struct dt_block_form {
	int pieces, outer, heads; /* heads of the whole model */
	size_t inner;
};
struct dt_block_form dt_infer_block_form(const struct dt_infer *m);
/* Number of steps that were replayed as CUDA graphs; 0 on the CPU. */
uint64_t dt_infer_replayed(const struct dt_infer *m);
/* logits [nwant, vocab] f32 in host memory, needed also if tokens are sampled. With dev->batch_invariant a
 * row's logits do not depend on its batch neighbours.
 */
int dt_infer_forward(struct dt_infer *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err);
/*
 * With pp: runs this rank's stage of a pass alone, so that the stages can compute several batches at once.
 * All ranks make the passes in the same order. The first rank of the last stage gets the logits [nwant,
 * vocab] in made, and the pooled states; made of the other ranks is not written. No tokens are sampled.
 */
int dt_infer_stage(struct dt_infer *m, const struct dt_infer_batch *b, float *made, struct dt_err *err);
/* Samples b's tokens from its logits, which are on the host. */
int dt_infer_draw(struct dt_infer *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
