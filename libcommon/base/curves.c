#include "base/curves.h"

#include "base/room.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The member named path, or for "a.b" member b of object a. */
static json_t *member(json_t *o, const char *path)
{
	json_t *v = json_object_get(o, path);
	const char *dot = strchr(path, '.');
	char head[256];

	if (v || !dot || (size_t)(dot - path) >= sizeof(head))
		return v;
	snprintf(head, sizeof(head), "%.*s", (int)(dot - path), path);
	v = json_object_get(o, head);
	return json_is_object(v) ? member(v, dot + 1) : NULL;
}

static void remember_names(struct dt_curves *c, json_t *o)
{
	const char *key;
	json_t *v;

	json_object_foreach(o, key, v)
	{
		int i = 0;

		while (i < c->nnames && strcmp(c->names[i], key))
			i++;
		if (json_is_number(v) && i == c->nnames && c->nnames < DT_CURVES_NAMES &&
		    (c->names[i] = strdup(key)))
			c->nnames++;
	}
}

/* The value of the grouping key as text; NULL when the object has none. The caller frees it. */
static char *by_text(const struct dt_curves *c, json_t *o)
{
	json_t *v = member(o, c->o.by);

	if (!v || json_is_null(v))
		return NULL;
	return json_is_string(v) ? strdup(json_string_value(v))
				 : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
}

/* A value has no place on the chart, as its line lacks this key, or has text under it (v). Returns 0. */
static int left_out(struct dt_curves *c, const char *key, const json_t *v)
{
	if (!c->lacks)
		c->text = json_is_string(v);
	c->lacks = c->lacks ? c->lacks : key;
	return 0;
}

/* Length of the common leading folders of all file names. */
static size_t common_folders(const struct dt_curves_opts *o)
{
	size_t n = 0;

	for (size_t i = 0; o->file[0][i]; i++) {
		for (int f = 1; f < o->nfile; f++)
			if (o->file[f][i] != o->file[0][i])
				return n;
		if (o->file[0][i] == '/')
			n = i + 1;
	}
	return n;
}

/* The bar called name, created if it is new. Takes ownership of name. */
static struct dt_bar *find_bar(struct dt_curves *c, char *name)
{
	const json_t *known = c->o.by ? json_object_get(c->bar_of, name) : NULL;

	if (known) {
		free(name);
		return &c->bar[json_integer_value(known)];
	}
	if (!DT_ROOM(c->bar, c->nbar, c->capbar, 32))
		goto fail;
	if (c->o.by && !c->bar_of)
		c->bar_of = json_object();
	if (c->o.by && json_object_set_new_nocheck(c->bar_of, name, json_integer(c->nbar)) < 0)
		goto fail;
	c->bar[c->nbar].name = name;
	return &c->bar[c->nbar++];
fail:
	free(name);
	return NULL;
}

static int add_bar(struct dt_curves *c, json_t *o, int file, size_t line, struct dt_err *err)
{
	json_t *v = member(o, c->o.bars);
	char *name = NULL;
	struct dt_bar *b;

	if (!json_is_number(v))
		return 0;
	if (c->o.by)
		name = by_text(c, o);
	else if (asprintf(&name, c->o.nfile > 1 ? "%s:%zu" : "%.0s%zu", c->o.file[file], line) < 0)
		name = NULL;
	if (!name)
		return c->o.by ? left_out(c, c->o.by, NULL) : dt_err_set(err, -ENOMEM, "out of memory");
	b = find_bar(c, name);
	if (!b)
		return dt_err_set(err, -ENOMEM, "out of memory");
	b->value = json_number_value(v);
	return 0;
}

/* The name of a curve: those of file, key and group value that differ between curves. */
static char *curve_name(const struct dt_curves *c, int key, int file, const char *by)
{
	const char *parts[3] = {"", "", ""};
	char *name = NULL;
	int n = 0;

	if (c->o.nfile > 1)
		parts[n++] = c->o.file[file] + common_folders(&c->o);
	if (c->o.nkey > 1 || (!by && c->o.nfile <= 1))
		parts[n++] = c->o.key[key];
	if (by)
		parts[n++] = by;
	return asprintf(&name, "%s%s%s%s%s", parts[0], n > 1 ? " " : "", parts[1], n > 2 ? " " : "",
			parts[2]) < 0
		       ? NULL
		       : name;
}

