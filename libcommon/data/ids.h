/* Token ids as text or as little-endian numbers. */
#ifndef DT_DATA_IDS_H
#define DT_DATA_IDS_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum dt_ids_form { DT_IDS_TEXT, DT_IDS_U16, DT_IDS_I32 }; /* text: decimal, white space between */

/* *ret is malloc'd. -EINVAL names what is no id. */
int dt_ids_parse(enum dt_ids_form form, const char *s, size_t n, int32_t **ret, size_t *ret_n,
		 struct dt_err *err);
/* Text ends in a newline. Whether f could be written is the caller's to ask. */
void dt_ids_write(enum dt_ids_form form, const int32_t *ids, size_t n, FILE *f);

#endif
