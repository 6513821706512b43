/*
 * Tasks with exact answers, made from a seed: prompts and solutions are functions of (seed, index) alone.
 *
 *   sort:N       "3142>" -> "1234"       N digits in ascending order
 *   add:N        "123+456=" -> "975"     the sum of two numbers of N digits, its lowest digit first
 *   copy:N       "abcd>" -> "abcd"       N letters
 *   count:N      "abba>" -> "2"          how many of N letters a and b are an a
 *   countdown:N  "3 7 25=46:" -> "3*7+25"  N numbers, each used once, + - * / and brackets give the target:
 *                1 for that, 0.1 for a well-formed expression, else 0
 *
 * Every other reward is 1 for the exact answer and 0 else. White space around an answer does not count.
 */
#ifndef DT_RL_TASK_H
#define DT_RL_TASK_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define DT_RL_TASKS	"sort, add, copy, count and countdown"
#define DT_RL_TASK_TEXT 256 /* bytes of a prompt or solution, at most, with the end */

struct dt_rl_task {
	int kind; /* row of the table in task.c */
	int n;
};

/* "sort:7"; -EINVAL. */
int dt_rl_task_parse(const char *spec, struct dt_rl_task *ret, struct dt_err *err);

/* Prompt number index of a seed, and a solution. */
void dt_rl_task_make(const struct dt_rl_task *t, uint64_t seed, uint64_t index, char prompt[DT_RL_TASK_TEXT],
		     char solution[DT_RL_TASK_TEXT]);

/* The reward of an answer to a prompt; a prompt that is not of this task: -EINVAL. */
int dt_rl_task_score(const struct dt_rl_task *t, const char *prompt, const char *answer, double *ret,
		     struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
