#include "base/prom.h"

#include "base/tmpfile.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

int dt_prom_begin(struct dt_prom *p, struct dt_err *err)
{
	*p = (struct dt_prom){0};
	p->f = open_memstream(&p->text, &p->n);
	return p->f ? 0 : dt_err_sys(err, -ENOMEM, "cannot write metrics");
}

void dt_prom_metric(struct dt_prom *p, const char *name, const char *type, const char *help)
{
	fprintf(p->f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Prints a label's value with backslash, quote and line feed escaped. */
static void quoted(FILE *f, const char *s)
{
	putc('"', f);
	for (; *s; s++) {
		if (*s == '\n')
			fputs("\\n", f);
		else if (*s == '\\' || *s == '"')
			fprintf(f, "\\%c", *s);
		else
			putc(*s, f);
	}
	putc('"', f);
}

static void number(FILE *f, double v)
{
	if (isnan(v))
		fputs("NaN", f);
	else if (isinf(v))
		fputs(v > 0 ? "+Inf" : "-Inf", f);
	else
		fprintf(f, "%.15g", v);
}

void dt_prom_value(struct dt_prom *p, const char *name, double value, ...)
{
	const char *label;
	va_list ap;
	int n = 0;

	fputs(name, p->f);
	va_start(ap, value);
	for (; (label = va_arg(ap, const char *)); n++) {
		fprintf(p->f, "%c%s=", n ? ',' : '{', label);
		quoted(p->f, va_arg(ap, const char *));
	}
	va_end(ap);
	fputs(n ? "} " : " ", p->f);
	number(p->f, value);
	putc('\n', p->f);
}

void dt_prom_one(struct dt_prom *p, const char *name, const char *type, const char *help, double value)
{
	dt_prom_metric(p, name, type, help);
	dt_prom_value(p, name, value, NULL);
}

int dt_prom_publish(struct dt_prom *p, const char *path, struct dt_err *err)
{
	struct dt_tmpfile t;
	int rc = fclose(p->f) == EOF ? dt_err_sys(err, -ENOMEM, "cannot write '%s'", path) : 0;

	p->f = NULL;
	if (rc == 0)
		rc = dt_tmpfile_open(&t, path, err);
	if (rc == 0) {
		fwrite(p->text, 1, p->n, t.f);
		rc = dt_tmpfile_publish(&t, err);
	}
	free(p->text);
	p->text = NULL;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
