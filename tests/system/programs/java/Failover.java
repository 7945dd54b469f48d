import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.qpid.jms.JmsConnectionFactory;

/** Qpid JMS over a pair of brokers: see "failover" in README.md in the folder above. */
final class Failover {
    private static final long TICK_MS = 100;
    private static final int AHEAD = 200;

    private final String queue;
    private final Set<Integer> missing = ConcurrentHashMap.newKeySet();
    private final Set<Integer> received = ConcurrentHashMap.newKeySet();
    private volatile boolean isStopping;
    private volatile boolean isSent;

    private Failover(String queue) {
        this.queue = queue;
    }

    /** Of a queue and the address: one URL, which names both brokers. */
    public static void main(String[] arguments) throws Exception {
        Failover failover = new Failover(arguments[0]);
        Connection connection = new JmsConnectionFactory(arguments[1]).createConnection();
        connection.start();
        Thread taking = new Thread(() -> failover.take(connection));
        taking.start();
        new Thread(failover::waitForEnd).start();
        failover.send(connection);
        taking.join();
        connection.close();
        System.exit(0);
    }

    /** The library connects again, and sends again what has no answer. */
    private void send(Connection connection) throws JMSException, InterruptedException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(session.createQueue(queue));
        for (int number = 1; !isStopping; number++) {
            while (missing.size() > AHEAD && !isStopping) {
                Thread.sleep(1);
            }
            producer.send(session.createTextMessage(Integer.toString(number)));
            if (!received.contains(number)) {
                missing.add(number);
                if (received.contains(number)) {
                    missing.remove(number);
                }
            }
            say("accepted", number);
        }
        isSent = true;
    }

    private void take(Connection connection) {
        try {
            Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
            MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
            while (!isSent || !missing.isEmpty()) {
                Message message = consumer.receive(TICK_MS);
                if (message != null) {
                    int number = Integer.parseInt(message.getBody(String.class));
                    received.add(number);
                    missing.remove(number);
                    say("received", number);
                    message.acknowledge();
                }
            }
        } catch (JMSException reason) {
            reason.printStackTrace();
            System.exit(1);
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
