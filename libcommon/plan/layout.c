/* The layout string, the placement of ranks, and the layers of pipeline stages. */
#include "plan/layout.h"

#include "base/tmpfile.h"
#include "model/flops.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define MAX_AXIS  65536
#define MAX_WORLD (1 << 20)

static const struct axis {
	const char *name;
	size_t off;
	int min, max;
	bool is_mesh; /* multiplies the number of ranks; ep only subdivides dp x cp */
} axes[] = {
	/* mesh axes, by enum */
	[DT_DP] = {"dp", offsetof(struct dt_layout, dp), 1, MAX_AXIS, true},
	[DT_TP] = {"tp", offsetof(struct dt_layout, tp), 1, MAX_AXIS, true},
	[DT_PP] = {"pp", offsetof(struct dt_layout, pp), 1, MAX_AXIS, true},
	[DT_CP] = {"cp", offsetof(struct dt_layout, cp), 1, MAX_AXIS, true},
	[DT_EP] = {"ep", offsetof(struct dt_layout, ep), 1, MAX_AXIS, false},
	{"z", offsetof(struct dt_layout, zero), 0, 3, false},
	{"v", offsetof(struct dt_layout, chunks), 1, 1024, false},
	{"s", 0, 0, 1, false}, /* seq_parallel, a bool */
};
#define NAXES ((int)(sizeof(axes) / sizeof(axes[0])))

static int __attribute__((format(printf, 3, 4))) bad(struct dt_err *err, const char *s, const char *fmt, ...)
{
	char text[160];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	dt_err_set(err, -EINVAL, "layout '%.80s': %s", s, text);
	dt_err_hint(err,
		    "a layout is axes and sizes joined by dots, as in dp2.tp4.pp2.z1 (see dt-layout(7))");
	return -EINVAL;
}

/* Parses one axis with its size, [s, s + n), of the layout `all`. Returns the axis's index. */
static int parse_axis(const char *all, const char *s, int n, int *ret_value, struct dt_err *err)
{
	int letters = 0, value = 0, a = 0, shown = n < 24 ? n : 24;

	while (letters < n && s[letters] >= 'a' && s[letters] <= 'z')
		letters++;
	while (a < NAXES &&
	       (strlen(axes[a].name) != (size_t)letters || strncmp(axes[a].name, s, (size_t)letters)))
		a++;
	if (n == 0)
		return bad(err, all, "an axis is missing between dots");
	if (a == NAXES)
		return bad(err, all, "unknown axis '%.*s'; axes are dp, tp, pp, cp, ep, z, v and s", shown,
			   s);
	if (letters == n)
		return bad(err, all, "axis '%.*s' has no size", shown, s);
	for (int i = letters; i < n; i++) {
		if (s[i] < '0' || s[i] > '9')
			return bad(err, all, "'%.*s' is not an axis and a whole number", shown, s);
		if (value <= MAX_AXIS)
			value = value * 10 + (s[i] - '0');
	}
	if (value < axes[a].min || value > axes[a].max)
		return bad(err, all, "'%.*s' is out of range (%d to %d)", shown, s, axes[a].min, axes[a].max);
	*ret_value = value;
	return a;
}

int dt_layout_parse(const char *s, struct dt_layout *ret, struct dt_err *err)
{
	struct dt_layout l = {.dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1, .chunks = 1};
	int64_t world = 1;
	unsigned seen = 0;

	for (const char *p = s; *s; p++) {
		int n = (int)strcspn(p, "."), value = 0, a = parse_axis(s, p, n, &value, err);

		if (a < 0)
			return a;
		if (seen & 1u << a)
			return bad(err, s, "axis '%s' is given twice", axes[a].name);
		seen |= 1u << a;
		if (!strcmp(axes[a].name, "s"))
			l.seq_parallel = value;
		else
			*(int *)((char *)&l + axes[a].off) = value;
		if (axes[a].is_mesh && (world *= value) > MAX_WORLD)
			break;
		p += n;
		if (!*p)
			break;
	}
	if (!(seen & (1u << DT_DP | 1u << DT_CP)))
		world *= l.dp = l.ep; /* the ranks that ep divides */
	if (world > MAX_WORLD)
		return bad(err, s, "more than %d ranks", MAX_WORLD);
	if ((int64_t)l.dp * l.cp % l.ep)
		return bad(err, s, "ep%d does not divide dp x cp", l.ep);
	*ret = l;
	return 0;
}

