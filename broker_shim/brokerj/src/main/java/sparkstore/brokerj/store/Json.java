package sparkstore.brokerj.store;

import java.util.Map;
import org.apache.qpid.server.model.ConfiguredObjectJacksonModule;
import org.apache.qpid.server.store.StoreException;
import tools.jackson.core.JacksonException;
import tools.jackson.core.type.TypeReference;
import tools.jackson.databind.ObjectMapper;

/** JSON as the broker itself writes configured objects for its stores: enums, UUIDs, model objects. */
public final class Json {
    private static final TypeReference<Map<String, Object>> MAP = new TypeReference<>() {
    };
    private static final ObjectMapper MAPPER = ConfiguredObjectJacksonModule.newObjectMapper(true);

    private Json() {
    }

    public static String write(Object value) {
        try {
            return MAPPER.writeValueAsString(value);
        } catch (JacksonException failure) {
            throw new StoreException("cannot be stored as JSON: " + value, failure);
        }
    }

    public static Map<String, Object> read(String json) {
        try {
            return MAPPER.readValue(json, MAP);
        } catch (JacksonException failure) {
            throw new StoreException("not the JSON that this plugin writes: " + json, failure);
        }
    }
}
