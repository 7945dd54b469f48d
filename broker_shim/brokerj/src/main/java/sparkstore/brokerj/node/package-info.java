/** The virtual host node type {@code SPARKSTORE}: attributes, factory, registration. */
package sparkstore.brokerj.node;
