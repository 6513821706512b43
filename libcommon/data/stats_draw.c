/* Plots of dt-dataset stats. */
#include "base/tmpfile.h"
#include "data/look.h"

#define SVG_WIDTH 800

int dt_data_draw(const char *path, const struct dt_bars *bars, struct dt_err *err)
{
	struct dt_tmpfile t;
	const int rc = dt_tmpfile_open(&t, path, err);

	if (rc < 0)
		return rc;
	dt_bars_svg(bars, SVG_WIDTH, false, t.f);
	return dt_tmpfile_commit(&t, err);
}

void dt_data_print_bars(const struct dt_bars *bars, FILE *f)
{
	const struct dt_plot_style style = {.width = 80};

	fputc('\n', f);
	dt_bars_term(bars, &style, f);
}
/* SPDX-License-Identifier: Apache-2.0 */
