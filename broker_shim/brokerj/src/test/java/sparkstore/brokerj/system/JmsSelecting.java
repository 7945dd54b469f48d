package sparkstore.brokerj.system;

import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.qpid.jms.JmsConnectionFactory;
import tools.jackson.databind.ObjectMapper;

/**
 * Qpid JMS and what a queue does for its consumers: {@code main(port, what, queue, selector...)};
 * prints what it found as one JSON object.
 */
public final class JmsSelecting {
    /** After it this client asks the broker by a drain: that, not the time, says that it is empty. */
    private static final long QUIET_MS = 500;
    private static final long COMES_MS = 20_000;

    private JmsSelecting() {
    }

    public static void main(String[] arguments) throws Exception {
        JmsConnectionFactory factory = new JmsConnectionFactory(
                "amqp://127.0.0.1:" + arguments[0] + "?amqp.saslMechanisms=ANONYMOUS");
        Map<String, Object> found = new LinkedHashMap<>();
        try (Connection connection = factory.createConnection()) {
            connection.start();
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Queue queue = session.createQueue(arguments[2]);
            switch (arguments[1]) {
                case "select" -> select(session, queue, arguments, found);
                case "subscribe" -> subscribe(session, arguments, found);
                case "prioritise" -> prioritise(session, queue, found);
                case "group" -> group(connection, session, queue, found);
                case "replace" -> replace(session, queue, found);
                case "exclude" -> exclude(connection, session, queue, found);
                case "expire" -> expire(session, queue, found);
                case "delay" -> delay(session, queue, found);
                default -> throw new IllegalArgumentException(arguments[1]);
            }
        }
        System.out.println(new ObjectMapper().writeValueAsString(found));
    }

    private static TextMessage of(Session session, int n) throws JMSException {
        TextMessage message = session.createTextMessage("m" + n);
        message.setIntProperty("n", n);
        message.setLongProperty("big", n * 10_000_000_000L);
        message.setDoubleProperty("weight", n / 2.0);
        message.setFloatProperty("half", 0.5f);
        message.setBooleanProperty("even", n % 2 == 0);
        message.setByteProperty("b", (byte) n);
        message.setShortProperty("s", (short) n);
        message.setStringProperty("region", n % 2 == 0 ? "EU" : "US");
        message.setJMSType("order");
        message.setJMSCorrelationID("c" + n);
        return message;
    }

    /** Send ten; then, for each selector: what a browser and then a consumer with it gets. */
    private static void select(Session session, Queue queue, String[] arguments,
            Map<String, Object> found) throws JMSException {
        MessageProducer producer = session.createProducer(queue);
        List<String> ids = new ArrayList<>();
        for (int n = 0; n < 10; n++) {
            Message message = of(session, n);
            int mode = n < 5 ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT;
            producer.send(message, mode, n % 3, 0);
            ids.add(message.getJMSMessageID());
        }
        found.put("by id", browse(session, queue, "JMSMessageID = '" + ids.get(7) + "'"));
        for (int at = 3; at < arguments.length; at++) {
            found.put(arguments[at], browse(session, queue, arguments[at]));
        }
        try (MessageConsumer consumer = session.createConsumer(queue, arguments[3])) {
            found.put("consumed", texts(consumer));
        }
        found.put("left", browse(session, queue, null));
        try {
            session.createConsumer(queue, "n = 1 AND AND");
        } catch (JMSException refused) {
            found.put("refused", refused.getClass().getSimpleName());
        }
    }

    private static void subscribe(Session session, String[] arguments, Map<String, Object> found)
            throws JMSException {
        jakarta.jms.Topic topic = session.createTopic(arguments[2]);
        MessageConsumer consumer = session.createConsumer(topic, arguments[3]);
        MessageProducer producer = session.createProducer(topic);
        for (int n = 0; n < 10; n++) {
            producer.send(of(session, n));
        }
        found.put("consumed", texts(consumer));
    }

    private static void prioritise(Session session, Queue queue, Map<String, Object> found)
            throws JMSException {
        MessageProducer producer = session.createProducer(queue);
        for (int priority : new int[] {4, 0, 9, 4, 7}) {
            Message message = session.createTextMessage("p" + priority);
            producer.send(message, DeliveryMode.PERSISTENT, priority, 0);
        }
        found.put("browsed", browse(session, queue, null));
        try (MessageConsumer consumer = session.createConsumer(queue, "JMSPriority >= 4")) {
            found.put("selected", texts(consumer));
        }
        try (MessageConsumer consumer = session.createConsumer(queue)) {
            found.put("rest", texts(consumer));
        }
    }

