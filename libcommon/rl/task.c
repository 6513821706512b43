#include "rl/task.h"

#include "base/rng.h"
#include "rl/countdown.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 100 /* largest size of a task */

/* make: the prompt from stream r. solve: a prompt's only answer; -EINVAL: not a prompt of the task. */
struct kind {
	const char *name;
	int most;
	void (*make)(const struct dt_rng *r, int n, char *prompt);
	int (*solve)(int n, const char *prompt, char *solution);
};

/* Draws n characters of `alphabet`, then appends `end`. */
static void draw_text(const struct dt_rng *r, int n, const char *alphabet, char end, char *prompt)
{
	const size_t letters = strlen(alphabet);

	for (int i = 0; i < n; i++)
		prompt[i] = alphabet[dt_rng_below(r, (uint64_t)i, letters)];
	prompt[n] = end;
	prompt[n + 1] = '\0';
}

/* Whether a prompt is n characters of `alphabet` and then `end`. */
static bool is_text(const char *prompt, int n, const char *alphabet, char end)
{
	return strlen(prompt) == (size_t)n + 1 && strspn(prompt, alphabet) == (size_t)n && prompt[n] == end;
}

static void make_sort(const struct dt_rng *r, int n, char *prompt)
{
	draw_text(r, n, "0123456789", '>', prompt);
}

static int solve_sort(int n, const char *prompt, char *solution)
{
	int count[10] = {0};

	if (!is_text(prompt, n, "0123456789", '>'))
		return -EINVAL;
	for (int i = 0; i < n; i++)
		count[prompt[i] - '0']++;
	for (int d = 0; d < 10; d++)
		while (count[d]-- > 0)
			*solution++ = (char)('0' + d);
	*solution = '\0';
	return 0;
}

static void make_add(const struct dt_rng *r, int n, char *prompt)
{
	for (int i = 0; i < 2 * n; i++)
		prompt[i + (i >= n)] = (char)('0' + dt_rng_below(r, (uint64_t)i, 10));
	prompt[n] = '+';
	prompt[2 * n + 1] = '=';
	prompt[2 * n + 2] = '\0';
}

static int solve_add(int n, const char *prompt, char *solution)
{
	const char *a = prompt, *b = prompt + n + 1;
	int carry = 0;

	if (strlen(prompt) != (size_t)(2 * n + 2) || strspn(a, "0123456789") != (size_t)n || a[n] != '+' ||
	    strspn(b, "0123456789") != (size_t)n || b[n] != '=')
		return -EINVAL;
	for (int i = n - 1; i >= 0; i--) {
		int sum = a[i] - '0' + b[i] - '0' + carry;

		*solution++ = (char)('0' + sum % 10);
		carry = sum / 10;
	}
	if (carry)
		*solution++ = '1';
	*solution = '\0';
	return 0;
}

#define LETTERS "abcdefghijklmnopqrstuvwxyz"

static void make_copy(const struct dt_rng *r, int n, char *prompt)
{
	draw_text(r, n, LETTERS, '>', prompt);
}

static int solve_copy(int n, const char *prompt, char *solution)
{
	if (!is_text(prompt, n, LETTERS, '>'))
		return -EINVAL;
	memcpy(solution, prompt, (size_t)n);
	solution[n] = '\0';
	return 0;
}

static void make_count(const struct dt_rng *r, int n, char *prompt)
{
	draw_text(r, n, "ab", '>', prompt);
}

static int solve_count(int n, const char *prompt, char *solution)
{
	int count = 0;

	if (!is_text(prompt, n, "ab", '>'))
		return -EINVAL;
	for (int i = 0; i < n; i++)
		count += prompt[i] == 'a';
	snprintf(solution, DT_RL_TASK_TEXT, "%d", count);
	return 0;
}

static const struct kind kinds[] = {
	{"sort", MOST, make_sort, solve_sort},	     {"add", MOST, make_add, solve_add},
	{"copy", MOST, make_copy, solve_copy},	     {"count", MOST, make_count, solve_count},
	{"countdown", DT_COUNTDOWN_MAX, NULL, NULL},
};

#define NKINDS ((int)(sizeof(kinds) / sizeof(kinds[0])))

int dt_rl_task_parse(const char *spec, struct dt_rl_task *ret, struct dt_err *err)
{
	size_t n = strcspn(spec, ":");

	for (int k = 0; k < NKINDS; k++) {
		char *end;
		long size;

		if (strlen(kinds[k].name) != n || strncmp(spec, kinds[k].name, n))
			continue;
		size = spec[n] ? strtol(spec + n + 1, &end, 10) : 0;
		if (!spec[n] || !isdigit((unsigned char)spec[n + 1]) || *end || size < 1 ||
		    size > kinds[k].most)
			return dt_err_set(err, -EINVAL, "task '%s' needs a size from 1 to %d, as in '%s:4'",
					  spec, kinds[k].most, kinds[k].name);
		*ret = (struct dt_rl_task){k, (int)size};
		return 0;
	}
	dt_err_set(err, -EINVAL, "unknown task '%s'", spec);
	dt_err_hint(err, "tasks are " DT_RL_TASKS ", each with a size, as in sort:7");
	return -EINVAL;
}

void dt_rl_task_make(const struct dt_rl_task *t, uint64_t seed, uint64_t index, char prompt[DT_RL_TASK_TEXT],
		     char solution[DT_RL_TASK_TEXT])
{
	const struct kind *k = &kinds[t->kind];
	struct dt_rng pick = dt_rng_make(seed, DT_RNG_DATA, dt_hash_str(k->name));
	struct dt_rng r =
		dt_rng_make((uint64_t)dt_rng_u32(&pick, 2 * index) << 32 | dt_rng_u32(&pick, 2 * index + 1),
			    DT_RNG_DATA, dt_hash_str(k->name));

	if (!k->make) {
		dt_countdown_make(&r, t->n, prompt, solution);
		return;
	}
	k->make(&r, t->n, prompt);
	k->solve(t->n, prompt, solution);
}

/* Whether an answer equals the solution, ignoring surrounding white space. */
static bool same(const char *answer, const char *solution)
{
	size_t n;

	while (isspace((unsigned char)*answer))
		answer++;
	n = strlen(answer);
	while (n > 0 && isspace((unsigned char)answer[n - 1]))
		n--;
	return n == strlen(solution) && !memcmp(answer, solution, n);
}

int dt_rl_task_score(const struct dt_rl_task *t, const char *prompt, const char *answer, double *ret,
		     struct dt_err *err)
{
	const struct kind *k = &kinds[t->kind];
	char solution[DT_RL_TASK_TEXT];
	int rc = k->solve ? k->solve(t->n, prompt, solution) : dt_countdown_score(prompt, t->n, answer, ret);

	if (rc < 0)
		return dt_err_set(err, rc, "'%.60s' is not a prompt of the task %s:%d", prompt, k->name,
				  t->n);
	if (k->solve)
		*ret = same(answer, solution);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
