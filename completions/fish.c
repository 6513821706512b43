#include "completions/described.h"

#include <stdio.h>

static void fish_text(const char *s)
{
	putchar('\'');
	put(s, '\0', "", "'\\");
	putchar('\'');
}

static void fish_condition(const struct option *o)
{
	if (*o->commands) {
		printf(" -n '__fish_seen_subcommand_from ");
		put(o->commands, ',', " ", "");
		putchar('\'');
	}
}

void fish(void)
{
	printf("# fish completion for %s, generated from its option table\n", program);
	for (size_t i = 0; i < json_array_size(commands); i++) {
		printf("complete -c %s -f -n __fish_use_subcommand -a %s -d ", program, command(i, "name"));
		fish_text(command(i, "help"));
		putchar('\n');
	}
	for (size_t i = 0; i < json_array_size(options); i++) {
		struct option o = option(i);

		printf("complete -c %s", program);
		fish_condition(&o);
		printf(" -l %s", o.name);
		if (*o.shrt)
			printf(" -s %s", o.shrt);
		if (is(o.type, "choice")) {
			printf(" -x -a '");
			put_choices(o.arg);
			putchar('\'');
		} else if (is(o.complete, "model")) {
			printf(" -r -F -a '%s'", presets);
		} else if (is(o.complete, "gpu")) {
			printf(" -x -a '%s'", devices);
		} else if (is(o.complete, "tokenizer")) {
			printf(" -r -F -a byte");
		} else if (is(o.complete, "h5")) {
			printf(" -x -a '(__fish_complete_suffix .h5)'");
		} else if (is(o.complete, "file")) {
			printf(" -r -F");
		} else if (is(o.complete, "dir")) {
			printf(" -x -a '(__fish_complete_directories)'");
		} else if (!is(o.type, "flag")) {
			printf(" -x");
		}
		printf(" -d ");
		fish_text(o.help);
		putchar('\n');
		if (o.negatable) {
			printf("complete -c %s", program);
			fish_condition(&o);
			printf(" -l no-%s\n", o.name);
		}
	}
	printf("complete -c %s -s h -l help -d 'print help'\ncomplete -c %s -l version -d 'print the "
	       "version'\n",
	       program, program);
	if (takes_model(operands))
		printf("complete -c %s -a '%s'\n", program, presets);
}
/* SPDX-License-Identifier: Apache-2.0 */
