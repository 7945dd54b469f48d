/**
 * The connection to the store's service: one socket, requests in order, replay after a loss.
 *
 * <p>Why what was acknowledged is durable, once, whatever dies: a request gets its number and its
 * place in {@link sparkstore.brokerj.service.Outbox} under one lock, so numbers rise in the order
 * in which requests are sent. It leaves the outbox only when the service has said DONE for it (it
 * is durable then), or WELCOME has said that its number was decided. After a loss every other
 * request is sent again, in order, unchanged; the service decides a number at most once and keeps
 * the last one with its records, so also across its own kill -9. The numbers go on from the
 * service's, so a new broker process cannot reuse one.
 */
package sparkstore.brokerj.service;
