#include "plan/here.h"

#include "base/units.h"
#include "plan/card.h"
#include "plan/sysfile.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct look {
	const char *root;
	struct dt_here *h;
	char packages[256][12];	 /* those seen so far */
	char core_ids[4096][24]; /* "package.core", those seen so far */
};

static bool is_new(char *seen, size_t width, int n, const char *word)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(seen + (size_t)i * width, word))
			return false;
	snprintf(seen + (size_t)n * width, width, "%s", word);
	return true;
}

static void take_cpu(void *arg, const char *name)
{
	struct look *l = arg;
	char package[12], core[12], id[24], online[8];

	if (strncmp(name, "cpu", 3) || !isdigit((unsigned char)name[3]))
		return;
	dt_sys_line(l->root, online, sizeof(online), "/sys/devices/system/cpu/%s/online", name);
	if (!strcmp(online, "0"))
		return;
	dt_sys_line(l->root, package, sizeof(package),
		    "/sys/devices/system/cpu/%s/topology/physical_package_id", name);
	dt_sys_line(l->root, core, sizeof(core), "/sys/devices/system/cpu/%s/topology/core_id", name);
	snprintf(id, sizeof(id), "%s.%s", package, core);
	l->h->threads++;
	if (l->h->sockets < 256 && is_new(l->packages[0], sizeof(l->packages[0]), l->h->sockets, package))
		l->h->sockets++;
	if (l->h->cores < 4096 && is_new(l->core_ids[0], sizeof(l->core_ids[0]), l->h->cores, id))
		l->h->cores++;
}

static void take_node(void *arg, const char *name)
{
	struct look *l = arg;

	l->h->nodes += !strncmp(name, "node", 4) && isdigit((unsigned char)name[4]);
}

static void take_link(void *arg, const char *name)
{
	struct look *l = arg;
	struct dt_here_link *link = &l->h->link[l->h->nlink];
	char text[32];

	if (!strcmp(name, "lo") || l->h->nlink == DT_HERE_MAX ||
	    strcmp(dt_sys_line(l->root, text, sizeof(text), "/sys/class/net/%s/operstate", name), "up"))
		return;
	snprintf(link->name, sizeof(link->name), "%s", name);
	dt_sys_line(l->root, text, sizeof(text), "/sys/class/net/%s/speed", name); /* Mbit/s, -1: unknown */
	link->gbs = atof(text) > 0 ? atof(text) / 8e3 : 0;
	dt_sys_line(l->root, text, sizeof(text), "/sys/class/net/%s/type", name);
	link->infiniband = !strcmp(text, "32");
	l->h->nlink++;
}

static void take_disk(void *arg, const char *name)
{
	static const char *const virtual[] = {"loop", "ram", "dm-", "zram", "sr", "md"};
	struct look *l = arg;
	struct dt_here_disk *disk = &l->h->disk[l->h->ndisk];
	char text[32];

	for (size_t i = 0; i < sizeof(virtual) / sizeof(*virtual); i++)
		if (!strncmp(name, virtual[i], strlen(virtual[i])))
			return;
	disk->bytes = 512 * strtoull(dt_sys_line(l->root, text, sizeof(text), "/sys/block/%s/size", name),
				     NULL, 10);
	if (!disk->bytes || l->h->ndisk == DT_HERE_MAX)
		return;
	snprintf(disk->name, sizeof(disk->name), "%s", name);
	disk->spins = !strcmp(
		dt_sys_line(l->root, text, sizeof(text), "/sys/block/%s/queue/rotational", name), "1");
	l->h->ndisk++;
}

static void take_card(void *arg, const char *name)
{
	struct look *l = arg;
	struct dt_here_card *card = &l->h->card[l->h->ncard];
	char file[512], device[16];

	if (l->h->ncard == DT_HERE_MAX)
		return;
	snprintf(file, sizeof(file), "/proc/driver/nvidia/gpus/%.400s/information", name);
	dt_sys_value(l->root, file, "Model", card->name, sizeof(card->name));
	snprintf(device, sizeof(device), "cuda:%d", l->h->ncard);
	if (!*l->root)
		dt_card_free(device, &card->room, &(struct dt_err){0});
	l->h->ncard++;
}

