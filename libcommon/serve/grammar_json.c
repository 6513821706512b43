/* JSON (RFC 8259) and JSON schemas as grammars. */
#include "serve/grammar_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COUNT  2048 /* of minItems, maxLength ... */
#define MAX_SCHEMA 64	/* nesting */
#define MAX_ELEMS  (1 << 20)
#define MAX_NUMBER 1e15 /* bounds of numbers are below */

struct builder {
	struct dt_grammar *g;
	const json_t *top;
	struct {
		const json_t *schema;
		int rule;
	} * memo; /* of schemas that $ref names */
	int nmemo, memo_cap;
	int beyond_ascii;								/* rules */
	int ws, colon, comma, character, string, number, integer, value, object, array; /* rules */
	struct dt_err *err;
};

#define SEQ(...)                                                                                             \
	(struct dt_elem[]){__VA_ARGS__},                                                                     \
		(int)(sizeof((struct dt_elem[]){__VA_ARGS__}) / sizeof(struct dt_elem))

static struct dt_elem byte(struct builder *b, int c)
{
	return dt_gr_range(b->g, c, c);
}

/* White space that cannot go on for ever: nothing, a space, or a new line and its indent. */
static void build_ws(struct builder *b)
{
	struct dt_elem space = byte(b, ' ');
	int indent = dt_gr_repeat(b->g, space, -1, 0, 32);

	b->ws = dt_gr_rule(b->g);
	dt_gr_alt(b->g, b->ws, NULL, 0);
	dt_gr_alt(b->g, b->ws, &space, 1);
	dt_gr_alt(b->g, b->ws, SEQ(byte(b, '\n'), dt_gr_r(indent)));
	b->colon = dt_gr_rule(b->g);
	dt_gr_alt(b->g, b->colon, SEQ(dt_gr_r(b->ws), byte(b, ':'), dt_gr_r(b->ws)));
	b->comma = dt_gr_rule(b->g);
	dt_gr_alt(b->g, b->comma, SEQ(dt_gr_r(b->ws), byte(b, ','), dt_gr_r(b->ws)));
}

/* One character of a string: well-formed UTF-8 (Unicode 15, table 3-7) or an escape. */
static void build_character(struct builder *b)
{
	static const int lead[][4] = {/* first byte from, to; second from, to; then plain ones */
				      {0xe0, 0xe0, 0xa0, 0xbf}, {0xe1, 0xec, 0x80, 0xbf},
				      {0xed, 0xed, 0x80, 0x9f}, {0xee, 0xef, 0x80, 0xbf},
				      {0xf0, 0xf0, 0x90, 0xbf}, {0xf1, 0xf3, 0x80, 0xbf},
				      {0xf4, 0xf4, 0x80, 0x8f}};
	struct dt_grammar *g = b->g;
	struct dt_elem more = dt_gr_range(g, 0x80, 0xbf), hex = dt_gr_c(dt_gr_class(g, "0-9a-fA-F"));
	int r = b->character = dt_gr_rule(g), wide = b->beyond_ascii = dt_gr_rule(g);

	dt_gr_alt(g, r, SEQ(dt_gr_range(g, ' ', '!')));
	dt_gr_alt(g, r, SEQ(dt_gr_range(g, '#', '[')));
	dt_gr_alt(g, r, SEQ(dt_gr_range(g, ']', 0x7e)));
	dt_gr_alt(g, r, SEQ(dt_gr_r(wide)));
	dt_gr_alt(g, wide, SEQ(dt_gr_range(g, 0xc2, 0xdf), more));
	for (size_t i = 0; i < sizeof(lead) / sizeof(*lead); i++) {
		struct dt_elem e[4] = {dt_gr_range(g, lead[i][0], lead[i][1]),
				       dt_gr_range(g, lead[i][2], lead[i][3]), more, more};

		dt_gr_alt(g, wide, e, lead[i][0] < 0xf0 ? 3 : 4);
	}
	dt_gr_alt(g, r, SEQ(byte(b, '\\'), dt_gr_c(dt_gr_class(g, "\"\\/bfnrt"))));
	/* \u without surrogates: a lone one is no text */
	dt_gr_alt(g, r,
		  SEQ(byte(b, '\\'), byte(b, 'u'), dt_gr_c(dt_gr_class(g, "0-9a-cA-CeEfF")), hex, hex, hex));
	dt_gr_alt(g, r,
		  SEQ(byte(b, '\\'), byte(b, 'u'), dt_gr_c(dt_gr_class(g, "dD")), dt_gr_range(g, '0', '7'),
		      hex, hex));
}

