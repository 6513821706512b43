#include "plan/usage.h"

#include "plan/pmu.h"
#include "plan/sysfile.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { DOMAINS = 64 };

struct dt_usage {
	const char *root;
	struct dt_pmu_counters *memory; /* NULL: not available */
	struct domain {
		char name[40];
		double last, range; /* microjoules */
	} domain[DOMAINS];
	int domains;
	double energy_j;
};

/* Reads a number from a file; NAN: unreadable or not a number. */
static double number(const char *root, const char *fmt, const char *name)
{
	char text[64], *end;
	double v = strtod(dt_sys_line(root, text, sizeof(text), fmt, name), &end);

	return end == text ? NAN : v;
}

/* ---- energy ---- */

/*
 * Adds packages "intel-rapl:N", also on AMD, and their memory, "intel-rapl:N:M"; other subdomains are
 * included in the package.
 */
static void take_domain(void *arg, const char *name)
{
	struct dt_usage *u = arg;
	struct domain *d = &u->domain[u->domains];
	char what[32];
	int package, part, used = 0;

	if (u->domains == DOMAINS || strlen(name) >= sizeof(d->name))
		return;
	dt_sys_line(u->root, what, sizeof(what), "/sys/class/powercap/%s/name", name);
	if (sscanf(name, "intel-rapl:%d%n", &package, &used) == 1 && !name[used]) {
		if (strncmp(what, "package", 7) != 0)
			return;
	} else if (sscanf(name, "intel-rapl:%d:%d%n", &package, &part, &used) != 2 || name[used] ||
		   strcmp(what, "dram") != 0) {
		return;
	}
	*d = (struct domain){.last = number(u->root, "/sys/class/powercap/%s/energy_uj", name),
			     .range = number(u->root, "/sys/class/powercap/%s/max_energy_range_uj", name)};
	snprintf(d->name, sizeof(d->name), "%s", name);
	u->domains += !isnan(d->last);
}

static double energy(struct dt_usage *u)
{
	for (int i = 0; i < u->domains; i++) {
		struct domain *d = &u->domain[i];
		double now = number(u->root, "/sys/class/powercap/%s/energy_uj", d->name);

		if (isnan(now))
			continue;
		if (now < d->last && d->range > 0) /* the counter wrapped */
			d->last -= d->range;
		u->energy_j += fmax(0, now - d->last) * 1e-6;
		d->last = now;
	}
	return u->domains ? u->energy_j : NAN;
}

/* ---- network ---- */

struct links {
	const char *root;
	bool real; /* only interfaces with a device: others forward the same traffic */
	int n;
	double received, sent;
};

static void take_link(void *arg, const char *name)
{
	struct links *l = arg;
	char path[512];
	double received, sent;

	snprintf(path, sizeof(path), "%s/sys/class/net/%.200s/device", l->root, name);
	if (!strcmp(name, "lo") || (l->real && access(path, F_OK) < 0))
		return;
	received = number(l->root, "/sys/class/net/%s/statistics/rx_bytes", name);
	sent = number(l->root, "/sys/class/net/%s/statistics/tx_bytes", name);
	if (isnan(received) || isnan(sent))
		return;
	l->received += received;
	l->sent += sent;
	l->n++;
}

static struct links network(const char *root)
{
	struct links l = {.root = root, .real = true};

	dt_sys_each(root, "/sys/class/net", take_link, &l);
	if (!l.n) { /* a virtual machine or a container */
		l.real = false;
		dt_sys_each(root, "/sys/class/net", take_link, &l);
	}
	return l;
}

/* ---- all ---- */

int dt_usage_open(struct dt_usage **ret, const char *root, char *ret_memory, size_t n, struct dt_err *err)
{
	struct dt_usage *u = calloc(1, sizeof(*u));
	struct dt_err why = {0};

	if (!u)
		return dt_err_sys(err, -ENOMEM, "cannot measure what is used");
	u->root = root;
	dt_sys_each(root, "/sys/class/powercap", take_domain, u);
	snprintf(ret_memory, n, "%s", dt_pmu_open(root, &u->memory, &why) < 0 ? why.msg : "");
	*ret = u;
	return 0;
}

void dt_usage_read(struct dt_usage *u, struct dt_usage_now *ret)
{
	struct links l = network(u->root);
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	*ret = (struct dt_usage_now){.processor_s = (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
						    (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e-6,
				     .received = l.n ? l.received : NAN,
				     .sent = l.n ? l.sent : NAN,
				     .energy_j = energy(u),
				     .memory_bytes = u->memory ? dt_pmu_read(u->memory) : NAN};
}

void dt_usage_close(struct dt_usage *u)
{
	if (!u)
		return;
	dt_pmu_close(u->memory);
	free(u);
}
/* SPDX-License-Identifier: Apache-2.0 */
