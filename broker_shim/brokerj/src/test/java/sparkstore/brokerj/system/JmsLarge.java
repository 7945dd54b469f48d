package sparkstore.brokerj.system;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.Random;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * Qpid JMS and one large BytesMessage: {@code main(port, "send" or "receive", queue, bytes)};
 * prints the SHA-256 of its content.
 */
public final class JmsLarge {
    private static final int PIECE = 1 << 20;
    private static final long COMES_MS = 120_000;

    private JmsLarge() {
    }

    public static void main(String[] arguments) throws Exception {
        JmsConnectionFactory factory = new JmsConnectionFactory(
                "amqp://127.0.0.1:" + arguments[0] + "?amqp.saslMechanisms=ANONYMOUS");
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        try (Connection connection = factory.createConnection()) {
            connection.start();
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Queue queue = session.createQueue(arguments[2]);
            if (arguments[1].equals("send")) {
                BytesMessage message = session.createBytesMessage();
                fill(message, Long.parseLong(arguments[3]), digest);
                session.createProducer(queue).send(message);
            } else {
                read(session.createConsumer(queue), digest);
            }
        }
        System.out.println(HexFormat.of().formatHex(digest.digest()));
    }

    private static void fill(BytesMessage message, long length, MessageDigest digest)
            throws Exception {
        Random random = new Random(7);
        byte[] piece = new byte[PIECE];
        for (long left = length; left > 0; left -= PIECE) {
            random.nextBytes(piece);
            int count = (int) Math.min(left, PIECE);
            message.writeBytes(piece, 0, count);
            digest.update(piece, 0, count);
        }
    }

    private static void read(MessageConsumer consumer, MessageDigest digest) throws Exception {
        BytesMessage message = (BytesMessage) consumer.receive(COMES_MS);
        byte[] piece = new byte[PIECE];
        for (int count = message.readBytes(piece); count > 0; count = message.readBytes(piece)) {
            digest.update(piece, 0, count);
        }
    }
}
