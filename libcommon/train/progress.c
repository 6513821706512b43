#include "train/trainer.h"

#include "base/progress.h"
#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void progress_open(struct trainer *t)
{
	struct progress *p = &t->report.progress;

	*p = (struct progress){.loss = NAN, .eval_loss = NAN, .top1 = NAN};
	if (t->info.rank != 0 || t->run.progress == DT_RUN_PROGRESS_AUTO ||
	    t->run.progress == DT_RUN_PROGRESS_OFF || !t->root_log.f)
		return;
	p->f = t->root_log.f;
	p->in_place = t->run.progress == DT_RUN_PROGRESS_LINE;
	p->last = dt_now();
	t->root_log.drawn = &p->drawn;
}

static int columns(FILE *f)
{
	struct winsize w;

	return ioctl(fileno(f), TIOCGWINSZ, &w) == 0 && w.ws_col > 20 ? w.ws_col : 80;
}

/* "step 120/1000  loss 3.214  eval 3.3  12.3 k tok/s  MFU 46%  saved 100  1m20s left" */
static int compose(const struct trainer *t, double step_s, char *buf, size_t n)
{
	const struct progress *p = &t->report.progress;
	double tokens = source_tokens_of_step(t), mfu = 0;
	char rate[32], left[32];
	int k = snprintf(buf, n, "step %lld/%lld  loss %.4g", (long long)t->loop.step,
			 (long long)trainer_end(t), p->loss);

	if (isfinite(p->eval_loss))
		k += snprintf(buf + k, n - (size_t)k, "  eval %.4g", p->eval_loss);
	if (isfinite(p->top1))
		k += snprintf(buf + k, n - (size_t)k, " (%.1f%% right)", 100 * p->top1);
	k += snprintf(buf + k, n - (size_t)k, "  %s %s/s",
		      dt_format_count(tokens / step_s, rate, sizeof(rate)),
		      dt_config_is_image(&t->config) ? "images" : "tok");
	if (t->report.matmul_rate > 0)
		mfu = metrics_flops(t) / step_s / t->report.matmul_rate;
	if (mfu > 0)
		k += snprintf(buf + k, n - (size_t)k, "  MFU %.0f%%", 100 * mfu);
	if (p->saved)
		k += snprintf(buf + k, n - (size_t)k, "  saved %lld", (long long)p->saved);
	return k + snprintf(buf + k, n - (size_t)k, "  %s left",
			    dt_format_duration((double)(trainer_end(t) - t->loop.step) * step_s, left,
					       sizeof(left)));
}

void progress_step(struct trainer *t, const struct step_result *r)
{
	struct progress *p = &t->report.progress;
	double now = dt_now(), took = now - p->last;
	char line[256];
	int n, width;

	if (!p->f)
		return;
	p->last = now;
	p->loss = r->loss;
	/* The first step is slower than later ones, so the mean restarts at the second. */
	p->step_s = p->done < 2 ? took : p->step_s + 0.1 * (took - p->step_s);
	p->done++;
	if (now - p->said < 1 && t->loop.step < trainer_end(t))
		return;
	p->said = now;
	n = compose(t, p->step_s, line, sizeof(line));
	if (!p->in_place) {
		fprintf(p->f, "%s: %s\n", t->root_log.name, line);
	} else {
		width = columns(p->f) - 1;
		fprintf(p->f, "\r%.*s\033[K", n < width ? n : width, line);
		p->drawn = true;
	}
	fflush(p->f);
}

void progress_close(struct trainer *t, bool whole)
{
	struct progress *p = &t->report.progress;
	const char *dir = t->run.save.dir;

	if (!p->f)
		return;
	if (p->drawn)
		fputs("\r\033[K", p->f);
	p->drawn = false;
	p->f = NULL;
	if (!whole)
		return;
	if (isfinite(p->eval_loss))
		dt_log_msg(&t->root_log, "step %lld: loss %.4g, evaluation %.4g", (long long)t->loop.step,
			   p->loss, p->eval_loss);
	else if (isfinite(p->loss))
		dt_log_msg(&t->root_log, "step %lld: loss %.4g", (long long)t->loop.step, p->loss);
	if (!dir)
		dt_log_msg(&t->root_log, "nothing saved: --save DIR keeps the weights");
	else if (p->saved && t->config.lora.rank)
		dt_log_msg(&t->root_log,
			   "step %lld is saved in '%s'; to merge it: dt-shard-ckpt lora-merge --to dt %s %s "
			   "MERGED",
			   (long long)p->saved, dir, t->run.model, dir);
	else if (p->saved && dt_config_servable(&t->config, NULL) == 0)
		dt_log_msg(&t->root_log, "step %lld is saved in '%s'; to serve it: dt-serve %s",
			   (long long)p->saved, dir, dir);
	else if (p->saved)
		dt_log_msg(&t->root_log, "step %lld is saved in '%s'", (long long)p->saved, dir);
}
/* SPDX-License-Identifier: Apache-2.0 */
