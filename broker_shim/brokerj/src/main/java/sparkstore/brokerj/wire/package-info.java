/** The store protocol's bytes: MessagePack, frames, records. Pure: no socket, no thread, no broker. */
package sparkstore.brokerj.wire;
