import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import javax.jms.Connection;
import javax.jms.JMSException;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Queue;
import javax.jms.Session;
import javax.jms.TextMessage;
import org.apache.qpid.client.AMQConnectionFactory;

/** The old Qpid JMS client (AMQP 0-10) over a pair of brokers: "failover" in README.md above. */
final class OldFailover {
    private static final long TICK_MS = 100;
    private static final int AHEAD = 200;

    private final Set<Integer> missing = ConcurrentHashMap.newKeySet();
    private final Set<Integer> received = ConcurrentHashMap.newKeySet();
    private final String queue;
    private volatile boolean isStopping;
    private volatile boolean isSent;

    private OldFailover(String queue) {
        this.queue = queue;
    }

    /** Of a queue and the address: one URL, which names both brokers. */
    public static void main(String[] arguments) throws Exception {
        System.setProperty("qpid.amqp.version", "0-10");
        OldFailover failover = new OldFailover(arguments[0]);
        Connection sending = connection(arguments[1]);
        Connection receiving = connection(arguments[1]);
        Thread taking = new Thread(() -> failover.take(receiving));
        taking.start();
        new Thread(failover::waitForEnd).start();
        failover.send(sending);
        taking.join();
        System.exit(0);
    }

    private static Connection connection(String url) throws Exception {
        Connection connection = new AMQConnectionFactory(url).createConnection();
        connection.start();
        return connection;
    }

    private Queue destination(Session session) throws JMSException {
        return session.createQueue(
                "ADDR:" + queue + "; {create: always, node: {type: queue, durable: true}}");
    }

    private void send(Connection connection) throws JMSException, InterruptedException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(destination(session));
        for (int number = 1; !isStopping;) {
            while (missing.size() > AHEAD && !isStopping) {
                Thread.sleep(1);
            }
            try {
                producer.send(session.createTextMessage(Integer.toString(number)));
                if (!received.contains(number)) {
                    missing.add(number);
                    if (received.contains(number)) {
                        missing.remove(number);
                    }
                }
                say("accepted", number++);
            } catch (JMSException lost) {
                lost.printStackTrace();
                say("lost", number);
                Thread.sleep(TICK_MS);
            }
        }
        isSent = true;
    }

    private void take(Connection connection) {
        try {
            Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
            MessageConsumer consumer = session.createConsumer(destination(session));
            while (!isSent || !missing.isEmpty()) {
                TextMessage message = (TextMessage) consumer.receive(TICK_MS);
                if (message != null) {
                    int number = Integer.parseInt(message.getText());
                    received.add(number);
                    missing.remove(number);
                    say("received", number);
                    acknowledge(message);
                }
            }
        } catch (JMSException reason) {
            reason.printStackTrace();
            System.exit(1);
        }
    }

    private static void acknowledge(TextMessage message) {
        try {
            message.acknowledge();
        } catch (JMSException lost) {
            say("lost", 0); // it comes again
        }
    }

    private void waitForEnd() {
        try {
            System.in.readAllBytes();
        } catch (java.io.IOException gone) {
            // whoever started this is gone, which is the end, too
        }
        isStopping = true;
    }

    private static synchronized void say(String word, int number) {
        System.out.println(word + " " + number);
        System.out.flush();
    }
}
