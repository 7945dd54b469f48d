package sparkstore.brokerj.node;

import org.apache.qpid.server.model.ManagedAttribute;
import org.apache.qpid.server.model.ManagedContextDefault;
import org.apache.qpid.server.model.VirtualHostNode;
import org.apache.qpid.server.store.FileBasedSettings;
import org.apache.qpid.server.store.SizeMonitoringSettings;
import org.apache.qpid.server.store.preferences.PreferenceStoreAttributes;
import org.apache.qpid.server.store.preferences.PreferenceStoreProvider;

/**
 * The attributes of a node of type {@code SPARKSTORE}. Each has a default from a context variable,
 * so that {@code -Dsparkstore.service=unix:/path} is all that a broker needs.
 */
public interface SparkStoreVirtualHostNode<X extends SparkStoreVirtualHostNode<X>>
        extends VirtualHostNode<X>, FileBasedSettings, SizeMonitoringSettings,
                PreferenceStoreProvider {
    @ManagedContextDefault(name = "sparkstore.service")
    String DEFAULT_SERVICE = "unix:${qpid.work_dir}${file.separator}sparkstore.sock";

    @ManagedContextDefault(name = "sparkstore.tokenFile")
    String DEFAULT_TOKEN_FILE = "";

    @ManagedContextDefault(name = "sparkstore.formerName")
    String DEFAULT_FORMER_NAME = "";

    @ManagedContextDefault(name = "sparkstore.storePath")
    String DEFAULT_STORE_PATH = "";

    @ManagedContextDefault(name = "sparkstore.storeUnderfullSize")
    String DEFAULT_UNDERFULL = "0";

    @ManagedContextDefault(name = "sparkstore.storeOverfullSize")
    String DEFAULT_OVERFULL = "0";

    @ManagedContextDefault(name = "sparkstore.connectTimeout")
    String DEFAULT_CONNECT_TIMEOUT = "60";

    @ManagedContextDefault(name = "sparkstore.retryTimeout")
    String DEFAULT_RETRY_TIMEOUT = "0";

    @ManagedContextDefault(name = "sparkstore.answerTimeout")
    String DEFAULT_ANSWER_TIMEOUT = "30";

    @ManagedAttribute(mandatory = true, defaultValue = "${sparkstore.service}",
            description = "Where 'sparkstore serve' listens: unix:/path/of/socket or tcp:host:port,"
                    + " of a pair both with a comma between them")
    String getServiceAddress();

    @ManagedAttribute(defaultValue = "${sparkstore.tokenFile}",
            description = "File with the token of the service, needed over TCP")
    String getTokenFile();

    @ManagedAttribute(defaultValue = "${sparkstore.formerName}",
            description = "Name of a node that is gone for good, whose root this one takes over")
    String getFormerName();

    @Override
    @ManagedAttribute(defaultValue = "${sparkstore.storePath}",
            description = "Path or URI of the root, for people: the service knows its own")
    String getStorePath();

    @Override
    @ManagedAttribute(mandatory = true, defaultValue = "${sparkstore.storeUnderfullSize}")
    Long getStoreUnderfullSize();

    @Override
    @ManagedAttribute(mandatory = true, defaultValue = "${sparkstore.storeOverfullSize}")
    Long getStoreOverfullSize();

    @ManagedAttribute(mandatory = true, defaultValue = "${sparkstore.connectTimeout}",
            description = "Seconds that a start waits for the service")
    Integer getConnectTimeout();

    @ManagedAttribute(mandatory = true, defaultValue = "${sparkstore.retryTimeout}",
            description = "Seconds that sends wait for a service that went away; 0 for ever")
    Integer getRetryTimeout();

    @ManagedAttribute(mandatory = true, defaultValue = "${sparkstore.answerTimeout}",
            description = "Seconds that a connected service may stay silent before it is left")
    Integer getAnswerTimeout();

    @Override
    @ManagedAttribute(defaultValue = "{\"type\": \"Provided\"}",
            description = "Configuration for the preference store, e.g. type, path, etc.")
    PreferenceStoreAttributes getPreferenceStoreAttributes();
}
