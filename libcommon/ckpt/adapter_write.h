/* An adapter as linears of another program's format; inside adapter_write*.c. */
#ifndef DT_CKPT_ADAPTER_WRITE_H
#define DT_CKPT_ADAPTER_WRITE_H

#include "ckpt/adapter_priv.h"

#include <stdio.h>

/*
 * A linear of the other format: one of ours, or several joined along their rows, whose adapters are stacked.
 */
struct adapter_linear {
	char name[ADAPTER_NAME];
	int64_t rank, in, out;
	double scale;
	float *a, *b, *m; /* m: magnitudes, NULL: none */
};

struct adapter_writer {
	const struct dt_adapter *a;
	const struct dt_config *c;
	struct adapter_in in; /* for names */
	enum dt_names scheme;
	int pairing;
	struct adapter_linear *l;
	int n;
	struct adapter_whole_out *whole;
	int nwhole;
};

void adapter_put_linear(const struct adapter_linear *l, FILE *f, size_t align);
int adapter_write_gguf(struct adapter_writer *w, const char *path, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
