"""Queues, exchanges, bindings and policies as a document: written, read, and judged as a whole.

    document     our own form: a state becomes a document, a document becomes orders
    rabbitmq     the definitions of RabbitMQ become orders
    artemis      the broker.xml of Apache ActiveMQ Artemis becomes orders
    formats      tells the three apart
    drafts       what a document says, and what of it has no counterpart here
    judgement    decides every order upon the state that those before it leave, without doing any

A text comes in; orders (`sparkstore.operations.administration`) go out, or every error with its
place. The command `definitions` gives the orders to whoever serves the root, as others are given.
Pure.
"""
