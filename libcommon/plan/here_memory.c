#include "plan/here.h"
#include "plan/sysfile.h"

#include <stdlib.h>
#include <string.h>

/* The files of a cgroup version: folder, limit, usage, and keys of reclaimable page cache. */
struct version {
	const char *folder, *limit, *used, *cache[2];
};

static const struct version versions[] = {
	{"/sys/fs/cgroup/memory",
	 "memory.limit_in_bytes",
	 "memory.usage_in_bytes",
	 {"total_inactive_file", "total_active_file"}},
	{"/sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file", "active_file"}},
};

/* Reads a number from a group's file; UINT64_MAX: there is no file, or it has a word ("max"). */
static uint64_t number(const char *root, const char *group, const char *file)
{
	char path[768], text[32], *end;
	uint64_t n;

	snprintf(path, sizeof(path), "%s/%s", group, file);
	dt_sys_line(root, text, sizeof(text), "%s", path);
	n = strtoull(text, &end, 10);
	return end == text ? UINT64_MAX : n;
}

/* Bytes available in a group: its limit minus usage, not counting page cache. */
static uint64_t leaves(const char *root, const char *group, const struct version *v)
{
	uint64_t limit = number(root, group, v->limit), used = number(root, group, v->used), cache = 0;
	char path[768], text[32];

	if (limit == UINT64_MAX || used == UINT64_MAX)
		return UINT64_MAX;
	snprintf(path, sizeof(path), "%s/memory.stat", group);
	for (int i = 0; i < 2; i++)
		cache += strtoull(dt_sys_value(root, path, v->cache[i], text, sizeof(text)), NULL, 10);
	used -= cache < used ? cache : used;
	return limit > used ? limit - used : 0;
}

/* This process's path below the folder, "" if unknown. Lines are "id:controllers:path". */
static void path_of(const char *root, int version, char *buf, size_t n)
{
	char path[512], line[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	f = fopen(path, "re");
	buf[0] = '\0';
	while (f && fgets(line, sizeof(line), f)) {
		char *list = strchr(line, ':'), *at = list ? strchr(list + 1, ':') : NULL;

		if (!at)
			continue;
		*at++ = '\0';
		at[strcspn(at, "\n")] = '\0';
		if (version == 1 ? strstr(list, "memory") != NULL : !list[1])
			snprintf(buf, n, "%s", at);
	}
	if (f)
		fclose(f);
}

uint64_t dt_here_free(const char *root)
{
	char text[64], path[512], group[640];
	uint64_t room, swap;

	room = 1024 *
	       strtoull(dt_sys_value(root, "/proc/meminfo", "MemAvailable", text, sizeof(text)), NULL, 10);
	swap = 1024 * strtoull(dt_sys_value(root, "/proc/meminfo", "SwapFree", text, sizeof(text)), NULL, 10);
	for (int i = 0; i < 2 && room; i++) {
		path_of(root, i + 1, path, sizeof(path));
		/* Parent groups have limits too. A container sees some of them, under other names. */
		for (char *end = path + strlen(path); end; end = strrchr(path, '/')) {
			uint64_t one;

			*end = '\0';
			snprintf(group, sizeof(group), "%s%s", versions[i].folder, path);
			one = leaves(root, group, &versions[i]);
			room = one < room ? one : room;
		}
	}
	return room + swap;
}
/* SPDX-License-Identifier: Apache-2.0 */
