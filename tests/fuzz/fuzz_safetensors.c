#include "model/safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
	struct dt_safetensors s;

	if (dt_safetensors_parse(data, n, "fuzz", &s, NULL) < 0)
		return 0;
	for (int i = 0; i < s.n; i++)
		if (s.t[i].at > n || s.t[i].bytes > n - s.t[i].at)
			abort();
	dt_safetensors_release(&s);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
