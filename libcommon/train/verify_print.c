/* The arguments that dt-train verify passes to its runs, and its output. */
#include "train/verify.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

char **dt_verify_arguments(int argc, char **argv, const char *operand)
{
	static const char *const known[] = {"--layouts", "--loss-bound", "--tensor-bound", "--layout"};
	char **ret = calloc((size_t)argc + 1, sizeof(*ret));
	int n = 0;

	for (int i = 1; ret && i < argc; i++) {
		bool drop = argv[i] == operand || !strcmp(argv[i], "--json");

		for (int k = 0; k < 4; k++) {
			size_t len = strlen(known[k]);

			if (strncmp(argv[i], known[k], len) || (argv[i][len] && argv[i][len] != '='))
				continue;
			drop = true;
			i += argv[i][len] == '\0';
			break;
		}
		if (!drop)
			ret[n++] = argv[i];
	}
	return ret;
}

static void print_json(FILE *f, const char *layout, const struct dt_verify_report *r, bool agrees)
{
	json_t *line =
		json_pack("{s:i, s:s, s:b, s:f, s:f, s:f, s:s, s:f, s:s}", "schema", 1, "layout", layout,
			  "agrees", agrees, "loss", r->loss, "grad_norm", r->norm, "grads", r->grad,
			  "worst_grad", r->grad_name, "params", r->model, "worst_param", r->model_name);

	if (line && r->first[0])
		json_object_set_new(line, "first", json_string(r->first));
	if (line)
		json_dumpf(line, f, JSON_COMPACT | JSON_REAL_PRECISION(6));
	fputc('\n', f);
	json_decref(line);
}

/* The tensor that differs most; none if all are equal. */
static void print_name(FILE *f, const char *name)
{
	if (*name)
		fprintf(f, " (%s)", name);
}

void dt_verify_print(FILE *f, const char *layout, const struct dt_verify_report *r, bool agrees, double bound,
		     bool json)
{
	if (json) {
		print_json(f, layout, r, agrees);
	} else {
		fprintf(f, "%-20s %-8s loss %.1e  grad_norm %.1e  grads %.1e", layout,
			agrees ? "agrees" : "DIFFERS", r->loss, r->norm, r->grad);
		print_name(f, r->grad_name);
		fprintf(f, "  params %.1e", r->model);
		print_name(f, r->model_name);
		fputc('\n', f);
		if (r->first[0])
			fprintf(f, "%-20s first beyond %.1e: %s\n", "", bound, r->first);
	}
	fflush(f);
}
/* SPDX-License-Identifier: Apache-2.0 */
