#include "data/class_list.h"

#include "base/json.h"
#include "base/rng.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLASSES_MAX 1000000
#define FILE_MAX    ((size_t)64 << 20)

static int no_memory(struct dt_err *err)
{
	return dt_err_sys(err, -ENOMEM, "cannot hold the names of the classes");
}

static int *slot_of(const struct class_list *c, const char *name)
{
	uint32_t at = dt_hash_str(name);

	for (;; at++) {
		int *slot = &c->by_name[at & (uint32_t)(c->slots - 1)];

		if (*slot < 0 || !strcmp(c->name[*slot], name))
			return slot;
	}
}

static int grow(struct class_list *c, struct dt_err *err)
{
	int room = c->room ? c->room * 2 : 64;
	char **name = realloc(c->name, (size_t)room * sizeof(*name));
	int64_t *images;
	int *by_name;

	if (name)
		c->name = name;
	images = name ? realloc(c->images, (size_t)room * sizeof(*images)) : NULL;
	if (images)
		c->images = images;
	by_name = images ? malloc((size_t)room * 2 * sizeof(*by_name)) : NULL;
	if (!by_name)
		return no_memory(err);
	free(c->by_name);
	c->by_name = by_name;
	c->room = room;
	c->slots = room * 2;
	memset(by_name, 0xff, (size_t)c->slots * sizeof(*by_name));
	for (int i = 0; i < c->n; i++)
		*slot_of(c, c->name[i]) = i;
	return 0;
}

static int add(struct class_list *c, const char *name, struct dt_err *err)
{
	int rc = c->n < c->room ? 0 : grow(c, err);

	if (rc < 0)
		return rc;
	if (c->n >= CLASSES_MAX)
		return dt_err_set(err, -EINVAL, "there are more than %d classes", CLASSES_MAX);
	if (*slot_of(c, name) >= 0)
		return dt_err_set(err, -EINVAL, "two classes have the name '%.200s'", name);
	c->name[c->n] = strdup(name);
	if (!c->name[c->n])
		return no_memory(err);
	*slot_of(c, name) = c->n;
	c->images[c->n++] = 0;
	return 0;
}

int class_list_read(struct class_list *c, const char *path, struct dt_err *err)
{
	char *text, *line, *end;
	size_t n;
	int rc = dt_read_file(path, FILE_MAX, &text, &n, err);

	if (rc < 0)
		return rc;
	for (line = text; *line && rc == 0; line = end) {
		end = line + strcspn(line, "\n");
		if (*end)
			*end++ = '\0';
		line[strcspn(line, "\r")] = '\0';
		if (!*line)
			rc = dt_err_set(err, -EINVAL, "'%s': the name of class %d is empty", path, c->n);
		else
			rc = add(c, line, err);
	}
	free(text);
	if (rc == 0 && !c->n)
		rc = dt_err_set(err, -EINVAL, "'%s' names no classes", path);
	c->fixed = true;
	return rc;
}

int class_list_name(struct class_list *c, const char *name, struct dt_err *err)
{
	int rc = c->n < c->room ? 0 : grow(c, err);

	if (rc < 0)
		return rc;
	if (*slot_of(c, name) >= 0)
		return 0;
	return c->fixed ? dt_err_set(err, -EINVAL, "class '%.200s' is not in the list of classes", name)
			: add(c, name, err);
}

/* Adds a class by number: without names in the source, class i is named "i". */
static int take_number(struct class_list *c, int label, struct dt_err *err)
{
	char name[16];
	int rc = 0;

	if (label < 0 || label >= CLASSES_MAX)
		return dt_err_set(err, -EINVAL, "class %d is out of range", label);
	if (label >= c->n && (c->fixed || (c->n && !c->numbers)))
		return dt_err_set(err, -EINVAL, "class %d is out of range: only %d classes have names", label,
				  c->n);
	while (c->n <= label && rc == 0) {
		c->numbers = true;
		snprintf(name, sizeof(name), "%d", c->n);
		rc = add(c, name, err);
	}
	return rc;
}

int class_list_take(struct class_list *c, const char *name, int *label, struct dt_err *err)
{
	int rc;

	if (name && c->numbers)
		return dt_err_set(err, -EINVAL,
				  "class '%.200s' is a name, but the classes before it are numbers", name);
	rc = name ? class_list_name(c, name, err) : take_number(c, *label, err);
	if (rc < 0)
		return rc;
	if (name)
		*label = *slot_of(c, name);
	return 0;
}

struct pair {
	char *name;
	int64_t images;
	int old;
};

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct pair *)a)->name, ((const struct pair *)b)->name);
}

int class_list_finish(struct class_list *c, bool sort, int **ret_map, struct dt_err *err)
{
	struct pair *p = calloc((size_t)c->n + 1, sizeof(*p));
	int *map = calloc((size_t)c->n + 1, sizeof(*map));

	if (!p || !map) {
		free(p);
		free(map);
		return no_memory(err);
	}
	for (int i = 0; i < c->n; i++)
		p[i] = (struct pair){c->name[i], c->images[i], i};
	if (sort && !c->fixed && !c->numbers && c->n)
		qsort(p, (size_t)c->n, sizeof(*p), by_name);
	for (int i = 0; i < c->n; i++) {
		c->name[i] = p[i].name;
		c->images[i] = p[i].images;
		map[p[i].old] = i;
	}
	free(p);
	free(c->by_name); /* indices have changed */
	c->by_name = NULL;
	*ret_map = map;
	return 0;
}

void class_list_free(struct class_list *c)
{
	for (int i = 0; i < c->n; i++)
		free(c->name[i]);
	free(c->name);
	free(c->images);
	free(c->by_name);
	*c = (struct class_list){0};
}
/* SPDX-License-Identifier: Apache-2.0 */
