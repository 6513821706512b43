/* Splits a line of JSON without building values: metrics files have a million lines. */
#ifndef DT_BOARD_WORDS_H
#define DT_BOARD_WORDS_H

const char *dt_board_skip_blank(const char *p);
/* Returns the end of the string that begins at p; NULL: it does not end on this line. */
const char *dt_board_skip_string(const char *p, const char *end);
/* The same for an array or object. */
const char *dt_board_skip_nested(const char *p, const char *end);
/* The number at p, equal to strtod's to a few units in the last place. *stop is p if there is none. */
double dt_board_parse_number(const char *p, char **stop);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
