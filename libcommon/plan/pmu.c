#include "plan/pmu.h"

#include "plan/sysfile.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEVICES "/sys/bus/event_source/devices"

enum { COUNTERS = 256 };

struct dt_pmu_counters {
	int fd[COUNTERS], n;
	double bytes[COUNTERS]; /* bytes a count of each */
	const char *root;	/* only while counters are opened */
	int failed;		/* the first error, a negative errno */
};

static const char *line(const char *root, const char *pmu, const char *file, char *buf, size_t n)
{
	char path[300];

	snprintf(path, sizeof(path), "%.80s/%.160s", pmu, file);
	return dt_sys_line(root, buf, n, DEVICES "/%s", path);
}

/* Puts a field's value into its bits of config, given as "config:0-7,32-35". */
static int place(const char *root, const char *pmu, const char *field, uint64_t v, uint64_t *config)
{
	char file[80], text[80], *p = text + 7;

	snprintf(file, sizeof(file), "format/%.60s", field);
	if (strncmp(line(root, pmu, file, text, sizeof(text)), "config:", 7))
		return -ENOTSUP;
	while (*p) {
		long low = strtol(p, &p, 10), high = *p == '-' ? strtol(p + 1, &p, 10) : low;

		if (low < 0 || high < low || high > 63 || (*p && *p != ','))
			return -ENOTSUP;
		for (long bit = low; bit <= high; bit++, v >>= 1)
			*config |= (v & 1) << bit;
		p += *p == ',';
	}
	return v ? -ENOTSUP : 0;
}

/* Parses "event=0x04,umask=0x03". */
static int fields(const char *root, const char *pmu, char *text, uint64_t *config)
{
	char *save = NULL;

	*config = 0;
	for (char *f = strtok_r(text, ",", &save); f; f = strtok_r(NULL, ",", &save)) {
		char *is = strchr(f, '='), *end = NULL;
		uint64_t v = is ? strtoull(is + 1, &end, 0) : 1;
		int rc;

		if (is && (end == is + 1 || *end))
			return -ENOTSUP;
		if (is)
			*is = '\0';
		rc = place(root, pmu, f, v, config);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Parses the CPUs to count on, one a socket: "0,28" or "0-1". */
static int processors(const char *text, struct dt_pmu_event *e)
{
	char *p = (char *)text;

	while (*p && e->cpus < DT_PMU_CPUS) {
		char *end;
		long low = strtol(p, &end, 10), high;

		if (end == p || low < 0)
			return -ENOTSUP;
		high = *end == '-' ? strtol(end + 1, &end, 10) : low;
		for (long c = low; c <= high && e->cpus < DT_PMU_CPUS; c++)
			e->cpu[e->cpus++] = (int)c;
		p = *end == ',' ? end + 1 : end;
		if (p == end && *p)
			return -ENOTSUP;
	}
	return e->cpus ? 0 : -ENOTSUP;
}

int dt_pmu_event(const char *root, const char *pmu, const char *event, struct dt_pmu_event *ret)
{
	struct dt_pmu_event e = {.bytes = 1};
	char file[96], text[256], *end;
	int rc;

	snprintf(file, sizeof(file), "events/%.60s.scale", event);
	if (*line(root, pmu, file, text, sizeof(text)))
		e.bytes = strtod(text, NULL);
	snprintf(file, sizeof(file), "events/%.60s.unit", event);
	if (!strcmp(line(root, pmu, file, text, sizeof(text)), "MiB"))
		e.bytes *= 1 << 20;
	else if (*text && strcmp(text, "Bytes") != 0)
		return -ENOTSUP;
	e.type = (uint32_t)strtoul(line(root, pmu, "type", text, sizeof(text)), &end, 10);
	if (end == text || !(e.bytes > 0))
		return -ENOTSUP;
	rc = processors(line(root, pmu, "cpumask", text, sizeof(text)), &e);
	if (rc < 0)
		return rc;
	snprintf(file, sizeof(file), "events/%.60s", event);
	if (!*line(root, pmu, file, text, sizeof(text)))
		return -ENOENT;
	rc = fields(root, pmu, text, &e.config);
	if (rc == 0)
		*ret = e;
	return rc;
}

static void add(struct dt_pmu_counters *c, const struct dt_pmu_event *e)
{
	for (int i = 0; i < e->cpus && c->n < COUNTERS; i++) {
		struct perf_event_attr a = {.type = e->type, .size = sizeof(a), .config = e->config};
		long fd = syscall(SYS_perf_event_open, &a, -1, e->cpu[i], -1, PERF_FLAG_FD_CLOEXEC);

		if (fd < 0) {
			c->failed = c->failed ? c->failed : -errno;
			continue;
		}
		c->bytes[c->n] = e->bytes;
		c->fd[c->n++] = (int)fd;
	}
}

static void take(void *arg, const char *pmu)
{
	/* the first two on servers, the others on desktops */
	static const char *const events[] = {"cas_count_read", "cas_count_write", "data_reads",
					     "data_writes"};
	struct dt_pmu_counters *c = arg;
	struct dt_pmu_event e;

	for (size_t i = 0; i < sizeof(events) / sizeof(*events) && !strncmp(pmu, "uncore_imc", 10); i++)
		if (dt_pmu_event(c->root, pmu, events[i], &e) == 0)
			add(c, &e);
}

int dt_pmu_open(const char *root, struct dt_pmu_counters **ret, struct dt_err *err)
{
	struct dt_pmu_counters *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return dt_err_sys(err, -ENOMEM, "cannot read the counters of memory");
	c->root = root;
	dt_sys_each(root, DEVICES, take, c);
	c->root = NULL;
	rc = c->failed;
	if (rc == 0 && c->n) {
		*ret = c;
		return 0;
	}
	dt_pmu_close(c);
	return rc ? dt_err_sys(err, rc, "the counters of memory controllers cannot be read")
		  : dt_err_set(err, -ENOENT, "no counters of memory controllers here");
}

double dt_pmu_read(const struct dt_pmu_counters *c)
{
	double bytes = 0;

	for (int i = 0; i < c->n; i++) {
		uint64_t v;

		if (read(c->fd[i], &v, sizeof(v)) == (ssize_t)sizeof(v))
			bytes += (double)v * c->bytes[i];
	}
	return bytes;
}

void dt_pmu_close(struct dt_pmu_counters *c)
{
	for (int i = 0; c && i < c->n; i++)
		close(c->fd[i]);
	free(c);
}
/* SPDX-License-Identifier: Apache-2.0 */
