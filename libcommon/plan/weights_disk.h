/*
 * Serving models larger than memory: which weights stay in memory, which are in a file (or with a CUDA device
 * in host memory), and the cost of reading them. Weights are read in pieces into slots, one piece per slot:
 *
 *   a model without experts   A piece is what a layer multiplies with. Every pass goes through all layers in
 *                             their order, so that what was used last is not what is used next:
 *                             as many layers as fit stay for good, spread evenly, and the others are read two
 *                             ahead of the one that computes.
 *   a mixture                 A piece is an expert of a layer. Slots keep those that were chosen last. All
 *                             experts of a layer have room at the same time, whatever a batch chooses.
 *
 * Embeddings, head, norms, biases, routers and, of a mixture, all else but experts stay; of latent attention
 * what makes keys and values of latents too.
 */
#ifndef DT_PLAN_WEIGHTS_DISK_H
#define DT_PLAN_WEIGHTS_DISK_H

#include "base/err.h"
#include "kernels/quant_formats.h"
#include "plan/layout.h"

enum {
	DT_WEIGHTS_AHEAD = 2,	      /* layers that are read while one computes */
	DT_WEIGHTS_BLOCK = 4096,      /* slots are whole blocks of a disk */
	DT_WEIGHTS_CHECKED = 1 << 20, /* bytes that a checksum is of */
};

struct dt_weights_disk {
	bool experts;	/* pieces are experts, else layers */
	bool host;	/* they lie in the memory of a card's host instead of a file */
	int64_t pieces; /* that a rank has; in the file are all but those kept */
	int64_t kept;	/* layers that stay in memory */
	int64_t slots;
	double chosen; /* of a mixture: the share of experts that a token chooses */
	uint64_t slot_bytes;
	uint64_t stays_bytes;  /* of what is never in a slot, as it is allocated */
	uint64_t memory_bytes; /* of all weights in memory, slots included: at most what was given */
	uint64_t file_bytes;
};

/*
 * part [n]: a rank's parameters (dt_infer_part), format: what each is kept as. memory: bytes for its weights.
 * -ENOSPC says what is the least.
 */
int dt_weights_disk_plan(const struct dt_config *c, const struct dt_param *part, const enum dt_format *format,
			 int n, enum dt_dtype compute, uint64_t memory, struct dt_weights_disk *ret,
			 struct dt_err *err);
/* Whether a parameter of the model is part of a piece. */
bool dt_weights_disk_has(const struct dt_config *c, const struct dt_param *p);
/* Whether the layer that is number i of the pieces stays in memory. */
static inline bool dt_weights_disk_keeps(const struct dt_weights_disk *w, int64_t i)
{
	const int64_t read = w->pieces - w->kept;

	return !w->experts && i * read / w->pieces == (i + 1) * read / w->pieces;
}
/*
 * Bytes that a step with so many tokens reads. Of a mixture: where experts are chosen evenly, on average;
 * choices that are not even read less.
 */
double dt_weights_disk_read(const struct dt_weights_disk *w, int64_t tokens);
/* Steps a second that a disk with so many bytes a second allows; 0: nothing is read. */
double dt_weights_disk_steps(const struct dt_weights_disk *w, int64_t tokens, double bw);
/* One line for people: where weights are, what a step with one sequence reads, tokens a second. */
const char *dt_weights_disk_text(const struct dt_weights_disk *w, double bw, bool measured, char *buf,
				 size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