/* The curve of (key, file, by), created if it is new. Takes ownership of by. */
static struct dt_curve *find_curve(struct dt_curves *c, int key, int file, char *by, struct dt_err *err)
{
	struct dt_curve *k;

	for (int i = 0; i < c->n; i++) {
		k = &c->curve[i];
		if (k->key == key && k->file == file && (!by || !strcmp(k->by, by))) {
			free(by);
			return k;
		}
	}
	if (c->n == DT_PLOT_CURVES_MAX) {
		free(by);
		dt_err_set(err, -E2BIG, "more than %d curves", DT_PLOT_CURVES_MAX);
		return NULL;
	}
	k = &c->curve[c->n];
	*k = (struct dt_curve){.key = key, .file = file, .by = by, .s.name = curve_name(c, key, file, by)};
	if (!k->s.name) {
		free(by);
		dt_err_set(err, -ENOMEM, "out of memory");
		return NULL;
	}
	c->n++;
	return k;
}

static int add_point(struct dt_curves *c, json_t *o, int key, int file, struct dt_err *err)
{
	json_t *v = member(o, c->o.key[key]), *vx;
	struct dt_curve *k;
	char *by = NULL;
	double x, y;

	if (!json_is_number(v))
		return 0;
	if (!c->x_known) {
		c->x = c->o.x ? c->o.x : json_is_number(member(o, "step")) ? "step" : NULL;
		c->x_known = true;
	}
	vx = c->x ? member(o, c->x) : NULL;
	if (c->x && !json_is_number(vx))
		return left_out(c, c->x, vx);
	y = json_number_value(v);
	if ((c->o.log_y && y <= 0) || (c->o.log_x && vx && json_number_value(vx) <= 0)) {
		c->nonpositive++;
		return 0;
	}
	if (c->o.by && !(by = by_text(c, o)))
		return left_out(c, c->o.by, NULL);
	k = find_curve(c, key, file, by, err);
	if (!k)
		return err->code;
	x = vx ? json_number_value(vx) : (double)k->s.n + 1;
	return dt_series_add(&k->s, x, y) < 0 ? dt_err_set(err, -ENOMEM, "out of memory") : 0;
}

int dt_curves_take(struct dt_curves *c, json_t *o, int file, size_t line, struct dt_err *err)
{
	int rc = 0;

	c->objects++;
	remember_names(c, o);
	if (c->o.bars)
		return add_bar(c, o, file, line, err);
	for (int k = 0; k < c->o.nkey && rc == 0; k++)
		rc = add_point(c, o, k, file, err);
	return rc;
}

bool dt_curves_empty(const struct dt_curves *c)
{
	for (int i = 0; i < c->n; i++)
		if (c->curve[i].s.n)
			return false;
	return !c->nbar;
}

int dt_curves_nothing(const struct dt_curves *c, struct dt_err *err)
{
	char names[sizeof(err->hint) - 64] = ""; /* leaves room for the rest of the hint */
	const char *key = c->o.bars ? c->o.bars : c->o.key[0];
	size_t n = 0;
	int i = 0;

	if (!c->objects)
		return dt_err_set(err, -ENODATA, "the input has no JSON object");
	if (c->lacks && !c->nonpositive)
		dt_err_set(err, -ENODATA, "no line with a number under '%s' has %s under '%s'%s", key,
			   c->lacks == c->o.by ? "anything" : "a number", c->lacks,
			   c->text ? ", only text" : "");
	else
		dt_err_set(err, -ENODATA, "no line has a number under '%s'%s", key,
			   c->nonpositive ? " above zero" : "");
	if (c->text) {
		dt_err_hint(err, "jq makes numbers of it: jq -c '(.%s | strings) |= tonumber'", c->lacks);
		return err->code;
	}
	for (; i < c->nnames && n + strlen(c->names[i]) + 2 < sizeof(names); i++)
		n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", i ? ", " : "", c->names[i]);
	if (i)
		dt_err_hint(err, "the lines have: %s%s", names, i < c->nnames ? " and others" : "");
	else if (c->nnames)
		dt_err_hint(err, "the lines have: %.*s...", (int)sizeof(names) - 1, c->names[0]);
	return err->code;
}

