/* A program as it describes itself (--describe-options), for the completions of three shells. */
#ifndef DT_COMPLETIONS_DESCRIBED_H
#define DT_COMPLETIONS_DESCRIBED_H

#include "base/json.h"

#include <string.h>

struct option {
	const char *name, *shrt, *type, *arg, *help, *commands, *complete;
	bool negatable;
};

extern json_t *options, *commands;
extern const char *program, *operands;
/* words separated by blanks */
extern char *presets, *devices;

const char *str(const json_t *o, const char *key);
struct option option(size_t i);
bool is(const char *a, const char *b);
/* Is word one of list, which is separated by commas? */
bool listed(const char *list, const char *word);
/* s with every `from` written as `to`, and each character of `escape` behind a backslash. */
void put(const char *s, char from, const char *to, const char *escape);
/* a|b|c with blanks */
void put_choices(const char *s);
const char *command(size_t i, const char *key);
void put_commands(const char *between);
/* The words of the options that go with command c; "": those that go with every command. */
void put_option_words(const char *c);

/* What holds a tokenizer, by the endings of its name. */
#define TOKENIZERS "json|gguf|model|bin"

static inline bool takes_model(const char *words)
{
	return strstr(words, "MODEL") != NULL;
}

/* bash.c, zsh.c, fish.c: the completion of the program; function: the name of bash's. */
void bash(const char *function);
void zsh(void);
void fish(void);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
