#include "base/progress.h"

#include "base/units.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double dt_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

void dt_progress_start(struct dt_progress *p, FILE *f, const char *label, uint64_t total, bool bytes)
{
	const char *term = getenv("TERM");
	bool draw = f && isatty(fileno(f)) && term && strcmp(term, "dumb");

	*p = (struct dt_progress){
		.f = draw ? f : NULL, .label = label, .total = total, .bytes = bytes, .t0 = dt_now()};
}

void dt_progress_set(struct dt_progress *p, uint64_t done)
{
	char bar[31], amount[32], left[32];
	double now, frac, eta;
	int fill;

	p->done = done;
	if (!p->f)
		return;
	now = dt_now();
	if (now - p->drawn < 0.1 && done < p->total)
		return;
	p->drawn = now;
	frac = p->total ? (double)done / (double)p->total : 0;
	if (frac > 1)
		frac = 1;
	fill = (int)(frac * 30);
	memset(bar, '#', (size_t)fill);
	memset(bar + fill, '-', (size_t)(30 - fill));
	bar[30] = '\0';
	if (p->bytes)
		dt_format_size(done, amount, sizeof(amount));
	else
		snprintf(amount, sizeof(amount), "%llu/%llu", (unsigned long long)done,
			 (unsigned long long)p->total);
	eta = frac > 0 ? (now - p->t0) * (1 - frac) / frac : 0;
	fprintf(p->f, "\r%s [%s] %3.0f%% %s, %s left\033[K", p->label, bar, 100 * frac, amount,
		dt_format_duration(eta, left, sizeof(left)));
	fflush(p->f);
}

void dt_progress_end(struct dt_progress *p)
{
	if (p->f) {
		fputs("\r\033[K", p->f);
		fflush(p->f);
	}
	p->f = NULL;
}
/* SPDX-License-Identifier: Apache-2.0 */
