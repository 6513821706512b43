#include "tools/eval_options.h"

#include "eval/ppl.h"

struct eval_args eval_args;

const struct dt_opt eval_opts[] = {
	{"text", 't', DT_OPT_STR, &eval_args.text, "FILE", "text to evaluate on; - is standard input",
	 "ppl,compare", .complete = DT_COMPLETE_FILE},
	{"task", 0, DT_OPT_STR, &eval_args.task, "FILE", "task to compare the models on", "compare",
	 .complete = DT_COMPLETE_FILE},
	{"seq", 's', DT_OPT_INT, &eval_args.model.seq, "TOKENS",
	 "tokens per window, or longest question with its answer", .min = 2, .max = 1 << 24,
	 .def_text = "the model's positions"},
	{"windows", 'w', DT_OPT_CHOICE, &eval_args.windows, DT_WINDOWS_CHOICES,
	 "how the text is cut into windows", "ppl,compare", .def = "rolling"},
	{"stride", 0, DT_OPT_INT, &eval_args.stride, "TOKENS", "tokens from one window to the next",
	 "ppl,compare", .min = 1, .max = 1 << 24, .def_text = "--seq; --seq / 2 for transformers"},
	{"bos", 0, DT_OPT_FLAG, &eval_args.bos, NULL,
	 "put the beginning-of-sequence token before the text, if the tokenizer has one", "ppl,compare",
	 .negatable = true, .def = "on"},
	{"limit", 'n', DT_OPT_INT, &eval_args.limit, "N", "use only the first N windows or items",
	 "ppl,task,compare,images", .min = 1, .max = 1e15, .def_text = "all"},
	DT_OPT_HEADING("Images"),
	{"batch", 0, DT_OPT_INT, &eval_args.images.batch, "N", "images per batch", "images", .min = 1,
	 .max = 1 << 20, .def = "128"},
	{"split", 0, DT_OPT_CHOICE, &eval_args.split, DT_IMAGE_SPLITS,
	 "how ranks share the images; requests: whole batches in turn, data: a part of every batch", "images",
	 .def = "requests"},
	{"image-size", 0, DT_OPT_INT, &eval_args.images.image_size, "PIXELS", "side of the input image",
	 "images", .min = 1, .max = 4096, .def_text = "the model's"},
	{"normalize", 0, DT_OPT_STR, &eval_args.images.normalize, "model|data|NAME",
	 "mean and deviation for pixel normalization: the model's, the data's, or published ones (cifar10, "
	 "imagenet ...)",
	 "images", .def = "model"},
	{"tta", 0, DT_OPT_CHOICE, &eval_args.tta, DT_TTA_CHOICES,
	 "test-time augmentation: average the logits over the image and mirrored, or also shifted, copies",
	 "images", .def = "none"},
	{"fold-norms", 0, DT_OPT_FLAG, &eval_args.fold, NULL,
	 "fold batch norms into the preceding convolutions", "images", .negatable = true, .def = "on"},
	{"loader-threads", 0, DT_OPT_INT, &eval_args.images.workers, "N",
	 "threads per rank that decode images ahead", "images", .min = 0, .max = 1024, .def = "1"},
	DT_OPT_HEADING("Distillation"),
	{"out", 'o', DT_OPT_STR, &eval_args.teacher.out, "FILE",
	 "file of log-probabilities to write, for dt-train --teacher", "teacher",
	 .complete = DT_COMPLETE_FILE},
	{"top-k", 0, DT_OPT_INT, &eval_args.teacher.k, "K",
	 "store the log-probabilities of the top K tokens; the others are summed up", "teacher", .min = 1,
	 .max = DT_TEACHER_MOST, .def = "64"},
	{"temperature", 0, DT_OPT_REAL, &eval_args.teacher.temperature, "T",
	 "softmax temperature of the teacher, and of the student in training", "teacher", .min = 0.01,
	 .max = 1000, .def = "1"},
	DT_OPT_HEADING("Models"),
	{"precision", 'p', DT_OPT_CHOICE, &eval_args.precision, "bf16|fp32",
	 "type of activations and KV cache, and of weights that --weights does not set", .def = "bf16",
	 .given = &eval_args.precision_given},
	{"weights", 0, DT_OPT_CHOICE, &eval_args.weights, EVAL_WEIGHTS,
	 "format of weight matrices; auto: quantized blocks as stored, others as --precision", .def = "auto",
	 .given = &eval_args.weights_given},
	{"device", 0, DT_OPT_STR, &eval_args.model.device, "auto|cpu|cuda[:N]",
	 "device of the models; with cuda the ranks of a machine share its GPUs", .def = "cpu",
	 .given = &eval_args.device_given},
	{"weights-disk", 0, DT_OPT_STR, &eval_args.model.weights_disk, "DIR",
	 "folder for a file of the weights that exceed --weights-memory; they are read when needed",
	 "ppl,task,compare,teacher", .complete = DT_COMPLETE_DIR, .with = "weights-memory"},
	{"weights-memory", 0, DT_OPT_SIZE, &eval_args.model.weights_memory, "SIZE",
	 "memory for a model's weights on a rank; the rest is in --weights-disk or, with a GPU, in host "
	 "memory",
	 "ppl,task,compare,teacher"},
	{"tokenizer", 0, DT_OPT_STR, &eval_args.model.tokenizer, "FILE",
	 "tokenizer to use instead of the model's own", .complete = DT_COMPLETE_TOKENIZER},
	{"lora", 0, DT_OPT_STR, &eval_args.model.lora, "ADAPTER",
	 "adapter to add to the model's weights; with compare: to all models but the first",
	 "ppl,task,compare,teacher", .complete = DT_COMPLETE_FILE},
	{"any-base", 0, DT_OPT_FLAG, &eval_args.model.any_base, NULL,
	 "accept an adapter that was trained on other base weights", "ppl,task,compare,teacher",
	 .with = "lora"},
	{"threads", 0, DT_OPT_INT, &eval_args.model.threads, "N", "threads per rank", .min = 0, .max = 4096,
	 .def_text = "cores divided by ranks of the machine"},
	DT_OPT_HEADING("Servers"),
	{"model", 'm', DT_OPT_STR, &eval_args.served, "NAME", "model name to request from a server",
	 "task,compare,teacher", .def_text = "the first that it serves"},
	{"api-key", 0, DT_OPT_STR, &eval_args.key, "KEY", "API key to send to a server",
	 "task,compare,teacher"},
	{"parallel", 0, DT_OPT_INT, &eval_args.parallel, "N", "number of concurrent requests to a server",
	 "task,compare,teacher", .min = 1, .max = 1024, .def = "16", .given = &eval_args.parallel_given},
	DT_OPT_HEADING("Output"),
	{"predictions", 0, DT_OPT_STR, &eval_args.predictions, "FILE",
	 "write a JSON line per item; with several ranks those of a task write FILE.RANK", "task,images",
	 .complete = DT_COMPLETE_FILE},
	{"json", 'j', DT_OPT_FLAG, &eval_args.json, NULL, "print JSON"},
	DT_OPT_END,
};

const char *eval_unread(int n, int servers, bool seq)
{
	const struct dt_eval_opts *o = &eval_args.model;

	if (servers == 0)
		return eval_args.served		  ? "model"
		       : eval_args.key		  ? "api-key"
		       : eval_args.parallel_given ? "parallel"
						  : NULL;
	if (servers < n)
		return NULL;
	return eval_args.precision_given ? "precision"
	       : eval_args.weights_given ? "weights"
	       : eval_args.device_given	 ? "device"
	       : o->weights_memory	 ? "weights-memory"
	       : o->tokenizer		 ? "tokenizer"
	       : o->threads		 ? "threads"
	       : o->seq && seq		 ? "seq"
					 : NULL;
}
/* SPDX-License-Identifier: Apache-2.0 */
