/** The broker's store interfaces over one session with the store's service. */
package sparkstore.brokerj.store;
