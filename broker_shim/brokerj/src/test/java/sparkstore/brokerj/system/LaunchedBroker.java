package sparkstore.brokerj.system;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.server.SystemLauncher;
import org.apache.qpid.server.SystemLauncherListener;
import org.apache.qpid.server.model.Broker;
import org.apache.qpid.server.model.State;
import org.apache.qpid.server.model.SystemConfig;
import org.apache.qpid.server.model.VirtualHost;
import org.apache.qpid.server.model.VirtualHostNode;
import tools.jackson.databind.ObjectMapper;

/** A Broker-J in this process, from published artifacts, with one virtual host node. */
public final class LaunchedBroker {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final SystemLauncher launcher;
    private SystemConfig<?> system;

    /**
     * Starts it; its virtual host may need longer.
     *
     * @param folder its work folder; what it kept there goes before the configuration
     * @param configuration initial, as in a file for {@code qpid-server -icp}
     */
    public LaunchedBroker(Path folder, Map<String, Object> configuration) throws Exception {
        launcher = new SystemLauncher(
                new SystemLauncherListener.DefaultSystemLauncherListener() {
                    @Override
                    public void onContainerResolve(SystemConfig<?> resolved) {
                        system = resolved;
                    }
                });
        launcher.startup(attributes(folder, configuration));
    }

    private static Map<String, Object> attributes(Path folder, Map<String, Object> configuration)
            throws Exception {
        Files.createDirectories(folder);
        Path file = folder.resolve("initial-config.json");
        Files.writeString(file, JSON.writeValueAsString(configuration));
        System.setProperty("qpid.work_dir", folder.toString());
        Map<String, Object> attributes = new HashMap<>();
        attributes.put(SystemConfig.TYPE, "JSON");
        attributes.put(SystemConfig.INITIAL_CONFIGURATION_LOCATION, file.toString());
        attributes.put(SystemConfig.STARTUP_LOGGED_TO_SYSTEM_OUT, false);
        attributes.put("context", Map.of("qpid.work_dir", folder.toString()));
        return attributes;
    }

    public Broker<?> broker() {
        return (Broker<?>) system.getContainer();
    }

    /** The virtual host, once it is active; null when it or its node cannot be. */
    public VirtualHost<?> host() throws InterruptedException {
        while (true) {
            for (VirtualHostNode<?> node : broker().getVirtualHostNodes()) {
                VirtualHost<?> host = node.getVirtualHost();
                if (host != null && host.getState() == State.ACTIVE) {
                    return host;
                }
                if (node.getState() == State.ERRORED
                        || host != null && host.getState() == State.ERRORED) {
                    return null;
                }
            }
            TimeUnit.MILLISECONDS.sleep(5);
        }
    }

    public void shutdown() {
        launcher.shutdown();
    }
}