void dt_here_look(const char *root, struct dt_here *ret)
{
	struct look *l = calloc(1, sizeof(*l));
	struct statvfs fs;
	char text[64];

	*ret = (struct dt_here){0};
	if (!l)
		return;
	l->root = root;
	l->h = ret;
	dt_sys_each(root, "/sys/devices/system/cpu", take_cpu, l);
	dt_sys_each(root, "/sys/devices/system/node", take_node, l);
	dt_sys_each(root, "/proc/driver/nvidia/gpus", take_card, l);
	dt_sys_each(root, "/sys/class/net", take_link, l);
	dt_sys_each(root, "/sys/block", take_disk, l);
	dt_sys_value(root, "/proc/cpuinfo", "model name", ret->cpu, sizeof(ret->cpu));
	ret->memory = 1024 *
		      strtoull(dt_sys_value(root, "/proc/meminfo", "MemTotal", text, sizeof(text)), NULL, 10);
	ret->available =
		1024 *
		strtoull(dt_sys_value(root, "/proc/meminfo", "MemAvailable", text, sizeof(text)), NULL, 10);
	if (!ret->threads) /* a container without /sys */
		ret->threads = ret->cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
	ret->nodes += !ret->nodes;
	ret->sockets += !ret->sockets;
	if (statvfs(".", &fs) == 0)
		ret->disk_room = (uint64_t)fs.f_bavail * fs.f_frsize;
	free(l);
}

void dt_here_print(const struct dt_here *h, FILE *f)
{
	char a[32], b[32];

	fprintf(f, "processor  %s: %d core%s, %d thread%s, %d socket%s, %d NUMA node%s\n",
		h->cpu[0] ? h->cpu : "unknown", h->cores, h->cores == 1 ? "" : "s", h->threads,
		h->threads == 1 ? "" : "s", h->sockets, h->sockets == 1 ? "" : "s", h->nodes,
		h->nodes == 1 ? "" : "s");
	fprintf(f, "memory     %s, %s available\n", dt_format_size(h->memory, a, sizeof(a)),
		dt_format_size(h->available, b, sizeof(b)));
	for (int i = 0; i < h->ncard; i++)
		fprintf(f, "GPU %d      %s, %s free\n", i, h->card[i].name,
			dt_format_size(h->card[i].room, a, sizeof(a)));
	if (!h->ncard)
		fputs("GPUs       none\n", f);
	for (int i = 0; i < h->nlink; i++) {
		fprintf(f, "network    %s%s", h->link[i].name, h->link[i].infiniband ? " (InfiniBand)" : "");
		if (h->link[i].gbs > 0)
			fprintf(f, ", %g Gb/s\n", 8 * h->link[i].gbs);
		else
			fputs(", speed unknown\n", f);
	}
	for (int i = 0; i < h->ndisk; i++)
		fprintf(f, "disk       %s, %s\n", h->disk[i].name,
			dt_format_size(h->disk[i].bytes, a, sizeof(a)));
	fprintf(f, "disk here  %s\n", dt_format_size(h->disk_room, a, sizeof(a)));
}

json_t *dt_here_json(const struct dt_here *h)
{
	json_t *cards = json_array(), *links = json_array(), *disks = json_array();

	for (int i = 0; i < h->ncard; i++)
		json_array_append_new(cards, json_pack("{s:s, s:I}", "name", h->card[i].name, "free_bytes",
						       (json_int_t)h->card[i].room));
	for (int i = 0; i < h->nlink; i++)
		json_array_append_new(links,
				      json_pack("{s:s, s:o, s:b}", "name", h->link[i].name, "gbs",
						h->link[i].gbs > 0 ? json_real(h->link[i].gbs) : json_null(),
						"infiniband", h->link[i].infiniband));
	for (int i = 0; i < h->ndisk; i++)
		json_array_append_new(disks,
				      json_pack("{s:s, s:I, s:b}", "name", h->disk[i].name, "bytes",
						(json_int_t)h->disk[i].bytes, "spins", h->disk[i].spins));
	return json_pack("{s:s, s:i, s:i, s:i, s:i, s:I, s:I, s:o, s:o, s:o, s:I}", "cpu", h->cpu, "cores",
			 h->cores, "threads", h->threads, "sockets", h->sockets, "numa_nodes", h->nodes,
			 "memory_bytes", (json_int_t)h->memory, "available_bytes", (json_int_t)h->available,
			 "cards", cards, "network", links, "disks", disks, "room_bytes",
			 (json_int_t)h->disk_room);
}
/* SPDX-License-Identifier: Apache-2.0 */
