package sparkstore.brokerj.system;

import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.apache.qpid.server.model.Broker;
import org.apache.qpid.server.model.Port;
import tools.jackson.databind.ObjectMapper;

/**
 * A Broker-J of its own process with one SPARKSTORE node and a port on loopback.
 *
 * <p>{@code main(workDir, port)}; the node's attributes come from system properties
 * ({@code -Dsparkstore.service=…}), or all of them from one ({@code -Dtest.node=}, JSON); protocols
 * of the port from {@code -Dtest.protocols=} (all three). Prints "READY port" when the virtual host
 * is active, "ERRORED" when it or its node cannot be; runs until killed.
 */
public final class BrokerProcess {
    private static final ObjectMapper JSON = new ObjectMapper();

    private BrokerProcess() {
    }

    public static void main(String[] arguments) throws Exception {
        LaunchedBroker launched =
                new LaunchedBroker(Path.of(arguments[0]), configuration(arguments[1]));
        Runtime.getRuntime().addShutdownHook(new Thread(launched::shutdown));
        System.out.println(launched.host() == null ? "ERRORED"
                : "READY " + port(launched.broker()));
        System.out.flush();
        Thread.currentThread().join();
    }

    private static Map<String, Object> configuration(String port) throws Exception {
        List<String> protocols = List.of(
                System.getProperty("test.protocols", "AMQP_0_9_1,AMQP_0_10,AMQP_1_0").split(","));
        Map<String, Object> amqp = Map.of("name", "AMQP", "port", port,
                "bindingAddress", "127.0.0.1", "authenticationProvider", "users",
                "protocols", protocols,
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

    private static int port(Broker<?> broker) {
        for (Port<?> port : broker.getPorts()) {
            return port.getBoundPort();
        }
        return -1;
    }
}
