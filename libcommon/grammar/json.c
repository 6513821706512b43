/* JSON (RFC 8259) as a grammar. */
#include "grammar/priv.h"

#include <string.h>

#define SEQ DT_SEQ

/* Bounded white space: none, a space, or a newline and its indentation. */
static void build_ws(struct dt_grammar *g, struct dt_gr_json *j)
{
	struct dt_elem space = dt_gr_byte(g, ' ');
	int indent = dt_gr_repeat(g, space, -1, 0, 32);

	j->ws = dt_gr_rule(g);
	dt_gr_alt(g, j->ws, NULL, 0);
	dt_gr_alt(g, j->ws, &space, 1);
	dt_gr_alt(g, j->ws, SEQ(dt_gr_byte(g, '\n'), dt_gr_r(indent)));
	j->colon = dt_gr_rule(g);
	dt_gr_alt(g, j->colon, SEQ(dt_gr_r(j->ws), dt_gr_byte(g, ':'), dt_gr_r(j->ws)));
	j->comma = dt_gr_rule(g);
	dt_gr_alt(g, j->comma, SEQ(dt_gr_r(j->ws), dt_gr_byte(g, ','), dt_gr_r(j->ws)));
}

/* One character of a string: well-formed UTF-8 (Unicode 15, table 3-7) or an escape. */
static void build_character(struct dt_grammar *g, struct dt_gr_json *j)
{
	static const int lead[][4] = {/* range of the first byte, range of the second byte; then plain
				       * continuation bytes */
				      {0xe0, 0xe0, 0xa0, 0xbf}, {0xe1, 0xec, 0x80, 0xbf},
				      {0xed, 0xed, 0x80, 0x9f}, {0xee, 0xef, 0x80, 0xbf},
				      {0xf0, 0xf0, 0x90, 0xbf}, {0xf1, 0xf3, 0x80, 0xbf},
				      {0xf4, 0xf4, 0x80, 0x8f}};
	struct dt_elem more = dt_gr_range(g, 0x80, 0xbf), hex = dt_gr_c(dt_gr_class(g, "0-9a-fA-F")),
		       back = dt_gr_byte(g, '\\');
	int r = j->character = dt_gr_rule(g);

	dt_gr_alt(g, r, SEQ(dt_gr_c(dt_gr_class(g, " -!#-[]-~"))));
	dt_gr_alt(g, r, SEQ(dt_gr_range(g, 0xc2, 0xdf), more));
	for (size_t i = 0; i < sizeof(lead) / sizeof(*lead); i++) {
		struct dt_elem e[4] = {dt_gr_range(g, lead[i][0], lead[i][1]),
				       dt_gr_range(g, lead[i][2], lead[i][3]), more, more};

		dt_gr_alt(g, r, e, lead[i][0] < 0xf0 ? 3 : 4);
	}
	dt_gr_alt(g, r, SEQ(back, dt_gr_c(dt_gr_class(g, "\"\\/bfnrt"))));
	/* \u without surrogates: a lone surrogate is not valid text */
	dt_gr_alt(g, r,
		  SEQ(back, dt_gr_byte(g, 'u'), dt_gr_c(dt_gr_class(g, "0-9a-cA-CeEfF")), hex, hex, hex));
	dt_gr_alt(g, r,
		  SEQ(back, dt_gr_byte(g, 'u'), dt_gr_c(dt_gr_class(g, "dD")), dt_gr_range(g, '0', '7'), hex,
		      hex));
	j->characters = dt_gr_rule(g);
	dt_gr_alt(g, j->characters, SEQ(dt_gr_r(r), dt_gr_characters(j->characters, -1, false)));
	dt_gr_alt(g, j->characters, NULL, 0);
	j->string = dt_gr_rule(g);
	dt_gr_alt(g, j->string, SEQ(dt_gr_byte(g, '"'), dt_gr_r(j->characters), dt_gr_byte(g, '"')));
}

