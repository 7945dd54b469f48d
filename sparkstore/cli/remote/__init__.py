"""Commands for a broker on another machine: `sparkstore COMMAND --url https://HOST:PORT`.

They ask the broker's HTTP port (docs/http.md), and need neither its root nor an engine. Their
answers have the forms of the local commands, and their refusals the same exit codes.
"""
