import jakarta.jms.BytesMessage;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageEOFException;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Enumeration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Messages as the tests write them and as JMS has them: {@code data} is a BytesMessage, {@code
 * sequence} a StreamMessage, {@code value} a TextMessage, a MapMessage, a Message or, for whatever
 * these cannot hold, an ObjectMessage that is encoded as an AMQP value; {@code object} is one that
 * Java serializes; {@code file} is a BytesMessage of a file's content, told again by its digest.
 */
final class Messages {
    private static final int LARGE_BYTES = 1 << 24;
    private static final String TYPED = "JMS_AMQP_TYPED_ENCODING";
    private static final String REPLY_TO_GROUP = "JMS_AMQP_REPLY_TO_GROUP_ID";
    private static final Set<String> FLAT = Set.of("null", "boolean", "byte", "short", "char",
            "int", "long", "float", "double", "string", "binary");

    private Messages() {
    }

    static Message write(Session session, Map<String, Object> told) throws JMSException {
        Message message = body(session, part(told, "body"));
        Map<String, Object> properties = part(told, "properties");
        message.setJMSType((String) properties.get("subject"));
        message.setJMSCorrelationID((String) properties.get("correlation_id"));
        if (properties.get("reply_to") instanceof String name) {
            message.setJMSReplyTo(session.createQueue(name));
        }
        if (properties.get("group_id") instanceof String name) {
            message.setStringProperty("JMSXGroupID", name);
        }
        if (properties.get("group_sequence") instanceof Integer number) {
            message.setIntProperty("JMSXGroupSeq", number);
        }
        if (properties.get("reply_to_group_id") instanceof String name) {
            message.setStringProperty(REPLY_TO_GROUP, name);
        }
        for (Map.Entry<String, Object> property : part(told, "application").entrySet()) {
            message.setObjectProperty(property.getKey(), Values.valueOf(property.getValue()));
        }
        return message;
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> part(Map<String, Object> told, String name) {
        return (Map<String, Object>) told.getOrDefault(name, Map.of());
    }

    private static Message body(Session session, Map<String, Object> body) throws JMSException {
        if (body.get("data") instanceof List<?> sections) {
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(Values.HEX.parseHex((String) sections.get(0)));
            return message;
        } else if (body.get("sequence") instanceof List<?> sections) {
            StreamMessage message = session.createStreamMessage();
            for (Object item : (List<?>) sections.get(0)) {
                message.writeObject(Values.valueOf(item));
            }
            return message;
        } else if (body.get("file") instanceof String name) {
            return bytesOf(session, Path.of(name));
        } else if (body.get("object") instanceof String text) {
            return session.createObjectMessage(text);
        }
        return value(session, body.get("value"));
    }

    private static Message bytesOf(Session session, Path file) throws JMSException {
        BytesMessage message = session.createBytesMessage();
        try {
            message.writeBytes(Files.readAllBytes(file));
        } catch (IOException reason) {
            throw new UncheckedIOException(reason);
        }
        return message;
    }

    private static Message value(Session session, Object told) throws JMSException {
        Object value = told == null ? null : Values.valueOf(told);
        if (value == null) {
            return session.createMessage();
        } else if (value instanceof String text) {
            return session.createTextMessage(text);
        } else if (isFlat((List<?>) told)) {
            MapMessage message = session.createMapMessage();
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                message.setObject((String) entry.getKey(), entry.getValue());
            }
            return message;
        }
        ObjectMessage message = session.createObjectMessage();
        message.setBooleanProperty(TYPED, true);
        message.setObject((Serializable) value);
        return message;
    }

    private static boolean isFlat(List<?> told) {
        return told.get(0).equals("map") && ((List<?>) told.get(1)).stream().allMatch(pair ->
                pair instanceof List<?> both && ((List<?>) both.get(0)).get(0).equals("string")
                        && FLAT.contains(((List<?>) both.get(1)).get(0)));
    }

