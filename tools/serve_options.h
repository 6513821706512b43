/* The options of dt-serve, and the settings derived from them. */
#ifndef DT_TOOLS_SERVE_OPTIONS_H
#define DT_TOOLS_SERVE_OPTIONS_H

#include "base/opt.h"
#include "serve/api/classify.h"
#include "serve/api/served.h"

struct serve_options {
	struct dt_served_params serve;
	bool batch, unordered, print_program, given_tokens, given_timeout;
	const char *skip_done, *name, *key_file, *host, *replay, *allow_origin, *defaults_text, *tls_cert,
		*tls_key, *files_dir, *layout, *kv_disk;
	struct dt_strs api_keys, lora, prefill;
	json_t *defaults;
	int64_t port, max_tokens, lora_rank;
	uint64_t http_mem, files_size;
	int precision, weights, kv_type, kv_read, chat, role; /* choices, as the option table stores them */
	bool given_role;
	struct dt_kvpeers_params peers;
	int64_t prefill_least;
	double prefill_timeout;
	uint64_t prefill_mem;
	double timeout, comm_timeout;
	bool classifies; /* CKPT is an image classifier */
	struct dt_classify_params images;
	int split;
};

extern struct serve_options serve_options;
extern const struct dt_program serve_program;

/* Derives settings from the options and CKPT. -EINVAL: they contradict each other. */
int serve_options_settle(struct serve_options *o, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
