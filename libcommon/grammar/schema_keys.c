/* The keywords of JSON Schema and their forms. */
#include "grammar/schema.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COUNT 65535 /* max of minProperties and maxProperties */

enum role { DESCRIBES, PLACE, HOLDS };

/*
 * All keywords of draft 2020-12 that are not refused. Form: s a schema, o an object of schemas, a an array of
 * schemas, n a count, N a large one, x a number, t text, b true or false, r an array of texts, R an object of
 * arrays of texts, v anything, e a list of values, T types.
 */
static const struct keyword {
	const char *name;
	enum role role;
	char form;
	int about; /* types to which it applies */
} keyword[] = {
	{"type", HOLDS, 'T', 0},
	{"const", HOLDS, 'v', 0},
	{"enum", HOLDS, 'e', 0},
	{"multipleOf", HOLDS, 'x', DT_T_INTEGER | DT_T_NUMBER},
	{"minimum", HOLDS, 'x', DT_T_INTEGER | DT_T_NUMBER},
	{"maximum", HOLDS, 'x', DT_T_INTEGER | DT_T_NUMBER},
	{"exclusiveMinimum", HOLDS, 'x', DT_T_INTEGER | DT_T_NUMBER},
	{"exclusiveMaximum", HOLDS, 'x', DT_T_INTEGER | DT_T_NUMBER},
	{"minLength", HOLDS, 'N', DT_T_STRING},
	{"maxLength", HOLDS, 'N', DT_T_STRING},
	{"pattern", HOLDS, 't', DT_T_STRING},
	{"format", HOLDS, 't', DT_T_STRING},
	{"items", HOLDS, 's', DT_T_ARRAY},
	{"prefixItems", HOLDS, 'a', DT_T_ARRAY},
	{"minItems", HOLDS, 'N', DT_T_ARRAY},
	{"maxItems", HOLDS, 'N', DT_T_ARRAY},
	{"uniqueItems", HOLDS, 'b', DT_T_ARRAY},
	{"properties", HOLDS, 'o', DT_T_OBJECT},
	{"patternProperties", HOLDS, 'o', DT_T_OBJECT},
	{"additionalProperties", HOLDS, 's', DT_T_OBJECT},
	{"propertyNames", HOLDS, 's', DT_T_OBJECT},
	{"required", HOLDS, 'r', DT_T_OBJECT},
	{"minProperties", HOLDS, 'n', DT_T_OBJECT},
	{"maxProperties", HOLDS, 'n', DT_T_OBJECT},
	{"$ref", PLACE, 't', 0},
	{"allOf", PLACE, 'a', 0},
	{"anyOf", PLACE, 'a', 0},
	{"oneOf", PLACE, 'a', 0},
	{"not", PLACE, 's', 0},
	{"dependentRequired", PLACE, 'R', 0},
	{"dependentSchemas", PLACE, 'o', 0},
	{"$defs", DESCRIBES, 'o', 0},
	{"definitions", DESCRIBES, 'o', 0},
	{"$schema", DESCRIBES, 't', 0},
	{"$comment", DESCRIBES, 't', 0},
	{"$anchor", DESCRIBES, 't', 0}, /* references to it are refused */
	{"$dynamicAnchor", DESCRIBES, 't', 0},
	{"$vocabulary", DESCRIBES, 'v', 0},
	{"title", DESCRIBES, 't', 0},
	{"description", DESCRIBES, 't', 0},
	{"default", DESCRIBES, 'v', 0},
	{"examples", DESCRIBES, 'v', 0},
	{"deprecated", DESCRIBES, 'v', 0},
	{"readOnly", DESCRIBES, 'v', 0},
	{"writeOnly", DESCRIBES, 'v', 0},
	{"contentEncoding", DESCRIBES, 't', 0},
	{"contentMediaType", DESCRIBES, 't', 0},
	{"contentSchema", DESCRIBES, 'v', 0},
};

int dt_schema_fail(struct dt_schema *b, int code, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	if (b->rc < 0)
		return b->rc;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return b->rc = dt_err_set(b->err, code, "%s", text);
}

bool dt_schema_work(struct dt_schema *b, int64_t n)
{
	b->work.steps -= n;
	if (b->work.steps < 0)
		dt_schema_fail(b, -E2BIG, "the schema is too large: it takes too long to follow");
	return b->rc == 0;
}

bool dt_schema_room(struct dt_schema *b, void **p, int n, int *cap, size_t size)
{
	int more = *cap ? 2 * *cap : 8;
	void *q;

	if (n < *cap)
		return true;
	q = realloc(*p, (size_t)more * size);
	if (!q) {
		dt_schema_fail(b, -ENOMEM, "cannot read the schema: out of memory");
		return false;
	}
	*p = q;
	*cap = more;
	return true;
}

