"""The composition root: `sparkstore serve` makes a store, a broker, its listeners, and runs them.

Options and settings come in; sockets, a control socket, metrics and an exit code come out. Only
here are real things made and joined. `stores` chooses a store by its tier, `entrance` who may
connect, `protocols` what is spoken where. `broker_recovery` brings a broker to where it was, and
`control` serves administrators. `monitor` and `reporting` serve whoever watches, `systemd` the
service manager. `command` has them in the order of their lives.

Nobody imports this package but the entry point of the command and the demo. It decides nothing
about messages: whatever a queue, a link or a store does is told in the package of that name.
"""

from sparkstore.log.tuning import tune_allocator

tune_allocator()  # here, as it must come before the first import of pyarrow, anywhere below
