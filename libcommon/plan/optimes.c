#include "plan/optimes.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MUL_GRID                                                                                             \
	{                                                                                                    \
		{32, 128, 512, 2048}, {32, 64, 128, 256, 768, 2048},                                         \
		{                                                                                            \
			32, 64, 128, 256, 768, 2048                                                          \
		}                                                                                            \
	}
#define HEAD_GRID                                                                                            \
	{                                                                                                    \
		{64, 512}, {256, 4096, 16384},                                                               \
		{                                                                                            \
			64, 192, 768                                                                         \
		}                                                                                            \
	}
#define ATT_GRID                                                                                             \
	{                                                                                                    \
		{4, 16}, {32, 64, 128, 256, 512, 1024},                                                      \
		{                                                                                            \
			16, 32, 64, 128                                                                      \
		}                                                                                            \
	}
#define ROW_GRID                                                                                             \
	{                                                                                                    \
		{64, 512, 4096},                                                                             \
		{                                                                                            \
			32, 128, 512, 2048                                                                   \
		}                                                                                            \
	}
#define FLAT_GRID                                                                                            \
	{                                                                                                    \
		{                                                                                            \
			64, 1024, 16384, 131072, 1048576, 8388608                                            \
		}                                                                                            \
	}

/* Sizes are whole rows of blocks, and small: some formats take 100 ns an element, codebooks 2 us. */
#define BLOCK_GRID                                                                                           \
	{                                                                                                    \
		{                                                                                            \
			1024, 16384, 131072                                                                  \
		}                                                                                            \
	}

const struct dt_timed_info dt_timed_ops[DT_T_N] = {
	[DT_T_MUL] = {"matmul", 3, MUL_GRID},
	[DT_T_MUL_X] = {"matmul-dx", 3, MUL_GRID},
	[DT_T_MUL_W] = {"matmul-dw", 3, MUL_GRID},
	[DT_T_MUL_ADD] = {"matmul-dw-add", 3, MUL_GRID},
	[DT_T_HEAD] = {"head", 3, HEAD_GRID},
	[DT_T_HEAD_X] = {"head-dx", 3, HEAD_GRID},
	[DT_T_HEAD_W] = {"head-dw", 3, HEAD_GRID},
	[DT_T_HEAD_ADD] = {"head-dw-add", 3, HEAD_GRID},
	[DT_T_ATTENTION] = {"attention", 3, ATT_GRID},
	[DT_T_ATTENTION_B] = {"attention-backward", 3, ATT_GRID},
	[DT_T_LAYERNORM] = {"layernorm", 2, ROW_GRID},
	[DT_T_LAYERNORM_B] = {"layernorm-backward", 2, ROW_GRID},
	[DT_T_RMSNORM] = {"rmsnorm", 2, ROW_GRID},
	[DT_T_RMSNORM_B] = {"rmsnorm-backward", 2, ROW_GRID},
	[DT_T_ACT] = {"activation", 2, ROW_GRID},
	[DT_T_ACT_B] = {"activation-backward", 2, ROW_GRID},
	[DT_T_GATED] = {"gated", 2, ROW_GRID},
	[DT_T_GATED_B] = {"gated-backward", 2, ROW_GRID},
	[DT_T_ROPE] = {"rope", 2, ROW_GRID},
	[DT_T_COLSUM] = {"colsum", 2, ROW_GRID},
	[DT_T_EMBED] = {"embedding", 2, ROW_GRID},
	[DT_T_EMBED_B] = {"embedding-backward", 2, ROW_GRID},
	[DT_T_CE] = {"cross-entropy", 2, {{64, 512}, {256, 4096, 16384}}},
	[DT_T_ADD] = {"add", 2, ROW_GRID},
	[DT_T_OPTIM0] = {"optimizer-0", 1, FLAT_GRID},
	[DT_T_OPTIM1] = {"optimizer-1", 1, FLAT_GRID},
	[DT_T_OPTIM2] = {"optimizer-2", 1, FLAT_GRID},
	[DT_T_SUMSQ] = {"sum-of-squares", 1, FLAT_GRID},
	[DT_T_FILL] = {"fill", 1, FLAT_GRID},
	[DT_T_CONVERT] = {"convert", 1, FLAT_GRID},
#define ROUND_OP(NAME, name) [DT_T_ROUND_##NAME] = {DT_TIMED_ROUND #name, 1, BLOCK_GRID},
	DT_BLOCK_FORMATS(ROUND_OP)};

