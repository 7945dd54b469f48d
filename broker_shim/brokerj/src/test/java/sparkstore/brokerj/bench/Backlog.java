package sparkstore.brokerj.bench;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.server.SystemLauncher;
import org.apache.qpid.server.SystemLauncherListener;
import org.apache.qpid.server.bytebuffer.QpidByteBuffer;
import org.apache.qpid.server.model.Broker;
import org.apache.qpid.server.model.Queue;
import org.apache.qpid.server.model.State;
import org.apache.qpid.server.model.SystemConfig;
import org.apache.qpid.server.model.VirtualHost;
import org.apache.qpid.server.model.VirtualHostNode;
import org.apache.qpid.server.protocol.v0_10.MessageMetaData_0_10;
import org.apache.qpid.server.protocol.v0_10.MessageTransferMessage;
import org.apache.qpid.server.protocol.v0_10.transport.DeliveryProperties;
import org.apache.qpid.server.protocol.v0_10.transport.Header;
import org.apache.qpid.server.protocol.v0_10.transport.MessageDeliveryMode;
import org.apache.qpid.server.protocol.v0_10.transport.MessageProperties;
import org.apache.qpid.server.queue.BaseQueue;
import org.apache.qpid.server.store.MessageEnqueueRecord;
import org.apache.qpid.server.store.MessageHandle;
import org.apache.qpid.server.store.MessageStore;
import org.apache.qpid.server.store.Transaction;
import tools.jackson.databind.ObjectMapper;

/**
 * A broker with a deep queue, on any store: {@code main(fill|open|drain, host type, node type,
 * folder, count)}. Prints one line: what it did, how many messages, milliseconds.
 *
 * <p>{@code open} measures the broker's start to an active virtual host, with its recovery.
 */
public final class Backlog {
    private static final int WINDOW = 1_000;
    private static final int BODY_BYTES = 256;
    private static final ObjectMapper JSON = new ObjectMapper();

    private Backlog() {
    }

    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[3]);
        int count = Integer.parseInt(arguments[4]);
        SystemConfig<?>[] system = new SystemConfig<?>[1];
        SystemLauncher launcher = new SystemLauncher(
                new SystemLauncherListener.DefaultSystemLauncherListener() {
                    @Override
                    public void onContainerResolve(SystemConfig<?> resolved) {
                        system[0] = resolved;
                    }
                });
        long began = System.nanoTime();
        launcher.startup(attributes(folder, arguments[1], arguments[2]));
        VirtualHost<?> host = active(system[0]);
        if (!arguments[0].equals("open")) {
            began = System.nanoTime();
        }
        long found = switch (arguments[0]) {
            case "fill" -> fill(host, count);
            case "drain" -> drain(host.getMessageStore());
            default -> depth(host);
        };
        System.out.printf("%s %d %d%n", arguments[0], found,
                TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began));
        launcher.shutdown();
        System.exit(0);
    }

    private static long fill(VirtualHost<?> host, int count) throws Exception {
        Queue<?> queue = host.createChild(Queue.class, Map.of("name", "backlog"));
        List<CompletableFuture<Void>> open = new ArrayList<>(WINDOW);
        for (int n = 1; n <= count; n++) {
            Transaction transaction = host.getMessageStore().newTransaction();
            transaction.enqueueMessage((BaseQueue) queue, message(host.getMessageStore()));
            open.add(transaction.commitTranAsync(null));
            if (open.size() == WINDOW || n == count) {
                for (CompletableFuture<Void> one : open) {
                    one.get();
                }
                open.clear();
            }
        }
        return count;
    }

    private static MessageTransferMessage message(MessageStore store) {
        DeliveryProperties delivery = new DeliveryProperties();
        delivery.setDeliveryMode(MessageDeliveryMode.PERSISTENT);
        delivery.setRoutingKey("backlog");
        MessageProperties properties = new MessageProperties();
        properties.setContentType("application/octet-stream");
        MessageMetaData_0_10 metaData =
                new MessageMetaData_0_10(new Header(delivery, properties), BODY_BYTES, 1_000L);
        MessageHandle<MessageMetaData_0_10> handle = store.addMessage(metaData);
        handle.addContent(QpidByteBuffer.wrap(new byte[BODY_BYTES]));
        return new MessageTransferMessage(handle.allContentAdded(), null);
    }

    private static long depth(VirtualHost<?> host) {
        long messages = 0;
        for (Queue<?> queue : host.getChildren(Queue.class)) {
            messages += queue.getQueueDepthMessages();
        }
        return messages;
    }

    private static long drain(MessageStore store) {
        List<MessageEnqueueRecord> entries = new ArrayList<>();
        MessageStore.MessageStoreReader reader = store.newMessageStoreReader();
        reader.visitMessageInstances(entry -> entries.add(entry));
        for (int first = 0; first < entries.size(); first += WINDOW) {
            Transaction transaction = store.newTransaction();
            entries.subList(first, Math.min(entries.size(), first + WINDOW))
                    .forEach(transaction::dequeueMessage);
            transaction.commitTran();
        }
        reader.visitMessages(message -> {
            message.remove();
            return true;
        });
        reader.close();
        return entries.size();
    }

    private static Map<String, Object> attributes(Path folder, String hostType, String nodeType)
            throws Exception {
        Files.createDirectories(folder);
        Path configuration = folder.resolve("initial-config.json");
        String host = JSON.writeValueAsString(Map.of("type", hostType));
        Files.writeString(configuration, JSON.writeValueAsString(Map.of(
                "name", "bench", "modelVersion", "9.0",
                "authenticationproviders", List.of(Map.of("name", "a", "type", "Anonymous")),
                "virtualhostnodes", List.of(Map.of("name", "default", "type", nodeType,
                        "defaultVirtualHostNode", "true",
                        "virtualHostInitialConfiguration", host)))));
        System.setProperty("qpid.work_dir", folder.toString());
        Map<String, Object> attributes = new HashMap<>();
        attributes.put(SystemConfig.TYPE, "JSON");
        attributes.put(SystemConfig.INITIAL_CONFIGURATION_LOCATION, configuration.toString());
        attributes.put(SystemConfig.STARTUP_LOGGED_TO_SYSTEM_OUT, false);
        attributes.put("context", Map.of("qpid.work_dir", folder.toString()));
        return attributes;
    }

    private static VirtualHost<?> active(SystemConfig<?> system) throws InterruptedException {
        while (true) {
            for (VirtualHostNode<?> node
                    : ((Broker<?>) system.getContainer()).getVirtualHostNodes()) {
                VirtualHost<?> host = node.getVirtualHost();
                if (host != null && host.getState() == State.ACTIVE) {
                    return host;
                }
                if (node.getState() == State.ERRORED) {
                    throw new IllegalStateException("the virtual host node is in state ERRORED");
                }
            }
            TimeUnit.MILLISECONDS.sleep(5);
        }
    }
}
