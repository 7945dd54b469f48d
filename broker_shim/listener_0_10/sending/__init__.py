"""Messages from queues to the consumers of a session.

    subscriptions            all consumers of a session, and what becomes of what they were sent
    subscription             one of them: its credit, and the outlet of its deliveries
    look                     what a browser sees next
    subscribing_session      what they need of their session

Commands of the session come in (message.subscribe, flow, accept, …), assemblies go out by it. The
commands of `listener_0_10` call it; it calls the broker's queues, and `broker.delivery`.
"""
