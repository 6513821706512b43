/* Loads functions from a library at run time, given a table of names and a struct of pointers to fill. */
#ifndef DT_KERNELS_SYMBOLS_H
#define DT_KERNELS_SYMBOLS_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct dt_symbol {
	const char *name;
	size_t at; /* offset of its pointer in the struct */
};

/* Returns false if the library lacks one of the n; those before it are set. */
static inline bool dt_symbols_find(void *lib, const struct dt_symbol *s, size_t n, void *into)
{
	for (size_t i = 0; i < n; i++) {
		void *f = dlsym(lib, s[i].name);

		if (!f)
			return false;
		memcpy((char *)into + s[i].at, &f, sizeof f);
	}
	return true;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
