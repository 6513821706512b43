/* A source with some parameters replaced. The new values are in an unlinked file, not in memory. */
#include "ckpt/export.h"

#include "base/io.h"
#include "ckpt/source_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int dt_source_replaced(struct dt_source *base, const char *near, struct dt_source **ret, struct dt_err *err)
{
	const char *slash = strrchr(near, '/');
	struct dt_source *s = calloc(1, sizeof(*s));
	char name[PATH_MAX];
	int rc;

	if (s) {
		s->kind = DT_SOURCE_DT;
		s->config = base->config;
		s->path = strdup(base->path);
		s->mean = malloc(sizeof(*s->mean));
	}
	rc = s && s->path && s->mean ? dt_model_params(&s->config, &s->params, err) : -ENOMEM;
	if (rc == 0 && !(s->over = calloc((size_t)s->params.n + 1, sizeof(*s->over))))
		rc = -ENOMEM;
	if (rc < 0) {
		dt_source_close(base);
		dt_source_close(s);
		return rc == -ENOMEM ? dt_err_sys(err, rc, "cannot change the weights") : rc;
	}
	snprintf(name, sizeof(name), "%.*s.dt-XXXXXX", slash ? (int)(slash + 1 - near) : 0, near);
	s->over_fd = mkostemp(name, O_CLOEXEC);
	if (s->over_fd < 0) {
		rc = dt_err_sys(err, -errno, "cannot write beside '%s'", near);
		dt_source_close(base);
		dt_source_close(s);
		return rc;
	}
	unlink(name);
	src_made_of(s, &base, 1);
	memcpy(s->note, base->note, sizeof(s->note));
	*ret = s;
	return 0;
}

/* Appends n bytes to the file and maps them; *ret: their address. */
static int keep(struct dt_source *s, const char *data, size_t n, const uint8_t **ret)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *grown = realloc(s->map, ((size_t)s->nmap + 1) * sizeof(*s->map)), *p;
	const off_t at = (off_t)((s->over_bytes + page - 1) / page * page);
	int rc;

	if (!grown)
		return -ENOMEM;
	s->map = grown;
	rc = dt_write_all(s->over_fd, data, n, at);
	if (rc < 0)
		return rc;
	p = mmap(NULL, n, PROT_READ, MAP_SHARED, s->over_fd, at);
	if (p == MAP_FAILED)
		return -errno;
	s->over_bytes = (uint64_t)at + n;
	s->map[s->nmap].p = p;
	s->map[s->nmap++].n = n;
	*ret = p;
	return 0;
}

int dt_source_replace(struct dt_source *s, int i, enum dt_format f, const void *data, struct dt_err *err)
{
	const struct dt_param *p = &s->params.p[i];
	const uint8_t *kept = NULL;
	int rc = keep(s, data, dt_format_bytes(f, dt_param_numel(p)), &kept);

	if (rc < 0)
		return dt_err_sys(err, rc, "cannot keep the new '%s'", p->name);
	s->over[i] = (struct src_view){.data = kept, .format = f, .stride = p->ndim == 2 ? p->shape[1] : 1};
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
