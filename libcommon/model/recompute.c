#include "model/recompute.h"

#include "base/units.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const modes[] = {"none", "selective", "full"};

int dt_keep_parse(const char *s, struct dt_keep *ret, struct dt_err *err)
{
	char *end;
	long n;

	*ret = (struct dt_keep){DT_RECOMPUTE_FULL, 1};
	for (int i = 0; i < 3; i++)
		if (!strcmp(s, modes[i])) {
			ret->mode = (enum dt_recompute)i;
			return 0;
		}
	if (!strncmp(s, "every:", 6)) {
		n = strtol(s + 6, &end, 10);
		if (end != s + 6 && !*end && n >= 1 && n <= 1024) {
			ret->every = (int)n;
			return 0;
		}
	}
	if (!strncmp(s, "auto:", 5)) {
		*ret = (struct dt_keep){.mode = DT_RECOMPUTE_NONE, .every = 1};
		if (dt_parse_size(s + 5, &ret->fit, err) < 0)
			return dt_err_prefix(err, "recomputation '%s'", s);
		if (ret->fit)
			return 0;
	}
	return dt_err_set(err, -EINVAL, "recomputation '%s' is not one of " DT_RECOMPUTE_CHOICES, s);
}

const char *dt_keep_format(struct dt_keep k, char *buf, size_t n)
{
	if (k.fit) /* exact, so that parsing returns the same value */
		snprintf(buf, n, "auto:%lluB", (unsigned long long)k.fit);
	else if (dt_keep_sets(k) > 1)
		snprintf(buf, n, "every:%d", k.every);
	else
		snprintf(buf, n, "%s", modes[k.mode]);
	return buf;
}

bool dt_keep_has(const struct dt_keep *k, int layer, int op, const char *name, int out)
{
	int given_up = dt_keep_ranks(k, layer);

	if (!given_up)
		return true;
	for (int i = 0; i < k->nvalue; i++)
		if (k->value[i].op == op && k->value[i].out == out && !strcmp(k->value[i].name, name))
			return k->value[i].rank >= given_up;
	return false;
}

/* Number of layers that recompute the values of a rank. */
static int layers_of(const struct dt_keep *k, int rank)
{
	int n = 0;

	for (int i = 0; i < k->layers; i++)
		n += dt_keep_ranks(k, i) > rank;
	return n;
}

const char *dt_keep_given_up(const struct dt_keep *k, char *buf, size_t n)
{
	size_t at = 0;
	int last = -1;

	snprintf(buf, n, "nothing");
	for (int rank = 0; k->steps && layers_of(k, rank) > 0; rank++)
		for (int i = 0; i < k->nvalue && at < n; i++) {
			int layers = layers_of(k, rank);

			if (k->value[i].rank != rank || (i > 0 && k->value[i - 1].rank == rank))
				continue; /* name only one of several values that share memory */
			at += (size_t)snprintf(buf + at, n - at, "%s%s of %d", at ? ", " : "",
					       k->value[i].what, layers);
			last = layers;
		}
	if (last > 0 && at < n)
		snprintf(buf + at, n - at, " layer%s", last > 1 ? "s" : "");
	return buf;
}
/* SPDX-License-Identifier: Apache-2.0 */
