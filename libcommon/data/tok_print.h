/* Prints a description of a tokenizer, as a table or a JSON object (dt-tokenize info). */
#ifndef DT_DATA_TOK_PRINT_H
#define DT_DATA_TOK_PRINT_H

#include "data/tokenizer.h"

#include <stdio.h>

/* -EIO, -ENOMEM */
int dt_tokenizer_print(const struct dt_tokenizer *t, bool json, FILE *f, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
