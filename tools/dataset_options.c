#include "tools/dataset_options.h"

#include "data/chat.h"
#include "data/image.h"
#include "data/image_import.h"
#include "data/images.h"

#include <errno.h>

struct dataset_args dataset_args = {.look.count = -1};

const struct dt_opt dataset_opts[] = {
	{"json", 'j', DT_OPT_FLAG, &dataset_args.look.json, NULL, "print JSON",
	 "build,chat,labels,images,info,stats,sample"},
	DT_OPT_HEADING("Building"),
	{"out", 'o', DT_OPT_STR, &dataset_args.out_path, "D.h5", "path of the dataset to write",
	 "build,chat,labels,images"},
	{"tokenizer", 't', DT_OPT_STR, &dataset_args.tokenizer, "T",
	 "tokenizer: 'byte', or a tokenizer.json, folder, GGUF, SentencePiece model or checkpoint",
	 "build,chat,labels", .complete = DT_COMPLETE_TOKENIZER, .def = "byte"},
	{"format", 0, DT_OPT_CHOICE, &dataset_args.format, "auto|text|jsonl",
	 "format of the files; auto: by the file name extension", "build", .def = "auto"},
	{"field", 0, DT_OPT_STR, &dataset_args.text.in.field, "NAME",
	 "JSON key of the document in each JSONL line", "build", .def = "text",
	 .given = &dataset_args.field_given},
	{"separator", 0, DT_OPT_STR, &dataset_args.text.in.separator, "TEXT",
	 "separator between the documents of a text file", "build",
	 .def_text = "none: each file is one document"},
	{"pack", 0, DT_OPT_CHOICE, &dataset_args.pack, "stream|documents",
	 "documents: record document boundaries, so that training does not attend or predict across them",
	 "build", .def = "stream"},
	{"split", 0, DT_OPT_PERCENT, &dataset_args.split, "PERCENT",
	 "write the last PERCENT of the input, or PERCENT of each image class or of the labelled texts, to "
	 "--out-eval",
	 "build,chat,labels,images", .min = 1e-9, .max = 99.999999, .given = &dataset_args.split_given},
	{"out-eval", 0, DT_OPT_STR, &dataset_args.eval_path, "E.h5", "path of the evaluation dataset",
	 "build,chat,labels,images"},
	{"shards", 0, DT_OPT_INT, &dataset_args.shards, "N", "number of files to split --out into",
	 "build,chat,labels,images", .min = 1, .max = 99999, .def = "1"},
	{"work", 0, DT_OPT_STR, &dataset_args.text.work, "DIR",
	 "save progress in DIR, so that the same command can continue after it was killed", "build",
	 .complete = DT_COMPLETE_DIR},
	DT_OPT_HEADING("Filtering documents"),
	{"dedup", 0, DT_OPT_CHOICE, &dataset_args.dedup, "none|exact|near",
	 "drop duplicates: exact, or near, which share about 80% of their 5-word sequences", "build",
	 .def = "none"},
	{"min-chars", 0, DT_OPT_INT, &dataset_args.text.clean.min_chars, "N",
	 "drop documents with fewer characters", "build", .def = "0"},
	{"max-chars", 0, DT_OPT_INT, &dataset_args.text.clean.max_chars, "N",
	 "drop documents with more characters; 0: no limit", "build", .def = "0"},
	{"max-symbols", 0, DT_OPT_SHARE, &dataset_args.text.clean.max_symbols, "SHARE",
	 "drop documents with a larger share of ASCII symbols among their characters", "build",
	 .def = "100%"},
	{"max-repeats", 0, DT_OPT_SHARE, &dataset_args.text.clean.max_repeats, "SHARE",
	 "drop documents with a larger share of bytes in repeated lines", "build", .def = "100%"},
	{"max-ngrams", 0, DT_OPT_SHARE, &dataset_args.text.clean.max_ngrams, "SHARE",
	 "drop documents with a larger share of repeated 5-word sequences", "build", .def = "100%"},
	{"script", 0, DT_OPT_STR, &dataset_args.text.clean.script, "NAME[:SHARE]",
	 "drop documents with less than SHARE (50% if omitted) of their letters in this script: Latin, Han, "
	 "Cyrillic ...",
	 "build"},
	{"exclude", 0, DT_OPT_STRS, &dataset_args.exclude, "FILE",
	 "drop documents that share 13 consecutive words with this text, such as an evaluation set", "build",
	 .complete = DT_COMPLETE_FILE},
	{"removed", 0, DT_OPT_STR, &dataset_args.text.removed, "FILE",
	 "write one JSON line for each dropped document", "build", .complete = DT_COMPLETE_FILE},
	DT_OPT_HEADING("Images"),
	{"from", 0, DT_OPT_CHOICE, &dataset_args.from, "auto|idx|cifar10|cifar100|folder|tar",
	 "format of the inputs", "images", .def = "auto"},
	{"store", 0, DT_OPT_CHOICE, &dataset_args.store, "auto|raw|jpeg",
	 "storage: raw pixels of one size, or JPEG; auto: raw for IDX, CIFAR and with --crop, else jpeg",
	 "images", .def = "auto"},
	{"resize", 0, DT_OPT_INT, &dataset_args.resize, "N",
	 "scale images so that the shorter side has N pixels", "images", .min = 1, .max = DT_IMAGE_SIDE_MAX,
	 .def_text = "not scaled"},
	{"crop", 0, DT_OPT_STR, &dataset_args.crop, "N|HxW", "keep only the centre of this size in pixels",
	 "images", .def_text = "not cropped"},
	{"channels", 0, DT_OPT_INT, &dataset_args.channels, "1|3", "number of channels: greyscale or colour",
	 "images", .min = 1, .max = 3, .def_text = "1 for IDX, else 3"},
	{"quality", 0, DT_OPT_INT, &dataset_args.quality, "N", "quality of encoded JPEG images", "images",
	 .min = 1, .max = 100, .def = "95", .given = &dataset_args.quality_given},
	{"class-names", 0, DT_OPT_STR, &dataset_args.class_names, "FILE",
	 "file with the class names in label order, one per line", "labels,images",
	 .complete = DT_COMPLETE_FILE, .def_text = "from the input"},
	{"match", 0, DT_OPT_STR, &dataset_args.match, "PATTERN", "read only tar members whose path matches",
	 "images"},
	{"ignore-exif", 0, DT_OPT_FLAG, &dataset_args.ignore_exif, NULL, "ignore the EXIF orientation",
	 "images"},
	{"skip-bad", 0, DT_OPT_FLAG, &dataset_args.skip_bad, NULL,
	 "skip invalid JSONL lines or images instead of failing", "build,chat,labels,images"},
	DT_OPT_HEADING("Conversations"),
	{"chat-template", 0, DT_OPT_CHOICE, &dataset_args.template, "auto|" DT_CHAT_NAMES,
	 "chat template; auto: that of --tokenizer, or detected from its special tokens", "chat",
	 .def = "auto"},
	{"long", 0, DT_OPT_CHOICE, &dataset_args.overlong, "cut|drop",
	 "how to handle examples longer than a sample", "chat", .def = "cut"},
	{"preferences", 0, DT_OPT_FLAG, &dataset_args.preferences, NULL,
	 "read preference data: pairs of chosen and rejected answers, or answers with a label", "chat"},
	DT_OPT_HEADING("Labelled texts"),
	{"scores", 0, DT_OPT_FLAG, &dataset_args.scores, NULL, "labels are scores, not classes", "labels",
	 .without = "class-names"},
	DT_OPT_HEADING("Inspecting"),
	{"verify", 0, DT_OPT_FLAG, &dataset_args.look.verify, NULL, "read all data and verify the checksums",
	 "info"},
	{"near", 0, DT_OPT_FLAG, &dataset_args.look.near, NULL, "also count near duplicates", "stats"},
	{"svg", 0, DT_OPT_STR, &dataset_args.look.svg, "FILE",
	 "draw the document lengths or image classes as SVG", "stats", .complete = DT_COMPLETE_FILE},
	{"count", 'n', DT_OPT_INT, &dataset_args.look.count, "N",
	 "number of samples, or of tokens or images for cat", "sample,cat", .def_text = "3; for cat, all"},
	{"seq", 0, DT_OPT_INT, &dataset_args.look.seq, "N", "sequence length: tokens per sample",
	 "sample,chat,labels", .min = 1, .max = 1 << 24,
	 .def_text = "64, or the packed length; for chat, 1024; for labels, 512"},
	{"seed", 0, DT_OPT_INT, &dataset_args.look.seed, "N", "shuffling seed", "sample", .def = "0"},
	{"epoch", 0, DT_OPT_INT, &dataset_args.look.epoch, "N", "epoch to sample from", "sample", .min = 0,
	 .max = 4294967295.0, .def = "0"},
	{"in-order", 0, DT_OPT_FLAG, &dataset_args.look.in_order, NULL,
	 "print samples in file order, not shuffled", "sample", .without = "seed,epoch"},
	{"first", 0, DT_OPT_INT, &dataset_args.look.first, "N", "start at sample, token or image N",
	 "sample,cat", .def = "0"},
	{"ids", 0, DT_OPT_FLAG, &dataset_args.look.ids, NULL, "print token ids instead of text", "sample,cat",
	 .without = "special"},
	{"special", 0, DT_OPT_FLAG, &dataset_args.look.special, NULL, "also print the text of special tokens",
	 "sample,cat"},
	DT_OPT_END,
};