enum dt_timed dt_timed_round(const char *format)
{
	const size_t n = strlen(DT_TIMED_ROUND);

	for (int op = 0; op < DT_T_N; op++)
		if (!strncmp(dt_timed_ops[op].name, DT_TIMED_ROUND, n) &&
		    !strcmp(dt_timed_ops[op].name + n, format))
			return (enum dt_timed)op;
	return DT_T_N;
}

bool dt_op_times_has(const struct dt_op_times *t, enum dt_timed op)
{
	return t->mode[0].g[op][0].s != NULL;
}

static const char *const type_names[DT_OP_TYPES] = {"f32", "bf16"};

int dt_grid_points(const struct dt_op_grid *g)
{
	return g->n[0] * g->n[1] * g->n[2];
}

void dt_grid_sizes(const struct dt_op_grid *g, int i, int64_t ret[3])
{
	for (int k = 2; k >= 0; k--) {
		ret[k] = (int64_t)g->at[k][i % g->n[k]];
		i /= g->n[k];
	}
}

static int grid_init(struct dt_op_grid *g, const struct dt_timed_info *info, int fewer)
{
	for (int k = 0; k < 3; k++) {
		g->n[k] = 0;
		while (k < info->axes && g->n[k] < DT_GRID_MAX && info->at[k][g->n[k]]) {
			g->at[k][g->n[k]] = (double)info->at[k][g->n[k]];
			g->n[k]++;
		}
		for (int i = 0; i < fewer && g->n[k] > 2; i++)
			g->n[k]--;
		if (k >= info->axes) {
			g->n[k] = 1;
			g->at[k][0] = 1;
		}
	}
	g->s = calloc((size_t)dt_grid_points(g), sizeof(*g->s));
	return g->s ? 0 : -ENOMEM;
}

int dt_op_times_init(struct dt_op_times *t, int fewer, struct dt_err *err)
{
	for (int m = 0; m < t->nmode; m++)
		for (int op = 0; op < DT_T_N; op++)
			for (int type = 0; type < DT_OP_TYPES; type++)
				if (grid_init(&t->mode[m].g[op][type], &dt_timed_ops[op], fewer) < 0) {
					dt_op_times_release(t);
					return dt_err_sys(err, -ENOMEM, "operation times");
				}
	return 0;
}

void dt_op_times_release(struct dt_op_times *t)
{
	for (int m = 0; m < t->nmode; m++)
		for (int op = 0; op < DT_T_N; op++)
			for (int type = 0; type < DT_OP_TYPES; type++)
				free(t->mode[m].g[op][type].s);
	memset(t, 0, sizeof(*t));
}

/* ---- lookup ---- */

/* The work of a point; beyond the grid time is proportional to it. */
static double work(enum dt_timed op, const double x[3])
{
	double w = x[0] * x[1] * x[2];

	return op == DT_T_ATTENTION || op == DT_T_ATTENTION_B ? w * x[1] : w;
}

