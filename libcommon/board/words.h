/* The parts of a line of JSON, without a parser that makes values of them: files have a million lines. */
#ifndef DT_BOARD_WORDS_H
#define DT_BOARD_WORDS_H

const char *dt_board_skip_blank(const char *p);
/* Past a string that begins at p; NULL: it does not end on this line. */
const char *dt_board_skip_string(const char *p, const char *end);
/* Past an array or an object; likewise. */
const char *dt_board_skip_nested(const char *p, const char *end);
/* The number at p, as strtod has it to some units in the last place. *stop is p where there is none. */
double dt_board_parse_number(const char *p, char **stop);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
