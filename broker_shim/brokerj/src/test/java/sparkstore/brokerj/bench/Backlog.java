package sparkstore.brokerj.bench;

import java.lang.reflect.Method;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.qpid.server.bytebuffer.QpidByteBuffer;
import org.apache.qpid.server.model.Queue;
import org.apache.qpid.server.model.VirtualHost;
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
import sparkstore.brokerj.system.LaunchedBroker;
import tools.jackson.databind.ObjectMapper;

/**
 * A broker with a deep queue, on any store: {@code main(fill|open|churn|clean, host type, node
 * type, folder, count)}. Prints one line: what it did, how many messages, milliseconds.
 *
 * <p>{@code open} measures the broker's start to an active virtual host, with its recovery.
 * {@code churn} puts the messages on a queue and takes them off, {@value #DEPTH} at a time.
 * {@code clean} is BDB's own operations, which free its files.
 */
public final class Backlog {
    private static final int WINDOW = 1_000;
    private static final int DEPTH = 100_000;
    private static final int BODY_BYTES = 256;
    private static final ObjectMapper JSON = new ObjectMapper();

    private Backlog() {
    }

    public static void main(String[] arguments) {
        try {
            run(arguments[0], configuration(arguments[1], arguments[2]), Path.of(arguments[3]),
                    Integer.parseInt(arguments[4]));
            System.exit(0);
        } catch (Exception | Error failure) {
            failure.printStackTrace();
            System.exit(1);  // else the broker's threads would keep the process
        }
    }

    private static void run(
            String what, Map<String, Object> configuration, Path folder, int count)
            throws Exception {
        long began = System.nanoTime();
        LaunchedBroker launched = new LaunchedBroker(folder, configuration);
        VirtualHost<?> host = launched.host();
        if (host == null) {
            throw new IllegalStateException("the virtual host cannot be active: see the log");
        }
        if (!what.equals("open")) {
            began = System.nanoTime();
        }
        long found = switch (what) {
            case "fill" -> fill(host, count);
            case "churn" -> churn(host, count);
            case "clean" -> clean(host);
            default -> depth(host);
        };
        System.out.printf("%s %d %d%n", what, found,
                TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began));
        launched.shutdown();
    }

    private static long fill(VirtualHost<?> host, int count) throws Exception {
        put(host.getMessageStore(), queue(host), count, entry -> { });
        return count;
    }

    private static Queue<?> queue(VirtualHost<?> host) {
        return host.createChild(Queue.class, Map.of("name", "backlog"));
    }

    private record Entry(MessageTransferMessage message, MessageEnqueueRecord record) {
    }

    /** A commit for each message, {@value #WINDOW} of them under way. */
    private static void put(MessageStore store, Queue<?> queue, int count, Consumer<Entry> kept)
            throws Exception {
        List<CompletableFuture<Void>> open = new ArrayList<>(WINDOW);
        for (int n = 1; n <= count; n++) {
            Transaction transaction = store.newTransaction();
            MessageTransferMessage message = message(store);
            kept.accept(new Entry(
                    message, transaction.enqueueMessage((BaseQueue) queue, message)));
            open.add(transaction.commitTranAsync(null));
            if (open.size() == WINDOW || n == count) {
                for (CompletableFuture<Void> one : open) {
                    one.get();
                }
                open.clear();
            }
        }
    }

    private static long churn(VirtualHost<?> host, int count) throws Exception {
        MessageStore store = host.getMessageStore();
        Queue<?> queue = queue(host);
        for (int left = count; left > 0; left -= DEPTH) {
            List<Entry> there = new ArrayList<>();
            put(store, queue, Math.min(left, DEPTH), there::add);
            for (int first = 0; first < there.size(); first += WINDOW) {
                take(store, there.subList(first, Math.min(there.size(), first + WINDOW)));
            }
        }
        return count;
    }

    private static void take(MessageStore store, List<Entry> entries) {
        Transaction transaction = store.newTransaction();
        entries.forEach(entry -> transaction.dequeueMessage(entry.record()));
        transaction.commitTran();
        entries.forEach(entry -> entry.message().getStoredMessage().remove());
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

    /** By name: the plugin is built without BDB. Returns how many files it cleaned. */
    private static long clean(VirtualHost<?> host) throws ReflectiveOperationException {
        long files = (int) operation(host, "cleanLog").invoke(host);
        operation(host, "checkpoint", boolean.class).invoke(host, true);
        return files;
    }

    private static Method operation(VirtualHost<?> host, String name, Class<?>... parameters)
            throws ReflectiveOperationException {
        Method operation = host.getClass().getMethod(name, parameters);
        operation.setAccessible(true);  // public, of a class that is not
        return operation;
    }

    private static Map<String, Object> configuration(String hostType, String nodeType) {
        String host = JSON.writeValueAsString(Map.of("type", hostType));
        return Map.of("name", "bench", "modelVersion", "9.0",
                "authenticationproviders", List.of(Map.of("name", "a", "type", "Anonymous")),
                "virtualhostnodes", List.of(Map.of("name", "default", "type", nodeType,
                        "defaultVirtualHostNode", "true",
                        "virtualHostInitialConfiguration", host)));
    }
}