/* Keys in bytes end in the unit: "size_bytes", "mem.bytes". */
static bool in_bytes(const char *key)
{
	size_t n = key ? strlen(key) : 0;

	return n >= 5 && !strcmp(key + n - 5, "bytes") && (n == 5 || key[n - 6] == '_' || key[n - 6] == '.');
}

/* Replaces each curve by its sum with those before it. */
static int stack(const struct dt_curves *c, struct dt_curves_picture *ret, struct dt_err *err)
{
	for (int i = 0; i < c->n; i++) {
		const struct dt_series none = {0}, *s = &ret->series[i];

		for (size_t k = 0; k < s->n; k++)
			if (s->y[k] < 0)
				return dt_err_set(err, -EINVAL,
						  "'%s' has the value %g, and a stack has none below zero",
						  s->name, s->y[k]);
		if (dt_series_stack(&ret->sum[i], s, i ? &ret->sum[i - 1] : &none) < 0)
			return dt_err_sys(err, -ENOMEM, "picture");
	}
	for (int i = 0; i < c->n; i++) {
		ret->series[i].x = ret->sum[i].x;
		ret->series[i].y = ret->sum[i].y;
		ret->series[i].n = ret->sum[i].n;
	}
	ret->plot.stacked = true;
	return 0;
}

int dt_curves_plot(const struct dt_curves *c, struct dt_curves_picture *ret, struct dt_err *err)
{
	struct dt_series *all = ret->series, *smooth = ret->smooth;
	struct dt_plot p = {.x_label = c->x,
			    .y_label = c->o.nkey == 1 ? c->o.key[0] : NULL,
			    .log_x = c->o.log_x,
			    .log_y = c->o.log_y,
			    .bytes_x = in_bytes(c->x),
			    .bytes_y = true,
			    .series = all,
			    .n = c->n};
	double window;

	memset(ret, 0, sizeof(*ret));
	for (int i = 0; i < c->n; i++)
		all[i] = ret->raw[i] = c->curve[i].s;
	for (int k = 0; k < c->o.nkey; k++)
		p.bytes_y &= in_bytes(c->o.key[k]);
	window = dt_plot_spacing(all, c->n, c->o.log_x) * (c->o.smooth - 0.5); /* - 0.5 against rounding */
	p.raw = c->o.smooth > 1 ? ret->raw : NULL;
	for (int i = 0; i < c->n && p.raw; i++) {
		if (dt_series_smooth(&smooth[i], &c->curve[i].s, window, c->o.log_x) < 0)
			return dt_err_sys(err, -ENOMEM, "picture");
		all[i].x = smooth[i].x;
		all[i].y = smooth[i].y;
	}
	ret->plot = p;
	return c->o.stack ? stack(c, ret, err) : 0;
}

void dt_curves_picture_release(struct dt_curves_picture *p)
{
	for (int i = 0; i < DT_PLOT_CURVES_MAX; i++) {
		dt_series_release(&p->smooth[i]);
		dt_series_release(&p->sum[i]);
	}
}

void dt_curves_bars(const struct dt_curves *c, struct dt_bars *ret)
{
	const char *key = c->o.bars;
	size_t n = strlen(key);

	*ret = (struct dt_bars){.bar = c->bar, .n = c->nbar};
	if (in_bytes(key))
		ret->unit = "bytes";
	else if (n > 2 && !strcmp(key + n - 2, "_s") && !strstr(key, "_per_"))
		ret->unit = "s";
}

void dt_curves_release(struct dt_curves *c)
{
	for (int i = 0; i < c->n; i++) {
		dt_series_release(&c->curve[i].s);
		free(c->curve[i].by);
	}
	for (int i = 0; i < c->nbar; i++)
		free(c->bar[i].name);
	free(c->bar);
	json_decref(c->bar_of);
	for (int i = 0; i < c->nnames; i++)
		free(c->names[i]);
	memset(c, 0, sizeof(*c));
}
/* SPDX-License-Identifier: Apache-2.0 */
