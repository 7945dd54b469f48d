package sparkstore.brokerj.store;

import org.apache.qpid.server.message.AMQMessageHeader;
import org.apache.qpid.server.protocol.v1_0.MessageMetaData_1_0;

/** AMQP 1.0's subject, which the broker's common header interface does not have. */
final class Subject {
    private static final boolean HAS_AMQP_1_0 = hasAmqp10();

    private Subject() {
    }

    private static boolean hasAmqp10() {
        try {
            return MessageMetaData_1_0.MessageHeader_1_0.class != null;
        } catch (NoClassDefFoundError absent) {
            return false;
        }
    }

    /** The subject; null for another protocol, or where the AMQP 1.0 plugin is not installed. */
    static String of(AMQMessageHeader header) {
        return HAS_AMQP_1_0 ? Amqp10.subject(header) : null;
    }

    /** Apart, so that the class is only linked where the plugin is there. */
    private static final class Amqp10 {
        static String subject(AMQMessageHeader header) {
            return header instanceof MessageMetaData_1_0.MessageHeader_1_0 known
                    ? known.getSubject() : null;
        }
    }
}
