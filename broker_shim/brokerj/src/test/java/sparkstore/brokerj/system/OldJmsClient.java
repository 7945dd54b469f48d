package sparkstore.brokerj.system;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import javax.jms.Connection;
import javax.jms.DeliveryMode;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TextMessage;
import org.apache.qpid.client.AMQConnectionFactory;
import tools.jackson.databind.ObjectMapper;

/**
 * The old Qpid JMS client as a process, over AMQP 0-10 or 0-9-1: {@code main(port, version, what,
 * queue, count)}; prints what it found as one JSON object. It waits long for the {@code count}
 * messages that it shall receive, and shortly for more, which should not be there.
 */
public final class OldJmsClient {
    private static final long WAIT_MS = 30_000;
    private static final long QUIET_MS = 1_000;

    private OldJmsClient() {
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("qpid.amqp.version", arguments[1]);
        System.setProperty("qpid.dest_syntax", "BURL");
        String queue = arguments[3];
        Connection connection = new AMQConnectionFactory("amqp://guest:guest@old/?sync_publish='all'"
                + "&brokerlist='tcp://127.0.0.1:" + arguments[0] + "?sasl_mechs='ANONYMOUS''")
                .createConnection();
        Map<String, Object> found = new LinkedHashMap<>();
        try {
            connection.start();
            Session session = connection.createSession(
                    "transact".equals(arguments[2]), Session.AUTO_ACKNOWLEDGE);
            var destination = session.createQueue(
                    "BURL:direct://amq.direct//" + queue + "?durable='true'");
            if ("receive".equals(arguments[2])) {
                found.put("texts", texts(session.createConsumer(destination),
                        Integer.parseInt(arguments[4])));
            } else {
                session.createConsumer(destination).close();
                send(session, session.createProducer(destination), Integer.parseInt(arguments[4]));
            }
        } finally {
            connection.close();
        }
        System.out.println(new ObjectMapper().writeValueAsString(found));
    }

    /** In a transacted session the last message is rolled back. */
    private static void send(Session session, MessageProducer producer, int count)
            throws JMSException {
        for (int n = 0; n < count; n++) {
            TextMessage message = session.createTextMessage("m" + n);
            message.setStringProperty("region", n % 2 == 0 ? "EU" : "US");
            message.setJMSCorrelationID("c" + n);
            producer.send(message, DeliveryMode.PERSISTENT, 7, 0);
        }
        if (session.getTransacted()) {
            session.commit();
            producer.send(session.createTextMessage("never"));
            session.rollback();
        }
    }

    private static List<String> texts(MessageConsumer consumer, int expected) throws JMSException {
        List<String> texts = new ArrayList<>();
        Message next;
        do {
            next = consumer.receive(texts.size() < expected ? WAIT_MS : QUIET_MS);
            if (next != null) {
                texts.add(((TextMessage) next).getText());
            }
        } while (next != null);
        return texts;
    }
}