    /** Two consumers at once: which groups each got, in which order; then one leaves. */
    private static void group(Connection connection, Session session, Queue queue,
            Map<String, Object> found) throws JMSException {
        Session other = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageConsumer one = session.createConsumer(queue);
        MessageConsumer two = other.createConsumer(queue);
        sendGroups(session, queue, 0);
        found.put("one", texts(one));
        found.put("two", texts(two));
        one.close();
        sendGroups(other, queue, 20);
        found.put("after", texts(two));
    }

    private static void sendGroups(Session session, Queue queue, int from) throws JMSException {
        MessageProducer producer = session.createProducer(queue);
        for (int n = from; n < from + 20; n++) {
            Message message = session.createTextMessage(n % 4 + ":" + n);
            message.setStringProperty("JMSXGroupID", "g" + n % 4);
            producer.send(message);
        }
        producer.close();
    }

    private static void replace(Session session, Queue queue, Map<String, Object> found)
            throws JMSException {
        MessageProducer producer = session.createProducer(queue);
        for (int n = 0; n < 9; n++) {
            Message message = session.createTextMessage("v" + n);
            message.setIntProperty("key", n % 3);
            producer.send(message);
        }
        found.put("browsed", browse(session, queue, null));
        try (MessageConsumer consumer = session.createConsumer(queue)) {
            found.put("consumed", texts(consumer));
        }
    }

    private static void exclude(Connection connection, Session session, Queue queue,
            Map<String, Object> found) throws JMSException {
        MessageConsumer first = session.createConsumer(queue);
        try {
            connection.createSession(false, Session.AUTO_ACKNOWLEDGE).createConsumer(queue);
        } catch (JMSException refused) {
            found.put("refused", refused.getClass().getSimpleName() + ": " + refused.getMessage());
        }
        first.close();
        session.createConsumer(queue).close();
        found.put("browsed", browse(session, queue, null));
    }

    /** One that lives a millisecond, behind one that stays: the second is all that comes. */
    private static void expire(Session session, Queue queue, Map<String, Object> found)
            throws JMSException {
        MessageProducer producer = session.createProducer(queue);
        producer.send(session.createTextMessage("short"), DeliveryMode.PERSISTENT, 9, 1);
        producer.send(session.createTextMessage("long"), DeliveryMode.PERSISTENT, 4, COMES_MS);
        MessageConsumer consumer = session.createConsumer(queue, "JMSPriority > 0");
        found.put("consumed", texts(consumer));
    }

    /** One with a delivery delay of JMS 2.0, before one without: it comes later, and says when. */
    private static void delay(Session session, Queue queue, Map<String, Object> found)
            throws JMSException {
        MessageProducer producer = session.createProducer(queue);
        producer.setDeliveryDelay(QUIET_MS / 2);
        TextMessage late = session.createTextMessage("late");
        producer.send(late);
        producer.setDeliveryDelay(0);
        producer.send(session.createTextMessage("now"));
        MessageConsumer consumer = session.createConsumer(queue);
        List<String> order = new ArrayList<>();
        for (int n = 0; n < 2; n++) {
            TextMessage next = (TextMessage) consumer.receive(COMES_MS);
            order.add(next.getText());
            if (next.getText().equals("late")) {
                found.put("in time", System.currentTimeMillis() >= next.getJMSDeliveryTime());
                found.put("told", next.getJMSDeliveryTime() == late.getJMSDeliveryTime());
            }
        }
        found.put("consumed", order);
    }

    private static List<String> texts(MessageConsumer consumer) throws JMSException {
        List<String> texts = new ArrayList<>();
        for (Message next = consumer.receive(QUIET_MS); next != null;
                next = consumer.receive(QUIET_MS)) {
            texts.add(((TextMessage) next).getText());
        }
        return texts;
    }

    private static List<String> browse(Session session, Queue queue, String selector)
            throws JMSException {
        List<String> texts = new ArrayList<>();
        try (QueueBrowser browser = session.createBrowser(queue, selector)) {
            for (Object next : Collections.list(browser.getEnumeration())) {
                texts.add(((TextMessage) next).getText());
            }
        }
        return texts;
    }
}