    static Map<String, Object> read(Message message) throws JMSException {
        long expires = message.getJMSExpiration();
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("header", Map.of(
                "durable", message.getJMSDeliveryMode() == jakarta.jms.DeliveryMode.PERSISTENT,
                "priority", message.getJMSPriority(),
                "ttl", expires == 0 ? 0 : expires - System.currentTimeMillis(),
                "delivery_count", message.getIntProperty("JMSXDeliveryCount") - 1));
        told.put("properties", properties(message));
        Map<String, Object> application = new LinkedHashMap<>();
        for (Object name : names(message.getPropertyNames())) {
            if (!name.toString().startsWith("JMS")) {
                application.put(name.toString(),
                        Values.toldOf(message.getObjectProperty(name.toString())));
            }
        }
        told.put("application", application);
        told.put("body", body(message));
        told.put("class", message.getClass().getSimpleName());
        return told;
    }

    private static Map<String, Object> properties(Message message) throws JMSException {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("message_id", message.getJMSMessageID());
        found.put("correlation_id", message.getJMSCorrelationID());
        found.put("subject", message.getJMSType());
        found.put("to", nameOf(message.getJMSDestination()));
        found.put("reply_to", nameOf(message.getJMSReplyTo()));
        found.put("group_id", message.getStringProperty("JMSXGroupID"));
        found.put("group_sequence", message.getObjectProperty("JMSXGroupSeq"));
        found.put("reply_to_group_id", message.getStringProperty(REPLY_TO_GROUP));
        found.put("creation_time", message.getJMSTimestamp() == 0 ? null : message.getJMSTimestamp());
        found.put("absolute_expiry_time",
                message.getJMSExpiration() == 0 ? null : message.getJMSExpiration());
        String user = message.getStringProperty("JMSXUserID");
        found.put("user_id", user == null ? null : Values.hexOfText(user));
        found.values().removeIf(value -> value == null);
        return found;
    }

    private static String nameOf(Destination destination) throws JMSException {
        if (destination instanceof Topic topic) {
            return topic.getTopicName();
        }
        return destination instanceof Queue queue ? queue.getQueueName() : null;
    }

    private static Map<String, Object> body(Message message) throws JMSException {
        if (message instanceof TextMessage text) {
            return Map.of("value", Values.toldOf(text.getText()));
        } else if (message instanceof BytesMessage bytes) {
            byte[] content = new byte[(int) bytes.getBodyLength()];
            bytes.readBytes(content);
            if (content.length > LARGE_BYTES) {
                return Map.of("bytes", content.length, "sha256", sha256(content));
            }
            return Map.of("data", List.of(Values.HEX.formatHex(content)));
        } else if (message instanceof MapMessage map) {
            Map<Object, Object> found = new LinkedHashMap<>();
            for (Object name : names(map.getMapNames())) {
                found.put(name, map.getObject(name.toString()));
            }
            return Map.of("value", Values.toldOf(found));
        } else if (message instanceof StreamMessage stream) {
            return Map.of("sequence", List.of(items(stream)));
        } else if (message instanceof ObjectMessage object) {
            return Map.of("value", Values.toldOf(object.getObject()));
        }
        return Map.of("value", Values.toldOf(null));
    }

    private static String sha256(byte[] content) {
        try {
            return Values.HEX.formatHex(MessageDigest.getInstance("SHA-256").digest(content));
        } catch (NoSuchAlgorithmException never) {
            throw new IllegalStateException(never);
        }
    }

    /** JMS has these without a type. */
    private static List<?> names(Enumeration<?> names) {
        return Collections.list(names);
    }

    private static List<Object> items(StreamMessage stream) throws JMSException {
        List<Object> found = new ArrayList<>();
        try {
            while (true) {
                found.add(Values.toldOf(stream.readObject()));
            }
        } catch (MessageEOFException end) {
            return found;
        }
    }
}