static double lookup(const struct dt_op_grid *g, enum dt_timed op, const double size[3])
{
	double x[3], f[3], sum = 0, point[3];
	int lo[3];

	for (int k = 0; k < 3; k++) {
		int last = g->n[k] - 1;

		x[k] = fmax(size[k], g->at[k][0]);
		for (lo[k] = 0; lo[k] < last - 1 && x[k] > g->at[k][lo[k] + 1]; lo[k]++)
			;
		f[k] = last == 0 ? 0
				 : log(x[k] / g->at[k][lo[k]]) / log(g->at[k][lo[k] + 1] / g->at[k][lo[k]]);
		f[k] = fmin(f[k], 1);
	}
	for (int corner = 0; corner < 8; corner++) {
		double weight = 1;
		int i = 0;

		for (int k = 0; k < 3; k++) {
			int up = corner >> k & 1, at = lo[k] + (up && g->n[k] > 1);

			weight *= up ? f[k] : 1 - f[k];
			point[k] = g->at[k][at];
			i = i * g->n[k] + at;
		}
		if (weight > 0)
			sum += weight * log(g->s[i] / work(op, point));
	}
	return exp(sum) * work(op, x);
}

double dt_op_seconds(const struct dt_op_times *t, int processes, enum dt_timed op, enum dt_dtype type,
		     double a, double b, double c)
{
	int axes = dt_timed_ops[op].axes;
	const double size[3] = {a, axes > 1 ? b : 1, axes > 2 ? c : 1};
	int lo = 0, k = type == DT_F32 ? 0 : 1;
	double s, more, f;

	while (lo < t->nmode - 1 && processes > t->mode[lo + 1].processes)
		lo++;
	s = lookup(&t->mode[lo].g[op][k], op, size);
	if (lo == t->nmode - 1 || processes <= t->mode[lo].processes)
		return processes > t->cores ? s * processes / t->cores : s;
	more = lookup(&t->mode[lo + 1].g[op][k], op, size);
	f = log((double)processes / t->mode[lo].processes) /
	    log((double)t->mode[lo + 1].processes / t->mode[lo].processes);
	return exp((1 - f) * log(s) + f * log(more));
}

/* ---- the file ---- */

static json_t *grid_to_json(const struct dt_op_grid *g, int op, int type)
{
	json_t *sizes = json_array(), *times = json_array();

	for (int k = 0; k < dt_timed_ops[op].axes; k++) {
		json_t *axis = json_array();

		for (int i = 0; i < g->n[k]; i++)
			json_array_append_new(axis, json_integer((json_int_t)g->at[k][i]));
		json_array_append_new(sizes, axis);
	}
	for (int i = 0; i < dt_grid_points(g); i++) {
		/* four digits are more than the clock's precision */
		double digits = pow(10, 4 - ceil(log10(g->s[i])));

		json_array_append_new(times, json_real(round(g->s[i] * digits) / digits));
	}
	return json_pack("{s:s, s:s, s:o, s:o}", "op", dt_timed_ops[op].name, "type", type_names[type],
			 "sizes", sizes, "time_s", times);
}

json_t *dt_op_times_to_json(const struct dt_op_times *t)
{
	json_t *modes = json_array();

	for (int m = 0; m < t->nmode; m++) {
		json_t *ops = json_array();

		for (int op = 0; op < DT_T_N; op++)
			for (int type = 0; type < DT_OP_TYPES; type++)
				if (t->mode[m].g[op][type].s)
					json_array_append_new(
						ops, grid_to_json(&t->mode[m].g[op][type], op, type));
		json_array_append_new(modes,
				      json_pack("{s:i, s:o}", "processes", t->mode[m].processes, "ops", ops));
	}
	return json_pack("{s:i, s:s, s:i, s:s, s:o}", "schema", 1, "program", "dt-calibrate", "cores",
			 t->cores, "isa", t->isa, "modes", modes);
}

