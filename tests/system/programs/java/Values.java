import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Date;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.qpid.proton.amqp.Binary;
import org.apache.qpid.proton.amqp.Symbol;
import org.apache.qpid.proton.amqp.UnsignedByte;
import org.apache.qpid.proton.amqp.UnsignedInteger;
import org.apache.qpid.proton.amqp.UnsignedLong;
import org.apache.qpid.proton.amqp.UnsignedShort;

/** Values as the tests write them, {@code [type, content]}, and as Qpid JMS has them. */
final class Values {
    static final HexFormat HEX = HexFormat.of();

    private Values() {
    }

    /** @throws IllegalArgumentException there is no such type in Qpid JMS */
    static Object valueOf(Object told) {
        List<?> parts = (List<?>) told;
        String name = (String) parts.get(0);
        Object content = parts.size() > 1 ? parts.get(1) : null;
        return switch (name) {
            case "null" -> null;
            case "boolean", "string" -> content;
            case "list" -> new ArrayList<>(((List<?>) content).stream().map(Values::valueOf).toList());
            case "map" -> map((List<?>) content);
            case "char" -> (char) ((Integer) content).intValue();
            default -> fromText(name, (String) content);
        };
    }

    private static Object fromText(String name, String content) {
        return switch (name) {
            case "ubyte" -> UnsignedByte.valueOf((byte) Integer.parseInt(content));
            case "ushort" -> UnsignedShort.valueOf((short) Integer.parseInt(content));
            case "uint" -> UnsignedInteger.valueOf(content);
            case "ulong" -> UnsignedLong.valueOf(content);
            case "byte" -> Byte.valueOf(content);
            case "short" -> Short.valueOf(content);
            case "int" -> Integer.valueOf(content);
            case "long" -> Long.valueOf(content);
            case "float" -> Float.intBitsToFloat(Integer.parseUnsignedInt(content, 16));
            case "double" -> Double.longBitsToDouble(Long.parseUnsignedLong(content, 16));
            case "timestamp" -> new Date(Long.parseLong(content));
            case "uuid" -> uuid(content);
            case "binary" -> HEX.parseHex(content);
            case "symbol" -> Symbol.valueOf(content);
            default -> throw new IllegalArgumentException(name);
        };
    }

    private static UUID uuid(String hex) {
        return new UUID(Long.parseUnsignedLong(hex.substring(0, 16), 16),
                Long.parseUnsignedLong(hex.substring(16), 16));
    }

    private static Map<Object, Object> map(List<?> pairs) {
        Map<Object, Object> found = new LinkedHashMap<>();
        for (Object pair : pairs) {
            found.put(valueOf(((List<?>) pair).get(0)), valueOf(((List<?>) pair).get(1)));
        }
        return found;
    }

    /** What JMS calls an object: all that it can hold is serializable in Java's sense. */
    static Serializable serializable(Object told) {
        return (Serializable) valueOf(told);
    }

    static List<Object> toldOf(Object value) {
        if (value == null) {
            return List.of("null");
        } else if (value instanceof Boolean || value instanceof String) {
            return List.of(value instanceof String ? "string" : "boolean", value);
        } else if (value instanceof Number number) {
            return toldOfNumber(number);
        } else if (value instanceof Character character) {
            return List.of("char", (int) character);
        } else if (value instanceof Date date) {
            return List.of("timestamp", Long.toString(date.getTime()));
        } else if (value instanceof UUID uuid) {
            return List.of("uuid", uuid.toString().replace("-", ""));
        } else if (value instanceof byte[] content) {
            return List.of("binary", HEX.formatHex(content));
        } else if (value instanceof Binary content) {
            return List.of("binary", HEX.formatHex(content.asByteBuffer().array(),
                    content.getArrayOffset(), content.getArrayOffset() + content.getLength()));
        } else if (value instanceof Symbol symbol) {
            return List.of("symbol", symbol.toString());
        } else if (value instanceof List<?> items) {
            return List.of("list", items.stream().map(Values::toldOf).toList());
        } else if (value instanceof Map<?, ?> map) {
            return List.of("map", map.entrySet().stream()
                    .map(e -> List.of(toldOf(e.getKey()), toldOf(e.getValue()))).toList());
        }
        throw new IllegalArgumentException("no word for a " + value.getClass());
    }

    private static List<Object> toldOfNumber(Number value) {
        if (value instanceof Float number) {
            return List.of("float", HEX.toHexDigits(Float.floatToRawIntBits(number)));
        } else if (value instanceof Double number) {
            return List.of("double", HEX.toHexDigits(Double.doubleToRawLongBits(number)));
        }
        String name = switch (value.getClass().getSimpleName()) {
            case "UnsignedByte" -> "ubyte";
            case "UnsignedShort" -> "ushort";
            case "UnsignedInteger" -> "uint";
            case "UnsignedLong" -> "ulong";
            case "Integer" -> "int";
            default -> value.getClass().getSimpleName().toLowerCase();
        };
        return List.of(name, value.toString());
    }

    static String hexOfText(String text) {
        return HEX.formatHex(text.getBytes(StandardCharsets.UTF_8));
    }
}
