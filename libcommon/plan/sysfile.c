#include "plan/sysfile.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *dt_sys_line(const char *root, char *buf, size_t n, const char *fmt, const char *name)
{
	char path[512];
	size_t k = (size_t)snprintf(path, sizeof(path), "%s", root);
	FILE *f;

	buf[0] = '\0';
	snprintf(path + k, sizeof(path) - k, fmt, name);
	f = fopen(path, "re");
	if (!f)
		return buf;
	if (!fgets(buf, (int)n, f))
		buf[0] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	fclose(f);
	return buf;
}

const char *dt_sys_value(const char *root, const char *file, const char *key, char *buf, size_t n)
{
	const size_t k = strlen(key);
	char path[512], line[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s%s", root, file);
	f = fopen(path, "re");
	buf[0] = '\0';
	while (f && !buf[0] && fgets(line, sizeof(line), f)) {
		char *value = line + k;

		if (strncmp(line, key, k) || !strchr(" \t:", *value))
			continue;
		value += strspn(value, " \t:");
		value[strcspn(value, "\n")] = '\0';
		snprintf(buf, n, "%s", value);
	}
	if (f)
		fclose(f);
	return buf;
}

void dt_sys_each(const char *root, const char *folder, void (*take)(void *, const char *), void *arg)
{
	struct dirent **list = NULL;
	char path[512];
	int n;

	snprintf(path, sizeof(path), "%s%s", root, folder);
	n = scandir(path, &list, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		if (list[i]->d_name[0] != '.')
			take(arg, list[i]->d_name);
		free(list[i]);
	}
	free(list);
}

/* SPDX-License-Identifier: Apache-2.0 */
