package sparkstore.brokerj.system;

import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.qpid.jms.JmsConnectionFactory;
import tools.jackson.databind.ObjectMapper;

/**
 * Qpid JMS (AMQP 1.0) as a process: {@code main(port, what, arguments...)}; prints what it found as
 * one JSON object.
 */
public final class JmsClient {
    /** After it this client asks the broker by a drain: that, not the time, says that it is empty. */
    private static final long QUIET_MS = 500;

    private JmsClient() {
    }

    public static void main(String[] arguments) throws Exception {
        JmsConnectionFactory factory = new JmsConnectionFactory(
                "amqp://127.0.0.1:" + arguments[0] + "?amqp.saslMechanisms=ANONYMOUS");
        Map<String, Object> found = new LinkedHashMap<>();
        try (Connection connection = factory.createConnection()) {
            connection.setClientID("jms-test");
            connection.start();
            run(connection, arguments, found);
        }
        System.out.println(new ObjectMapper().writeValueAsString(found));
    }

    private static void run(Connection connection, String[] arguments, Map<String, Object> found)
            throws JMSException {
        String name = arguments[2];
        switch (arguments[1]) {
            case "send" -> send(connection, name, Integer.parseInt(arguments[3]));
            case "receive" -> found.put("texts", receive(connection, name));
            case "browse" -> found.put("texts", browse(connection, name));
            case "transact" -> transact(connection, name);
            case "roll-back-receive" -> found.put("redelivered", rollBack(connection, name));
            case "subscribe" -> subscribe(connection, name, arguments[3], found);
            case "publish" -> publish(connection, name);
            case "topics" -> topics(connection, name, found);
            default -> throw new IllegalArgumentException(arguments[1]);
        }
    }

    private static Message text(Session session, int n) throws JMSException {
        TextMessage message = session.createTextMessage("m" + n);
        message.setStringProperty("region", n % 2 == 0 ? "EU" : "US");
        message.setIntProperty("n", n);
        message.setJMSType("order");
        message.setJMSCorrelationID("c" + n);
        return message;
    }

    /** n persistent messages, each followed by a transient one; every send is acknowledged. */
    private static void send(Connection connection, String name, int count) throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(session.createQueue(name));
        for (int n = 0; n < count; n++) {
            producer.send(text(session, n), DeliveryMode.PERSISTENT, 7, 0);
            producer.send(session.createTextMessage("transient" + n),
                    DeliveryMode.NON_PERSISTENT, 4, 0);
        }
    }

    private static List<String> receive(Connection connection, String name) throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        return texts(session.createConsumer(session.createQueue(name)));
    }

    private static List<String> texts(MessageConsumer consumer) throws JMSException {
        List<String> texts = new ArrayList<>();
        for (Message next = consumer.receive(QUIET_MS); next != null;
                next = consumer.receive(QUIET_MS)) {
            texts.add(((TextMessage) next).getText());
        }
        return texts;
    }

    private static List<String> browse(Connection connection, String name) throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        List<String> texts = new ArrayList<>();
        try (QueueBrowser browser = session.createBrowser(session.createQueue(name))) {
            for (Object next : Collections.list(browser.getEnumeration())) {
                texts.add(((TextMessage) next).getText());
            }
        }
        return texts;
    }

    /** Three committed, two rolled back, two in a session that is closed without a commit. */
    private static void transact(Connection connection, String name) throws JMSException {
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        MessageProducer producer = session.createProducer(session.createQueue(name));
        for (int n = 0; n < 3; n++) {
            producer.send(text(session, n));
        }
        session.commit();
        producer.send(text(session, 10));
        producer.send(text(session, 11));
        session.rollback();
        producer.send(text(session, 20));
        producer.send(text(session, 21));
        session.close();
    }

    /** Take all in a transaction and roll back; then again: is each redelivered? */
    private static List<Boolean> rollBack(Connection connection, String name) throws JMSException {
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        MessageConsumer consumer = session.createConsumer(session.createQueue(name));
        texts(consumer);
        session.rollback();
        List<Boolean> redelivered = new ArrayList<>();
        for (Message next = consumer.receive(QUIET_MS); next != null;
                next = consumer.receive(QUIET_MS)) {
            redelivered.add(next.getJMSRedelivered());
        }
        session.commit();
        return redelivered;
    }

    /** Open the durable and the shared durable subscription, with a selector; what waits there? */
    private static void subscribe(Connection connection, String name, String selector,
            Map<String, Object> found) throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Topic topic = session.createTopic(name);
        MessageConsumer alone = session.createDurableSubscriber(topic, "alone", selector, false);
        MessageConsumer shared = session.createSharedDurableConsumer(topic, "shared", selector);
        found.put("alone", texts(alone));
        found.put("shared", texts(shared));
    }

    /** What two subscribers get of a topic and of a temporary one, of which nobody told the broker. */
    private static void topics(Connection connection, String name, Map<String, Object> found)
            throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        found.put("topic", eachOf(session, session.createTopic(name)));
        found.put("temporary", eachOf(session, session.createTemporaryTopic()));
    }

    /** One message for nobody, then two by a producer of the topic, and one by one of any destination. */
    private static List<List<String>> eachOf(Session session, Topic topic) throws JMSException {
        MessageProducer producer = session.createProducer(topic);
        producer.send(session.createTextMessage("for nobody"));
        MessageConsumer first = session.createConsumer(topic);
        MessageConsumer second = session.createConsumer(topic);
        producer.send(session.createTextMessage("a"));
        producer.send(session.createTextMessage("b"));
        session.createProducer(null).send(topic, session.createTextMessage("c"));
        return List.of(texts(first), texts(second));
    }

    private static void publish(Connection connection, String name) throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(session.createTopic(name));
        for (int n = 0; n < 10; n++) {
            producer.send(text(session, n));
        }
    }
}
