package sparkstore.brokerj.store;

import java.util.LinkedHashMap;
import java.util.Map;

/** The link category of a root, for the link store of the AMQP 1.0 plugin. */
public final class LinkRecords {
    public static final String VERSION_KEY = "link-version";

    private LinkRecords() {
    }

    /** All links: detail (JSON) by key. */
    public static Map<String, Map<String, Object>> all(StoreSession session) {
        Map<String, Map<String, Object>> links = new LinkedHashMap<>();
        session.configured().all(ConfiguredObjects.LINK)
                .forEach((key, detail) -> links.put(key, Json.read(detail)));
        return links;
    }

    /** Remove every link, together and durably. */
    public static void removeAll(StoreSession session) {
        Map<String, Map<String, Object>> changes = new LinkedHashMap<>();
        all(session).keySet().forEach(key -> changes.put(key, null));
        change(session, changes);
    }

    /** Links as they shall be, together and durably; null removes. */
    public static void change(StoreSession session, Map<String, Map<String, Object>> changes) {
        Map<String, String> details = new LinkedHashMap<>();
        changes.forEach((key, detail) -> details.put(key, detail == null ? null : Json.write(detail)));
        session.configure(ConfiguredObjects.LINK, details);
    }
}
