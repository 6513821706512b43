/* The runs of `dt-train verify`. */
#ifndef DT_TRAIN_VERIFY_RUN_H
#define DT_TRAIN_VERIFY_RUN_H

#include "train/verify.h"

/* A run: its layout, and the unique base name of its files. */
struct dt_verify_run {
	const char *layout;
	char name[80];
};

/* From here on a signal that asks the program to end ends the run, so that its files are removed. */
void dt_train_verify_catch(void);

/* Runs this program with the layout, under mpirun if it has several ranks; its files are in dir. */
int dt_train_verify_run(const struct dt_verify_opts *o, const struct dt_verify_run *r, const char *dir,
			struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
