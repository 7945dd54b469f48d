package sparkstore.brokerj.system;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import javax.jms.Connection;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.Queue;
import javax.jms.Session;
import org.apache.qpid.client.AMQConnectionFactory;

/**
 * The old Qpid JMS client, led step by step by a test: {@code main(port, queue, steps...)} over AMQP
 * 0-10. It says {@code ready STEP} when only the call is left that the step is about, makes the call
 * when it reads a line, and says {@code done STEP} with the time of the machine's monotonic clock
 * when the call has returned.
 */
public final class OldJmsSteps {
    private static final long WAIT_MS = 30_000;

    private final BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    private final Connection connection;
    private final String name;

    private OldJmsSteps(Connection connection, String name) {
        this.connection = connection;
        this.name = name;
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("qpid.amqp.version", "0-10");
        Connection connection = new AMQConnectionFactory("amqp://guest:guest@steps/?brokerlist="
                + "'tcp://localhost:" + arguments[0] + "'&sync_publish='persistent'").createConnection();
        try {
            connection.start();
            OldJmsSteps client = new OldJmsSteps(connection, arguments[1]);
            for (int n = 2; n < arguments.length; n++) {
                client.take(arguments[n]);
            }
        } finally {
            connection.close();
        }
        System.exit(0);
    }

    /** Each step has a session of its own: `send`, `acknowledge` of what was sent, or `commit` of a send. */
    private void take(String step) throws Exception {
        boolean isTransacted = "commit".equals(step);
        Session session = connection.createSession(isTransacted, Session.CLIENT_ACKNOWLEDGE);
        Queue queue = session.createQueue(
                "ADDR:" + name + "; {create: always, node: {type: queue, durable: true}}");
        Call call = switch (step) {
            case "send" -> {
                var producer = session.createProducer(queue);
                yield () -> producer.send(session.createTextMessage("by itself"));
            }
            case "acknowledge" -> {
                Message came = session.createConsumer(queue).receive(WAIT_MS);
                if (came == null) {
                    throw new JMSException("nothing came");
                }
                yield came::acknowledge;
            }
            default -> {
                session.createProducer(queue).send(session.createTextMessage("in the transaction"));
                yield session::commit;
            }
        };
        System.out.println("ready " + step);
        lines.readLine();
        call.run();
        System.out.println("done " + step + " " + System.nanoTime());
        session.close();
    }

    /** What a step is about. */
    private interface Call {
        void run() throws JMSException;
    }
}
