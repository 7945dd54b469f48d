package sparkstore.brokerj.node;

import java.util.Map;
import org.apache.qpid.server.model.AbstractConfiguredObjectTypeFactory;
import org.apache.qpid.server.model.Broker;
import org.apache.qpid.server.model.ConfiguredObject;

/** Makes nodes of type SPARKSTORE; written by hand, because codegen is not published for 10.x. */
public final class SparkStoreVirtualHostNodeImplFactory
        extends AbstractConfiguredObjectTypeFactory<SparkStoreVirtualHostNodeImpl> {
    public SparkStoreVirtualHostNodeImplFactory() {
        super(SparkStoreVirtualHostNodeImpl.class);
    }

    @Override
    protected SparkStoreVirtualHostNodeImpl createInstance(
            Map<String, Object> attributes, ConfiguredObject<?> parent) {
        return new SparkStoreVirtualHostNodeImplWithAccessChecking(
                attributes, (Broker<?>) parent);
    }
}
