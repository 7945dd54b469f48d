"""Each noun of the broker has a file: its models, what answers its endpoints, their rows.

To add an endpoint is a model, a function that has a `Call`, and a row of `ENDPOINTS`, all in the
file of its noun; OpenAPI, docs/http.md and the control socket follow. A function runs on the thread
of the HTTP port; what it reads of the broker it reads by `Call.read`, on the loop's thread, and
what it changes it has changed by `Call.order` or `Call.send`, in turn with all other orders.
"""
