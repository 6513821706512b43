/* plan/usage.h, pmu.h and nvml.h: counters in a copy of /sys, and a management library of ours. */
#include "plan/nvml.h"
#include "plan/pmu.h"
#include "plan/usage.h"

#include "base/tmpfile.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char root[32];

static void put(const char *path, const char *text)
{
	char full[512], *slash;
	struct dt_err err;
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", root, path);
	slash = strrchr(full, '/');
	*slash = '\0';
	assert_int_equal(dt_mkdir_p(full, &err), 0);
	*slash = '/';
	f = fopen(full, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static int make(void **state)
{
	strcpy(root, "/tmp/dt-usage-XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int clear(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", root);
	return system(command);
}

#define CAP "/sys/class/powercap/intel-rapl:"

static void energy(const char *zone, const char *uj)
{
	char path[128];

	snprintf(path, sizeof(path), CAP "%s/energy_uj", zone);
	put(path, uj);
}

static void zone(const char *id, const char *name, const char *uj)
{
	char path[128];

	snprintf(path, sizeof(path), CAP "%s/name", id);
	put(path, name);
	snprintf(path, sizeof(path), CAP "%s/max_energy_range_uj", id);
	put(path, "1000000000\n");
	energy(id, uj);
}

/* Two packages, the memory beside one, what is in a package or holds both: 5 J, 2 J over the wrap, 0.5 J. */
static void energy_adds_up(void **state)
{
	struct dt_usage *u;
	struct dt_usage_now now;
	struct dt_err err;
	char why[160];

	zone("0", "package-0\n", "7000000\n");
	zone("1", "package-1\n", "999000000\n");
	zone("0:0", "core\n", "1000000\n");
	zone("0:1", "dram\n", "0\n");
	zone("2", "psys\n", "0\n");
	assert_int_equal(dt_usage_open(&u, root, why, sizeof(why), &err), 0);
	dt_usage_read(u, &now);
	assert_float_equal(now.energy_j, 0, 0);
	energy("0", "12000000\n");
	energy("1", "1000000\n");
	energy("0:0", "9000000\n");
	energy("0:1", "500000\n");
	energy("2", "90000000\n");
	dt_usage_read(u, &now);
	assert_float_equal(now.energy_j, 7.5, 1e-9);
	dt_usage_read(u, &now);
	assert_float_equal(now.energy_j, 7.5, 1e-9);
	dt_usage_close(u);
}

#define NET "/sys/class/net/"

/* lo and, beside real interfaces, those that hand on their bytes are left out. */
static void network_counts_once(void **state)
{
	struct dt_usage *u;
	struct dt_usage_now now;
	struct dt_err err;
	char why[160];

	put(NET "lo/statistics/rx_bytes", "1000\n");
	put(NET "lo/statistics/tx_bytes", "1000\n");
	put(NET "br0/statistics/rx_bytes", "40\n");
	put(NET "br0/statistics/tx_bytes", "50\n");
	assert_int_equal(dt_usage_open(&u, root, why, sizeof(why), &err), 0);
	assert_string_equal(why, "no counters of memory controllers here");
	dt_usage_read(u, &now);
	assert_float_equal(now.received, 40, 0);
	put(NET "ib0/statistics/rx_bytes", "300\n");
	put(NET "ib0/statistics/tx_bytes", "18446744073709551615\n");
	put(NET "ib0/device/vendor", "x\n");
	put(NET "ib1/statistics/rx_bytes", "7\n");
	put(NET "ib1/statistics/tx_bytes", "5\n");
	put(NET "ib1/device/vendor", "x\n");
	dt_usage_read(u, &now);
	assert_float_equal(now.received, 307, 0);
	assert_true(now.sent >= 18446744073709551615.0);
	assert_true(now.processor_s > 0);
	assert_true(isnan(now.energy_j) && isnan(now.memory_bytes));
	dt_usage_close(u);
}

#define PMU "/sys/bus/event_source/devices/uncore_imc_3/"

static void events_are_placed_by_their_description(void **state)
{
	struct dt_pmu_event e;

	assert_int_equal(dt_pmu_event(root, "uncore_imc_3", "cas_count_read", &e), -ENOTSUP);
	put(PMU "type", "14\n");
	put(PMU "cpumask", "0,28-29\n");
	assert_int_equal(dt_pmu_event(root, "uncore_imc_3", "cas_count_read", &e), -ENOENT);
	put(PMU "format/event", "config:0-7\n");
	put(PMU "format/umask", "config:8-11,32-35\n");
	put(PMU "format/edge", "config:18\n");
	put(PMU "events/cas_count_read", "event=0x04,umask=0x53,edge\n");
	put(PMU "events/cas_count_read.scale", "6.103515625e-5\n");
	put(PMU "events/cas_count_read.unit", "MiB\n");
	assert_int_equal(dt_pmu_event(root, "uncore_imc_3", "cas_count_read", &e), 0);
	assert_int_equal(e.type, 14);
	assert_true(e.config == 0x500040304); /* 3 at bit 8, 5 at bit 32 */
	assert_float_equal(e.bytes, 64, 1e-9);
	assert_int_equal(e.cpus, 3);
	assert_int_equal(e.cpu[1], 28);
	assert_int_equal(e.cpu[2], 29);
	put(PMU "events/cas_count_read", "event=0x104\n"); /* no room */
	assert_int_equal(dt_pmu_event(root, "uncore_imc_3", "cas_count_read", &e), -ENOTSUP);
	put(PMU "events/cas_count_read", "event=0x04,other=1\n");
	assert_int_equal(dt_pmu_event(root, "uncore_imc_3", "cas_count_read", &e), -ENOTSUP);
	put(PMU "events/cas_count_read", "event=zz\n");
	assert_int_equal(dt_pmu_event(root, "uncore_imc_3", "cas_count_read", &e), -ENOTSUP);
	put(PMU "format/umask", "config1:0-7\n");
	put(PMU "events/cas_count_read", "umask=1\n");
	assert_int_equal(dt_pmu_event(root, "uncore_imc_3", "cas_count_read", &e), -ENOTSUP);
}

/* A type that no kernel has: refused, not counted as nothing. */
static void counters_that_do_not_open(void **state)
{
	struct dt_pmu_counters *c = NULL;
	struct dt_err err;

	assert_int_equal(dt_pmu_open(root, &c, &err), -ENOENT);
	put(PMU "type", "4294967295\n");
	put(PMU "cpumask", "0\n");
	put(PMU "format/event", "config:0-7\n");
	put(PMU "events/cas_count_read", "event=0x04\n");
	assert_true(dt_pmu_open(root, &c, &err) < 0);
	assert_null(c);
	assert_non_null(strstr(err.msg, "memory controllers"));
}

/* What the libraries of tests/unit/fake-nvml.c say. */
static void a_card(void **state)
{
	struct dt_nvml *n = NULL;
	struct dt_nvml_now now;
	struct dt_err err;

	if (!getenv("FAKE_NVML"))
		skip();
	assert_int_equal(dt_nvml_open(5, &n, &err), -ENODEV);
	assert_null(n);
	assert_int_equal(dt_nvml_open(1, &n, &err), 0);
	dt_nvml_read(n, &now);
	assert_float_equal(now.busy, 0.83, 1e-12);
	assert_float_equal(now.memory_busy, 0.41, 1e-12);
	assert_float_equal(now.memory_bytes, 5e9, 0);
	assert_float_equal(now.power_w, 612.5, 1e-9);
	assert_float_equal(now.received, 2048, 0);
	assert_true(isnan(now.sent)); /* this card does not say */
	dt_nvml_close(n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(energy_adds_up, make, clear),
		cmocka_unit_test_setup_teardown(network_counts_once, make, clear),
		cmocka_unit_test_setup_teardown(events_are_placed_by_their_description, make, clear),
		cmocka_unit_test_setup_teardown(counters_that_do_not_open, make, clear),
		cmocka_unit_test(a_card),
	};

	return cmocka_run_group_tests_name("usage", tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
