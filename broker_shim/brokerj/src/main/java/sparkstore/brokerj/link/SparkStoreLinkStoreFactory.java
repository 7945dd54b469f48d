package sparkstore.brokerj.link;

import org.apache.qpid.server.model.NamedAddressSpace;
import org.apache.qpid.server.model.VirtualHost;
import org.apache.qpid.server.model.VirtualHostNode;
import org.apache.qpid.server.protocol.v1_0.store.LinkStore;
import org.apache.qpid.server.protocol.v1_0.store.LinkStoreFactory;
import org.apache.qpid.server.store.StoreException;
import sparkstore.brokerj.store.SparkStoreConfigurationStore;

/**
 * Keeps the links of virtual hosts whose node is ours. Of all factories that support a host the
 * broker takes the one with the highest priority; those that ship with it have 100.
 */
public final class SparkStoreLinkStoreFactory implements LinkStoreFactory {
    private static final int PRIORITY = 200;

    @Override
    public String getType() {
        return "SPARKSTORE";
    }

    @Override
    public int getPriority() {
        return PRIORITY;
    }

    @Override
    public boolean supports(NamedAddressSpace addressSpace) {
        return storeOf(addressSpace) != null;
    }

    @Override
    public LinkStore create(NamedAddressSpace addressSpace) {
        SparkStoreConfigurationStore store = storeOf(addressSpace);
        if (store == null) {
            throw new StoreException(addressSpace + " does not keep its messages in sparkstore");
        }
        return new SparkStoreLinkStore(store::session);
    }

    private static SparkStoreConfigurationStore storeOf(NamedAddressSpace addressSpace) {
        boolean isOurs = addressSpace instanceof VirtualHost<?> host
                && host.getParent() instanceof VirtualHostNode<?> node
                && node.getConfigurationStore() instanceof SparkStoreConfigurationStore;
        return isOurs ? (SparkStoreConfigurationStore)
                ((VirtualHostNode<?>) ((VirtualHost<?>) addressSpace).getParent())
                        .getConfigurationStore() : null;
    }
}
