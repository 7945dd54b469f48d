package sparkstore.brokerj.system;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * Qpid JMS, led step by step by a test: {@code main(port, queue, steps...)} over AMQP 1.0. It says
 * {@code ready STEP} when only the call is left that the step is about, makes the call when it
 * reads a line, and says {@code done STEP} with the time of the machine's monotonic clock when the
 * call has returned.
 */
public final class JmsSteps {
    private static final long WAIT_MS = 30_000;

    private final BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    private final Connection connection;
    private final String name;

    private JmsSteps(Connection connection, String name) {
        this.connection = connection;
        this.name = name;
    }

    public static void main(String[] arguments) throws Exception {
        JmsConnectionFactory factory =
                new JmsConnectionFactory("amqp://127.0.0.1:" + arguments[0] + "?amqp.saslMechanisms=ANONYMOUS");
        try (Connection connection = factory.createConnection()) {
            connection.start();
            JmsSteps client = new JmsSteps(connection, arguments[1]);
            for (int n = 2; n < arguments.length; n++) {
                client.take(arguments[n]);
            }
        }
    }

    /** Each step has a session of its own: `send`, or `commit` of what was received and sent. */
    private void take(String step) throws Exception {
        boolean isTransacted = "commit".equals(step);
        try (Session session = connection.createSession(isTransacted, Session.AUTO_ACKNOWLEDGE)) {
            Queue queue = session.createQueue(name);
            MessageProducer producer = session.createProducer(queue);
            if (isTransacted) {
                if (session.createConsumer(queue).receive(WAIT_MS) == null) {
                    throw new JMSException("nothing came");
                }
                producer.send(session.createTextMessage("in the transaction"));
            }
            System.out.println("ready " + step);
            lines.readLine();
            if (isTransacted) {
                session.commit();
            } else {
                producer.send(session.createTextMessage("by itself"));
            }
            System.out.println("done " + step + " " + System.nanoTime());
        }
    }
}
