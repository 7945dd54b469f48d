import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Destination;
import jakarta.jms.IllegalStateRuntimeException;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.qpid.jms.JmsConnectionFactory;
import tools.jackson.databind.ObjectMapper;

/** Qpid JMS as a program: see README.md in the folder above for what it is told and says. */
final class Client {
    private static final long TIMEOUT_MS = 30_000;
    /** Of Qpid JMS: each message is acknowledged for itself, and with an outcome of its own. */
    private static final int INDIVIDUAL_ACKNOWLEDGE = 101;
    private static final String OUTCOME = "JMS_AMQP_ACK_TYPE";
    private static final Map<String, Integer> OUTCOMES =
            Map.of("accept", 1, "reject", 2, "release", 3, "fail", 4, "undeliverable", 5);

    private Connection connection;
    private Session session;
    private MessageConsumer consumer;
    private List<Message> held = new ArrayList<>();

    private Client() {
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        Client client = new Client();
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(
                new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            out.println(json.writeValueAsString(client.answer(json.readValue(line, Map.class))));
        }
        System.exit(0);
    }

    @SuppressWarnings("unchecked")
    private Map<String, Object> answer(Map<?, ?> raw) {
        Map<String, Object> command = (Map<String, Object>) raw;
        try {
            return switch ((String) command.get("do")) {
                case "connect" -> connect(command);
                case "disconnect" -> disconnect();
                case "send" -> send(command);
                case "open" -> open(command);
                case "receive" -> receive(command);
                case "settle" -> settle((List<String>) command.get("outcomes"));
                case "commit" -> commit();
                case "rollback" -> rollback();
                case "move" -> move(command);
                default -> throw new IllegalArgumentException(command.toString());
            };
        } catch (Exception reason) {
            return Map.of("error", reason.toString());
        }
    }

    private Map<String, Object> connect(Map<String, Object> command) throws JMSException {
        String broker = "%s://%s:%s?amqp.saslMechanisms=%s%s".formatted(
                command.containsKey("ca") ? "amqps" : "amqp", command.get("host"),
                command.get("port"), command.getOrDefault("mechanism", "ANONYMOUS"),
                secured(command));
        String url = Boolean.TRUE.equals(command.get("reconnect"))
                ? "failover:(" + broker + ")?failover.reconnectDelay=20&" : broker + "&";
        boolean isTransacted = Boolean.TRUE.equals(command.get("transacted"));
        connection = new JmsConnectionFactory(url + "jms.prefetchPolicy.all="
                + command.getOrDefault("prefetch", 0) + "&jms.forceSyncSend=" + !isTransacted
                + "&jms.validatePropertyNames=false")
                .createConnection((String) command.get("user"), (String) command.get("password"));
        if (command.get("client_id") instanceof String name) {
            connection.setClientID(name);
        }
        connection.start();
        session = isTransacted ? connection.createSession(true, Session.SESSION_TRANSACTED)
                : connection.createSession(false, INDIVIDUAL_ACKNOWLEDGE);
        return Map.of();
    }

    /** Files are key stores, whose password is {@code changeit}: Java reads no PEM here. */
    private static String secured(Map<String, Object> command) {
        String found = command.containsKey("ca")
                ? "&transport.trustStorePassword=changeit&transport.trustStoreLocation=" + command.get("ca")
                : "";
        return command.containsKey("certificate")
                ? found + "&transport.keyStorePassword=changeit&transport.keyStoreLocation="
                        + command.get("certificate")
                : found;
    }

    private Map<String, Object> disconnect() {
        try {
            if (connection != null) {
                connection.close();
            }
        } catch (JMSException gone) {
            // the broker may be: nothing is left to close then
        }
        connection = null;
        return Map.of();
    }

    /** A name, or {@code topic:} and a name. */
    private Destination destination(Object address) throws JMSException {
        String name = (String) address;
        return name.startsWith("topic:")
                ? session.createTopic(name.substring("topic:".length()))
                : session.createQueue(name);
    }

