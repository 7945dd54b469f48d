package sparkstore.brokerj.node;

import java.time.Duration;
import java.util.Collection;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.qpid.server.configuration.IllegalConfigurationException;
import org.apache.qpid.server.logging.messages.ConfigStoreMessages;
import org.apache.qpid.server.model.Broker;
import org.apache.qpid.server.model.ManagedAttributeField;
import org.apache.qpid.server.model.ManagedObject;
import org.apache.qpid.server.model.VirtualHost;
import org.apache.qpid.server.store.DurableConfigurationStore;
import org.apache.qpid.server.store.StoreException;
import org.apache.qpid.server.store.preferences.PreferenceStore;
import org.apache.qpid.server.virtualhostnode.AbstractStandardVirtualHostNode;
import sparkstore.brokerj.service.ServiceAddress;
import sparkstore.brokerj.service.ServiceSettings;
import sparkstore.brokerj.store.SparkStoreConfigurationStore;

/**
 * A virtual host node whose configuration and messages are in one sparkstore root.
 *
 * <p>The root belongs to the node of this name: the service keeps the name from the first
 * connection on and refuses another, so that two nodes cannot be given the same root by mistake. A
 * node that is to take over the root of one that was deleted says so ({@link #getFormerName}).
 */
@ManagedObject(type = SparkStoreVirtualHostNodeImpl.TYPE, category = false,
        validChildTypes =
                "sparkstore.brokerj.node.SparkStoreVirtualHostNodeImpl#getSupportedChildTypes()")
public class SparkStoreVirtualHostNodeImpl
        extends AbstractStandardVirtualHostNode<SparkStoreVirtualHostNodeImpl>
        implements SparkStoreVirtualHostNode<SparkStoreVirtualHostNodeImpl> {
    public static final String TYPE = "SPARKSTORE";

    // The broker sets these by reflection, by the names of their getters.
    @ManagedAttributeField private String _serviceAddress;
    @ManagedAttributeField private String _tokenFile;
    @ManagedAttributeField private String _formerName;
    @ManagedAttributeField private String _storePath;
    @ManagedAttributeField private Long _storeUnderfullSize;
    @ManagedAttributeField private Long _storeOverfullSize;
    @ManagedAttributeField private Integer _connectTimeout;
    @ManagedAttributeField private Integer _retryTimeout;
    @ManagedAttributeField private Integer _answerTimeout;

    public SparkStoreVirtualHostNodeImpl(Map<String, Object> attributes, Broker<?> parent) {
        super(attributes, parent);
    }

    /** What the broker's own virtual host types are, and the one that uses the node's store. */
    public static Map<String, Collection<String>> getSupportedChildTypes() {
        return Map.of(VirtualHost.class.getSimpleName(), getSupportedVirtualHostTypes(true));
    }

    @Override
    protected DurableConfigurationStore createConfigurationStore() {
        return new SparkStoreConfigurationStore(new NodeSettings());
    }

    /**
     * Opens the store and the virtual host. A store that cannot be opened puts this node in state
     * ERRORED, from which it can be activated again; as a StoreException, which is server-scoped,
     * it would end the start of the whole broker with its other hosts.
     */
    @Override
    protected CompletableFuture<Void> activate() {
        try {
            return super.activate();
        } catch (StoreException failure) {
            throw new IllegalConfigurationException(failure.getMessage(), failure);
        }
    }

    private final class NodeSettings implements SparkStoreConfigurationStore.Settings {
        @Override
        public ServiceSettings service() {
            return new ServiceSettings(new ServiceAddress(getServiceAddress()), getTokenFile(),
                    getName(), getFormerName(), Duration.ofSeconds(getConnectTimeout()),
                    Duration.ofSeconds(getRetryTimeout()), Duration.ofSeconds(getAnswerTimeout()));
        }

        @Override
        public String root() {
            return getStorePath();
        }

        @Override
        public Long getStoreUnderfullSize() {
            return SparkStoreVirtualHostNodeImpl.this.getStoreUnderfullSize();
        }

        @Override
        public Long getStoreOverfullSize() {
            return SparkStoreVirtualHostNodeImpl.this.getStoreOverfullSize();
        }
    }

    @Override
    protected void writeLocationEventLog() {
        getEventLogger().message(getConfigurationStoreLogSubject(),
                ConfigStoreMessages.STORE_LOCATION(getServiceAddress() + " " + getStorePath()));
    }

    @Override
    public PreferenceStore getPreferenceStore() {
        return ((SparkStoreConfigurationStore) getConfigurationStore()).getPreferenceStore();
    }

    @Override
    public String getServiceAddress() {
        return _serviceAddress;
    }

    @Override
    public String getTokenFile() {
        return _tokenFile;
    }

    @Override
    public String getFormerName() {
        return _formerName;
    }

    @Override
    public String getStorePath() {
        return _storePath;
    }

    @Override
    public Long getStoreUnderfullSize() {
        return _storeUnderfullSize;
    }

    @Override
    public Long getStoreOverfullSize() {
        return _storeOverfullSize;
    }

    @Override
    public Integer getConnectTimeout() {
        return _connectTimeout;
    }

    @Override
    public Integer getRetryTimeout() {
        return _retryTimeout;
    }

    @Override
    public Integer getAnswerTimeout() {
        return _answerTimeout;
    }
}