static void build_numbers(struct dt_grammar *g, struct dt_gr_json *j)
{
	struct dt_elem digit = dt_gr_range(g, '0', '9'), e = dt_gr_c(dt_gr_class(g, "eE"));
	int rest = dt_gr_repeat(g, digit, -1, 0, 15), some = dt_gr_repeat(g, digit, -1, 1, 16);
	int exp = dt_gr_repeat(g, digit, -1, 1, 2), whole = dt_gr_rule(g), sign = dt_gr_rule(g);
	int fraction = dt_gr_rule(g), power = dt_gr_rule(g);

	dt_gr_alt(g, whole, SEQ(dt_gr_byte(g, '0')));
	dt_gr_alt(g, whole, SEQ(dt_gr_range(g, '1', '9'), dt_gr_r(rest)));
	dt_gr_alt(g, sign, SEQ(dt_gr_byte(g, '-')));
	dt_gr_alt(g, sign, NULL, 0);
	dt_gr_alt(g, fraction, SEQ(dt_gr_byte(g, '.'), dt_gr_r(some)));
	dt_gr_alt(g, fraction, NULL, 0);
	dt_gr_alt(g, power, SEQ(e, dt_gr_r(exp)));
	dt_gr_alt(g, power, SEQ(e, dt_gr_c(dt_gr_class(g, "+-")), dt_gr_r(exp)));
	dt_gr_alt(g, power, NULL, 0);
	j->integer = dt_gr_rule(g);
	dt_gr_alt(g, j->integer, SEQ(dt_gr_r(sign), dt_gr_r(whole)));
	j->number = dt_gr_rule(g);
	dt_gr_alt(g, j->number, SEQ(dt_gr_r(sign), dt_gr_r(whole), dt_gr_r(fraction), dt_gr_r(power)));
}

static int around(struct dt_grammar *g, const struct dt_gr_json *j, char open, int inside, char close)
{
	int r = dt_gr_rule(g);

	dt_gr_alt(g, r,
		  SEQ(dt_gr_byte(g, open), dt_gr_r(j->ws), dt_gr_r(inside), dt_gr_r(j->ws),
		      dt_gr_byte(g, close)));
	return r;
}

int dt_gr_array(struct dt_grammar *g, const struct dt_gr_json *j, int inside)
{
	return around(g, j, '[', inside, ']');
}

int dt_gr_object(struct dt_grammar *g, const struct dt_gr_json *j, int inside)
{
	return around(g, j, '{', inside, '}');
}

void dt_gr_json(struct dt_grammar *g, struct dt_gr_json *j)
{
	static const char *const word[] = {"true", "false", "null"};
	int member;

	build_ws(g, j);
	build_character(g, j);
	build_numbers(g, j);
	j->value = dt_gr_rule(g);
	member = dt_gr_rule(g);
	dt_gr_alt(g, member, SEQ(dt_gr_r(j->string), dt_gr_r(j->colon), dt_gr_r(j->value)));
	j->object = dt_gr_object(g, j, dt_gr_repeat(g, dt_gr_r(member), j->comma, 0, -1));
	j->array = dt_gr_array(g, j, dt_gr_repeat(g, dt_gr_r(j->value), j->comma, 0, -1));
	dt_gr_alt(g, j->value, SEQ(dt_gr_r(j->object)));
	dt_gr_alt(g, j->value, SEQ(dt_gr_r(j->array)));
	dt_gr_alt(g, j->value, SEQ(dt_gr_r(j->string)));
	dt_gr_alt(g, j->value, SEQ(dt_gr_r(j->number)));
	for (int i = 0; i < 3; i++)
		dt_gr_alt(g, j->value, SEQ(dt_gr_r(dt_gr_literal(g, word[i], strlen(word[i])))));
}

static struct dt_grammar *json_grammar(bool string)
{
	struct dt_grammar *g = dt_grammar_new();
	struct dt_gr_json j;

	if (!g)
		return NULL;
	dt_gr_json(g, &j);
	g->root = string ? j.string : j.object;
	if (g->no_memory) {
		dt_grammar_drop(g);
		return NULL;
	}
	return g;
}

struct dt_grammar *dt_grammar_json(void)
{
	return json_grammar(false);
}

struct dt_grammar *dt_grammar_string(void)
{
	return json_grammar(true);
}
/* SPDX-License-Identifier: Apache-2.0 */
