package sparkstore.brokerj.system;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import javax.jms.Connection;
import javax.jms.JMSException;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Queue;
import javax.jms.Session;
import javax.jms.TextMessage;
import javax.jms.XAConnection;
import javax.jms.XASession;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;
import org.apache.qpid.client.AMQConnection;
import org.apache.qpid.client.AMQConnectionFactory;
import org.apache.qpid.jms.ConnectionListener;
import tools.jackson.databind.ObjectMapper;

/**
 * Two branches of the old Qpid JMS client over AMQP 0-10, each moves one message from {@code in} to
 * {@code out}: {@code main(port, certificates)} prepares both and says so, reads a line when the
 * broker was killed and is there again, commits one branch and rolls the other one back; prints what
 * it saw as one JSON object. All of it over TLS. A connection that fails over goes on meanwhile.
 */
public final class OldJmsBranches {
    private static final long WAIT_MS = 30_000;
    private static final long QUIET_MS = 300;

    private OldJmsBranches() {
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("qpid.amqp.version", "0-10");
        XAConnection first = connection(arguments, "nofailover");
        first.start();
        Steady steady = new Steady(connection(arguments, "singlebroker"));
        steady.send("before");
        prepare(first.createXASession(), 1);
        prepare(first.createXASession(), 2);
        System.out.println("PREPARED");
        BufferedReader told = new BufferedReader(new InputStreamReader(System.in));
        told.readLine();
        XAConnection second = connection(arguments, "nofailover");
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
            saw.put("failed over", steady.sendAfterFailover("after"));
            saw.put("in", texts(second, "in"));
            saw.put("out", texts(second, "out"));
        } finally {
            second.close();
        }
        System.out.println(new ObjectMapper().writeValueAsString(saw));
        System.exit(0);
    }

    private static XAConnection connection(String[] arguments, String failover) throws Exception {
        String broker = "tcp://localhost:" + arguments[0] + "?ssl='true'&trusted_certs_path='"
                + arguments[1] + "'&retries='600'&connectdelay='50'";
        return new AMQConnectionFactory("amqp://guest:guest@branches/?brokerlist='" + broker
                + "'&failover='" + failover + "'").createXAConnection();
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

    /** A connection that outlives its broker, with a session, a producer and a consumer. */
    private static final class Steady implements ConnectionListener {
        private final CountDownLatch isBack = new CountDownLatch(1);
        private final Session session;
        private final MessageProducer producer;
        private final MessageConsumer consumer;

        Steady(Connection connection) throws JMSException {
            ((AMQConnection) connection).setConnectionListener(this);
            connection.start();
            session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            producer = session.createProducer(queue(session, "steady"));
            consumer = session.createConsumer(queue(session, "steady"));
        }

        void send(String text) throws JMSException {
            producer.send(session.createTextMessage(text));
        }

        /** Whatever was there before the failover comes, too, as it was not all acknowledged. */
        String sendAfterFailover(String text) throws Exception {
            if (!isBack.await(WAIT_MS, TimeUnit.MILLISECONDS)) {
                return "no failover";
            }
            send(text);
            TextMessage came = (TextMessage) consumer.receive(WAIT_MS);
            while (came != null && !text.equals(came.getText())) {
                came = (TextMessage) consumer.receive(WAIT_MS);
            }
            return came == null ? "nothing" : came.getText();
        }

        @Override
        public void bytesSent(long count) {
        }

        @Override
        public void bytesReceived(long count) {
        }

        @Override
        public boolean preFailover(boolean redirect) {
            return true;
        }

        @Override
        public boolean preResubscribe() {
            return true;
        }

        @Override
        public void failoverComplete() {
            isBack.countDown();
        }
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
