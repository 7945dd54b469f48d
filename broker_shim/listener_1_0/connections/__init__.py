"""One connection of a client, what serves its links, and what lives on when they end.

    connection               what a socket carries (`broker_shim.sockets`)
    connection_links         what serves each of its links (a `served_endpoint`), and how each ends
    links, resumption        the termini that outlive their links, and unsettled deliveries of those
    containers               who has a name of a container, and takes it over
    pending_attach           an attach that waits until all that it needs is durable

The listener makes it, and `attach` its links. All of it runs on the loop's thread.
"""
