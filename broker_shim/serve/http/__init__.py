"""A broker over HTTP: REST under `/api/v1`, metrics and probes, and the console.

    http_server    the thread and its loop: TCP ports, and the control socket of a root
    port           what each accepts, with TLS: connections, requests, and a time for each
    router         a request on its way: endpoint, user, role, origin, query, body
    authenticator  a login, or the owner of the root ↔ a user with a role
    resources      a file for each noun: models, what answers, and the rows of the table
    endpoints      the table of all of them; `openapi` describes it by the models
    calls          one request with what it needs; `loop_calls` asks the broker's loop for it

To add an endpoint: `resources`.
"""
