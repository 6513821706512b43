/* Listed values by their contents, so that an enum of thousands of values is not compared pair by pair. */
#include "grammar/schema.h"

#include <stdlib.h>
#include <string.h>

#define FEW 8 /* values of a list that are compared one by one */

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15u;
	return h ^ h >> 29;
}

static uint64_t text_hash(const char *s, size_t n)
{
	uint64_t h = n;

	for (size_t i = 0; i < n; i++)
		h = mix(h, (unsigned char)s[i]);
	return h;
}

/* Values that dt_schema_equal calls equal have equal hashes. */
static uint64_t value_hash(const json_t *v)
{
	uint64_t h = json_is_number(v) ? JSON_REAL : json_typeof(v);
	const json_t *e;
	const char *key;
	size_t i;

	if (json_is_number(v)) {
		const double d = json_number_value(v) + 0.; /* -0 equals 0 */

		memcpy(&i, &d, sizeof(i));
		h = mix(h, i);
	} else if (json_is_string(v)) {
		h = mix(h, text_hash(json_string_value(v), json_string_length(v)));
	} else if (json_is_array(v)) {
		json_array_foreach(v, i, e) h = mix(h, value_hash(e));
	} else if (json_is_object(v)) { /* in any order */
		uint64_t sum = 0;

		json_object_foreach((json_t *)v, key, e) sum +=
			mix(text_hash(key, strlen(key)), value_hash(e));
		h = mix(h, sum);
	}
	return h;
}

bool dt_values_init(struct dt_values *s, size_t most)
{
	size_t room = 16;

	while (room < 2 * most)
		room *= 2;
	*s = (struct dt_values){.slot = calloc(room, sizeof(*s->slot)), .mask = room - 1};
	return s->slot;
}

void dt_values_release(struct dt_values *s)
{
	free(s->slot);
	*s = (struct dt_values){0};
}

/* The slot that holds a value equal to v, or the free one where it belongs, or where the work ended. */
static const json_t **slot_of(struct dt_schema *b, const struct dt_values *s, const json_t *v)
{
	size_t at = value_hash(v) & s->mask;

	while (dt_schema_work(b, 1) && s->slot[at] && s->slot[at] != v && !dt_schema_equal(s->slot[at], v))
		at = (at + 1) & s->mask;
	return &s->slot[at];
}

bool dt_values_add(struct dt_schema *b, struct dt_values *s, const json_t *v)
{
	const json_t **slot = slot_of(b, s, v);

	if (*slot)
		return false;
	*slot = v;
	return true;
}

bool dt_schema_listed(struct dt_schema *b, const json_t *v, const json_t *list)
{
	struct dt_values *s = &b->listed[(uintptr_t)list / sizeof(json_t) % DT_SCHEMA_LISTS];
	const size_t n = json_array_size(list);
	const json_t *e;
	size_t i;

	if (n > FEW && s->list != list) {
		dt_values_release(s);
		if (dt_values_init(s, n)) {
			s->list = list;
			json_array_foreach(list, i, e) dt_values_add(b, s, e);
		}
	}
	if (n > FEW && s->list == list)
		return *slot_of(b, s, v);
	json_array_foreach(list, i, e) if (dt_schema_equal(v, e)) return true;
	return false;
}
/* SPDX-License-Identifier: Apache-2.0 */
