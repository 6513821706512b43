#include "tools/serve_options.h"
#include "base/units.h"
#include "kernels/quant_formats.h"
#include "nn/device.h"

#include <errno.h>
#include <string.h>

#define STUCK_AFTER 120 /* seconds a step may take before /health says 503 */
#define DECODERS    4	/* images decoded at the same time */

#define WEIGHTS "auto|f32|bf16" DT_PANEL_CHOICES

struct serve_options serve_options;

static const struct dt_opt opts[] = {
	{"batch", 0, DT_OPT_FLAG, &serve_options.batch,
	 .help = "read prompts (JSON Lines) or images from standard input, write answers to standard output"},
	{"unordered", 0, DT_OPT_FLAG, &serve_options.unordered,
	 .help = "with --batch, write each answer as soon as it is complete", .with = "batch"},
	{"skip-done", 0, DT_OPT_STR, &serve_options.skip_done, "FILE",
	 "with --batch, skip lines for which FILE has a successful answer", .complete = DT_COMPLETE_FILE,
	 .with = "batch"},
	{"model-dir", 0, DT_OPT_STR, &serve_options.serve.ckpt, "CKPT",
	 "the checkpoint, in place of the operand", .complete = DT_COMPLETE_DIR},
	{"precision", 0, DT_OPT_CHOICE, &serve_options.precision, "bf16|fp32",
	 "type of activations and KV cache, and of weights that are not quantised", .def = "bf16"},
	{"weights", 0, DT_OPT_CHOICE, &serve_options.weights, WEIGHTS,
	 "format of weight matrices; auto: quantised ones as stored, others as --precision", .def = "auto"},
	{"kv-cache-dtype", 0, DT_OPT_CHOICE, &serve_options.kv_type, "auto|bf16|fp32|int8",
	 "type of the KV cache; auto: as --precision", .def = "auto"},
	{"pooling", 0, DT_OPT_CHOICE, &serve_options.serve.pooling, "auto|mean|cls",
	 "what an encoder's embeddings are of: all tokens or the first; auto: as the model says, else mean",
	 .def = "auto"},
	{"tokenizer", 0, DT_OPT_STR, &serve_options.serve.tokenizer, "FILE",
	 "tokenizer in place of the model's own", .complete = DT_COMPLETE_TOKENIZER},
	{"device", 0, DT_OPT_STR, &serve_options.serve.device, "auto|cpu|cuda[:N]",
	 "device of the model; auto: a GPU if there is one", .def = "cpu"},
	{"batch-invariant", 0, DT_OPT_FLAG, &serve_options.serve.invariant,
	 .help = "make answers independent of other requests on a GPU too (slower)"},
	{"threads", 0, DT_OPT_INT, &serve_options.serve.threads, "N",
	 "number of threads that compute the model", .min = 0, .max = 4096, .def_text = "all processors"},
	{"max-tokens", 0, DT_OPT_INT, &serve_options.max_tokens, "N",
	 "maximum tokens to generate for a request that does not set it", .min = 1, .max = 1 << 24,
	 .def_text = "16 for a prompt, the rest of the context for messages"},
	{"defaults", 0, DT_OPT_STR, &serve_options.defaults_text, "JSON",
	 "JSON object of sampling keys for requests that lack them"},
	DT_OPT_HEADING("Several ranks"),
	{"layout", 0, DT_OPT_STR, &serve_options.layout, "LAYOUT",
	 "parallel layout of mpirun's ranks, for example tp2.pp2; see dt-layout(7)",
	 .def_text = "tp over all ranks"},
	{"comm-timeout", 0, DT_OPT_REAL, &serve_options.comm_timeout, "SECONDS",
	 "the server ends if a rank keeps the others waiting longer than this", .min = 0.1, .max = 1e6,
	 .def = "60"},
	DT_OPT_HEADING("Batching and memory"),
	{"max-num-seqs", 0, DT_OPT_INT, &serve_options.serve.seqs, "N", "maximum number of running sequences",
	 .min = 1, .max = 4096, .def = "64"},
	{"max-num-batched-tokens", 0, DT_OPT_INT, &serve_options.serve.tokens, "N",
	 "maximum number of tokens in one step", .min = 1, .max = 1 << 20,
	 .given = &serve_options.given_tokens, .def = "512"},
	{"max-model-len", 0, DT_OPT_INT, &serve_options.serve.len, "N",
	 "maximum length of a sequence in tokens, prompt and output", .min = 1, .max = 1 << 24,
	 .def_text = "the model's"},
	{"block-size", 0, DT_OPT_INT, &serve_options.serve.block, "N", "tokens per block of the KV cache",
	 .min = 1, .max = 1024, .def = "16"},
	{"kv-cache-mem", 0, DT_OPT_SIZE, &serve_options.serve.cache_mem, "SIZE", "memory for the KV cache",
	 .def_text = "what all sequences need, at most a quarter of host memory or half of free GPU "
		     "memory"},
	{"weights-disk", 0, DT_OPT_STR, &serve_options.serve.weights_disk, "DIR",
	 "folder for a file with the weights that exceed --weights-memory; they are read when needed",
	 .complete = DT_COMPLETE_DIR, .with = "weights-memory"},
	{"weights-memory", 0, DT_OPT_SIZE, &serve_options.serve.weights_memory, "SIZE",
	 "memory for the weights of a rank; the others are in --weights-disk or, with a GPU, in host memory"},
	{"kv-host", 0, DT_OPT_SIZE, &serve_options.serve.kv_host, "SIZE",
	 "host memory for blocks that are evicted from the KV cache", .without = "no-prefix-caching,trace"},
	{"kv-disk", 0, DT_OPT_STR, &serve_options.kv_disk, "DIR:SIZE",
	 "folder for blocks of the KV cache, shared with other servers and kept for later ones",
	 .complete = DT_COMPLETE_DIR, .without = "no-prefix-caching,trace"},
	{"kv-read", 0, DT_OPT_CHOICE, &serve_options.kv_read, "auto|always",
	 "when to read such blocks; auto: if that is faster than computing them", .def = "auto",
	 .with = "kv-host,kv-disk"},
	{"prefix-caching", 0, DT_OPT_FLAG, &serve_options.serve.share,
	 .help = "reuse cached blocks for requests with the same prefix", .negatable = true, .def = "on"},
	{"speculate", 0, DT_OPT_INT, &serve_options.serve.draft, "N",
	 "speculative decoding: maximum draft tokens per step, by prompt lookup; used while faster", .min = 0,
	 .max = 32, .def = "0"},
	{"draft-model", 0, DT_OPT_STR, &serve_options.serve.draft_model, "CKPT",
	 "smaller model with the same vocabulary that drafts (4 tokens per step unless --speculate is "
	 "given)",
	 .complete = DT_COMPLETE_FILE, .without = "mtp"},
	{"mtp", 0, DT_OPT_FLAG, &serve_options.serve.mtp,
	 .help = "draft with the model's module for multi-token prediction (1 token per step unless "
		 "--speculate is given)",
	 .without = "role"},
	{"queue", 0, DT_OPT_INT, &serve_options.serve.queue, "N",
	 "maximum number of waiting requests; further ones get status 503", .min = 0, .max = 65536,
	 .def = "256"},
	{"request-timeout", 0, DT_OPT_REAL, &serve_options.timeout, "SECONDS",
	 "maximum time for one request; with --batch no limit unless given", .min = 1, .max = 1e6,
	 .given = &serve_options.given_timeout, .def = "600"},
	{"trace", 0, DT_OPT_STR, &serve_options.serve.trace, "FILE",
	 "write the decisions of the scheduler as JSON Lines", .complete = DT_COMPLETE_FILE},
	{"replay", 0, DT_OPT_STR, &serve_options.replay, "FILE",
	 "repeat the decisions of such a file and compare; needs no checkpoint",
	 .complete = DT_COMPLETE_FILE},
	{"print-program", 0, DT_OPT_FLAG, &serve_options.print_program,
	 .help = "print the operations and the cost of a step, then exit"},
	DT_OPT_HEADING("Prefill apart from decode"),
	{"role", 0, DT_OPT_CHOICE, &serve_options.role, "both|prefill|decode",
	 "compute prompts for other servers (prefill), let them compute prompts (decode), or both",
	 .given = &serve_options.given_role, .def_text = "neither", .without = "batch,no-prefix-caching"},
	{"prefill", 0, DT_OPT_STRS, &serve_options.prefill, "URL",
	 "server that computes prompts for this one; may be given several times", .with = "role",
	 .without = "trace"},
	{"prefill-min", 0, DT_OPT_INT, &serve_options.prefill_least, "TOKENS",
	 "ask another server if at least this many tokens are not in the cache", .min = 1, .max = 1 << 24,
	 .def = "512", .with = "prefill"},
	{"prefill-timeout", 0, DT_OPT_REAL, &serve_options.prefill_timeout, "SECONDS",
	 "if no block arrives for this time, compute the rest here", .min = 0.1, .max = 1e6, .def = "30",
	 .with = "prefill"},
	{"prefill-mem", 0, DT_OPT_SIZE, &serve_options.prefill_mem, "SIZE",
	 "memory for blocks in transit; blocks that do not fit are computed here", .min = 1 << 16,
	 .def = "1GiB", .with = "prefill"},
	DT_OPT_HEADING("Images"),
	{"max-images", 0, DT_OPT_INT, &serve_options.serve.images, "N",
	 "maximum number of images in the messages of one request, to a model that reads them", .min = 1,
	 .max = 1024, .def = "8"},
	{"split", 0, DT_OPT_CHOICE, &serve_options.split, DT_IMAGE_SPLITS,
	 "how ranks share images: whole requests to the least busy rank, or a part of every batch",
	 .def = "requests"},
	{"image-batch", 0, DT_OPT_INT, &serve_options.images.batch, "N",
	 "maximum number of images in one forward pass", .min = 1, .max = 65536, .def = "32"},
	{"image-size", 0, DT_OPT_INT, &serve_options.images.image_size, "PIXELS",
	 "width and height of the network's input", .min = 1, .max = 4096, .def_text = "the model's"},
	{"normalize", 0, DT_OPT_STR, &serve_options.images.normalize, "model|NAME",
	 "mean and standard deviation of pixels: the model's own, or published ones (cifar10, imagenet ...)",
	 .def = "model"},
	DT_OPT_HEADING("Adapters"),
	{"lora", 0, DT_OPT_STRS, &serve_options.lora, "NAME=PATH",
	 "serve the adapter at PATH as model NAME; may be given several times"},
	{"lora-dir", 0, DT_OPT_STR, &serve_options.serve.lora_dir, "DIR",
	 "allow clients to load and unload adapters in DIR", .complete = DT_COMPLETE_DIR},
	{"max-loras", 0, DT_OPT_INT, &serve_options.serve.lora_resident, "N",
	 "maximum number of adapters in memory; others are read again when requested", .min = 1, .max = 65536,
	 .def = "64", .with = "lora,lora-dir"},
	{"max-lora-rank", 0, DT_OPT_INT, &serve_options.lora_rank, "N", "maximum rank of an adapter",
	 .min = 1, .max = 4096, .def = "64", .with = "lora,lora-dir"},
	{"lora-quota", 0, DT_OPT_REAL, &serve_options.serve.lora_quota, "TOKENS",
	 "tokens per minute of each adapter, prompts and outputs", .min = 1, .max = 1e12,
	 .def_text = "no limit", .with = "lora,lora-dir"},
	{"any-base", 0, DT_OPT_FLAG, &serve_options.serve.any_base,
	 .help = "accept adapters that were trained on other base weights", .with = "lora,lora-dir"},
	DT_OPT_HEADING("Server"),
	{"host", 0, DT_OPT_STR, &serve_options.host, "ADDRESS", "address to listen on", .def = "127.0.0.1",
	 .without = "batch"},
	{"port", 0, DT_OPT_INT, &serve_options.port, "N", "port to listen on, 0 for any free one", .min = 0,
	 .max = 65535, .def = "8000", .without = "batch"},
	{"tls-cert", 0, DT_OPT_STR, &serve_options.tls_cert, "FILE",
	 "serve HTTPS with this certificate (and its chain), in PEM", .complete = DT_COMPLETE_FILE,
	 .with = "tls-key", .without = "batch"},
	{"tls-key", 0, DT_OPT_STR, &serve_options.tls_key, "FILE", "private key of the certificate, in PEM",
	 .complete = DT_COMPLETE_FILE, .with = "tls-cert"},
	{"http-mem", 0, DT_OPT_SIZE, &serve_options.http_mem, "SIZE",
	 "memory for request bodies, parsed values and unsent answers; requests beyond it get 503",
	 .min = 1 << 16, .def = "512MiB", .without = "batch"},
	{"allow-origin", 0, DT_OPT_STR, &serve_options.allow_origin, "ORIGIN[,...]",
	 "origins of web pages that may use the server, for example https://chat.example.org; *: all",
	 .without = "batch"},
	{"files-dir", 0, DT_OPT_STR, &serve_options.files_dir, "DIR",
	 "folder for the files and batches of the Batch API (/v1/files, /v1/batches)",
	 .complete = DT_COMPLETE_DIR, .without = "batch"},
	{"files-size", 0, DT_OPT_SIZE, &serve_options.files_size, "SIZE",
	 "maximum total size of uploaded files; uploads beyond it are refused", .min = 1 << 16, .def = "4GiB",
	 .with = "files-dir"},
	{"served-model-name", 0, DT_OPT_STR, &serve_options.name, "NAME", "name of the model in the API",
	 .def_text = "CKPT as given"},
	{"chat-template", 0, DT_OPT_CHOICE, &serve_options.chat, "auto|" DT_CHAT_NAMES,
	 "format in which messages become a prompt", .def_text = "as the model says"},
	{"api-key", 0, DT_OPT_STRS, &serve_options.api_keys, "KEY",
	 "API key that every route except /health then requires; may be given several times",
	 .without = "batch"},
	{"api-key-file", 0, DT_OPT_STR, &serve_options.key_file, "FILE",
	 "file with API keys and tenants, one per line; every route except /health then requires a key",
	 .complete = DT_COMPLETE_FILE, .without = "batch"},
	DT_OPT_END,
};

