/**
 * The connection to the store's service: one socket, requests in order, replay after a loss.
 *
 * <p>Why what was acknowledged is durable, once, whatever dies: a request gets its number and its
 * place in {@link sparkstore.brokerj.service.Outbox} under one lock, so numbers rise in the order
 * in which requests are sent. It leaves the outbox only when the service has said DONE for it (it
 * is durable then), or WELCOME has said that its number was decided. After a loss every other
 * request is sent again, in order, and unchanged unless nobody waits for it any more (it then changes
 * nothing); the service decides a number at most once and keeps
 * the last one with its records, so also across its own kill -9. The numbers go on from the
 * service's, so a new broker process cannot reuse one.
 *
 * <p>What waits to be sent goes in few frames: requests that follow one another, and put messages on
 * one queue or take them off, are one BATCH ({@link sparkstore.brokerj.service.RequestRun}), which the
 * service decides, logs and answers at once. The outbox knows requests, never frames, so a run needs
 * no rule of its own for a loss, a refusal or a withdrawal: each is of one request.
 */
package sparkstore.brokerj.service;