static int build_string(struct builder *b, int min, int max)
{
	int chars = dt_gr_repeat(b->g, dt_gr_r(b->character), -1, min, max), r = dt_gr_rule(b->g);

	dt_gr_alt(b->g, r, SEQ(byte(b, '"'), dt_gr_r(chars), byte(b, '"')));
	return r;
}

static void build_numbers(struct builder *b)
{
	struct dt_grammar *g = b->g;
	struct dt_elem digit = dt_gr_range(g, '0', '9');
	int rest = dt_gr_repeat(g, digit, -1, 0, 15), some = dt_gr_repeat(g, digit, -1, 1, 16);
	int exp = dt_gr_repeat(g, digit, -1, 1, 2), whole = dt_gr_rule(g), sign = dt_gr_rule(g);
	int fraction = dt_gr_rule(g), power = dt_gr_rule(g);

	dt_gr_alt(g, whole, SEQ(byte(b, '0')));
	dt_gr_alt(g, whole, SEQ(dt_gr_range(g, '1', '9'), dt_gr_r(rest)));
	dt_gr_alt(g, sign, SEQ(byte(b, '-')));
	dt_gr_alt(g, sign, NULL, 0);
	dt_gr_alt(g, fraction, SEQ(byte(b, '.'), dt_gr_r(some)));
	dt_gr_alt(g, fraction, NULL, 0);
	dt_gr_alt(g, power, SEQ(dt_gr_c(dt_gr_class(g, "eE")), dt_gr_r(exp)));
	dt_gr_alt(g, power, SEQ(dt_gr_c(dt_gr_class(g, "eE")), dt_gr_c(dt_gr_class(g, "+-")), dt_gr_r(exp)));
	dt_gr_alt(g, power, NULL, 0);
	b->integer = dt_gr_rule(g);
	dt_gr_alt(g, b->integer, SEQ(dt_gr_r(sign), dt_gr_r(whole)));
	b->number = dt_gr_rule(g);
	dt_gr_alt(g, b->number, SEQ(dt_gr_r(sign), dt_gr_r(whole), dt_gr_r(fraction), dt_gr_r(power)));
}

static int build_array(struct builder *b, int item, int min, int max)
{
	int items = dt_gr_repeat(b->g, dt_gr_r(item), b->comma, min, max), r = dt_gr_rule(b->g);

	dt_gr_alt(b->g, r, SEQ(byte(b, '['), dt_gr_r(b->ws), dt_gr_r(items), dt_gr_r(b->ws), byte(b, ']')));
	return r;
}

/* Any keys, every value of this rule. */
static int build_map(struct builder *b, int value)
{
	int member = dt_gr_rule(b->g), members, r = dt_gr_rule(b->g);

	dt_gr_alt(b->g, member, SEQ(dt_gr_r(b->string), dt_gr_r(b->colon), dt_gr_r(value)));
	members = dt_gr_repeat(b->g, dt_gr_r(member), b->comma, 0, -1);
	dt_gr_alt(b->g, r, SEQ(byte(b, '{'), dt_gr_r(b->ws), dt_gr_r(members), dt_gr_r(b->ws), byte(b, '}')));
	return r;
}

static void build_common(struct builder *b)
{
	static const char *const word[] = {"true", "false", "null"};

	build_ws(b);
	build_character(b);
	b->string = build_string(b, 0, -1);
	build_numbers(b);
	b->value = dt_gr_rule(b->g);
	b->object = build_map(b, b->value);
	b->array = build_array(b, b->value, 0, -1);
	dt_gr_alt(b->g, b->value, SEQ(dt_gr_r(b->object)));
	dt_gr_alt(b->g, b->value, SEQ(dt_gr_r(b->array)));
	dt_gr_alt(b->g, b->value, SEQ(dt_gr_r(b->string)));
	dt_gr_alt(b->g, b->value, SEQ(dt_gr_r(b->number)));
	for (int i = 0; i < 3; i++)
		dt_gr_alt(b->g, b->value, SEQ(dt_gr_r(dt_gr_literal(b->g, word[i], strlen(word[i])))));
}

