/* The root folder of a run's checkpoints. */
#include "ckpt/internal.h"

#include "base/step_name.h"
#include "base/tmpfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

int dt_ckpt_new_run_id(char ret[DT_CKPT_RUN_ID], struct dt_err *err)
{
	uint64_t id = 0;

	if (getrandom(&id, sizeof(id), 0) != sizeof(id))
		return dt_err_sys(err, -errno, "cannot name the run");
	snprintf(ret, DT_CKPT_RUN_ID, "%016" PRIx64, id);
	return 0;
}

int dt_ckpt_lock(const char *root, bool wait, int *ret_fd, struct dt_err *err)
{
	char path[CK_PATH];
	int fd, rc = dt_mkdir_p(root, err);

	if (rc < 0)
		return rc;
	ck_join(path, root, ".lock");
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0)
		return dt_err_sys(err, -errno, "cannot open '%s'", path);
	/* A file system without locks does not prevent saving. */
	if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK && !wait) {
		close(fd);
		dt_err_set(err, -EBUSY, "another job is saving into '%s'", root);
		dt_err_hint(err, "end it first, or use another --save folder");
		return -EBUSY;
	}
	*ret_fd = fd;
	return 0;
}

int dt_ckpt_empty(const char *root, struct dt_err *err)
{
	DIR *d = opendir(root);
	struct dirent *e;
	char path[CK_PATH];
	int rc = 0;

	while (d && rc == 0 && (e = readdir(d))) {
		ck_join(path, root, e->d_name);
		if (dt_step_of(e->d_name) >= 0)
			rc = dt_remove_tree(path, err);
		else if (!strcmp(e->d_name, "latest") && unlink(path) < 0)
			rc = dt_err_sys(err, -errno, "cannot remove '%s'", path);
	}
	if (d)
		closedir(d);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
