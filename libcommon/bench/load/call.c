/* One call of a run: its request, prepared before it is due, and its response. */
#include "base/curl_lines.h"
#include "bench/load/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { ERROR_BODY = 4096 };

void load_call_free(struct load_call *c)
{
	if (!c)
		return;
	curl_easy_cleanup(c->c);
	curl_slist_free_all(c->head);
	free(c->body);
	json_decref(c->said);
	free(c->in.line.s);
	free(c->in.reply.s);
	free(c->other.s);
	free(c);
}

static size_t on_body(char *data, size_t one, size_t n, void *arg)
{
	struct load_call *c = arg;
	struct dt_load_result *res = &c->run->ret[c->item];
	long status = 0;
	int rc;

	curl_easy_getinfo(c->c, CURLINFO_RESPONSE_CODE, &status);
	if (status == 200) {
		rc = (c->run->t->prompt == DT_LOAD_IMAGES ? dt_load_take_classes : dt_load_stream_push)(
			&c->in, res, data, n, load_now(c->run));
		c->run->nomem |= rc == -ENOMEM;
		return rc < 0 ? 0 : n;
	}
	if (c->other.n < ERROR_BODY && dt_load_text_add(&c->other, data, n) < 0)
		return 0;
	return n;
}

/* What curl does without it, but curl does not pass errno on. */
static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
	struct load_call *c = arg;
	int fd = socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);

	if (fd < 0)
		c->no_socket = errno;
	return fd < 0 ? CURL_SOCKET_BAD : fd;
}

/* Sets URL, headers and body of the call. False: out of memory. */
static bool address(struct load_call *c, const struct dt_load_target *t, const json_t *history)
{
	static const char *const route[] = {"/v1/completions", "/v1/completions", "/v1/chat/completions",
					    "/v1/classify"};
	const struct dt_load_image *im = t->prompt == DT_LOAD_IMAGES ? &t->image[c->item % t->nimage] : NULL;
	char text[600];

	c->body = im ? NULL : dt_load_body(t, c->run->l, c->item, history, &c->said);
	c->in.keep = c->said != NULL;
	if (!c->c || (!im && !c->body) ||
	    !dt_curl_line(&c->head,
			  im ? "Content-Type: application/octet-stream" : "Content-Type: application/json") ||
	    (t->nkey > 0 && !dt_curl_bearer(&c->head, t->key[c->item % t->nkey])))
		return false;
	snprintf(text, sizeof(text), "%s%s", t->url, route[t->prompt]);
	curl_easy_setopt(c->c, CURLOPT_URL, text);
	curl_easy_setopt(c->c, CURLOPT_POSTFIELDS, im ? im->data : c->body);
	curl_easy_setopt(c->c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)(im ? im->n : strlen(c->body)));
	curl_easy_setopt(c->c, CURLOPT_HTTPHEADER, c->head);
	return true;
}

struct load_call *load_call_make(struct load_run *r, int item, const json_t *history)
{
	struct load_call *c = calloc(1, sizeof(*c));

	if (!c)
		goto fail;
	*c = (struct load_call){.run = r, .item = item, .cut_at = -1, .c = curl_easy_init()};
	if (!address(c, r->t, history))
		goto fail;
	curl_easy_setopt(c->c, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(c->c, CURLOPT_PROXY, "");
	curl_easy_setopt(c->c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c->c, CURLOPT_TCP_NODELAY, 1L);
	curl_easy_setopt(c->c, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(c->c, CURLOPT_WRITEDATA, c);
	curl_easy_setopt(c->c, CURLOPT_PRIVATE, c);
	curl_easy_setopt(c->c, CURLOPT_OPENSOCKETFUNCTION, open_socket);
	curl_easy_setopt(c->c, CURLOPT_OPENSOCKETDATA, c);
	curl_easy_setopt(c->c, CURLOPT_TIMEOUT_MS, (long)(r->p->timeout * 1e3));
	return c;
fail:
	load_call_free(c);
	r->nomem = true;
	return NULL;
}
/* SPDX-License-Identifier: Apache-2.0 */