static int grid_from_json(const json_t *o, int axes, struct dt_op_grid *g, struct dt_err *err)
{
	const json_t *sizes = json_object_get(o, "sizes"), *times = json_object_get(o, "time_s");

	if ((int)json_array_size(sizes) != axes)
		return dt_err_set(err, -EINVAL, "'sizes' does not have %d axes", axes);
	for (int k = 0; k < 3; k++) {
		const json_t *axis = json_array_get(sizes, (size_t)k);

		g->n[k] = k < axes ? (int)json_array_size(axis) : 1;
		g->at[k][0] = 1;
		if (g->n[k] < 1 || g->n[k] > DT_GRID_MAX)
			return dt_err_set(err, -EINVAL, "an axis has 1 to %d sizes", DT_GRID_MAX);
		for (int i = 0; k < axes && i < g->n[k]; i++) {
			g->at[k][i] = json_number_value(json_array_get(axis, (size_t)i));
			if (!(g->at[k][i] > (i ? g->at[k][i - 1] : 0)))
				return dt_err_set(err, -EINVAL, "sizes must be above 0 and ascending");
		}
	}
	if ((int)json_array_size(times) != dt_grid_points(g))
		return dt_err_set(err, -EINVAL, "%d sizes have %d times", dt_grid_points(g),
				  (int)json_array_size(times));
	g->s = calloc((size_t)dt_grid_points(g), sizeof(*g->s));
	if (!g->s)
		return dt_err_sys(err, -ENOMEM, "operation times");
	for (int i = 0; i < dt_grid_points(g); i++) {
		g->s[i] = json_number_value(json_array_get(times, (size_t)i));
		if (!(g->s[i] > 0) || !isfinite(g->s[i]))
			return dt_err_set(err, -EINVAL, "a time must be above 0");
	}
	return 0;
}

static int read_ops(const json_t *list, struct dt_op_mode *m, struct dt_err *err)
{
	const json_t *o;
	size_t i;

	json_array_foreach(list, i, o)
	{
		const char *name = NULL, *type = NULL;
		int op = 0, rc, k;

		if ((rc = dt_json_str(o, "op", true, &name, err)) < 0 ||
		    (rc = dt_json_str(o, "type", true, &type, err)) < 0)
			return rc;
		while (op < DT_T_N && strcmp(name, dt_timed_ops[op].name))
			op++;
		k = !strcmp(type, type_names[1]);
		if (op == DT_T_N || (!k && strcmp(type, type_names[0])) || m->g[op][k].s)
			return dt_err_set(err, -EINVAL, "operation '%.30s' of type '%.10s' %s", name, type,
					  op < DT_T_N ? "is given twice or has no type" : "is not known");
		rc = grid_from_json(o, dt_timed_ops[op].axes, &m->g[op][k], err);
		if (rc < 0)
			return dt_err_prefix(err, "operation '%s'", name);
	}
	for (int op = 0; op < DT_T_N; op++)
		for (int k = 0; k < DT_OP_TYPES; k++)
			if (!m->g[op][k].s && op < DT_T_ROUND_Q8_0)
				return dt_err_set(err, -EINVAL, "operation '%s' of type %s is missing",
						  dt_timed_ops[op].name, type_names[k]);
	return 0;
}

int dt_op_times_from_json(const json_t *o, struct dt_op_times *ret, struct dt_err *err)
{
	const json_t *modes = json_object_get(o, "modes");
	struct dt_op_times t = {0};
	const char *isa = "";
	int64_t cores = 0, n = 0;
	int rc, most = (int)(sizeof(t.mode) / sizeof(t.mode[0]));

	if ((rc = dt_json_int(o, "cores", true, 1, 1 << 20, &cores, err)) < 0 ||
	    (rc = dt_json_str(o, "isa", false, &isa, err)) < 0)
		return rc;
	if (json_array_size(modes) < 1 || (int)json_array_size(modes) > most)
		return dt_err_set(err, -EINVAL, "'modes' is a list of 1 to %d", most);
	t.cores = (int)cores;
	snprintf(t.isa, sizeof(t.isa), "%.23s", isa);
	for (rc = 0; rc >= 0 && t.nmode < (int)json_array_size(modes);) {
		const json_t *m = json_array_get(modes, (size_t)t.nmode);

		rc = dt_json_int(m, "processes", true, n + 1, 1 << 20, &n, err);
		t.mode[t.nmode++].processes = (int)n;
		if (rc >= 0)
			rc = read_ops(json_object_get(m, "ops"), &t.mode[t.nmode - 1], err);
	}
	if (rc < 0) {
		dt_op_times_release(&t);
		return rc;
	}
	*ret = t;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
