/* Argument checks of sample.h. */
#include "kernels/check.h"

int dt_check_sample(const struct dt_dev *dev, struct dt_drawn *out, struct dt_tensor logits,
		    const struct dt_draw *d, const struct dt_edit *edit, int64_t nedits)
{
	const int64_t rows = dt_rows(logits), vocab = dt_cols(logits);

	if (logits.dtype != DT_F32 || vocab < 1 || vocab > DT_SAMPLE_VOCAB || rows > DT_SAMPLE_ROWS)
		return -EINVAL;
	for (int64_t i = 0; i < rows; i++) {
		if (d[i].edits < 0 || d[i].edits > vocab || d[i].first < 0 ||
		    d[i].first + (int64_t)d[i].edits > nedits)
			return -EINVAL;
		for (int64_t k = d[i].first; k < d[i].first + (int64_t)d[i].edits; k++)
			if (edit[k].id < 0 || edit[k].id >= vocab)
				return -EINVAL;
	}
	return rows ? 0 : DT_EMPTY;
}
/* SPDX-License-Identifier: Apache-2.0 */
