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
	 .help = "read prompts as JSON Lines, or images, and write answers"},
	{"unordered", 0, DT_OPT_FLAG, &serve_options.unordered,
	 .help = "with --batch, write each answer as soon as it is there", .with = "batch"},
	{"skip-done", 0, DT_OPT_STR, &serve_options.skip_done, "FILE",
	 "with --batch, leave out lines that FILE has an answer to", .complete = DT_COMPLETE_FILE,
	 .with = "batch"},
	{"model-dir", 0, DT_OPT_STR, &serve_options.serve.ckpt, "CKPT", "the checkpoint, as an option",
	 .complete = DT_COMPLETE_DIR},
	{"precision", 0, DT_OPT_CHOICE, &serve_options.precision, "bf16|fp32",
	 "type of activations and cache, and of weights that have no other", .def = "bf16"},
	{"weights", 0, DT_OPT_CHOICE, &serve_options.weights, WEIGHTS,
	 "what matrices are kept as; auto: blocks as they are stored, others as --precision", .def = "auto"},
	{"kv-cache-dtype", 0, DT_OPT_CHOICE, &serve_options.kv_type, "auto|bf16|fp32|int8",
	 "type of the KV cache; auto: as --precision", .def = "auto"},
	{"tokenizer", 0, DT_OPT_STR, &serve_options.serve.tokenizer, "FILE",
	 "a tokenizer in place of the model's own", .complete = DT_COMPLETE_TOKENIZER},
	{"device", 0, DT_OPT_STR, &serve_options.serve.device, "auto|cpu|cuda[:N]",
	 "where the model is computed; auto: a card where there is one", .def = "cpu"},
	{"batch-invariant", 0, DT_OPT_FLAG, &serve_options.serve.invariant,
	 .help = "on a card too, answers do not depend on what else is served (slower)"},
	{"threads", 0, DT_OPT_INT, &serve_options.serve.threads, "N", "threads of the model", .min = 0,
	 .max = 4096, .def_text = "all processors"},
	{"max-tokens", 0, DT_OPT_INT, &serve_options.max_tokens, "N",
	 "tokens to generate where a request does not say", .min = 1, .max = 1 << 24,
	 .def_text = "16 after a prompt, what fits after messages"},
	{"defaults", 0, DT_OPT_STR, &serve_options.defaults_text, "JSON",
	 "an object of sampling keys for requests that do not have them"},
	DT_OPT_HEADING("Several ranks"),
	{"layout", 0, DT_OPT_STR, &serve_options.layout, "LAYOUT",
	 "how mpirun's ranks cut the model, as tp2.pp2; see dt-layout(7)", .def_text = "tp over all ranks"},
	{"comm-timeout", 0, DT_OPT_REAL, &serve_options.comm_timeout, "SECONDS",
	 "a rank that does not come to a step for so long ends the server", .min = 0.1, .max = 1e6,
	 .def = "60"},
	DT_OPT_HEADING("Batching and memory"),
	{"max-num-seqs", 0, DT_OPT_INT, &serve_options.serve.seqs, "N", "sequences that run together",
	 .min = 1, .max = 4096, .def = "64"},
	{"max-num-batched-tokens", 0, DT_OPT_INT, &serve_options.serve.tokens, "N", "tokens of one step",
	 .min = 1, .max = 1 << 20, .given = &serve_options.given_tokens, .def = "512"},
	{"max-model-len", 0, DT_OPT_INT, &serve_options.serve.len, "N",
	 "tokens of a sequence, prompt and output", .min = 1, .max = 1 << 24, .def_text = "the model's"},
	{"block-size", 0, DT_OPT_INT, &serve_options.serve.block, "N", "tokens of a KV cache block", .min = 1,
	 .max = 1024, .def = "16"},
	{"kv-cache-mem", 0, DT_OPT_SIZE, &serve_options.serve.cache_mem, "SIZE", "memory of the KV cache",
	 .def_text = "what all sequences need, at most a quarter of the machine's, half of what is "
		     "free on a card"},
	{"weights-disk", 0, DT_OPT_STR, &serve_options.serve.weights_disk, "DIR",
	 "folder for a file of the weights that --weights-memory does not hold, read when they are needed",
	 .complete = DT_COMPLETE_DIR, .with = "weights-memory"},
	{"weights-memory", 0, DT_OPT_SIZE, &serve_options.serve.weights_memory, "SIZE",
	 "memory of a rank's weights; the others are with --weights-disk, or beside a card in its host's "
	 "memory"},
	{"kv-host", 0, DT_OPT_SIZE, &serve_options.serve.kv_host, "SIZE",
	 "host memory for blocks of prompts that the cache has no place for any more",
	 .without = "no-prefix-caching,trace"},
	{"kv-disk", 0, DT_OPT_STR, &serve_options.kv_disk, "DIR:SIZE",
	 "folder for blocks of prompts, which other servers and later ones find there",
	 .complete = DT_COMPLETE_DIR, .without = "no-prefix-caching,trace"},
	{"kv-read", 0, DT_OPT_CHOICE, &serve_options.kv_read, "auto|always",
	 "when such blocks are read; auto: where that is faster than to compute them", .def = "auto",
	 .with = "kv-host,kv-disk"},
	{"prefix-caching", 0, DT_OPT_FLAG, &serve_options.serve.share,
	 .help = "keep the cache of prompts for others that begin alike", .negatable = true, .def = "on"},
	{"speculate", 0, DT_OPT_INT, &serve_options.serve.draft, "N",
	 "tokens a step guessed from the text so far, as long as it is faster", .min = 0, .max = 32,
	 .def = "0"},
	{"draft-model", 0, DT_OPT_STR, &serve_options.serve.draft_model, "CKPT",
	 "a smaller model with the same vocabulary that guesses (4 tokens a step unless --speculate "
	 "says)",
	 .complete = DT_COMPLETE_FILE},
	{"queue", 0, DT_OPT_INT, &serve_options.serve.queue, "N", "requests that may wait; more get 503",
	 .min = 0, .max = 65536, .def = "256"},
	{"request-timeout", 0, DT_OPT_REAL, &serve_options.timeout, "SECONDS",
	 "longest time for one request; with --batch there is none", .min = 1, .max = 1e6,
	 .given = &serve_options.given_timeout, .def = "600"},
	{"trace", 0, DT_OPT_STR, &serve_options.serve.trace, "FILE",
	 "write the scheduler's decisions as JSON Lines", .complete = DT_COMPLETE_FILE},
	{"replay", 0, DT_OPT_STR, &serve_options.replay, "FILE",
	 "make the decisions of such a file again and compare; needs no checkpoint",
	 .complete = DT_COMPLETE_FILE},
	{"print-program", 0, DT_OPT_FLAG, &serve_options.print_program,
	 .help = "print what a step computes and costs, do nothing else"},
	DT_OPT_HEADING("Prefill apart from decode"),
	{"role", 0, DT_OPT_CHOICE, &serve_options.role, "both|prefill|decode",
	 "compute prompts for other servers, answer with prompts that they compute, or both",
	 .given = &serve_options.given_role, .def_text = "neither", .without = "batch,no-prefix-caching"},
	{"prefill", 0, DT_OPT_STRS, &serve_options.prefill, "URL",
	 "a server that computes prompts for this one; may be given several times", .with = "role",
	 .without = "trace"},
	{"prefill-min", 0, DT_OPT_INT, &serve_options.prefill_least, "TOKENS",
	 "fewer tokens that are not in the cache are computed here", .min = 1, .max = 1 << 24, .def = "512"},
	{"prefill-timeout", 0, DT_OPT_REAL, &serve_options.prefill_timeout, "SECONDS",
	 "without a block for so long the rest is computed here", .min = 0.1, .max = 1e6, .def = "30"},
	{"prefill-mem", 0, DT_OPT_SIZE, &serve_options.prefill_mem, "SIZE",
	 "memory of blocks on their way; what does not fit is computed here", .def = "1GiB"},
	DT_OPT_HEADING("Images"),
	{"split", 0, DT_OPT_CHOICE, &serve_options.split, DT_IMAGE_SPLITS,
	 "how ranks share images: whole requests, to the rank with the fewest, or a part of every batch",
	 .def = "requests"},
	{"image-batch", 0, DT_OPT_INT, &serve_options.images.batch, "N", "images of a pass at most", .min = 1,
	 .max = 65536, .def = "32"},
	{"image-size", 0, DT_OPT_INT, &serve_options.images.image_size, "PIXELS", "side of what the net sees",
	 .min = 1, .max = 4096, .def_text = "the model's"},
	{"normalize", 0, DT_OPT_STR, &serve_options.images.normalize, "model|NAME",
	 "mean and deviation of pixels: those that the model came with, or published ones (cifar10, imagenet "
	 "...)",
	 .def = "model"},
	DT_OPT_HEADING("Adapters"),
	{"lora", 0, DT_OPT_STRS, &serve_options.lora, "NAME=PATH",
	 "serve this adapter too, as model NAME; may be given several times"},
	{"lora-dir", 0, DT_OPT_STR, &serve_options.serve.lora_dir, "DIR",
	 "clients may load and unload adapters that lie in DIR", .complete = DT_COMPLETE_DIR},
	{"max-loras", 0, DT_OPT_INT, &serve_options.serve.lora_resident, "N",
	 "adapters in memory at a time; others are read again when they are asked for", .min = 1,
	 .max = 65536, .def = "64"},
	{"max-lora-rank", 0, DT_OPT_INT, &serve_options.lora_rank, "N", "largest rank of an adapter",
	 .min = 1, .max = 4096, .def = "64"},
	{"lora-quota", 0, DT_OPT_REAL, &serve_options.serve.lora_quota, "TOKENS",
	 "tokens a minute of each adapter, prompts and outputs", .min = 1, .max = 1e12,
	 .def_text = "no limit"},
	{"any-base", 0, DT_OPT_FLAG, &serve_options.serve.any_base,
	 .help = "also serve adapters that were trained on other weights"},
	DT_OPT_HEADING("Server"),
	{"host", 0, DT_OPT_STR, &serve_options.host, "ADDRESS", "address to listen on", .def = "127.0.0.1"},
	{"port", 0, DT_OPT_INT, &serve_options.port, "N", "port to listen on, 0 for any free one", .min = 0,
	 .max = 65535, .def = "8000"},
	{"tls-cert", 0, DT_OPT_STR, &serve_options.tls_cert, "FILE",
	 "serve HTTPS with this certificate and those that vouch for it, in PEM",
	 .complete = DT_COMPLETE_FILE, .with = "tls-key", .without = "batch"},
	{"tls-key", 0, DT_OPT_STR, &serve_options.tls_key, "FILE", "the certificate's key, in PEM",
	 .complete = DT_COMPLETE_FILE, .with = "tls-cert"},
	{"http-mem", 0, DT_OPT_SIZE, &serve_options.http_mem, "SIZE",
	 "memory of bodies, values parsed from them and answers, together; past it 503", .def = "512MiB"},
	{"allow-origin", 0, DT_OPT_STR, &serve_options.allow_origin, "ORIGIN[,...]",
	 "pages that may use the server from a browser, as https://chat.example.org; *: all"},
	{"files-dir", 0, DT_OPT_STR, &serve_options.files_dir, "DIR",
	 "keep files and batches there, and answer batches (/v1/files, /v1/batches)",
	 .complete = DT_COMPLETE_DIR, .without = "batch"},
	{"files-size", 0, DT_OPT_SIZE, &serve_options.files_size, "SIZE",
	 "bytes of all files there; more are refused", .def = "4GiB"},
	{"served-model-name", 0, DT_OPT_STR, &serve_options.name, "NAME", "the model's name in the API",
	 .def_text = "CKPT as given"},
	{"chat-template", 0, DT_OPT_CHOICE, &serve_options.chat, "auto|" DT_CHAT_NAMES,
	 "how messages become a prompt", .def_text = "as the model says"},
	{"api-key", 0, DT_OPT_STRS, &serve_options.api_keys, "KEY",
	 "a key that every route but /health then asks for; may be given several times", .without = "batch"},
	{"api-key-file", 0, DT_OPT_STR, &serve_options.key_file, "FILE",
	 "keys, one a line, with their tenants; every route but /health then asks for one",
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
				  "--kv-disk is a folder, a colon and a size, as /var/kv:20GiB");
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
		return dt_err_set(err, -EINVAL, "--prefill goes with --role decode or both");
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
	char word[16];

	p->fp32 = o->precision == 1;
	p->cache = o->kv_type || !p->fp32 ? cache[o->kv_type] : DT_F32;
	p->weights = o->weights ? dt_format_parse(dt_opt_choice_name(WEIGHTS, o->weights, word, sizeof(word)))
				: -1;
	p->chat = o->chat - 1;
	p->stuck_after = STUCK_AFTER;
	if (p->draft_model && p->draft == 0)
		p->draft = 4;
	if (!o->given_tokens && p->tokens < p->seqs)
		p->tokens = p->seqs;
	if (p->tokens < p->seqs)
		return dt_err_set(err, -EINVAL, "--max-num-batched-tokens must be at least --max-num-seqs");
	if (o->lora.n > 0 || p->lora_dir) {
		p->lora = &o->lora;
		p->lora_rank = o->lora_rank;
	}
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
		return dt_err_set(err, -EINVAL, "--%s goes with models of %s", name,
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
