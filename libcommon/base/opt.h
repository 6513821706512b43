/*
 * The option table: one a program. It drives parsing (over getopt_long), --help, the shell completions and
 * the check that the man page names every option. Options may stand before, between or after the operands.
 */
#ifndef DT_BASE_OPT_H
#define DT_BASE_OPT_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum dt_opt_type {
	DT_OPT_FLAG = 1, /* bool *: --x sets true; --no-x, where negatable is set, false */
	DT_OPT_INT,	 /* int64_t *, within [min, max] when max > min, else >= 0; "8k" */
	DT_OPT_REAL,	 /* double *, within [min, max] when max > min, else finite */
	DT_OPT_STR,	 /* const char ** */
	DT_OPT_STRS,	 /* struct dt_strs *: may be given several times */
	DT_OPT_SIZE,	 /* uint64_t *, bytes: "80GiB", at least min */
	DT_OPT_COUNT,	 /* uint64_t *: "7e9", "7B" */
	DT_OPT_CHOICE,	 /* int *: index of the word in arg, "none|selective|full" */
	DT_OPT_SHARE,	 /* double *, within [min, max] when max > min, else [0, 1]: "0.1", "10%" */
	DT_OPT_PERCENT,	 /* double *, within [min, max] when max > min, else [0, 100]: "10", "10%" */
	DT_OPT_RATE,	 /* double *, GB/s: "25", "25GB/s", "200Gb/s", within [min, max] when max > min */
};

/* What a shell offers for the argument. */
enum dt_opt_complete {
	DT_COMPLETE_NONE,
	DT_COMPLETE_FILE,
	DT_COMPLETE_DIR,
	DT_COMPLETE_MODEL, /* preset names, files */
	DT_COMPLETE_H5,	   /* *.h5 files */
	DT_COMPLETE_GPU,   /* names of devices the planner knows */
	DT_COMPLETE_TOKENIZER,
};

#define DT_STRS_MAX 64
struct dt_strs {
	const char *v[DT_STRS_MAX];
	int n;
};

struct dt_opt {
	const char *name; /* long name without dashes; NULL with a help text: a heading in --help; ends the
			     table when help is NULL too */
	char short_name;  /* 0: none */
	enum dt_opt_type type;
	void *dest;
	const char *arg;      /* metavariable, or the words of a choice */
	const char *help;     /* one sentence without the full stop */
	const char *commands; /* "ls,verify": only with these; NULL: with every command */
	double min, max;
	bool *given; /* set true when the option was on the command line; may be NULL */
	enum dt_opt_complete complete;
	bool negatable;
	/*
	 * What holds when the option is not given. def is written as on a command line ("on" for a flag) and
	 * is stored in dest before the command line is parsed; def_text is in words, where the program
	 * decides later ("all processors"), and is not stored. --help and --describe-options print either.
	 */
	const char *def, *def_text;
	/*
	 * "serve,batch": an error where it is given and none of these is (with), or one of these is
	 * (without); "no-x" is x negated. Names that the program does not have count for nothing. A flag that
	 * is off by default is not given by --no-x.
	 */
	const char *with, *without;
	const char *elsewhere; /* of a choice: "awq=q4_0|int4=q4_0", what other programs call its words */
};

#define DT_OPT_HEADING(text)                                                                                 \
	{                                                                                                    \
		.name = NULL, .help = text                                                                   \
	}
#define DT_OPT_END                                                                                           \
	{                                                                                                    \
		.name = NULL, .help = NULL                                                                   \
	}

struct dt_command { /* dt-shard-ckpt ls, dt-dataset build */
	const char *name;
	const char *operands; /* "SRC DST" */
	const char *help;
	int (*run)(int n, char **operand); /* dt_program_main calls it; returns an exit status */
	int min, max;			   /* operands it takes; max -1: any number */
};

struct dt_program {
	const char *name;	     /* "dt-memest" */
	const char *summary;	     /* one line */
	const char *operands;	     /* "MODEL"; for a program without commands */
	const char *const *examples; /* two or more, NULL-terminated, without the prompt */
	const struct dt_opt *opts;
	const struct dt_command *commands; /* NULL-name terminated; NULL: none */
	const char *(*isa)(void); /* instruction set of its kernels, for --version; NULL: it has none */
};

/* What a shell offers for the option's argument: complete, or else what a metavariable such as FILE says. */
enum dt_opt_complete dt_opt_completion(const struct dt_opt *o);

/* Whether dest holds another value than the option begins with (def, or nothing). */
bool dt_opt_is_set(const struct dt_opt *o);
/* The first option that is set and among these names, or (among false) is not; NULL: there is none. */
const char *dt_opt_first_set(const struct dt_opt *opts, const char *const *names, bool among);
/*
 * Stores the defaults, then parses. Long options are not abbreviated. Handles -h/--help, --version and
 * --describe-options (JSON for completions and checks) by writing to out. Errors go to errout as "NAME: what"
 * and "Try 'NAME --help' for more information.". Where a launcher started several processes, the first one
 * prints for all (base/launch.h).
 *
 * Returns the number of operands, moved to the front of argv[1..] (argv[1] is the command where there are
 * commands, counted), or -1 when the program should exit with *ret_status.
 */
int dt_opt_main(const struct dt_program *p, int argc, char **argv, FILE *out, FILE *errout, int *ret_status);

/* The line printed after a usage error that the program finds itself. Returns DT_EXIT_USAGE. */
int dt_opt_usage_error(const struct dt_program *p, FILE *errout, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Stores arg, written as on a command line, in the option's place. A flag is set. */
int dt_opt_set(const struct dt_opt *o, const char *arg, struct dt_err *err);

/* The word number i of "a|b|c" into buf; NULL when there are fewer. */
const char *dt_opt_choice_name(const char *choices, int i, char *buf, size_t n);
/* The index of word in "a|b|c", or -1. */
int dt_opt_choice_index(const char *choices, const char *word);

/* opt_help.c */
void dt_opt_print_help(const struct dt_program *p, FILE *out);
void dt_opt_describe(const struct dt_program *p, FILE *out);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
