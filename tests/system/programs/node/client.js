'use strict';
// rhea as a program: see README.md in the folder above for what it is told and says.

const fs = require('fs');
const readline = require('readline');
const rhea = require('rhea');

const {types, message: sections} = rhea;

// 64 bits as rhea sends them when a number would not be exact.
function bits64(text) {
    const buffer = Buffer.alloc(8);
    buffer.writeBigInt64BE(BigInt.asIntN(64, BigInt(text)));
    return buffer;
}

const WRAP = {
    null: () => types.Null(),
    boolean: types.wrap_boolean,
    ubyte: text => types.wrap_ubyte(Number(text)),
    ushort: text => types.wrap_ushort(Number(text)),
    uint: text => types.wrap_uint(Number(text)),
    ulong: text => types.wrap_ulong(bits64(text)),
    byte: text => types.wrap_byte(Number(text)),
    short: text => types.wrap_short(Number(text)),
    int: text => types.wrap_int(Number(text)),
    long: text => types.wrap_long(bits64(text)),
    float: hex => types.wrap_float(Buffer.from(hex, 'hex').readFloatBE()),
    double: hex => types.wrap_double(Buffer.from(hex, 'hex').readDoubleBE()),
    char: types.wrap_char,
    timestamp: text => types.wrap_timestamp(Number(text)),
    uuid: hex => types.wrap_uuid(Buffer.from(hex, 'hex')),
    binary: hex => types.wrap_binary(Buffer.from(hex, 'hex')),
    string: types.wrap_string,
    symbol: types.wrap_symbol,
    list: items => types.wrap_list(items.map(valueOf)),
    map: pairs => types.wrap_map_as_map(new Map(pairs.map(pair => pair.map(valueOf)))),
};

function valueOf([name, content]) {
    return WRAP[name](content);
}

// rhea gives JavaScript's own values: a number of any kind is a number, a uuid is bytes.
function toldOf(value) {
    if (value === null || value === undefined) return ['null'];
    if (typeof value === 'boolean') return ['boolean', value];
    if (typeof value === 'string') return ['text', value];
    if (Buffer.isBuffer(value)) return ['bytes', value.toString('hex')];
    if (value instanceof Date) return ['timestamp', String(value.getTime())];
    if (Array.isArray(value)) return ['list', value.map(toldOf)];
    if (typeof value === 'number') {
        const buffer = Buffer.alloc(8);
        buffer.writeDoubleBE(value);
        return ['number', buffer.toString('hex')];
    }
    return ['map', Object.entries(value).map(([key, item]) => [['text', key], toldOf(item)])];
}

function mapped(object, change) {
    return Object.fromEntries(Object.entries(object || {}).map(([k, v]) => [k, change(v)]));
}

const IDS = ['message_id', 'correlation_id'];
const TIMES = ['absolute_expiry_time', 'creation_time'];
const TEXTS = ['to', 'subject', 'reply_to', 'content_type', 'content_encoding', 'group_id',
    'group_sequence', 'reply_to_group_id'];

function messageOf(told) {
    const found = {...told.header};
    const properties = told.properties || {};
    for (const name of IDS) if (name in properties) found[name] = valueOf(properties[name]);
    for (const name of [...TEXTS, ...TIMES]) if (name in properties) found[name] = properties[name];
    if ('user_id' in properties) found.user_id = Buffer.from(properties.user_id, 'hex');
    if (told.annotations) found.message_annotations = mapped(told.annotations, valueOf);
    if (told.application) found.application_properties = mapped(told.application, valueOf);
    const body = told.body || {};
    if (body.data) found.body = sections.data_sections(body.data.map(hex => Buffer.from(hex, 'hex')));
    else if (body.sequence) found.body = sections.sequence_sections(body.sequence.map(l => l.map(valueOf)));
    else found.body = valueOf(body.value || ['null']); // rhea always sends a body
    return found;
}

function toldMessage(message) {
    const properties = {};
    for (const name of IDS) if (message[name] !== undefined) properties[name] = toldOf(message[name]);
    for (const name of TEXTS) if (message[name] !== undefined) properties[name] = message[name];
    for (const name of TIMES) if (message[name] !== undefined) properties[name] = message[name].getTime();
    if (message.user_id !== undefined) properties.user_id = message.user_id.toString('hex');
    return {
        header: {
            durable: message.durable || false,
            priority: message.priority === undefined ? 4 : message.priority,
            ttl: message.ttl || 0,
            delivery_count: message.delivery_count || 0,
        },
        annotations: mapped(message.message_annotations, toldOf),
        properties,
        application: mapped(message.application_properties, toldOf),
        body: toldBody(message.body),
    };
}

