/* Shared by store.c and store_upload.c. */
#ifndef DT_SERVE_STORE_PRIV_H
#define DT_SERVE_STORE_PRIV_H

#include "serve/api/store.h"

#include <pthread.h>

struct dt_store {
	char *dir;
	int lock;
	uint64_t max_bytes;
	pthread_mutex_t mu; /* guards the members below */
	uint64_t bytes;	    /* of all files, including uploads in progress */
	json_t *records;    /* by id */
};

#endif
/* SPDX-License-Identifier: Apache-2.0 */
