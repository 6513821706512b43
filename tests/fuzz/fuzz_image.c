/* One encoded image: the first byte says with how many channels and whether it is turned upright. */
#include "data/image.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
	static const int channels[] = {0, 1, 3};
	struct dt_image x = {0};
	struct dt_image_facts facts;
	struct dt_err err;

	if (n && n < 1 << 16 &&
	    dt_image_decode(data + 1, n - 1, channels[data[0] % 3], data[0] & 64, &x, &facts, &err) == 0) {
		unsigned sum = 0;

		for (int i = 0; i < x.channels * x.height * x.width; i++)
			sum += x.pixel[i];
		if (sum > 255u * (unsigned)(x.channels * x.height * x.width))
			abort();
	}
	dt_image_release(&x);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