struct dt_grammar *dt_grammar_json(void)
{
	struct builder b = {.g = dt_grammar_new()};

	if (!b.g)
		return NULL;
	build_common(&b);
	b.g->root = b.object;
	if (b.g->no_memory) {
		dt_grammar_drop(b.g);
		return NULL;
	}
	return b.g;
}

/* ---- schemas ---- */

static int schema_rule(struct builder *b, const json_t *s, int depth);

static int check_keywords(struct builder *b, const json_t *s)
{
	static const char *const known[] = {"type",
					    "properties",
					    "required",
					    "additionalProperties",
					    "items",
					    "minItems",
					    "maxItems",
					    "minLength",
					    "maxLength",
					    "enum",
					    "const",
					    "anyOf",
					    "oneOf",
					    "allOf",
					    "$ref",
					    "$defs",
					    "definitions",
					    "title",
					    "description",
					    "default",
					    "examples",
					    "$schema",
					    "$id",
					    "$comment",
					    "deprecated",
					    "readOnly",
					    "writeOnly",
					    "pattern",
					    "format",
					    "minimum",
					    "maximum",
					    "exclusiveMinimum",
					    "exclusiveMaximum"};
	const char *key;
	json_t *v;

	json_object_foreach((json_t *)s, key, v)
	{
		size_t i = 0, n = sizeof(known) / sizeof(*known);

		while (i < n && strcmp(key, known[i]))
			i++;
		if (i == n)
			return dt_err_set(b->err, -ENOTSUP, "the schema's keyword '%.60s' is not supported",
					  key);
	}
	return 0;
}

static int get_count(struct builder *b, const json_t *s, const char *key, int64_t *ret)
{
	return dt_json_int(s, key, false, 0, MAX_COUNT, ret, b->err);
}

static bool is_required(const json_t *s, const char *key)
{
	const json_t *v;
	size_t i;

	json_array_foreach(json_object_get(s, "required"), i,
			   v) if (json_is_string(v) && !strcmp(json_string_value(v), key)) return true;
	return false;
}

/* A literal of a JSON value as compact text. */
static int literal(struct builder *b, const json_t *v)
{
	char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
	int r;

	if (!text)
		return dt_err_sys(b->err, -ENOMEM, "cannot read the schema");
	r = dt_gr_literal(b->g, text, strlen(text));
	free(text);
	return r;
}

/*
 * Properties in order. after[f]: what may follow, f: a property came already and a comma is due. Built from
 * the last one on.
 */
