#include "supervise/priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parses NAME, NAME:SLOTS or "NAME slots=SLOTS". */
static int parse_line(const char *line, struct sup_host *ret, struct dt_err *err)
{
	size_t n = strcspn(line, " \t:");
	const char *rest = line + n;
	char *end;
	long slots = 1;

	*ret = (struct sup_host){.slots = 1};
	if (n >= sizeof(ret->name))
		return dt_err_set(err, -EINVAL, "a host name is too long");
	memcpy(ret->name, line, n);
	rest += strspn(rest, " \t");
	if (*rest == ':' || !strncmp(rest, "slots=", 6)) {
		rest += *rest == ':' ? 1 : 6;
		slots = strtol(rest, &end, 10);
		if (end == rest || end[strspn(end, " \t\r")])
			slots = -1;
	} else if (*rest && *rest != '\r') {
		slots = -1;
	}
	if (!n || slots < 0 || slots > 1 << 20 || strpbrk(ret->name, ",;'\"`$"))
		return dt_err_set(err, -EINVAL, "'%s' is not NAME[:SLOTS]", line);
	ret->slots = (int)slots;
	return 0;
}

static int take_line(struct sup_hosts *fresh, const struct sup_hosts *old, char *line, struct dt_err *err)
{
	struct sup_host h, *grown;
	int rc;

	line[strcspn(line, "#")] = '\0';
	line += strspn(line, " \t\r");
	if (!*line)
		return 0;
	rc = parse_line(line, &h, err);
	if (rc < 0 || !h.slots)
		return rc;
	for (int i = 0; i < old->n; i++)
		if (!strcmp(old->v[i].name, h.name)) {
			h.out_until = old->v[i].out_until;
			h.cool_s = old->v[i].cool_s;
		}
	grown = realloc(fresh->v, ((size_t)fresh->n + 1) * sizeof(*grown));
	if (!grown)
		return dt_err_sys(err, -ENOMEM, "list of hosts");
	fresh->v = grown;
	fresh->v[fresh->n++] = h;
	return 0;
}

int sup_hosts_parse(struct sup_hosts *h, const char *text, struct dt_err *err)
{
	struct sup_hosts fresh = {0};
	char *copy = strdup(text), *save = NULL;
	int rc = copy ? 0 : dt_err_sys(err, -ENOMEM, "list of hosts");

	for (char *line = copy ? strtok_r(copy, "\n", &save) : NULL; line && rc == 0;
	     line = strtok_r(NULL, "\n", &save))
		rc = take_line(&fresh, h, line, err);
	free(copy);
	if (rc < 0) {
		free(fresh.v);
		return rc;
	}
	free(h->v);
	*h = fresh;
	return 0;
}

int sup_hosts_slots(const struct sup_hosts *h, double now)
{
	int n = 0;

	for (int i = 0; i < h->n; i++)
		if (h->v[i].out_until <= now)
			n += h->v[i].slots;
	return n;
}

/* The slots of host i to be used, when `left` more are needed. */
static int used(const struct sup_hosts *h, double now, int i, int left)
{
	const int slots = h->v[i].out_until > now ? 0 : h->v[i].slots;

	return slots < left ? slots : left;
}

int sup_hosts_per(const struct sup_hosts *h, double now, int n)
{
	int per = 0;

	for (int i = 0; i < h->n && n > 0; i++) {
		const int here = used(h, now, i, n);

		per = here > per ? here : per;
		n -= here;
	}
	return per;
}

char *sup_hosts_list(const struct sup_hosts *h, double now, int n)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);
	bool first = true;

	if (!f)
		return NULL;
	for (int i = 0; i < h->n && n > 0; i++) {
		const int here = used(h, now, i, n);

		if (here > 0)
			fprintf(f, "%s%s:%d", first ? "" : ",", h->v[i].name, here);
		first &= here == 0;
		n -= here;
	}
	if (ferror(f) | (fclose(f) == EOF)) {
		free(text);
		return NULL;
	}
	return text;
}
/* SPDX-License-Identifier: Apache-2.0 */
