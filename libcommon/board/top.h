/* The display of a run on a terminal, which dt-top redraws. */
#ifndef DT_BOARD_TOP_H
#define DT_BOARD_TOP_H

#include "board/board.h"

struct dt_board_screen {
	int width, height; /* width in columns, at least 40; height in lines, 0: no limit */
	bool utf8, color;
	double now; /* seconds since 1970 */
};

/* Prints one run: lines that end with a newline and fit in the width. */
void dt_board_top(const struct dt_board *b, int run, const struct dt_board_screen *s, FILE *f);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
