/* What http.c and routes.c share: one request being answered. */
#ifndef DT_SERVE_ROUTES_H
#define DT_SERVE_ROUTES_H

#include "serve/api/openai.h"
#include "serve/http/http.h"

#include <microhttpd.h>

struct dt_http_req {
	struct dt_http *http;
	struct MHD_Connection *mhd;
	struct dt_http_conn *conn;
	const struct dt_route *route;
	struct dt_engine *engine; /* NULL while the model loads */
	const struct dt_http_params *params;
	char *body;
	size_t n, cap;
	bool too_large, answering;
	int tenant;
	const struct dt_chat *chat;
	struct dt_completion completion;
	struct dt_sse sse;
	char *pending; /* events not yet taken by libmicrohttpd */
	size_t pending_n, pending_off;
};

struct dt_route {
	const char *method, *path;
	bool open;	    /* needs no key */
	bool while_loading; /* answers before there is a model */
	enum MHD_Result (*answer)(struct dt_http_req *q);
};

/* NULL: no such path. *ret_allow: the path exists, with this method. */
const struct dt_route *dt_route_find(const char *method, const char *path, const char **ret_allow);

/* Queue a reply. Steals v. */
enum MHD_Result dt_http_reply_json(struct dt_http_req *q, unsigned status, json_t *v);
enum MHD_Result dt_http_reply_text(struct dt_http_req *q, unsigned status, const char *type, char *text,
				   size_t n);
enum MHD_Result dt_http_reply_error(struct dt_http_req *q, const struct dt_api_error *e);

/* The watcher cancels this call when the client goes away; NULL: nothing to cancel any more. */
void dt_http_watch(struct dt_http_req *q, struct dt_call *call);

#endif