static const char *const examples[] = {
	"dt-serve run/latest --port 8000",
	"jq -c '{prompt: .question}' q.jsonl | dt-serve --batch run/latest | jq -r .text",
	"ls *.jpg | dt-serve --batch resnet | jq -r '[.path, .predictions[0].class] | @tsv'",
	NULL,
};

const struct dt_program serve_program = {
	.name = "dt-serve",
	.summary = "serve a checkpoint over HTTP or on a pipe",
	.operands = "[CKPT]",
	.examples = examples,
	.opts = opts,
	.isa = dt_cpu_isa,
};

/* Resolves --kv-host and --kv-disk. */
static int settle_kv(struct serve_options *o, struct dt_err *err)
{
	struct dt_served_params *p = &o->serve;
	char *colon = o->kv_disk ? strrchr(o->kv_disk, ':') : NULL;

	p->kv_always = o->kv_read == 1;
	if (!o->kv_disk)
		return 0;
	if (!colon || colon == o->kv_disk)
		return dt_err_set(err, -EINVAL,
				  "--kv-disk needs a folder, a colon and a size, for example /var/kv:20GiB");
	if (dt_parse_size(colon + 1, &p->kv_dir_size, err) < 0)
		return dt_err_prefix(err, "--kv-disk");
	*colon = '\0';
	p->kv_dir = o->kv_disk;
	return 0;
}

