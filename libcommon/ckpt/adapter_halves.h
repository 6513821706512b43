/* The A and B matrices of an adapter's file, before they are paired; private to adapter*.c. */
#ifndef DT_CKPT_ADAPTER_HALVES_H
#define DT_CKPT_ADAPTER_HALVES_H

#include "base/json.h"
#include "ckpt/adapter_priv.h"

#define ADAPTER_RANK_MAX 65536

enum { ADAPTER_HALF_A, ADAPTER_HALF_B, ADAPTER_HALF_M };

/* A matrix of a file, or the magnitudes of rows: plain numbers, or blocks. */
struct adapter_half {
	char name[ADAPTER_NAME]; /* of the linear */
	int kind;
	bool used;
	enum dt_format format;
	int64_t rows, cols;
	const uint8_t *data;
};

struct adapter_halves {
	struct adapter_half *h;
	int n;
	const json_t *config; /* PEFT's; NULL: GGUF */
	double alpha;
};

int adapter_add_halves(struct adapter_in *in, enum dt_names scheme, const struct adapter_halves *f,
		       struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
