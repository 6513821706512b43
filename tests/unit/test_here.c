/* plan/here.h: what is read from a copy of /proc and /sys. */
#include "plan/here.h"

#include "base/tmpfile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void put(const char *root, const char *path, const char *text)
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

/* Two sockets of two cores, each with two threads, one thread off; two interfaces, one down; three disks. */
static void a_machine(void **state)
{
	char root[] = "/tmp/dt-here-XXXXXX", path[128];
	struct dt_here h;
	struct dt_err err;
	char text[16];

	assert_non_null(mkdtemp(root));
	for (int i = 0; i < 8; i++) {
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", i);
		snprintf(text, sizeof(text), "%d\n", i / 4);
		put(root, path, text);
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/core_id", i);
		snprintf(text, sizeof(text), "%d\n", i % 2);
		put(root, path, text);
	}
	put(root, "/sys/devices/system/cpu/cpu7/online", "0\n");
	put(root, "/sys/devices/system/cpu/cpufreq/x", "");
	put(root, "/sys/devices/system/node/node0/x", "");
	put(root, "/sys/devices/system/node/node1/x", "");
	put(root, "/proc/cpuinfo",
	    "processor : 0\nmodel name\t: A Chip 9000\nprocessor : 1\nmodel name : other\n");
	put(root, "/proc/meminfo", "MemTotal:       1048576 kB\nMemFree: 7 kB\nMemAvailable:    524288 kB\n");
	put(root, "/sys/class/net/lo/operstate", "unknown\n");
	put(root, "/sys/class/net/eth0/operstate", "down\n");
	put(root, "/sys/class/net/ib0/operstate", "up\n");
	put(root, "/sys/class/net/ib0/speed", "200000\n");
	put(root, "/sys/class/net/ib0/type", "32\n");
	put(root, "/sys/block/nvme0n1/size", "4096\n");
	put(root, "/sys/block/nvme0n1/queue/rotational", "0\n");
	put(root, "/sys/block/sda/size", "2048\n");
	put(root, "/sys/block/sda/queue/rotational", "1\n");
	put(root, "/sys/block/loop3/size", "99\n");
	put(root, "/proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t A Card\nIRQ: 5\n");
	dt_here_look(root, &h);
	assert_int_equal(h.threads, 7);
	assert_int_equal(h.cores, 4);
	assert_int_equal(h.sockets, 2);
	assert_int_equal(h.nodes, 2);
	assert_string_equal(h.cpu, "A Chip 9000");
	assert_int_equal(h.memory, 1 << 30);
	assert_int_equal(h.available, 1 << 29);
	assert_int_equal(h.nlink, 1);
	assert_string_equal(h.link[0].name, "ib0");
	assert_true(h.link[0].gbs == 25 && h.link[0].infiniband);
	assert_int_equal(h.ndisk, 2);
	assert_string_equal(h.disk[0].name, "nvme0n1");
	assert_int_equal(h.disk[0].bytes, 4096 * 512);
	assert_true(!h.disk[0].spins && h.disk[1].spins);
	assert_int_equal(h.ncard, 1);
	assert_string_equal(h.card[0].name, "A Card");
	assert_int_equal(dt_remove_tree(root, &err), 0);
}

static void nothing_there(void **state)
{
	struct dt_here h;

	dt_here_look("/nowhere", &h);
	assert_true(h.threads >= 1 && h.cores >= 1 && h.sockets == 1 && h.nodes == 1);
	assert_true(h.ncard == 0 && h.nlink == 0 && h.ndisk == 0 && h.memory == 0);
}

/* What memory is left: the machine's, less where a control group above has a limit, swap beside both. */
static void memory_left(void **state)
{
	char root[] = "/tmp/dt-here-XXXXXX";
	const uint64_t mib = 1 << 20;
	struct dt_err err;

	assert_int_equal(dt_here_free("/nowhere"), 0);
	assert_non_null(mkdtemp(root));
	put(root, "/proc/meminfo",
	    "MemTotal: 9 kB\nMemAvailable:    524288 kB\nSwapTotal: 99 kB\nSwapFree: 1024 kB\n");
	assert_int_equal(dt_here_free(root), 513 * mib);
	put(root, "/proc/self/cgroup", "1:name=systemd:/\n0::/a.slice/b.scope\n");
	put(root, "/sys/fs/cgroup/a.slice/b.scope/memory.max", "max\n");
	put(root, "/sys/fs/cgroup/a.slice/b.scope/memory.current", "5\n");
	assert_int_equal(dt_here_free(root), 513 * mib);
	put(root, "/sys/fs/cgroup/a.slice/memory.max", "104857600\n");
	put(root, "/sys/fs/cgroup/a.slice/memory.current", "83886080\n");
	put(root, "/sys/fs/cgroup/a.slice/memory.stat",
	    "anon 7\nfile 90\nactive_file 1048576\ninactive_file 2097152\n");
	assert_int_equal(dt_here_free(root), (100 - 80 + 3 + 1) * mib);
	put(root, "/proc/self/cgroup", "4:memory,x:/docker/id\n0::/\n");
	assert_int_equal(dt_here_free(root), 513 * mib);
	/* of version 1, whose path a container does not see */
	put(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "104857600\n");
	put(root, "/sys/fs/cgroup/memory/memory.usage_in_bytes", "115343360\n");
	put(root, "/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 15728640\n");
	assert_int_equal(dt_here_free(root), (100 - 110 + 15 + 1) * mib);
	put(root, "/sys/fs/cgroup/memory/memory.usage_in_bytes", "215343360\n");
	assert_int_equal(dt_here_free(root), mib);
	assert_int_equal(dt_remove_tree(root, &err), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_machine), cmocka_unit_test(nothing_there),
					   cmocka_unit_test(memory_left)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
