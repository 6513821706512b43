#include "source.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
	if (n) {
		try_source(data, n, DT_SOURCE_LLMC);
		try_source(data, n, DT_SOURCE_LLAMA2C);
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