const char *dt_layout_format(const struct dt_layout *l, char *buf, size_t n)
{
	size_t k = 0;

	if (n == 0)
		return buf;
	buf[0] = '\0';
	for (int a = 0; a < NAXES; a++) {
		int v = strcmp(axes[a].name, "s") ? *(const int *)((const char *)l + axes[a].off)
						  : l->seq_parallel;

		if (v <= axes[a].min)
			continue;
		snprintf(buf + k, n - k, "%s%s%d", k ? "." : "", axes[a].name, v);
		k += strlen(buf + k);
	}
	if (k == 0)
		snprintf(buf, n, "dp1");
	return buf;
}

int dt_layout_world(const struct dt_layout *l)
{
	return l->dp * l->tp * l->pp * l->cp;
}

struct dt_coords dt_layout_coords(const struct dt_layout *l, int rank)
{
	struct dt_coords c;

	c.tp = rank % l->tp;
	rank /= l->tp;
	c.cp = rank % l->cp;
	rank /= l->cp;
	c.dp = rank % l->dp;
	c.pp = rank / l->dp;
	return c;
}

int dt_layout_joined(const struct dt_layout *l)
{
	int together = l->cp;

	while (together % l->ep)
		together += l->cp;
	return together / l->cp;
}

int dt_layout_rank(const struct dt_layout *l, struct dt_coords c)
{
	return ((c.pp * l->dp + c.dp) * l->cp + c.cp) * l->tp + c.tp;
}

int dt_layout_group(const struct dt_layout *l, struct dt_coords c, unsigned set)
{
	unsigned data = set & DT_ON_DATA, experts = set & (DT_ON_EP | DT_ON_EDP);
	int d = dt_coords_data(l, c);

	if (experts == (DT_ON_EP | DT_ON_EDP))
		data = DT_ON_DATA;
	if (experts && data != DT_ON_DATA) {
		if (data)
			return -EINVAL;
		d = experts == DT_ON_EP ? d / l->ep * l->ep : d % l->ep;
		c.dp = d / l->cp;
		c.cp = d % l->cp;
	}
	set = (set & DT_ON_MODEL) | data;
	for (int a = 0; a < DT_EP; a++)
		if (set & 1u << a)
			c.at[a] = 0;
	return dt_layout_rank(l, c);
}

const char *dt_axes_name(unsigned set, char *buf, size_t n)
{
	static const char *const names[DT_AXES] = {"dp", "tp", "pp", "cp", "ep", "edp"};
	const char *whole = set == DT_ON_ALL	 ? "world"
			    : set == DT_ON_DATA	 ? "data"
			    : set == DT_ON_MODEL ? "model"
						 : NULL;
	size_t k = 0;

	snprintf(buf, n, "%s", whole ? whole : "");
	for (int a = 0; a < DT_AXES && !whole; a++)
		if (set & 1u << a && k < n)
			k += (size_t)snprintf(buf + k, n - k, "%s%s", k ? "+" : "", names[a]);
	return buf;
}

/*
 * Finds how many layers the last stage gets, to make the slowest stage fastest. A layer costs its forward
 * flops (attention over at most 4096 positions, half of them masked), the head two flops a weight, the
 * embedding the read of a row. -ENOMEM.
 */
static int last_stage_layers(int stages, const struct dt_config *c, int *ret, struct dt_err *err)
{
	double seq = (double)(c->max_seq < 4096 ? c->max_seq : 4096), embed = (double)c->hidden, layer, head;
	int others = stages - 1, most_k = (int)c->layers - others, best = 1, middle_k;
	double best_cost = -1;
	int rc = dt_forward_flops(c, (int64_t)seq, &layer, &head, err);

	if (rc < 0)
		return rc;
	layer = layer / (double)c->layers - 2 * seq * (double)(c->heads * c->head_dim);
	/* The last stage's cost grows with k, the others' decrease: the best k is near the crossing. */
	middle_k = (int)(((double)c->layers - others * head / layer) / stages);
	middle_k = middle_k < 1 ? 1 : middle_k > most_k ? most_k : middle_k;
	for (int k = middle_k > 4 ? middle_k - 4 : 1; k <= most_k && k <= middle_k + 4; k++) {
		int rest = (int)c->layers - k, most = (rest + others - 1) / others, least = rest / others;
		/* Spare layers go to later stages, so the first has the fewest. */
		double first = least * layer + embed, middle = (stages > 2 ? most : least) * layer;
		double last = k * layer + head, cost = first > middle ? first : middle;

		cost = last > cost ? last : cost;
		if (best_cost < 0 || cost <= best_cost) {
			best = k;
			best_cost = cost;
		}
	}
	*ret = best;
	return 0;
}

