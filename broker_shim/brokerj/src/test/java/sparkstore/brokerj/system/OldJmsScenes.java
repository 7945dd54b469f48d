package sparkstore.brokerj.system;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import javax.jms.Connection;
import javax.jms.Destination;
import javax.jms.JMSException;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Queue;
import javax.jms.Session;
import javax.jms.TextMessage;
import javax.jms.Topic;
import org.apache.qpid.client.AMQConnectionFactory;
import tools.jackson.databind.ObjectMapper;

/**
 * The old Qpid JMS client over AMQP 0-10, one scene after the other: {@code main(port)}; prints what
 * it saw as one JSON object. What is left on {@code kept} is for clients of another protocol.
 */
public final class OldJmsScenes {
    private static final long WAIT_MS = 30_000;
    private static final long QUIET_MS = 200;
    private static final Map<String, Object> SAW = new LinkedHashMap<>();

    private OldJmsScenes() {
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("qpid.amqp.version", "0-10");
        Connection connection = new AMQConnectionFactory("amqp://guest:guest@older/?"
                + "brokerlist='tcp://127.0.0.1:" + arguments[0] + "'").createConnection();
        try {
            connection.start();
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Queue queue = session.createQueue(address("orders"));
            send(session, queue);
            transact(connection.createSession(true, Session.SESSION_TRANSACTED), session, queue);
            browse(session, queue);
            subscribe(session);
            subscribeDurably(session);
            qualified(session);
            recover(connection, queue);
            foreign(session);
            MessageProducer kept = session.createProducer(session.createQueue(address("kept")));
            kept.send(message(session, "kept"));
        } finally {
            connection.close();
        }
        System.out.println(new ObjectMapper().writeValueAsString(SAW));
    }

    private static String address(String queue) {
        return "ADDR:" + queue + "; {create: always, node: {type: queue, durable: true}}";
    }

    private static TextMessage message(Session session, String text) throws JMSException {
        TextMessage message = session.createTextMessage(text);
        message.setStringProperty("colour", "red");
        message.setIntProperty("number", 7);
        message.setLongProperty("long", 1L << 40);
        message.setBooleanProperty("flag", true);
        message.setDoubleProperty("half", 0.5);
        message.setJMSCorrelationID("corr");
        return message;
    }

    private static String text(MessageConsumer consumer, long waitMs) throws JMSException {
        TextMessage found = (TextMessage) consumer.receive(waitMs);
        return found == null ? null : found.getText();
    }

    private static void send(Session session, Queue queue) throws JMSException {
        MessageConsumer consumer = session.createConsumer(queue);
        session.createProducer(queue).send(message(session, "hello"));
        TextMessage found = (TextMessage) consumer.receive(WAIT_MS);
        SAW.put("received", Map.of("text", found.getText(), "colour",
                found.getStringProperty("colour"), "number", found.getIntProperty("number"),
                "correlation", found.getJMSCorrelationID(), "redelivered",
                found.getJMSRedelivered()));
        SAW.put("then", String.valueOf(text(consumer, QUIET_MS)));
        consumer.close();
    }

    private static void transact(Session transacted, Session session, Queue queue)
            throws JMSException {
        MessageProducer producer = transacted.createProducer(queue);
        producer.send(transacted.createTextMessage("rolled back"));
        transacted.rollback();
        producer.send(transacted.createTextMessage("committed"));
        transacted.commit();
        MessageConsumer consumer = transacted.createConsumer(queue);
        SAW.put("transacted", text(consumer, WAIT_MS));
        transacted.rollback();
        TextMessage again = (TextMessage) consumer.receive(WAIT_MS);
        SAW.put("again", again.getText() + " " + again.getJMSRedelivered());
        transacted.commit();
        SAW.put("after", String.valueOf(text(consumer, QUIET_MS)));
        transacted.close();
    }

    private static void browse(Session session, Queue queue) throws JMSException {
        MessageProducer producer = session.createProducer(queue);
        producer.send(session.createTextMessage("blue"));
        producer.send(message(session, "red"));
        SAW.put("browsed", Collections.list(session.createBrowser(queue).getEnumeration()).size());
        MessageConsumer selective = session.createConsumer(queue, "colour = 'red' AND number = 7");
        SAW.put("selected", text(selective, WAIT_MS));
        selective.close();
        MessageConsumer consumer = session.createConsumer(queue);
        SAW.put("rest", text(consumer, WAIT_MS));
        consumer.close();
    }

    private static void subscribe(Session session) throws JMSException {
        Topic topic = session.createTopic("ADDR:amq.topic/news");
        MessageConsumer subscriber = session.createConsumer(topic);
        session.createProducer(topic).send(session.createTextMessage("topical"));
        SAW.put("topic", text(subscriber, WAIT_MS));
        subscriber.close();
        MessageConsumer deaf = session.createConsumer(topic, null, true);
        MessageConsumer other = session.createConsumer(topic);
        session.createProducer(topic).send(session.createTextMessage("own"));
        SAW.put("no local", String.valueOf(text(other, WAIT_MS)) + " " + text(deaf, QUIET_MS));
        deaf.close();
        other.close();
        Destination bound = session.createQueue("BURL:direct://amq.direct//bound");
        MessageConsumer consumer = session.createConsumer(bound);
        session.createProducer(bound).send(session.createTextMessage("by BURL"));
        SAW.put("burl", text(consumer, WAIT_MS));
        consumer.close();
    }

    private static void subscribeDurably(Session session) throws JMSException {
        Topic topic = session.createTopic("ADDR:amq.topic/durable.news");
        session.createDurableSubscriber(topic, "reader").close();
        session.createProducer(topic).send(session.createTextMessage("while away"));
        MessageConsumer subscriber = session.createDurableSubscriber(topic, "reader");
        SAW.put("durably", text(subscriber, WAIT_MS));
        subscriber.close();
        session.unsubscribe("reader");
    }

    /** A queue by its address and its name. */
    private static void qualified(Session session) throws JMSException {
        Queue queue = session.createQueue(address("'prices::alice'"));
        MessageConsumer consumer = session.createConsumer(queue);
        session.createProducer(queue).send(session.createTextMessage("by full name"));
        SAW.put("qualified", text(consumer, WAIT_MS));
        consumer.close();
    }

    private static void recover(Connection connection, Queue queue) throws JMSException {
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        session.createProducer(queue).send(session.createTextMessage("recovered"));
        MessageConsumer consumer = session.createConsumer(queue);
        text(consumer, WAIT_MS);
        session.recover();
        TextMessage found = (TextMessage) consumer.receive(WAIT_MS);
        SAW.put("recovered", found.getText() + " " + found.getJMSRedelivered());
        found.acknowledge();
        session.close();
    }

    private static void foreign(Session session) throws JMSException {
        MessageConsumer consumer = session.createConsumer(session.createQueue(address("foreign")));
        TextMessage found = (TextMessage) consumer.receive(WAIT_MS);
        SAW.put("foreign", Map.of("text", found.getText(), "colour",
                found.getStringProperty("colour"), "number", found.getIntProperty("number"),
                "correlation", found.getJMSCorrelationID()));
        consumer.close();
    }
}
