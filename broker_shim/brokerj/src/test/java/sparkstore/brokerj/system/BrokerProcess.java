package sparkstore.brokerj.system;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.server.SystemLauncher;
import org.apache.qpid.server.SystemLauncherListener;
import org.apache.qpid.server.model.Broker;
import org.apache.qpid.server.model.Port;
import org.apache.qpid.server.model.State;
import org.apache.qpid.server.model.SystemConfig;
import org.apache.qpid.server.model.VirtualHost;
import org.apache.qpid.server.model.VirtualHostNode;
import tools.jackson.databind.ObjectMapper;

/**
 * A Broker-J of its own process, from published artifacts, with one SPARKSTORE node on loopback.
 *
 * <p>{@code main(workDir, port)}; the node's attributes come from system properties
 * ({@code -Dsparkstore.service=…}), or all of them from one ({@code -Dtest.node=}, JSON). Prints
 * "READY port" when the virtual host is active, "ERRORED" when it or its node cannot be; runs until
 * killed.
 */
public final class BrokerProcess {
    private static final ObjectMapper JSON = new ObjectMapper();

    private BrokerProcess() {
    }

    public static void main(String[] arguments) throws Exception {
        Path workDir = Path.of(arguments[0]);
        int port = Integer.parseInt(arguments[1]);
        SystemConfig<?>[] system = new SystemConfig<?>[1];
        SystemLauncher launcher = new SystemLauncher(
                new SystemLauncherListener.DefaultSystemLauncherListener() {
                    @Override
                    public void onContainerResolve(SystemConfig<?> resolved) {
                        system[0] = resolved;
                    }
                });
        launcher.startup(attributes(workDir, port));
        Runtime.getRuntime().addShutdownHook(new Thread(launcher::shutdown));
        System.out.println(outcome(system[0]));
        System.out.flush();
        Thread.currentThread().join();
    }

    private static Map<String, Object> attributes(Path workDir, int port) throws Exception {
        Files.createDirectories(workDir);
        Path configuration = workDir.resolve("initial-config.json");
        Files.writeString(configuration, JSON.writeValueAsString(configuration(port)));
        System.setProperty("qpid.work_dir", workDir.toString());
        Map<String, Object> attributes = new HashMap<>();
        attributes.put(SystemConfig.TYPE, "JSON");
        attributes.put(SystemConfig.INITIAL_CONFIGURATION_LOCATION, configuration.toString());
        attributes.put(SystemConfig.STARTUP_LOGGED_TO_SYSTEM_OUT, false);
        attributes.put("context", Map.of("qpid.work_dir", workDir.toString()));
        return attributes;
    }

    private static Map<String, Object> configuration(int port) throws Exception {
        Map<String, Object> amqp = Map.of("name", "AMQP", "port", String.valueOf(port),
                "bindingAddress", "127.0.0.1", "authenticationProvider", "users",
                "protocols", List.of("AMQP_0_9_1", "AMQP_0_10", "AMQP_1_0"),
                "virtualhostaliases", List.of(
                        Map.of("name", "n", "type", "nameAlias"),
                        Map.of("name", "d", "type", "defaultAlias"),
                        Map.of("name", "h", "type", "hostnameAlias")));
        return Map.of("name", "test", "modelVersion", "9.0",
                "authenticationproviders",
                List.of(Map.of("name", "users", "type", "Anonymous")),
                "ports", List.of(amqp), "virtualhostnodes", List.of(node()));
    }

    private static Map<?, ?> node() throws Exception {
        String given = System.getProperty("test.node");
        if (given != null) {
            return JSON.readValue(given, Map.class);
        }
        Map<String, Object> autoCreated = Map.of("pattern", "auto\\..*", "nodeType", "queue",
                "attributes", Map.of(), "createdOnPublish", true, "createdOnConsume", true);
        String host = JSON.writeValueAsString(Map.of(
                "type", "ProvidedStore", "nodeAutoCreationPolicies", List.of(autoCreated)));
        return Map.of("name", "default", "type", "SPARKSTORE",
                "defaultVirtualHostNode", "true", "virtualHostInitialConfiguration", host);
    }

    private static String outcome(SystemConfig<?> system) throws InterruptedException {
        long until = System.nanoTime() + TimeUnit.MINUTES.toNanos(10);
        while (System.nanoTime() < until) {
            Broker<?> broker = (Broker<?>) system.getContainer();
            for (VirtualHostNode<?> node : broker.getVirtualHostNodes()) {
                VirtualHost<?> host = node.getVirtualHost();
                if (host != null && host.getState() == State.ACTIVE) {
                    return "READY " + ports(broker);
                }
                if (node.getState() == State.ERRORED
                        || host != null && host.getState() == State.ERRORED) {
                    return "ERRORED";
                }
            }
            TimeUnit.MILLISECONDS.sleep(20);
        }
        return "LATE";
    }

    private static int ports(Broker<?> broker) {
        for (Port<?> port : broker.getPorts()) {
            return port.getBoundPort();
        }
        return -1;
    }
}
