/*
 * The option table of a program. It drives parsing (by getopt_long), --help, shell completions and the check
 * that the man page names every option. Options may come before, between or after operands.
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
	DT_OPT_SIZE,	 /* uint64_t *, bytes: "80GiB", at least min, or 0 if that is the default */
	DT_OPT_COUNT,	 /* uint64_t *: "7e9", "7B", at least min */
	DT_OPT_CHOICE,	 /* int *: index of the word in arg, "none|selective|full" */
	DT_OPT_SHARE,	 /* double *, within [min, max] when max > min, else [0, 1]: "0.1", "10%" */
	DT_OPT_PERCENT,	 /* double *, within [min, max] when max > min, else [0, 100]: "10", "10%" */
	DT_OPT_RATE,	 /* double *, GB/s: "25", "25GB/s", "200Gb/s", within [min, max] when max > min */
};

/* What the shell completes the argument with. */
enum dt_opt_complete {
	DT_COMPLETE_NONE,
	DT_COMPLETE_FILE,
	DT_COMPLETE_DIR,
	DT_COMPLETE_MODEL, /* presets and files */
	DT_COMPLETE_H5,	   /* *.h5 files */
	DT_COMPLETE_GPU,   /* devices that the planner knows */
	DT_COMPLETE_TOKENIZER,
};

#define DT_STRS_MAX 64
struct dt_strs {
	const char *v[DT_STRS_MAX];
	int n;
};

struct dt_opt {
	/* long name without dashes. NULL: a heading in --help, or the end of the table if help is NULL too */
	const char *name;
	char short_name; /* 0: none */
	enum dt_opt_type type;
	void *dest;
	const char *arg;      /* metavariable, or the words of a choice */
	const char *help;     /* one sentence without the full stop */
	const char *commands; /* "ls,verify": valid with these commands only; NULL: with all */
	double min, max;
	bool *given; /* set true when the option was on the command line; may be NULL */
	enum dt_opt_complete complete;
	bool negatable;
	/*
	 * The default. def is written as on a command line ("on" for a flag) and is stored in dest before
	 * parsing. def_text describes in words a default that the program computes later ("all processors");
	 * it is not stored. --help and --describe-options print whichever is set.
	 */
	const char *def, *def_text;
	/*
	 * "serve,batch": it is an error to give this option when none of these is given (with), or when one
	 * of them is (without). "no-x" means x negated. Names that the program does not have are ignored.
	 * --no-x of a flag that is off by default does not count as giving it.
	 */
	const char *with, *without;
	const char *elsewhere; /* for a choice: names that other programs use, "awq=q4_0|int4=q4_0" */
};

#define DT_OPT_HEADING(text)                                                                                 \
	{                                                                                                    \
		.name = NULL, .help = text                                                                   \
	}
#define DT_OPT_END                                                                                           \
	{                                                                                                    \
		.name = NULL, .help = NULL                                                                   \
	}

struct dt_command { /* such as dt-shard-ckpt ls, dt-dataset build */
	const char *name;
	const char *operands; /* "SRC DST" */
	const char *help;
	int (*run)(int n, char **operand); /* called by dt_program_main; returns an exit status */
	int min, max;			   /* number of operands; max -1: no limit */
};

struct dt_program {
	const char *name;	     /* "dt-memest" */
	const char *summary;	     /* one line */
	const char *operands;	     /* "MODEL"; for a program without commands */
	const char *const *examples; /* two or more, NULL-terminated, without a shell prompt */
	const struct dt_opt *opts;
	const struct dt_command *commands; /* NULL-name terminated; NULL: none */
	const char *(*isa)(void); /* instruction set of its kernels, for --version; NULL: no kernels */
};

/* Whether dest differs from the option's default (def, or zero). */
bool dt_opt_is_set(const struct dt_opt *o);
/*
 * The first of these options that is set (among true), or the first set option that is not one of them (among
 * false). NULL: none.
 */
const char *dt_opt_first_set(const struct dt_opt *opts, const char *const *names, bool among);
/*
 * Stores the defaults, then parses. Long options may not be abbreviated. Writes -h/--help, --version and
 * --describe-options (JSON for completions and checks) to out. Errors go to errout as "NAME: what" and "Try
 * 'NAME --help' for more information.". If a launcher started several processes, only the first prints
 * (base/launch.h).
 *
 * Returns the number of operands, which are moved to the front of argv[1..] (with commands, argv[1] is the
 * command and is counted), or -1 when the program should exit with *ret_status.
 */
int dt_opt_main(const struct dt_program *p, int argc, char **argv, FILE *out, FILE *errout, int *ret_status);

/* Prints a usage error that the program found itself. Returns DT_EXIT_USAGE. */
int dt_opt_usage_error(const struct dt_program *p, FILE *errout, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The same for what a function of the library reports, with its hint. option: its name, or NULL. */
int dt_opt_usage_of(const struct dt_program *p, FILE *errout, const char *option, const struct dt_err *err);

/* Parses arg as on a command line and stores it in the option's dest. A flag is set to true. */
int dt_opt_set(const struct dt_opt *o, const char *arg, struct dt_err *err);

/* Writes word i of "a|b|c" to buf; NULL when there are fewer words. */
const char *dt_opt_choice_name(const char *choices, int i, char *buf, size_t n);
/* The index of word in "a|b|c", or -1. */
int dt_opt_choice_index(const char *choices, const char *word);

/* opt_help.c */
void dt_opt_print_help(const struct dt_program *p, FILE *out);
void dt_opt_describe(const struct dt_program *p, FILE *out);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
