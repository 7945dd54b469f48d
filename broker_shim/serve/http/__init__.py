"""The HTTP port of a broker: REST under `/api/v1`, metrics and probes, and the console.

    http_server   the thread, and its loop
    port          what it accepts, with TLS: connections, requests, and a time for each
    application   the gate of every request: login, role, origin, size; then the endpoint
    endpoints     all there are: method, path, role, what comes in and goes out
    roles         who may do what, in one place
    door          a login ↔ a user with a role
    bodies        what travels, as msgspec models; `openapi` describes the endpoints by them
    ..._requests  what each endpoint does: it asks the loop, by the orders of the control socket

To add an endpoint is a line in `endpoints`, its models in `bodies`, and a function that has a
`Call`. It runs on the thread of this port; what it reads of the broker it reads by `Call.read`, on
the loop's thread, and what it changes it has changed by `Call.order`.
"""