static int object_rule(struct builder *b, const json_t *s, int depth)
{
	json_t *props = json_object_get(s, "properties"), *more = json_object_get(s, "additionalProperties");
	size_t n = json_object_size(props);
	int after[2], r, value;
	const char **key;
	const json_t *v;
	size_t i = 0;
	void *it;

	json_array_foreach(
		json_object_get(s, "required"), i,
		v) if (!json_is_string(v) ||
		       !json_object_get(
			       props,
			       json_string_value(v))) return dt_err_set(b->err, -ENOTSUP,
									"the schema requires a property that "
									"it does not describe");
	if (n == 0) {
		if (json_is_false(more)) {
			r = dt_gr_rule(b->g);
			dt_gr_alt(b->g, r, SEQ(byte(b, '{'), dt_gr_r(b->ws), byte(b, '}')));
			return r;
		}
		value = json_is_object(more) ? schema_rule(b, more, depth) : b->value;
		return value < 0 ? value : build_map(b, value);
	}
	key = calloc(n, sizeof(*key));
	if (!key)
		return dt_err_sys(b->err, -ENOMEM, "cannot read the schema");
	i = 0;
	for (it = json_object_iter(props); it; it = json_object_iter_next(props, it))
		key[i++] = json_object_iter_key(it);
	after[0] = after[1] = dt_gr_rule(b->g);
	dt_gr_alt(b->g, after[0], NULL, 0);
	while (i-- > 0) {
		json_t *name = json_string(key[i]);
		int word = literal(b, name), now[2], f;

		json_decref(name);
		value = schema_rule(b, json_object_get(props, key[i]), depth);
		if (word < 0 || value < 0) {
			free(key);
			return word < 0 ? word : value;
		}
		for (f = 0; f < 2; f++) {
			struct dt_elem e[5] = {dt_gr_r(b->comma), dt_gr_r(word), dt_gr_r(b->colon),
					       dt_gr_r(value), dt_gr_r(after[1])};

			now[f] = dt_gr_rule(b->g);
			dt_gr_alt(b->g, now[f], e + !f, 5 - !f);
			if (!is_required(s, key[i]))
				dt_gr_alt(b->g, now[f], SEQ(dt_gr_r(after[f])));
		}
		after[0] = now[0];
		after[1] = now[1];
	}
	free(key);
	r = dt_gr_rule(b->g);
	dt_gr_alt(b->g, r,
		  SEQ(byte(b, '{'), dt_gr_r(b->ws), dt_gr_r(after[0]), dt_gr_r(b->ws), byte(b, '}')));
	return r;
}

/* A bound of numbers, moved to the next whole one where it is exclusive; 0: there is none. */
static int get_bound(struct builder *b, const json_t *s, bool upper, bool integer, int64_t *ret)
{
	const char *const key[2] = {upper ? "maximum" : "minimum",
				    upper ? "exclusiveMaximum" : "exclusiveMinimum"};
	int have = 0;

	for (int i = 0; i < 2; i++) {
		const json_t *v = json_object_get(s, key[i]);
		double x = json_number_value(v);
		int64_t n = (int64_t)(upper ? floor(x) : ceil(x));

		if (!v)
			continue;
		if (!json_is_number(v) || !(fabs(x) < MAX_NUMBER))
			return dt_err_set(b->err, -EINVAL, "the schema's '%s' is not a number below 10^15",
					  key[i]);
		if (!integer && (i == 1 || (double)n != x))
			return dt_err_set(b->err, -ENOTSUP,
					  "the schema's '%s' of a number that is not whole is not supported",
					  key[i]);
		if (i == 1 && (double)n == x)
			n += upper ? -1 : 1;
		*ret = !have || (upper ? n < *ret : n > *ret) ? n : *ret;
		have = 1;
	}
	return have;
}

static int number_rule(struct builder *b, const json_t *s, bool integer)
{
	int64_t lo = -(int64_t)MAX_NUMBER, hi = (int64_t)MAX_NUMBER;
	int low = get_bound(b, s, false, integer, &lo), high = get_bound(b, s, true, integer, &hi);

	if (low < 0 || high < 0)
		return low < 0 ? low : high;
	if (!low && !high)
		return integer ? b->integer : b->number;
	if (lo > hi)
		return dt_err_set(b->err, -EINVAL, "the schema asks for at least %lld and at most %lld",
				  (long long)lo, (long long)hi);
	return dt_gr_between(b->g, lo, hi,
			     integer ? -1 : dt_gr_repeat(b->g, dt_gr_range(b->g, '0', '9'), -1, 1, 16));
}

static int pattern_rule(struct builder *b, const json_t *s)
{
	const json_t *p = json_object_get(s, "pattern"), *f = json_object_get(s, "format");
	const char *text = json_string_value(p ? p : f);
	int r = dt_gr_rule(b->g), inside;

	if (!text)
		return dt_err_set(b->err, -EINVAL, "the schema's '%s' is not text", p ? "pattern" : "format");
	if ((p && f) || json_object_get(s, "minLength") || json_object_get(s, "maxLength"))
		return dt_err_set(
			b->err, -ENOTSUP,
			"the schema's '%s' together with another bound of the text is not supported",
			p ? "pattern" : "format");
	if (!p && !(text = dt_gr_format(text)))
		return dt_err_set(b->err, -ENOTSUP, "the schema's format '%.40s' is not supported",
				  json_string_value(f));
	inside = dt_gr_pattern(b->g, (struct dt_gr_chars){b->character, b->beyond_ascii}, text, b->err);
	if (inside < 0)
		return inside;
	dt_gr_alt(b->g, r, SEQ(byte(b, '"'), dt_gr_r(inside), byte(b, '"')));
	return r;
}

