/* Lines of metrics, as dt-board reads them from files that it is pointed at. */
#include "board/run.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct dt_board_run r = {.fd = -1};
	char *text = malloc(n + 2), *p, *nl;

	if (!text)
		return 0;
	memcpy(text, data, n);
	text[n] = '\n';
	text[n + 1] = '\0';
	for (p = text; (nl = memchr(p, '\n', (size_t)(text + n + 1 - p))); p = nl + 1)
		dt_board_run_take(&r, p, (size_t)(nl - p) + 1);
	if (r.rows && !dt_board_run_column(&r, "step"))
		abort();
	free(text);
	dt_board_run_close(&r);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