int dataset_check_build(int n, char **paths, struct dt_err *err)
{
	const char *separator = dataset_args.text.in.separator;
	int jsonl = 0;

	for (int i = 0; i < n; i++)
		jsonl += dt_text_is_jsonl((enum dt_text_format)dataset_args.format, paths[i]);
	if (separator && !*separator)
		return dt_err_set(err, -EINVAL, "--separator is empty");
	if (separator && jsonl == n)
		return dt_err_set(
			err, -EINVAL,
			"--separator has no effect: the input is JSONL, where each line is a document");
	if (dataset_args.field_given && jsonl == 0)
		return dt_err_set(
			err, -EINVAL,
			"--field has no effect: the input is text; --format jsonl reads it as JSONL");
	return 0;
}

int dataset_check_images(char **paths, struct dt_err *err)
{
	enum dt_image_format format = (enum dt_image_format)dataset_args.from;
	bool raw;

	/* the import reports an input that it cannot read */
	if (format == DT_FROM_AUTO && dt_image_format_of(paths[0], &format, NULL) < 0)
		return 0;
	raw = dataset_args.store == DT_STORE_RAW ||
	      (dataset_args.store == DT_STORE_AUTO && (dataset_args.crop || format <= DT_FROM_CIFAR100));
	if (dataset_args.match && format != DT_FROM_TAR)
		return dt_err_set(err, -EINVAL, "--match has no effect: '%s' is not a tar archive", paths[0]);
	if (dataset_args.quality_given && raw)
		return dt_err_set(err, -EINVAL, "--quality has no effect: the images are stored as pixels");
	if (dataset_args.ignore_exif && format <= DT_FROM_CIFAR100)
		return dt_err_set(err, -EINVAL, "--ignore-exif has no effect: '%s' has no EXIF data",
				  paths[0]);
	return 0;
}

int dataset_check_look(const char *path, struct dt_err *err)
{
	const struct dt_data_look *l = &dataset_args.look;
	const char *option = l->ids	  ? "ids"
			     : l->special ? "special"
			     : l->seq	  ? "seq"
			     : l->near	  ? "near"
					  : NULL;

	return option && dt_images_is(path, NULL) > 0
		       ? dt_err_set(err, -EINVAL, "--%s has no effect: '%s' is a dataset of images", option,
				    path)
		       : 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
