/** AMQP 1.0's link store: found by the AMQP 1.0 plugin, and only linked where that is installed. */
package sparkstore.brokerj.link;
