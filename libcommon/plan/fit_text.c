/* An estimate over time: rows for a terminal, stacked bars as SVG; and compared with a measurement. */
#include "plan/why.h"

#include "base/table.h"
#include "base/units.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t in_phase(const struct dt_estimate *e, int cat, int phase)
{
	uint64_t n = 0;

	for (int i = 0; i < e->n; i++)
		if (e->e[i].cat == cat && !e->e[i].place && (int)e->e[i].first <= phase &&
		    (int)e->e[i].last >= phase)
			n += e->e[i].bytes;
	return n;
}

void dt_fit_timeline(const struct dt_estimate *e, bool utf8, FILE *f)
{
	struct dt_table *t = dt_table_new("category|>forward|>loss|>backward|>step");
	char s[24];

	for (int c = 0; c < DT_EST_CAT_N; c++) {
		uint64_t n[DT_PH_N], all = 0;

		for (int p = 0; p < DT_PH_N; p++)
			all |= n[p] = in_phase(e, c, p);
		if (!all)
			continue;
		dt_table_cell(t, "%s", dt_est_cat_name(c));
		for (int p = 0; p < DT_PH_N; p++)
			dt_table_cell(t, "%s", n[p] ? dt_format_size(n[p], s, sizeof(s)) : "-");
	}
	dt_table_end_row(t);
	dt_table_cell(t, "all");
	for (int p = 0; p < DT_PH_N; p++)
		dt_table_cell(t, "%s", dt_format_size(e->phase_bytes[p], s, sizeof(s)));
	dt_table_print(t, f);
	dt_table_free(t);
	fputc('\n', f);
	for (int p = 0; p < DT_PH_N; p++) {
		int n = (int)lround(60 * (double)e->phase_bytes[p] /
				    (double)(e->peak_bytes ? e->peak_bytes : 1));

		fprintf(f, "%-9s", dt_phase_name(p));
		for (int i = 0; i < n; i++)
			fputs(utf8 ? "\342\226\210" : "#", f);
		fputs(p == (int)e->peak ? "  the peak\n" : "\n", f);
	}
}

/* Distinguishable with any colour vision: Okabe and Ito 2008, and greys. */
static const char *const colours[DT_EST_CAT_N] = {"#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00",
						  "#CC79A7", "#F0E442", "#666666", "#999999", "#222222",
						  "#D55E00", "#009E73", "#444444", "#BBBBBB"};

static void svg_text(const char *s, FILE *f)
{
	for (; *s; s++) {
		if (*s == '<' || *s == '>' || *s == '&')
			fprintf(f, "&#%d;", *s);
		else
			fputc(*s, f);
	}
}

void dt_fit_svg(const struct dt_fit_query *q, const struct dt_estimate *e, uint64_t room, FILE *f)
{
	double top = (double)(room > e->peak_bytes ? room : e->peak_bytes), h = 300, y;
	int phases = q->serve ? 1 : DT_PH_N, x0 = 40, width = 100;
	char size[24], layout[80];
	int row = 0;

	fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"400\" "
		   "font-family=\"sans-serif\" "
		   "font-size=\"12\">\n<rect width=\"760\" height=\"400\" fill=\"white\"/>\n<text x=\"40\" "
		   "y=\"24\" "
		   "font-size=\"14\">");
	svg_text(q->run.config->name, f);
	fprintf(f, ", %s on %s: %s a rank</text>\n", q->serve ? "served" : "trained",
		dt_layout_format(&q->run.layout, layout, sizeof(layout)),
		dt_format_size(e->peak_bytes, size, sizeof(size)));
	for (int p = 0; p < phases; p++) {
		y = 350;
		for (int c = 0; c < DT_EST_CAT_N; c++) {
			double n = h * (double)in_phase(e, c, p) / top;

			if (n <= 0)
				continue;
			y -= n;
			fprintf(f,
				"<rect x=\"%d\" y=\"%.2f\" width=\"%d\" height=\"%.2f\" "
				"fill=\"%s\"><title>%s %s"
				"</title></rect>\n",
				x0 + p * (width + 20), y, width, n, colours[c], dt_est_cat_name(c),
				dt_format_size(in_phase(e, c, p), size, sizeof(size)));
		}
		fprintf(f, "<text x=\"%d\" y=\"368\">%s</text>\n<text x=\"%d\" y=\"%.2f\">%s</text>\n",
			x0 + p * (width + 20), q->serve ? "serving" : dt_phase_name(p), x0 + p * (width + 20),
			y - 4, dt_format_size(e->phase_bytes[p], size, sizeof(size)));
	}
	if (room)
		fprintf(f,
			"<line x1=\"30\" x2=\"530\" y1=\"%.2f\" y2=\"%.2f\" stroke=\"red\" "
			"stroke-dasharray=\"6 "
			"3\"/>\n"
			"<text x=\"400\" y=\"%.2f\" fill=\"red\">limit %s</text>\n",
			350 - h * (double)room / top, 350 - h * (double)room / top,
			346 - h * (double)room / top, dt_format_size(room, size, sizeof(size)));
	for (int c = DT_EST_CAT_N - 1; c >= 0; c--) {
		uint64_t any = 0;

		for (int p = 0; p < phases; p++)
			any |= in_phase(e, c, p);
		if (!any)
			continue;
		fprintf(f,
			"<rect x=\"560\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/>\n<text x=\"580\" "
			"y=\"%d\">%s</text>\n",
			60 + 20 * row, colours[c], 71 + 20 * row, dt_est_cat_name(c));
		row++;
	}
	fputs("</svg>\n", f);
}