/* Resolves --role and --prefill. */
static int settle_role(struct serve_options *o, struct dt_err *err)
{
	struct dt_served_params *p = &o->serve;

	p->named = o->given_role;
	if (o->prefill.n == 0)
		return 0;
	if (o->role == 1)
		return dt_err_set(err, -EINVAL, "--prefill needs --role decode or both");
	o->peers = (struct dt_kvpeers_params){.url = (const char *const *)o->prefill.v,
					      .n = o->prefill.n,
					      .least = (int)o->prefill_least,
					      .timeout = o->prefill_timeout,
					      .memory = o->prefill_mem};
	p->peers = &o->peers;
	return 0;
}

/* Derives settings from the options. -EINVAL: they contradict each other. */
static int settle(struct serve_options *o, struct dt_err *err)
{
	static const enum dt_dtype cache[] = {DT_BF16, DT_BF16, DT_F32, DT_I8};
	struct dt_served_params *p = &o->serve;
	char word[16], name[DT_LORA_NAME];
	const char *path;

	p->fp32 = o->precision == 1;
	p->cache = o->kv_type || !p->fp32 ? cache[o->kv_type] : DT_F32;
	p->weights = o->weights ? dt_format_parse(dt_opt_choice_name(WEIGHTS, o->weights, word, sizeof(word)))
				: -1;
	p->chat = o->chat - 1;
	p->embeds = true;
	p->stuck_after = STUCK_AFTER;
	if (p->draft_model && p->draft == 0)
		p->draft = 4;
	if (p->mtp && p->draft == 0)
		p->draft = 1;
	if (!o->given_tokens && p->tokens < p->seqs)
		p->tokens = p->seqs;
	if (p->tokens < p->seqs)
		return dt_err_set(err, -EINVAL, "--max-num-batched-tokens must be at least --max-num-seqs");
	if (o->lora.n > 0 || p->lora_dir) {
		p->lora = &o->lora;
		p->lora_rank = o->lora_rank;
	}
	for (int i = 0; i < o->lora.n; i++)
		if (dt_served_lora(o->lora.v[i], name, &path, err) < 0)
			return -EINVAL;
	p->name = o->name;
	if (settle_kv(o, err) < 0 || settle_role(o, err) < 0)
		return -EINVAL;
	if (o->layout && dt_layout_parse(o->layout, &p->layout, err) < 0)
		return -EINVAL;
	if (o->defaults_text &&
	    dt_json_parse(o->defaults_text, strlen(o->defaults_text), "--defaults", &o->defaults, err) < 0)
		return -EINVAL;
	if (o->max_tokens > 0) {
		o->defaults = o->defaults ? o->defaults : json_object();
		json_object_set_new(o->defaults, "max_tokens", json_integer(o->max_tokens));
	}
	if (o->defaults && dt_api_check_defaults(o->defaults, err) < 0)
		return dt_err_prefix(err, "--defaults");
	return dt_nn_device_check(p->device, p->weights_memory, p->weights_disk, err);
}

