/**
 * A store plugin for Apache Qpid Broker-J: queues, messages, durable subscriptions and configuration
 * of a virtual host in one sparkstore root, through the service that {@code sparkstore serve} runs.
 *
 * <p>As thin as it can be: what a request decides, how it is made durable and what SQL sees is
 * Python's business, behind the store protocol. Here are the broker's interfaces, the protocol's
 * bytes, and what a connection needs so that nothing is lost or done twice.
 *
 * <p><b>Decision: shape B, an own virtual host node type with the stock ProvidedStore host</b>, not
 * an own virtual host type. Reason: configuration and messages of a host then live in one place and
 * are recovered and lost together; the host class and its access-checking subclass (some 18
 * methods, written by codegen, which is not published for 10.x) are the broker's own; a node needs
 * two such methods. The broker's own system tests use this shape for its BDB and Derby stores.
 * Rejected: shape A, a host type beside a JSON file for configuration, because two places can
 * disagree after a crash, and because Spark SQL could not see the queue definitions.
 *
 * <p>Layers, calls go down: {@code node} and {@code link}, then {@code store}, {@code service},
 * {@code wire}.
 */
package sparkstore.brokerj;
