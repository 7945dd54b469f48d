'use strict';
// rhea over a pair of brokers: see "failover" in README.md in the folder above.

const rhea = require('rhea');

const [queue, ...addresses] = process.argv.slice(2);
const WINDOW = 20, AHEAD = 200;
let count = 0;
let again = [];
let isStopping = false;
const inFlight = new Map();
const missing = new Set();
const received = new Set();

let turn = 0;
function nextAddress() {
    const {protocol, hostname: host, port} = new URL(addresses[turn++ % addresses.length]);
    return {host, port, connect: (protocol === 'amqps:' ? require('tls') : require('net')).connect};
}
const connection = rhea.connect({
    connection_details: nextAddress, idle_time_out: 5000, max_reconnect_delay: 500,
});

const sender = connection.open_sender(queue);
connection.open_receiver({source: queue, autoaccept: false, credit_window: 20});

function isDue() {
    return again.length || (!isStopping && missing.size < AHEAD);
}

function send() {
    while (sender.sendable() && inFlight.size < WINDOW && isDue()) {
        const number = again.length ? again.shift() : ++count;
        const message = {message_id: `${queue}-${number}`, body: String(number), durable: true};
        inFlight.set(sender.send(message).id, number);
    }
}

function endIfDone() {
    if (isStopping && !inFlight.size && !again.length && !missing.size) connection.close();
}

rhea.on('sendable', send);
rhea.on('accepted', ({delivery}) => {
    const number = inFlight.get(delivery.id);
    inFlight.delete(delivery.id);
    console.log('accepted', number);
    if (!received.has(number)) missing.add(number);
    send();
    endIfDone();
});
rhea.on('rejected', ({delivery}) => {
    console.error('refused', delivery.remote_state.error);
    process.exit(1);
});
rhea.on('message', ({message, delivery}) => {
    const number = Number(message.body);
    console.log('received', number);
    received.add(number);
    missing.delete(number);
    delivery.accept();
    send();
    endIfDone();
});
rhea.on('disconnected', () => {
    console.log('lost');
});
rhea.on('connection_open', () => {
    again = [...new Set([...again, ...inFlight.values()])].sort((a, b) => a - b);
    inFlight.clear();
});
process.stdin.on('end', () => {
    isStopping = true;
    endIfDone();
}).resume();
rhea.on('connection_close', () => process.exit(0));
