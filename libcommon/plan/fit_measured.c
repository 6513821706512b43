/* Compares an estimate with a run's measurement. */
#include "base/table.h"
#include "base/units.h"
#include "plan/fit_print.h"

#include <math.h>

static json_t *categories_json(const struct dt_estimate *e, const struct dt_measurement *m)
{
	json_t *list = json_array();

	for (int c = 0; c < DT_EST_CAT_N; c++)
		if (m->cat[c] || e->cat_bytes[c])
			json_array_append_new(list, json_pack("{s:s, s:I, s:I}", "name", dt_est_cat_name(c),
							      "estimated_bytes", (json_int_t)e->cat_bytes[c],
							      "measured_bytes", (json_int_t)m->cat[c]));
	return list;
}

static void print(const struct dt_estimate *e, const struct dt_measurement *m, double off, int cat, FILE *f)
{
	struct dt_table *t = dt_table_new("category|>estimated|>measured|>difference in bytes");
	char x[24], y[24];

	for (int c = 0; c < DT_EST_CAT_N && m->categories; c++) {
		if (!m->cat[c] && !e->cat_bytes[c])
			continue;
		dt_table_cell(t, "%s", dt_est_cat_name(c));
		dt_table_cell(t, "%s", dt_format_size(e->cat_bytes[c], x, sizeof(x)));
		dt_table_cell(t, "%s", dt_format_size(m->cat[c], y, sizeof(y)));
		dt_table_cell(t, "%+lld", (long long)(m->cat[c] - e->cat_bytes[c]));
	}
	if (m->categories) {
		dt_table_print(t, f);
		fputc('\n', f);
	}
	dt_table_free(t);
	fprintf(f, "estimated %s (%llu bytes), measured %s (%llu bytes): %+.2f%%\n",
		dt_format_size(e->peak_bytes, x, sizeof(x)), (unsigned long long)e->peak_bytes,
		dt_format_size(m->bytes, y, sizeof(y)), (unsigned long long)m->bytes, 100 * off);
	if (cat >= 0)
		fprintf(f, "%s: %s\n",
			m->categories ? "largest difference" : "size closest to the difference",
			dt_est_cat_name(cat));
	if (m->process > m->bytes)
		fprintf(f, "the process took %s, %s more than this: program, libraries and their buffers\n",
			dt_format_size(m->process, x, sizeof(x)),
			dt_format_size(m->process - m->bytes, y, sizeof(y)));
}

static int write_json(const struct dt_estimate *e, const struct dt_measurement *m, double off, int cat,
		      bool good, FILE *f, struct dt_err *err)
{
	json_t *o = json_pack("{s:i, s:I, s:I, s:f, s:b, s:s?}", "schema", 1, "estimated_bytes",
			      (json_int_t)e->peak_bytes, "measured_bytes", (json_int_t)m->bytes, "off", off,
			      "within_tolerance", good, "category", cat < 0 ? NULL : dt_est_cat_name(cat));
	int rc;

	if (m->categories)
		json_object_set_new(o, "categories", categories_json(e, m));
	if (m->process)
		json_object_set_new(o, "process_bytes", json_integer((json_int_t)m->process));
	rc = dt_json_write_line(f, o, err);
	json_decref(o);
	return rc;
}

int dt_fit_check_file(const struct dt_fit *fit, const char *path, uint64_t constant, double tolerance,
		      bool json, FILE *f, struct dt_err *err)
{
	const struct dt_estimate *e;
	struct dt_measurement m;
	double off, most = 0;
	int cat, rc = dt_measurement_read(path, constant, &m, err);
	bool good;

	if (rc < 0)
		return rc;
	e = m.first_stage ? &fit->stage[0].est : dt_fit_worst(fit);
	cat = dt_fit_check(e, &m, &off);
	if (cat >= 0 && m.categories)
		most = fabs((double)m.cat[cat] - (double)e->cat_bytes[cat]) / (double)e->peak_bytes;
	good = 100 * fmax(fabs(off), most) <= tolerance + 1e-9;
	if (json)
		rc = write_json(e, &m, off, cat, good, f, err);
	else
		print(e, &m, off, cat, f);
	return rc < 0 ? rc : good;
}
/* SPDX-License-Identifier: Apache-2.0 */
