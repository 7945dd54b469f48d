"""The port of HTTP: who may be connected, and what each connection may cost.

`http_port` accepts, and shakes hands of TLS; `places` decides who may be connected, and who gives
way; `http_connection` has h11, and a time for each head, body and answer; `exchange` shows a
request and its answer to the application.
"""
