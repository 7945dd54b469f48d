package sparkstore.brokerj.system;

import java.util.LinkedHashMap;
import java.util.Map;
import javax.jms.DeliveryMode;
import javax.jms.Destination;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.XAConnection;
import javax.jms.XASession;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;
import org.apache.qpid.client.AMQConnectionFactory;
import tools.jackson.databind.ObjectMapper;

/**
 * The old Qpid JMS client (AMQP 0-10) in an XA transaction: {@code main(port, what, from, to)};
 * prints what it found as one JSON object. {@code prepare} moves a message from a queue to another
 * and ends without a decision, as a client does that is killed; {@code commit} and {@code rollback}
 * decide every branch that the broker recovers.
 */
public final class XaClient {
    private static final long WAIT_MS = 20_000;

    private XaClient() {
    }

    private record Branch(int getFormatId, byte[] getGlobalTransactionId, byte[] getBranchQualifier)
            implements Xid {
        @Override
        public int getFormatId() {
            return getFormatId;
        }

        @Override
        public byte[] getGlobalTransactionId() {
            return getGlobalTransactionId;
        }

        @Override
        public byte[] getBranchQualifier() {
            return getBranchQualifier;
        }
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("qpid.amqp.version", "0-10");
        System.setProperty("qpid.dest_syntax", "BURL");
        Map<String, Object> found = new LinkedHashMap<>();
        XAConnection connection = new AMQConnectionFactory("amqp://guest:guest@xa/?brokerlist="
                + "'tcp://127.0.0.1:" + arguments[0] + "?sasl_mechs='ANONYMOUS''")
                .createXAConnection();
        try {
            connection.start();
            XASession session = connection.createXASession();
            if ("prepare".equals(arguments[1])) {
                prepare(session, arguments[2], arguments[3], found);
            } else {
                decide(session.getXAResource(), "commit".equals(arguments[1]), found);
            }
        } finally {
            connection.close();
        }
        System.out.println(new ObjectMapper().writeValueAsString(found));
    }

    private static Destination queue(Session session, String name) throws Exception {
        return session.createQueue("BURL:direct://amq.direct//" + name + "?durable='true'");
    }

    private static void prepare(XASession session, String from, String to,
            Map<String, Object> found) throws Exception {
        Xid xid = new Branch(4711, new byte[] {1, 2, 3}, new byte[] {4});
        XAResource resource = session.getXAResource();
        resource.start(xid, XAResource.TMNOFLAGS);
        try (AutoClose consumer = new AutoClose(session.createConsumer(queue(session, from)))) {
            found.put("taken", consumer.consumer.receive(WAIT_MS) != null);
            MessageProducer producer = session.createProducer(queue(session, to));
            producer.send(session.createTextMessage("moved"), DeliveryMode.PERSISTENT, 4, 0);
            resource.end(xid, XAResource.TMSUCCESS);
            found.put("prepared", resource.prepare(xid) == XAResource.XA_OK);
        }
    }

    private record AutoClose(MessageConsumer consumer) implements AutoCloseable {
        @Override
        public void close() throws Exception {
            consumer.close();
        }
    }

    private static void decide(XAResource resource, boolean isCommit, Map<String, Object> found)
            throws Exception {
        Xid[] recovered = resource.recover(XAResource.TMSTARTRSCAN | XAResource.TMENDRSCAN);
        found.put("branches", recovered.length);
        for (Xid xid : recovered) {
            if (isCommit) {
                resource.commit(xid, false);
            } else {
                resource.rollback(xid);
            }
        }
    }
}