static const struct keyword *find(const char *name)
{
	for (size_t i = 0; i < sizeof(keyword) / sizeof(*keyword); i++)
		if (!strcmp(keyword[i].name, name))
			return &keyword[i];
	return NULL;
}

static int type_of_name(const char *s)
{
	static const struct {
		const char *name;
		int types;
	} t[] = {{"null", DT_T_NULL},	    {"boolean", DT_T_BOOLEAN}, {"string", DT_T_STRING},
		 {"integer", DT_T_INTEGER}, {"array", DT_T_ARRAY},     {"number", DT_T_INTEGER | DT_T_NUMBER},
		 {"object", DT_T_OBJECT}};

	for (size_t i = 0; s && i < sizeof(t) / sizeof(*t); i++)
		if (!strcmp(s, t[i].name))
			return t[i].types;
	return 0;
}

static int types_of(const json_t *type)
{
	int types = type_of_name(json_string_value(type));
	const json_t *v;
	size_t i;

	json_array_foreach(type, i, v) types |= type_of_name(json_string_value(v));
	return types;
}

/* Whether a string, or one in an array or object of them, would be cut off where it is read as a C string. */
static bool has_nul(const json_t *v)
{
	const json_t *e;
	const char *key;
	size_t i;

	json_array_foreach(v, i, e) if (has_nul(e)) return true;
	json_object_foreach((json_t *)v, key, e) if (has_nul(e)) return true;
	return json_is_string(v) && memchr(json_string_value(v), 0, json_string_length(v));
}

static bool texts(const json_t *v)
{
	const json_t *e;
	size_t i;

	json_array_foreach(v, i, e) if (!json_is_string(e)) return false;
	return json_is_array(v);
}

static bool schemas(const json_t *v, char form)
{
	const json_t *e;
	const char *key;
	size_t i;

	if (form == 's')
		return json_is_object(v) || json_is_boolean(v);
	if (form == 'a') {
		json_array_foreach(v, i, e) if (!schemas(e, 's')) return false;
		return json_array_size(v) > 0;
	}
	json_object_foreach((json_t *)v, key, e) if (form == 'R' ? !texts(e) : !schemas(e, 's')) return false;
	return json_is_object(v);
}

static void check_types(struct dt_schema *b, const json_t *v)
{
	const json_t *e;
	size_t i;

	if (!json_is_string(v) && !(texts(v) && json_array_size(v) > 0))
		dt_schema_fail(b, -EINVAL, "the schema's 'type' is neither text nor an array of texts");
	else if (json_is_string(v) && !types_of(v))
		dt_schema_fail(b, -EINVAL, "the schema has an unknown type '%.40s'", json_string_value(v));
	json_array_foreach(v, i, e) check_types(b, e);
}

static void check_form(struct dt_schema *b, const struct keyword *k, const json_t *v)
{
	static const struct {
		char form;
		const char *is;
	} says[] = {{'s', "a schema"},
		    {'o', "an object of schemas"},
		    {'a', "an array of schemas with at least one"},
		    {'n', "a whole number from 0 to 65535"},
		    {'N', "a whole number from 0 to 16777216"},
		    {'x', "a number"},
		    {'t', "text"},
		    {'b', "true or false"},
		    {'r', "an array of texts"},
		    {'R', "an object of arrays of texts"},
		    {'e', "an array with at least one value"}};
	char f = k->form;
	bool good = true;

	if (strchr("TtrR", f) && k->role != DESCRIBES && has_nul(v))
		dt_schema_fail(b, -EINVAL, "the schema's '%s' contains a NUL character", k->name);
	if (f == 'T') {
		check_types(b, v);
		return;
	}
	if (f == 's' || f == 'a' || f == 'o' || f == 'R')
		good = schemas(v, f);
	else if (f == 'n' || f == 'N')
		good = json_is_integer(v) && json_integer_value(v) >= 0 &&
		       json_integer_value(v) <= (f == 'n' ? MAX_COUNT : DT_GR_MANY);
	else if (f == 'x')
		good = json_is_number(v);
	else if (f == 't')
		good = json_is_string(v);
	else if (f == 'b')
		good = json_is_boolean(v);
	else if (f == 'r')
		good = texts(v);
	else if (f == 'e')
		good = json_array_size(v) > 0;
	for (size_t i = 0; !good && i < sizeof(says) / sizeof(*says); i++)
		if (says[i].form == f)
			dt_schema_fail(b, -EINVAL, "the schema's '%s' is not %s", k->name, says[i].is);
}

