/*
 * generate bash|zsh|fish FILE [PRESETS [DEVICES]]
 *
 * Writes the completion of one program to standard output. FILE is what `dt-x --describe-options` printed;
 * PRESETS names the models and DEVICES the cards, one a line. Run by the build.
 */
#include "base/tmpfile.h"
#include "completions/described.h"

#include <stdlib.h>
#include <string.h>

/* The lines of a file as words separated by blanks, the caller's to free. */
static int load_words(const char *path, char **ret, struct dt_err *err)
{
	char *words;
	size_t n;
	int rc = dt_read_file(path, 1 << 20, &words, &n, err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < n; i++)
		if (words[i] == '\n')
			words[i] = i + 1 < n ? ' ' : '\0';
	*ret = words;
	return 0;
}

int main(int argc, char **argv)
{
	struct dt_err err = {0};
	json_t *root;
	char function[128];

	if (argc < 3 || argc > 5) {
		fprintf(stderr, "usage: generate bash|zsh|fish FILE [PRESETS [DEVICES]]\n");
		return DT_EXIT_USAGE;
	}
	if (dt_json_load(argv[2], 1 << 20, &root, &err) < 0 ||
	    (argc > 3 && load_words(argv[3], &presets, &err) < 0) ||
	    (argc > 4 && load_words(argv[4], &devices, &err) < 0))
		goto fail;
	program = str(root, "program");
	operands = str(root, "operands");
	options = json_object_get(root, "options");
	commands = json_object_get(root, "commands");
	snprintf(function, sizeof(function), "_%s", program);
	for (char *s = function; *s; s++)
		if (*s == '-')
			*s = '_';
	if (is(argv[1], "bash"))
		bash(function);
	else if (is(argv[1], "zsh"))
		zsh();
	else if (is(argv[1], "fish"))
		fish();
	else
		dt_err_set(&err, -22, "unknown shell '%s'", argv[1]);
	json_decref(root);
	if (argc > 3)
		free(presets);
	if (argc > 4)
		free(devices);
	if (err.code == 0 && dt_close_stdout(&err) == 0)
		return DT_EXIT_OK;
fail:
	fprintf(stderr, "generate: %s\n", err.msg);
	return DT_EXIT_FAILED;
}
/* SPDX-License-Identifier: Apache-2.0 */