/* ---- compared with a measurement ---- */

/*
 * Parses the last line of text that contains the key; *ret NULL: none. One object over several lines is
 * accepted too.
 */
static int last_object(const char *path, char *text, const char *key, json_t **ret, struct dt_err *err)
{
	char *last = NULL, *line = text, *end;
	int rc;

	for (; *line; line = *end ? end + 1 : end) {
		end = strchrnul(line, '\n');
		/* Lines of evaluations may be between those of steps. */
		if (memmem(line, (size_t)(end - line), key, strlen(key)))
			last = line;
	}
	*ret = NULL;
	if (!last)
		return 0;
	rc = dt_json_parse(last, (size_t)(strchrnul(last, '\n') - last), path, ret, NULL);
	return rc < 0 ? dt_json_parse(text, strlen(text), path, ret, err) : 0;
}

static int read_categories(const json_t *o, struct dt_measurement *m, struct dt_err *err)
{
	const json_t *v;
	size_t i;

	json_array_foreach(json_object_get(o, "categories"), i, v)
	{
		const char *name = NULL;
		int64_t bytes = 0;
		int c = 0, rc = dt_json_str(v, "name", true, &name, err);

		if (rc < 0 || (rc = dt_json_int(v, "bytes", true, 0, INT64_MAX, &bytes, err)) < 0)
			return rc;
		while (c < DT_EST_CAT_N && strcmp(dt_est_cat_name(c), name))
			c++;
		if (c == DT_EST_CAT_N)
			return dt_err_set(err, -EINVAL, "no category is called '%.40s'", name);
		m->cat[c] = (uint64_t)bytes;
		m->categories = true;
	}
	return 0;
}

/*
 * Reads dt-serve's GET /metrics: dt_serve_memory_bytes{...,category="weights"} 123, and on a processor
 * dt_serve_threads{...} 4. Returns 1 if the text is of this form.
 */
static int read_gauges(const char *text, struct dt_measurement *m, struct dt_err *err)
{
	static const char key[] = "dt_serve_memory_bytes{", label[] = "category=\"";
	const char *threads = strstr(text, "\ndt_serve_threads{"),
		   *value = threads ? strstr(threads, "\"} ") : NULL;
	int found = 0;

	if (value && value < strchrnul(threads + 1, '\n'))
		m->threads = strtol(value + 3, NULL, 10);
	if (m->threads < 0 || m->threads > 4096)
		return dt_err_set(err, -EINVAL, "dt_serve_threads is out of range");
	for (const char *at = text; (at = strstr(at, key)); found = 1) {
		const char *end = strchrnul(at, '\n'), *name = strstr(at, label), *close = strstr(at, "\"} ");
		int c = 0;

		if (!name || !close || name > end || close > end || close < name)
			return dt_err_set(err, -EINVAL, "a line of dt_serve_memory_bytes is incomplete");
		name += sizeof(label) - 1;
		while (c < DT_EST_CAT_N && (strncmp(dt_est_cat_name(c), name, (size_t)(close - name)) ||
					    dt_est_cat_name(c)[close - name]))
			c++;
		if (c == DT_EST_CAT_N)
			return dt_err_set(err, -EINVAL, "no category is called '%.*s'",
					  close - name > 40 ? 40 : (int)(close - name), name);
		m->cat[c] = strtoull(close + 3, NULL, 10);
		m->bytes += m->cat[c];
		m->categories = true;
		at = end;
	}
	m->first_stage = found;
	return found;
}