void dt_schema_check(struct dt_schema *b, const json_t *s)
{
	const char *key;
	const json_t *v;

	json_object_foreach((json_t *)s, key, v)
	{
		const struct keyword *k = find(key);

		if (!dt_schema_work(b, 50 + (int64_t)json_array_size(v) + (int64_t)json_object_size(v)))
			return;
		if (k)
			check_form(b, k, v);
		else if (strcmp(key, "$id") || s != b->top)
			dt_schema_fail(b, -ENOTSUP, "the schema's keyword '%.60s' is not supported", key);
	}
	v = json_object_get(s, "format");
	if (json_is_string(v) && !dt_schema_format(json_string_value(v)))
		dt_schema_fail(b, -ENOTSUP, "the schema's format '%.40s' is not supported",
			       json_string_value(v));
	v = json_object_get(s, "multipleOf");
	if (v && !(json_number_value(v) > 0))
		dt_schema_fail(b, -EINVAL, "the schema's 'multipleOf' is not above 0");
}

bool dt_schema_holds(const json_t *s)
{
	const char *key;
	const json_t *v;

	json_object_foreach((json_t *)s, key, v)
	{
		const struct keyword *k = find(key);

		if (k && k->role == HOLDS)
			return true;
	}
	return false;
}

int dt_schema_given(const struct dt_conj *c)
{
	int types = DT_T_ALL;

	for (int i = 0; i < c->nleaf; i++) {
		const json_t *t = json_object_get(c->leaf[i], "type");

		if (t)
			types &= types_of(t);
	}
	return types;
}

int dt_schema_types(const struct dt_conj *c)
{
	int about = 0;

	for (int i = 0; i < c->nleaf; i++) {
		const json_t *v;
		const char *key;

		json_object_foreach((json_t *)c->leaf[i], key, v)
		{
			const struct keyword *k = find(key);

			if (!strcmp(key, "type") || !strcmp(key, "enum") || !strcmp(key, "const"))
				return dt_schema_given(c);
			about |= k ? k->about : 0;
		}
	}
	return about ? about : DT_T_ALL;
}

/* Decodes one step of a JSON pointer (RFC 6901) in a URI fragment, in place. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		unsigned c;

		if (*s == '%' && s[1] && s[2] && sscanf(s + 1, "%2x", &c) == 1) {
			*to++ = (char)c;
			s += 2;
		} else if (*s == '~' && (s[1] == '0' || s[1] == '1')) {
			*to++ = s[1] == '0' ? '~' : '/';
			s++;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

const json_t *dt_schema_resolve(struct dt_schema *b, const char *ref)
{
	const json_t *at = *ref == '#' ? b->top : NULL;
	const char *r = ref + (*ref == '#');
	char part[256];

	while (at && *r == '/') {
		size_t n = strcspn(++r, "/");

		if (n >= sizeof(part))
			at = NULL;
		if (!at)
			break;
		memcpy(part, r, n);
		part[n] = '\0';
		unescape(part);
		at = json_is_array(at) && *part >= '0' && *part <= '9'
			     ? json_array_get(at, strtoul(part, NULL, 10))
			     : json_object_get(at, part);
		r += n;
	}
	if (!at || *r)
		dt_schema_fail(b, -EINVAL, "the schema has nothing at '%.80s'", ref);
	return at && !*r ? at : NULL;
}

/* Two alternative schemas: property `name` is absent, or it is present and `then` holds. */
static json_t *either(const char *name, json_t *then)
{
	json_t *absent = json_pack("{s:{s:b}}", "properties", name, 0);
	json_t *present = json_pack("{s:[s]}", "required", name), *all = json_array(), *r = json_array();

	json_array_append_new(all, present);
	json_array_append_new(all, then);
	json_array_append_new(r, absent);
	json_array_append_new(r, json_pack("{s:o}", "allOf", all));
	return r;
}

const json_t *dt_schema_dependent(struct dt_schema *b, const json_t *s)
{
	const json_t *required = json_object_get(s, "dependentRequired"),
		     *more = json_object_get(s, "dependentSchemas"), *v;
	const char *key;
	json_t *r;

	if (!required && !more)
		return NULL;
	for (int i = 0; i < b->nmade; i++)
		if (b->made[i].of == s)
			return b->made[i].choice;
	if (!dt_schema_room(b, (void **)&b->made, b->nmade, &b->made_cap, sizeof(*b->made)))
		return NULL;
	r = json_array();
	json_object_foreach((json_t *)required, key, v)
		json_array_append_new(r, either(key, json_pack("{s:O}", "required", v)));
	json_object_foreach((json_t *)more, key, v)
		json_array_append_new(r, either(key, json_incref((json_t *)v)));
	b->made[b->nmade].of = s;
	b->made[b->nmade++].choice = r;
	return r;
}
/* SPDX-License-Identifier: Apache-2.0 */
