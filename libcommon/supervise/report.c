/* Reports: events to a file, progress to systemd. */
#include "supervise/state.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* sd_notify(3): one datagram. */
void sup_notify(const char *state)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	const char *path = getenv("NOTIFY_SOCKET");
	size_t n = path ? strlen(path) : 0;
	int fd;

	if (!n || n >= sizeof(to.sun_path))
		return;
	memcpy(to.sun_path, path, n);
	if (path[0] == '@')
		to.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	(void)!sendto(fd, state, strlen(state), MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&to,
		      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
	close(fd);
}

void sup_event(struct sup *s, const char *name, const char *fmt, ...)
{
	struct timespec t;
	json_t *line, *more;
	va_list ap;

	sup_page_event(s, name);
	if (!s->events)
		return;
	clock_gettime(CLOCK_REALTIME, &t);
	line = json_pack("{s:f, s:s, s:I}", "time", (double)t.tv_sec + (double)t.tv_nsec * 1e-9, "event",
			 name, "step", (json_int_t)(s->best < 0 ? 0 : s->best));
	va_start(ap, fmt);
	more = json_vpack_ex(NULL, 0, fmt, ap);
	va_end(ap);
	if (line && more)
		json_object_update(line, more);
	if (line && dt_json_write_line(s->events, line, NULL) < 0) {
		dt_log_msg(s->log, "cannot write to --events: no more events are written");
		s->events = NULL;
	}
	json_decref(more);
	json_decref(line);
}
/* SPDX-License-Identifier: Apache-2.0 */