/* The type that the keywords of a schema without one are about; NULL: any. */
static const char *implied_type(const json_t *s)
{
	static const char *const about[][2] = {
		{"properties", "object"},	{"additionalProperties", "object"},
		{"required", "object"},		{"items", "array"},
		{"minItems", "array"},		{"maxItems", "array"},
		{"pattern", "string"},		{"format", "string"},
		{"minLength", "string"},	{"maxLength", "string"},
		{"minimum", "number"},		{"maximum", "number"},
		{"exclusiveMinimum", "number"}, {"exclusiveMaximum", "number"}};

	for (size_t i = 0; i < sizeof(about) / sizeof(*about); i++)
		if (json_object_get(s, about[i][0]))
			return about[i][1];
	return NULL;
}

static int typed_rule(struct builder *b, const json_t *s, const char *type, int depth)
{
	int64_t min = 0, max = -1;
	int item = b->value;

	if (!strcmp(type, "object"))
		return object_rule(b, s, depth);
	if (!strcmp(type, "array")) {
		if (get_count(b, s, "minItems", &min) < 0 || get_count(b, s, "maxItems", &max) < 0)
			return -EINVAL;
		if (json_object_get(s, "items"))
			item = schema_rule(b, json_object_get(s, "items"), depth);
	} else if (!strcmp(type, "string")) {
		if (json_object_get(s, "pattern") || json_object_get(s, "format"))
			return pattern_rule(b, s);
		if (get_count(b, s, "minLength", &min) < 0 || get_count(b, s, "maxLength", &max) < 0)
			return -EINVAL;
	} else if (!strcmp(type, "number")) {
		return number_rule(b, s, false);
	} else if (!strcmp(type, "integer")) {
		return number_rule(b, s, true);
	} else if (!strcmp(type, "null")) {
		return dt_gr_literal(b->g, "null", 4);
	} else if (!strcmp(type, "boolean")) {
		int r = dt_gr_rule(b->g);

		dt_gr_alt(b->g, r, SEQ(dt_gr_r(dt_gr_literal(b->g, "true", 4))));
		dt_gr_alt(b->g, r, SEQ(dt_gr_r(dt_gr_literal(b->g, "false", 5))));
		return r;
	} else {
		return dt_err_set(b->err, -EINVAL, "the schema has an unknown type '%.40s'", type);
	}
	if (item < 0)
		return item;
	if (max >= 0 && max < min)
		return dt_err_set(b->err, -EINVAL, "the schema asks for at least %lld and at most %lld",
				  (long long)min, (long long)max);
	return *type == 'a' ? build_array(b, item, (int)min, (int)max) : build_string(b, (int)min, (int)max);
}

/* One of several: schemas, values, or names of types. */
static int choice_rule(struct builder *b, const json_t *s, const json_t *list, char kind, int depth)
{
	int r = dt_gr_rule(b->g), one;
	const json_t *v;
	size_t i;

	if (!json_is_array(list) || json_array_size(list) == 0)
		return dt_err_set(b->err, -EINVAL, "the schema has an empty choice");
	json_array_foreach(list, i, v)
	{
		if (kind == 't' && !json_is_string(v))
			return dt_err_set(b->err, -EINVAL, "the schema's 'type' is not text");
		one = kind == 'v'   ? literal(b, v)
		      : kind == 't' ? typed_rule(b, s, json_string_value(v), depth)
				    : schema_rule(b, v, depth);
		if (one < 0)
			return one;
		dt_gr_alt(b->g, r, SEQ(dt_gr_r(one)));
	}
	return r;
}