/* Reads the threads of the run, if it was on a processor. */
static int read_threads(const json_t *o, struct dt_measurement *m, struct dt_err *err)
{
	const json_t *run = json_object_get(o, "run");
	const char *device = NULL;
	int rc = run ? dt_json_str(run, "device", false, &device, err) : 0;

	if (rc < 0 || !device || strcmp(device, "cpu") != 0)
		return rc;
	rc = dt_json_int(run, "threads", false, 0, 4096, &m->threads, err);
	return rc < 0 ? rc : 0;
}

static int read_measured(const char *path, char *text, uint64_t constant, struct dt_measurement *m,
			 struct dt_err *err)
{
	json_t *o = NULL;
	int64_t bytes = 0, process = 0;
	int rc = read_gauges(text, m, err);

	if (rc)
		return rc < 0 ? rc : 0;
	rc = last_object(path, text, "\"peak_bytes\"", &o, err);
	if (rc == 0 && !o)
		rc = last_object(path, text, "\"rss_bytes\"", &o, err);
	if (rc == 0 && !o)
		return dt_err_set(err, -EINVAL, "'%s' has neither peak_bytes nor rss_bytes", path);
	if (rc == 0)
		rc = dt_json_int(o, "peak_bytes", false, 0, INT64_MAX, &bytes, err);
	if (rc == 0) {
		rc = dt_json_int(o, "rss_bytes", true, 0, INT64_MAX, &bytes, err);
		bytes -= bytes > (int64_t)constant ? (int64_t)constant : bytes;
	}
	json_decref(o);
	m->bytes = (uint64_t)bytes;
	if (rc < 0 || (rc = last_object(path, text, "\"categories\"", &o, err)) < 0)
		return rc;
	rc = read_categories(o, m, err);
	if (rc == 0)
		rc = read_threads(o, m, err);
	if (rc == 0 && (rc = dt_json_int(o, "pss_bytes", false, 0, INT64_MAX, &process, err)) > 0) {
		m->process = (uint64_t)process;
		rc = 0;
	}
	json_decref(o);
	return rc;
}

int dt_measurement_read(const char *path, uint64_t constant, struct dt_measurement *ret, struct dt_err *err)
{
	struct dt_measurement m = {0};
	char *text;
	size_t n;
	int rc = dt_read_file(path, 64 << 20, &text, &n, err);

	if (rc < 0)
		return rc;
	rc = read_measured(path, text, constant, &m, err);
	free(text);
	if (rc < 0)
		return strstr(err->msg, path) ? rc : dt_err_prefix(err, "'%s'", path);
	*ret = m;
	return 0;
}

int dt_fit_check(const struct dt_estimate *e, const struct dt_measurement *m, double *ret_off)
{
	double difference = fabs((double)m->bytes - (double)e->peak_bytes), most = 0, nearest = -1;
	int cat = -1;

	*ret_off = (double)m->bytes / (double)(e->peak_bytes ? e->peak_bytes : 1) - 1;
	for (int c = 0; c < DT_EST_CAT_N; c++) {
		double own = fabs((double)m->cat[c] - (double)e->cat_bytes[c]);
		double d = fabs(difference - (double)e->cat_bytes[c]);

		if (m->categories && own > most) {
			most = own;
			cat = c;
		} else if (!m->categories && difference > 0 && e->cat_bytes[c] &&
			   (nearest < 0 || d < nearest)) {
			nearest = d;
			cat = c;
		}
	}
	return cat;
}
/* SPDX-License-Identifier: Apache-2.0 */