    @SuppressWarnings("unchecked")
    private Map<String, Object> send(Map<String, Object> command) throws JMSException {
        List<String> outcomes = new ArrayList<>();
        try (MessageProducer producer = session.createProducer(destination(command.get("address")))) {
            for (Object told : (List<?>) command.get("messages")) {
                outcomes.add(send(producer, (Map<String, Object>) told));
            }
        }
        return Map.of("outcomes", outcomes);
    }

    private String send(MessageProducer producer, Map<String, Object> told) throws JMSException {
        Map<String, Object> header = Messages.part(told, "header");
        int mode = Boolean.TRUE.equals(header.get("durable"))
                ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT;
        int priority = (Integer) header.getOrDefault("priority", Message.DEFAULT_PRIORITY);
        long ttl = ((Number) header.getOrDefault("ttl", 0)).longValue();
        Message message = Messages.write(session, told);
        try {
            producer.send(message, mode, priority, ttl);
            return "accepted";
        } catch (JMSException refused) {
            return "rejected " + refused.getMessage();
        }
    }

    /** Without credit: with no prefetch, each receive gives one. */
    private Map<String, Object> open(Map<String, Object> command) throws JMSException {
        Destination from = destination(command.get("address"));
        consumer = command.get("subscription") instanceof String name
                ? session.createDurableConsumer((Topic) from, name)
                : session.createConsumer(from);
        held = new ArrayList<>();
        return Map.of();
    }

    private Map<String, Object> receive(Map<String, Object> command) throws JMSException {
        List<Object> messages = new ArrayList<>();
        for (int n = 0; n < (Integer) command.get("count"); n++) {
            Message message = consumer.receive(TIMEOUT_MS);
            if (message == null) {
                throw new JMSException("only " + n + " messages came");
            }
            held.add(message);
            messages.add(Messages.read(message));
        }
        return Map.of("messages", messages);
    }

    private Map<String, Object> commit() {
        try {
            session.commit();
            return Map.of("outcome", "committed");
        } catch (JMSException refused) {
            return Map.of("outcome", refused.getClass().getSimpleName() + " " + refused.getMessage());
        }
    }

    private Map<String, Object> rollback() throws JMSException {
        session.rollback();
        return Map.of();
    }

    /**
     * Takes messages of one queue and sends each to several others, a transaction for each, until
     * no more come or the broker is gone: the texts of those that it was told are committed.
     */
    private Map<String, Object> move(Map<String, Object> command) {
        List<String> committed = new ArrayList<>();
        try (MessageConsumer from = session.createConsumer(destination(command.get("from")))) {
            List<MessageProducer> to = new ArrayList<>();
            for (Object name : (List<?>) command.get("to")) {
                to.add(session.createProducer(destination(name)));
            }
            int batch = (Integer) command.get("batch");
            while (true) {
                List<String> texts = new ArrayList<>();
                for (int n = 0; n < batch; n++) {
                    Message message = from.receive(((Integer) command.get("wait_ms")).longValue());
                    if (message == null) {
                        break;
                    }
                    texts.add(message.getBody(String.class));
                    for (MessageProducer each : to) {
                        each.send(session.createTextMessage(message.getBody(String.class)));
                    }
                }
                session.commit();
                committed.addAll(texts);
                if (texts.size() < batch) {
                    return Map.of("committed", committed, "ended", "no more");
                }
            }
        } catch (JMSException | IllegalStateRuntimeException gone) {
            return Map.of("committed", committed, "ended", gone.toString());
        }
    }

    private Map<String, Object> settle(List<String> outcomes) throws JMSException {
        for (int n = 0; n < outcomes.size(); n++) {
            held.get(n).setIntProperty(OUTCOME, OUTCOMES.get(outcomes.get(n)));
            held.get(n).acknowledge();
        }
        consumer.close();
        return Map.of();
    }
}
