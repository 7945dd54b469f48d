package sparkstore.brokerj.node;

import java.util.Collection;
import java.util.Set;
import org.apache.qpid.server.model.ConfiguredObject;
import org.apache.qpid.server.plugin.ConfiguredObjectRegistration;

/** Tells the broker which configured objects this package has. */
public final class ConfiguredObjectRegistrationImpl implements ConfiguredObjectRegistration {
    @Override
    public String getType() {
        return ConfiguredObjectRegistrationImpl.class.getPackage().getName();
    }

    @Override
    public Collection<Class<? extends ConfiguredObject>> getConfiguredObjectClasses() {
        return Set.of(SparkStoreVirtualHostNodeImpl.class);
    }
}
