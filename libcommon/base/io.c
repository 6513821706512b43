#include "base/io.h"

#include <errno.h>
#include <unistd.h>

int dt_write_all(int fd, const void *data, size_t n, int64_t at)
{
	for (size_t done = 0; done < n;) {
		const char *from = (const char *)data + done;
		ssize_t k = at < 0 ? write(fd, from, n - done)
				   : pwrite(fd, from, n - done, (off_t)at + (off_t)done);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return k < 0 ? -errno : -EIO;
		done += (size_t)k;
	}
	return 0;
}

ssize_t dt_read_all(int fd, void *to, size_t n, int64_t at)
{
	size_t done = 0;

	while (done < n) {
		char *into = (char *)to + done;
		ssize_t k = at < 0 ? read(fd, into, n - done)
				   : pread(fd, into, n - done, (off_t)at + (off_t)done);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (k == 0)
			break;
		done += (size_t)k;
	}
	return (ssize_t)done;
}
/* SPDX-License-Identifier: Apache-2.0 */
