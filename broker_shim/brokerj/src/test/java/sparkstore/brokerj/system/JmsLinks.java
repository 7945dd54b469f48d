package sparkstore.brokerj.system;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.qpid.jms.JmsConnectionFactory;
import tools.jackson.databind.ObjectMapper;

/**
 * Qpid JMS and durable subscriptions: {@code main(port, what, topic)}; prints what it found as one
 * JSON object. The subscriptions are always the same: `plain` and `choosy` are one consumer's,
 * `team` is shared by the connections of one client id, `all` by everybody.
 */
public final class JmsLinks {
    private static final String CLIENT_ID = "shop";
    private static final String SELECTOR = "region = 'EU'";
    private static final long COMES_MS = 20_000;
    /** After it this client asks the broker by a drain: that, not the time, says that it is empty. */
    private static final long QUIET_MS = 500;
    private static final int COUNT = 4;

    private JmsLinks() {
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        try (Connection named = connect(arguments[0], CLIENT_ID); Connection anybody = connect(arguments[0], null)) {
            Session session = named.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Session global = anybody.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Topic topic = session.createTopic(arguments[2]);
            switch (arguments[1]) {
                case "subscribe" -> subscribe(session, global, topic);
                case "publish" -> publish(session, topic);
                case "hold" -> hold(named, topic, found);
                case "receive" -> receive(session, global, topic, found);
                case "change" -> change(session, topic, found);
                case "no-local" -> noLocal(session, global, topic, found);
                case "unsubscribe" -> unsubscribe(session, global, topic, found);
                default -> throw new IllegalArgumentException(arguments[1]);
            }
            System.out.println(new ObjectMapper().writeValueAsString(found));
        }
    }

    private static Connection connect(String port, String clientId) throws JMSException {
        JmsConnectionFactory factory =
                new JmsConnectionFactory("amqp://127.0.0.1:" + port + "?amqp.saslMechanisms=ANONYMOUS");
        Connection connection = factory.createConnection();
        if (clientId != null) {
            connection.setClientID(clientId);
        }
        connection.start();
        return connection;
    }

    private static void subscribe(Session session, Session global, Topic topic) throws JMSException {
        session.createDurableConsumer(topic, "plain").close();
        session.createDurableConsumer(topic, "choosy", SELECTOR, false).close();
        try (MessageConsumer one = session.createSharedDurableConsumer(topic, "team");
                MessageConsumer two = session.createSharedDurableConsumer(topic, "team")) {
            global.createSharedDurableConsumer(topic, "all").close();
        }
    }

    private static void publish(Session session, Topic topic) throws JMSException {
        try (MessageProducer producer = session.createProducer(topic)) {
            for (int n = 0; n < COUNT; n++) {
                TextMessage message = session.createTextMessage("m" + n);
                message.setStringProperty("region", n % 2 == 0 ? "EU" : "US");
                producer.send(message);
            }
        }
    }

    /** Take two of `plain` and vanish without a word about them. */
    private static void hold(Connection connection, Topic topic, Map<String, Object> found) throws JMSException {
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = session.createDurableConsumer(topic, "plain");
        List<String> texts = new ArrayList<>();
        for (int n = 0; n < 2; n++) {
            texts.add(((TextMessage) consumer.receive(COMES_MS)).getText());
        }
        found.put("plain", texts);
        System.out.println(new ObjectMapper().writeValueAsString(found));
        Runtime.getRuntime().halt(0);
    }

    private static void receive(Session session, Session global, Topic topic, Map<String, Object> found)
            throws JMSException {
        List<String> redelivered = new ArrayList<>();
        found.put("plain", texts(session.createDurableConsumer(topic, "plain"), redelivered));
        found.put("redelivered", redelivered);
        found.put("choosy", texts(session.createDurableConsumer(topic, "choosy", SELECTOR, false), new ArrayList<>()));
        found.put("team", texts(session.createSharedDurableConsumer(topic, "team"), new ArrayList<>()));
        found.put("all", texts(global.createSharedDurableConsumer(topic, "all"), new ArrayList<>()));
    }

    private static List<String> texts(MessageConsumer consumer, List<String> redelivered) throws JMSException {
        List<String> texts = new ArrayList<>();
        try (consumer) {
            Message message;
            while ((message = consumer.receive(QUIET_MS)) != null) {
                texts.add(((TextMessage) message).getText());
                if (message.getJMSRedelivered()) {
                    redelivered.add(((TextMessage) message).getText());
                }
            }
        }
        return texts;
    }

    /** With another selector it is a new subscription of the same name. */
    private static void change(Session session, Topic topic, Map<String, Object> found) throws JMSException {
        publish(session, topic);
        MessageConsumer other = session.createDurableConsumer(topic, "choosy", "region = 'US'", false);
        publish(session, topic);
        found.put("choosy", texts(other, new ArrayList<>()));
    }

    /** Both say something; what a subscriber without its own messages hears of it. */
    private static void noLocal(Session session, Session global, Topic topic, Map<String, Object> found)
            throws JMSException {
        MessageConsumer deaf = session.createConsumer(topic, null, true);
        MessageConsumer all = session.createConsumer(topic);
        session.createDurableConsumer(topic, "quiet", null, true).close();
        session.createProducer(topic).send(session.createTextMessage("own"));
        global.createProducer(topic).send(global.createTextMessage("another's"));
        MessageConsumer durable = session.createDurableConsumer(topic, "quiet", null, true);
        found.put("all", texts(all, new ArrayList<>()));
        found.put("without its own", texts(deaf, new ArrayList<>()));
        found.put("durably", texts(durable, new ArrayList<>()));
        session.unsubscribe("quiet");
    }

    private static void unsubscribe(Session session, Session global, Topic topic, Map<String, Object> found)
            throws JMSException {
        try (MessageConsumer one = session.createSharedDurableConsumer(topic, "team")) {
            found.put("in use", refusal(session, "team"));
        }
        for (String name : List.of("plain", "choosy", "team")) {
            session.unsubscribe(name);
        }
        global.unsubscribe("all");
        found.put("unknown", refusal(session, "plain"));
    }

    private static String refusal(Session session, String name) {
        try {
            session.unsubscribe(name);
            return "none";
        } catch (JMSException refused) {
            return refused.getClass().getSimpleName();
        }
    }
}