/* The same with a cache of the last result, as it is called very often. */
static int last_stage(int stages, const struct dt_config *c, int *ret, struct dt_err *err)
{
	static _Thread_local struct dt_config of;
	static _Thread_local int known, layers;

	if (known != stages || memcmp(&of, c, sizeof(of)) != 0) {
		int rc = last_stage_layers(stages, c, &layers, err);

		known = rc < 0 ? 0 : stages;
		if (rc < 0)
			return rc;
		of = *c;
	}
	*ret = layers;
	return 0;
}

int dt_layout_check(const struct dt_layout *l, const struct dt_config *c, struct dt_err *err)
{
	const int stages = l->pp * dt_layout_chunks(l);
	int last;
	char s[64];

	dt_layout_format(l, s, sizeof(s));
	if (c->ssm_heads && (c->ssm_heads % l->tp || (c->ssm_groups > 1 && c->ssm_groups % l->tp)))
		return dt_err_set(
			err, -EINVAL,
			"layout '%s': tp%d does not divide the %lld heads and %lld groups of the Mamba-2 "
			"of '%s'",
			s, l->tp, (long long)c->ssm_heads, (long long)c->ssm_groups, c->name);
	if (dt_config_attends(c) && c->heads % l->tp)
		return dt_err_set(err, -EINVAL, "layout '%s': tp%d does not divide the %lld heads of '%s'", s,
				  l->tp, (long long)c->heads, c->name);
	if (dt_config_attends(c) && c->kv_heads % l->tp && l->tp % c->kv_heads)
		return dt_err_set(err, -EINVAL,
				  "layout '%s': tp%d and the %lld kv heads of '%s' do not divide one another",
				  s, l->tp, (long long)c->kv_heads, c->name);
	if ((c->ffn && c->ffn < l->tp) || c->vocab < l->tp)
		return dt_err_set(err, -EINVAL, "layout '%s': '%s' is too small to be split %d ways", s,
				  c->name, l->tp);
	if (l->pp == 1 && l->chunks > 1)
		return dt_err_set(err, -EINVAL, "layout '%s': v%d needs a pipeline, but pp is 1", s,
				  l->chunks);
	if (c->layers < (int64_t)l->pp * dt_layout_chunks(l))
		return dt_err_set(err, -EINVAL, "layout '%s': %s%d is more %s than the %lld layer%s of '%s'",
				  s, l->chunks > 1 ? "pp x v = " : "pp", l->pp * dt_layout_chunks(l),
				  l->chunks > 1 ? "chunks" : "stages", (long long)c->layers,
				  c->layers == 1 ? "" : "s", c->name);
	if (l->ep > 1 && !c->experts)
		return dt_err_set(err, -EINVAL, "layout '%s': ep%d, but '%s' has no experts", s, l->ep,
				  c->name);
	if (c->experts % ((int64_t)l->ep * l->tp))
		return dt_err_set(err, -EINVAL,
				  "layout '%s': %s%d%s does not divide the %lld experts of '%s'%s", s,
				  l->ep > 1 ? "ep" : "tp", l->ep > 1 ? l->ep : l->tp,
				  l->ep > 1 && l->tp > 1 ? " x tp" : "", (long long)c->experts, c->name,
				  l->tp > 1 ? ", which tp distributes whole" : "");
	if (c->max_seq < l->cp)
		return dt_err_set(err, -EINVAL, "layout '%s': cp%d is more than the %lld positions of '%s'",
				  s, l->cp, (long long)c->max_seq, c->name);
	return stages > 1 ? last_stage(stages, c, &last, err) : 0;
}

/* Spare layers go to later stages: earlier ones already hold more microbatches in flight (1F1B). */
void dt_layout_stage(const struct dt_layout *l, const struct dt_config *c, int stage, int *first, int *last)
{
	int layers = (int)c->layers, others = l->pp * dt_layout_chunks(l) - 1, ends, rest, each, spare;

	if (others == 0) {
		*first = 0;
		*last = layers;
		return;
	}
	if (last_stage(others + 1, c, &ends, NULL) < 0) { /* possible even after dt_layout_check */
		ends = layers / (others + 1);
		dt_output_lost();
	}
	rest = layers - ends;
	if (stage == others) {
		*first = rest;
		*last = layers;
		return;
	}
	each = rest / others;
	spare = rest % others;
	*first = stage * each + (stage > others - spare ? stage - (others - spare) : 0);
	*last = *first + each + (stage >= others - spare);
}
/* SPDX-License-Identifier: Apache-2.0 */
