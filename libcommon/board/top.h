/* A run on a terminal: what dt-top draws again and again. */
#ifndef DT_BOARD_TOP_H
#define DT_BOARD_TOP_H

#include "board/board.h"

struct dt_board_screen {
	int width, height; /* columns, at least 40; lines, 0: as many as it takes */
	bool utf8, color;
	double now; /* seconds since 1970 */
};

/* One run, lines that each end with a newline and none longer than the width. */
void dt_board_top(const struct dt_board *b, int run, const struct dt_board_screen *s, FILE *f);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