function toldBody(body) {
    if (body === undefined) return {};
    if (body === null || body.collect_sections === undefined) return {value: toldOf(body)};
    const contents = body.multiple ? body.content : [body.content];
    return body.typecode === 0x75
        ? {data: contents.map(content => content.toString('hex'))}
        : {sequence: contents.map(content => content.map(toldOf))};
}

const SETTLE = {
    accept: delivery => delivery.accept(),
    reject: delivery => delivery.reject({condition: 'app:bad', description: 'no order'}),
    release: delivery => delivery.release(),
    fail: delivery => delivery.modified({delivery_failed: true}),
    undeliverable: delivery => delivery.modified({delivery_failed: true, undeliverable_here: true}),
};

let connection;
let receiver;
let held = [];

// The first of these events, or the error that ends the wait.
function until(emitter, ...events) {
    return new Promise((resolve, reject) => {
        for (const event of events) emitter.once(event, resolve);
        // With reconnect, rhea attaches the links again, and the wait goes on.
        if (!connection.options.reconnect) {
            emitter.once('disconnected', context => reject(context.error || new Error('disconnected')));
        }
        for (const end of ['receiver_error', 'sender_error', 'connection_error']) {
            emitter.once(end, context => reject((context.receiver || context.sender || context.connection).error));
        }
    });
}

function secured({ca, certificate, key, user, password, mechanism}) {
    const found = {};
    if (ca) Object.assign(found, {transport: 'tls', ca: [fs.readFileSync(ca)]});
    if (certificate) Object.assign(found, {cert: fs.readFileSync(certificate), key: fs.readFileSync(key)});
    if (user) Object.assign(found, {username: user, password});
    if (mechanism === 'EXTERNAL') found.enable_sasl_external = true;
    return found;
}

const COMMANDS = {
    async connect({host, port, reconnect, ...security}) {
        const options = {
            host, port, reconnect: Boolean(reconnect), initial_reconnect_delay: 20, ...secured(security),
        };
        connection = rhea.create_container().connect(options);
        connection.on('error', () => {});
        await until(connection, 'connection_open');
        return {};
    },

    async disconnect() {
        held = [];
        if (connection && connection.is_open()) {
            connection.close();
            await until(connection, 'connection_close').catch(() => {});
        }
        connection = undefined;
        return {};
    },

    async send({address, messages}) {
        const sender = connection.open_sender({target: {address}});
        sender.on('error', () => {});
        const opened = until(sender, 'sendable');
        await opened;
        const outcomes = [];
        for (const told of messages) {
            const decided = until(sender, 'accepted', 'rejected', 'released', 'modified');
            sender.send(messageOf(told));
            const {delivery} = await decided;
            const error = delivery.remote_state.error;
            outcomes.push(error ? `rejected ${error.condition}` : 'accepted');
            sender.removeAllListeners();
            sender.on('error', () => {});
        }
        sender.close();
        await until(sender, 'sender_close');
        return {outcomes};
    },

    async open({address, count}) {
        receiver = connection.open_receiver({source: {address}, credit_window: 0, autoaccept: false});
        receiver.on('error', () => {});
        held = [];
        receiver.on('message', context => held.push(context));
        const refused = until(receiver, 'receiver_close');
        refused.catch(() => {});
        await until(receiver, 'receiver_open');
        const {source} = receiver.remote.attach;
        if (!source || !source.value) await refused; // null: the reason comes with the detach
        receiver.add_credit(count);
        return {};
    },

    async receive({count}) {
        while (held.length < count) await until(receiver, 'message');
        return {messages: held.map(context => toldMessage(context.message))};
    },

    async settle({outcomes}) {
        for (const [n, word] of outcomes.entries()) {
            SETTLE[word](held[n].delivery);
            // rhea 3.0.5 gives the second of two deliveries that are settled in one turn the first's
            // outcome (session.js, write_dispositions): so each has a turn of its own.
            await new Promise(resolve => setImmediate(resolve));
        }
        const closed = until(receiver, 'receiver_close');
        receiver.close();
        await closed;
        held = [];
        return {};
    },
};

async function main() {
    for await (const line of readline.createInterface({input: process.stdin})) {
        const command = JSON.parse(line);
        let answer;
        try {
            answer = await COMMANDS[command.do](command);
        } catch (reason) {
            const {condition, description} = reason || {};
            answer = {error: `${condition || ''} ${description || reason}`.trim()};
        }
        process.stdout.write(JSON.stringify(answer) + '\n');
    }
}

main();