/* Name of an option that is set but belongs to the other kind of model (text, images); NULL: none. */
static const char *misplaced(bool images)
{
	static const char *const of_images[] = {"split", "image-batch", "image-size", "normalize", NULL};
	static const char *const fits[] = {
		"split",	"image-batch", "image-size",	    "normalize",    "batch",
		"model-dir",	"precision",   "threads",	    "comm-timeout", "queue",
		"host",		"port",	       "tls-cert",	    "tls-key",	    "http-mem",
		"allow-origin", "api-key",     "served-model-name", "api-key-file", "request-timeout",
		"device",	NULL};

	return images ? dt_opt_first_set(opts, fits, false) : dt_opt_first_set(opts, of_images, true);
}

/* Determines the kind of model in CKPT and checks that the options fit. The loader reports a missing CKPT. */
static int settle_kind(struct serve_options *o, struct dt_err *err)
{
	struct dt_config c;
	const char *name;

	o->classifies = dt_config_load(o->serve.ckpt, &c, NULL) == 0 && dt_config_is_image(&c);
	name = misplaced(o->classifies);
	if (name)
		return dt_err_set(err, -EINVAL, "--%s is only for models of %s", name,
				  o->classifies ? "text" : "images");
	o->images.model = o->serve.ckpt;
	o->images.fp32 = o->precision == 1;
	o->images.device = o->serve.device;
	o->images.threads = o->serve.threads;
	o->images.queue = o->serve.queue;
	o->images.decoders = DECODERS;
	o->images.split = (enum dt_image_split)o->split;
	o->images.patience_s = o->comm_timeout / 2;
	return 0;
}

int serve_options_settle(struct serve_options *o, struct dt_err *err)
{
	int rc = settle_kind(o, err);

	return rc < 0 ? rc : settle(o, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
