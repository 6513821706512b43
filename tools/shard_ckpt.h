/* dt-shard-ckpt: its options, and its commands, in one file for reading and one for writing. */
#ifndef DT_TOOLS_SHARD_CKPT_H
#define DT_TOOLS_SHARD_CKPT_H

#include "base/program.h"
#include "base/progress.h"
#include "eval/rounding.h"
#include "kernels/quant_formats.h"

#define SHARD_CKPT_TYPES "f32|f16|bf16" DT_BLOCK_CHOICES DT_FORMAT_MIX_CHOICES

struct shard_options {
	bool json, all_lines, raw, compress, dry_run, weights, any_base;
	bool sparsity_given, pattern_given, max_file_given;
	bool tolerance_given, step_given, from_given, to_given, type_given, method_given, damping_given;
	double tolerance;
	int64_t workers, threads, window, keep, keep_every, step, experts, top_k, seed, vocab;
	uint64_t max_file;
	const char *layout, *tokenizer, *judged_on, *calibrated_on;
	int from, to, type, method, pattern;
	struct dt_rounding rounding; /* quantize --calibrate */
};

extern struct shard_options shard_options;
extern const struct dt_program shard_program;
extern struct dt_progress shard_bar; /* of the command */

/* Prints the error. Returns an exit status; a damaged checkpoint is answer "no" (3), not a failure. */
int shard_fail(const struct dt_err *err);
/* Prints a note above the progress bar. */
void shard_say(void *arg, const char *text);
/* Moves the progress bar. */
void shard_draw(void *arg, uint64_t done, uint64_t total);

/* shard_ckpt_write.c: commands that write a checkpoint or a model; they return exit statuses. */
int shard_reshard(int n, char **argv);
int shard_merge(int n, char **argv);
int shard_convert(int n, char **argv); /* convert has one source, avg several */
int shard_upcycle(int n, char **argv);
int shard_resize_vocab(int n, char **argv);
int shard_quantize(int n, char **argv);
int shard_sparsify(int n, char **argv);
int shard_export(int n, char **argv);
int shard_lora_merge(int n, char **argv);
int shard_lora_convert(int n, char **argv);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