/* The part of the schema that "#/a/b" names. */
static const json_t *resolve(const json_t *top, const char *ref)
{
	const json_t *at = top;
	char part[128];

	if (*ref++ != '#')
		return NULL;
	while (at && *ref == '/') {
		size_t n = strcspn(++ref, "/");

		if (n >= sizeof(part))
			return NULL;
		memcpy(part, ref, n);
		part[n] = '\0';
		at = json_object_get(at, part);
		ref += n;
	}
	return *ref ? NULL : at;
}

/* A rule a schema that is named, made before its content so that it may name itself. */
static int ref_rule(struct builder *b, const char *ref, int depth)
{
	const json_t *s = resolve(b->top, ref);
	int r, inner;

	if (!s)
		return dt_err_set(b->err, -EINVAL, "the schema has nothing at '%.80s'", ref);
	for (int i = 0; i < b->nmemo; i++)
		if (b->memo[i].schema == s)
			return b->memo[i].rule;
	if (b->nmemo == b->memo_cap) {
		int cap = b->memo_cap ? 2 * b->memo_cap : 16;
		void *p = realloc(b->memo, (size_t)cap * sizeof(*b->memo));

		if (!p)
			return dt_err_sys(b->err, -ENOMEM, "cannot read the schema");
		b->memo = p;
		b->memo_cap = cap;
	}
	r = dt_gr_rule(b->g);
	b->memo[b->nmemo].schema = s;
	b->memo[b->nmemo++].rule = r;
	inner = schema_rule(b, s, depth);
	if (inner < 0)
		return inner;
	dt_gr_alt(b->g, r, SEQ(dt_gr_r(inner)));
	return r;
}

static int schema_rule(struct builder *b, const json_t *s, int depth)
{
	const json_t *v, *type = json_object_get(s, "type");

	if (json_is_true(s))
		return b->value;
	if (!json_is_object(s))
		return dt_err_set(b->err, -EINVAL, "a schema is an object");
	if (++depth > MAX_SCHEMA || b->g->nelem > MAX_ELEMS)
		return dt_err_set(b->err, -ENOTSUP, "the schema is too large");
	if (check_keywords(b, s) < 0)
		return -ENOTSUP;
	if ((v = json_object_get(s, "$ref")))
		return json_is_string(v) ? ref_rule(b, json_string_value(v), depth)
					 : dt_err_set(b->err, -EINVAL, "the schema's '$ref' is not text");
	if ((v = json_object_get(s, "const")))
		return literal(b, v);
	if ((v = json_object_get(s, "enum")))
		return choice_rule(b, s, v, 'v', depth);
	if ((v = json_object_get(s, "anyOf")) || (v = json_object_get(s, "oneOf")))
		return choice_rule(b, s, v, 's', depth);
	if ((v = json_object_get(s, "allOf"))) {
		if (json_array_size(v) != 1)
			return dt_err_set(b->err, -ENOTSUP,
					  "the schema's 'allOf' of several is not supported");
		return schema_rule(b, json_array_get(v, 0), depth);
	}
	if (json_is_array(type))
		return choice_rule(b, s, type, 't', depth);
	if (json_is_string(type))
		return typed_rule(b, s, json_string_value(type), depth);
	return implied_type(s) ? typed_rule(b, s, implied_type(s), depth) : b->value;
}

int dt_grammar_schema(const json_t *schema, struct dt_grammar **ret, struct dt_err *err)
{
	struct builder b = {.g = dt_grammar_new(), .top = schema, .err = err};
	struct dt_matcher *m = NULL;
	int rc;

	if (!b.g)
		return dt_err_sys(err, -ENOMEM, "cannot read the schema");
	build_common(&b);
	rc = schema_rule(&b, schema, 0);
	free(b.memo);
	if (rc >= 0 && b.g->no_memory)
		rc = dt_err_sys(err, -ENOMEM, "cannot read the schema");
	if (rc >= 0) { /* a schema that is only itself has no text at all */
		b.g->root = rc;
		m = dt_matcher_new(b.g);
		rc = m ? 0 : dt_err_set(err, -EINVAL, "the schema refers to itself without end");
		dt_matcher_free(m);
	}
	if (rc < 0) {
		dt_grammar_drop(b.g);
		return rc;
	}
	*ret = b.g;
	return 0;
}
