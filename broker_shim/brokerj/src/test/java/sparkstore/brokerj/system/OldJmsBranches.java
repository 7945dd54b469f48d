package sparkstore.brokerj.system;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.LinkedHashMap;
import java.util.Map;
import javax.jms.Connection;
import javax.jms.JMSException;
import javax.jms.MessageConsumer;
import javax.jms.Queue;
import javax.jms.Session;
import javax.jms.TextMessage;
import javax.jms.XAConnection;
import javax.jms.XASession;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;
import org.apache.qpid.client.AMQConnectionFactory;
import tools.jackson.databind.ObjectMapper;

/**
 * Two branches of the old Qpid JMS client over AMQP 0-10, each moves one message from {@code in} to
 * {@code out}: {@code main(port)} prepares both and says so, reads the port of the next broker,
 * commits one branch and rolls the other one back; prints what it saw as one JSON object.
 */
public final class OldJmsBranches {
    private static final long WAIT_MS = 30_000;
    private static final long QUIET_MS = 300;

    private OldJmsBranches() {
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("qpid.amqp.version", "0-10");
        XAConnection first = connection(arguments[0]);
        first.start();
        prepare(first.createXASession(), 1);
        prepare(first.createXASession(), 2);
        System.out.println("PREPARED");
        BufferedReader told = new BufferedReader(new InputStreamReader(System.in));
        XAConnection second = connection(told.readLine().strip());
        Map<String, Object> saw = new LinkedHashMap<>();
        try {
            second.start();
            XAResource resource = second.createXASession().getXAResource();
            Xid[] found = resource.recover(XAResource.TMSTARTRSCAN);
            saw.put("in doubt", found.length);
            for (Xid xid : found) {
                if (xid.getBranchQualifier()[0] == 1) {
                    resource.commit(xid, false);
                } else {
                    resource.rollback(xid);
                }
            }
            saw.put("left", resource.recover(XAResource.TMSTARTRSCAN).length);
            saw.put("in", texts(second, "in"));
            saw.put("out", texts(second, "out"));
        } finally {
            second.close();
        }
        System.out.println(new ObjectMapper().writeValueAsString(saw));
        System.exit(0);
    }

    private static XAConnection connection(String port) throws Exception {
        return new AMQConnectionFactory("amqp://guest:guest@branches/?brokerlist='tcp://127.0.0.1:"
                + port + "'&failover='nofailover'").createXAConnection();
    }

    private static Queue queue(Session session, String name) throws JMSException {
        return session.createQueue(
                "ADDR:" + name + "; {create: always, node: {type: queue, durable: true}}");
    }

    private static void prepare(XASession session, int number) throws Exception {
        Xid xid = new Branch(number);
        session.createProducer(queue(session, "in")).send(session.createTextMessage("in " + number));
        XAResource resource = session.getXAResource();
        resource.start(xid, XAResource.TMNOFLAGS);
        MessageConsumer consumer = session.createConsumer(queue(session, "in"));
        TextMessage message = (TextMessage) consumer.receive(WAIT_MS);
        session.createProducer(queue(session, "out"))
                .send(session.createTextMessage(message.getText() + " moved"));
        resource.end(xid, XAResource.TMSUCCESS);
        if (resource.prepare(xid) != XAResource.XA_OK) {
            throw new IllegalStateException("not prepared");
        }
        consumer.close();
    }

    private static java.util.List<String> texts(Connection connection, String name)
            throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(queue(session, name));
        java.util.List<String> texts = new java.util.ArrayList<>();
        TextMessage next = (TextMessage) consumer.receive(WAIT_MS);
        while (next != null) {
            texts.add(next.getText());
            next = (TextMessage) consumer.receive(QUIET_MS);
        }
        session.close();
        return texts;
    }

    private record Branch(int number) implements Xid {
        @Override
        public int getFormatId() {
            return 7;
        }

        @Override
        public byte[] getGlobalTransactionId() {
            return new byte[] {42};
        }

        @Override
        public byte[] getBranchQualifier() {
            return new byte[] {(byte) number};
        }
    }
}
