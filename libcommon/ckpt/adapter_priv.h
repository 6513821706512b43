/* Inside adapter*.c. */
#ifndef DT_CKPT_ADAPTER_PRIV_H
#define DT_CKPT_ADAPTER_PRIV_H

#include "ckpt/adapter.h"
#include "model/names.h"

/* What a reader fills an adapter with. */
struct adapter_in {
	struct dt_adapter *a;
	const struct dt_config *c;
	const struct dt_params *params;
	int pairing; /* rotary order of the file, enum dt_rope_pairing */
};

/*
 * Adds a part for parameter i: a [rank, in], b with this parameter's rows from row `first` on; of the file's
 * own rotary order. All are copied. -EINVAL where numbers are not finite.
 */
struct adapter_part_in {
	int64_t rank;
	double scale;
	const float *a, *b, *m; /* m: magnitudes, NULL: none */
	bool above;		/* of dt_adapter_part */
};
int adapter_add(struct adapter_in *in, int i, const struct adapter_part_in *p, struct dt_err *err);

int adapter_read_peft(struct adapter_in *in, const char *folder, struct dt_err *err);
int adapter_read_gguf(struct adapter_in *in, const char *path, struct dt_err *err);
int adapter_read_dt(struct adapter_in *in, const char *path, struct dt_err *err);

/* A linear that both halves of a pair are named after. */
#define ADAPTER_NAME (DT_NAMES_MAX + 40)
/* Whether parameter i can have an adapter, and the name of its linear in the scheme, without ".weight". */
bool adapter_place(const struct adapter_in *in, enum dt_names scheme, int i, struct dt_place_in_file *ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
