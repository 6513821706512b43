/* What the files of bench/kernels share: the device, the clock, operands, and the rows that they print. */
#ifndef DT_BENCH_KERNELS_H
#define DT_BENCH_KERNELS_H

#include "kernels/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 1024, WIDTH = 768, HIDDEN = 3072, VOCAB = 50257, CHUNK = 512, SEQ = 1024, HEADS = 12 };

extern struct dt_dev *dev;
extern const struct dt_ops *ops;
extern double seconds;		  /* how long each op is timed */
extern double peak[2], copy_rate; /* of products by type, flop/s; bytes/s */

/* Whether the rows of op are asked for. */
bool wanted(const char *op);
/* Seconds; with one thread, of its processor time. */
double now(void);
/* Zeroed, in huge pages, as the programs' (base/arena.h). */
void *memory(size_t n);
/* Small numbers, so that no op meets denormals or infinities. */
struct dt_tensor tensor(enum dt_dtype t, int64_t r, int64_t c);

/* Repeats EXPR for the given time; keeps the best run. */
#define TIME(best, expr)                                                                                     \
	do {                                                                                                 \
		double start_ = now();                                                                       \
		best = INFINITY;                                                                             \
		for (int i_ = 0; i_ < 3 || now() - start_ < seconds; i_++) {                                 \
			double t_ = now();                                                                   \
			int r_ = (expr);                                                                     \
			if (r_ < 0) {                                                                        \
				fprintf(stderr, "kernels: %s: %s\n", #expr, strerror(-r_));                  \
				exit(1);                                                                     \
			}                                                                                    \
			t_ = now() - t_;                                                                     \
			best = t_ < best ? t_ : best;                                                        \
		}                                                                                            \
	} while (0)

/* Prints a row, and checks its floor. rate: in `unit` per second. */
void row_of(const char *op, const char *shape, const char *type, double time, double rate, const char *unit,
	    double ceiling);
/* A row of a product (flop) or of an op bound by memory (bytes). */
void row(const char *op, const char *shape, enum dt_dtype t, double time, double flop, double bytes);

/* kernels_products.c */
void matmuls(enum dt_dtype t); /* sets peak[t] */
void convolutions(enum dt_dtype t);
void experts(enum dt_dtype t);
void eight_bits(void);
void weights(void);
void encoders(void);

/* kernels_memory.c */
void attention(enum dt_dtype t);
void long_contexts(void);
void norms(enum dt_dtype t);
void streams(enum dt_dtype t);
void losses(enum dt_dtype t);
void optimizers(void);
void embedding(void);

/* kernels_ssm.c */
void state_space(enum dt_dtype t);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
