package sparkstore.brokerj.store;

import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The configured objects of a root, by category and key, as JSON: a copy of what the service has.
 *
 * <p>The broker reads them in four places at each start (configuration, links, preferences, XA
 * branches); kept here they are fetched once. A change is made here after it was made durable.
 */
final class ConfiguredObjects {
    static final String CONFIGURATION = "brokerj.configuration";
    static final String PREFERENCE = "brokerj.preference";
    static final String LINK = "link";
    /** XA branches that the store cannot keep as its own: see {@link ObjectBranches}. */
    static final String XID = "xid";
    /** The plugin's own notes, such as the model version that links and preferences are in. */
    static final String BROKERJ = "brokerj";

    private final Map<String, Map<String, String>> categories = new HashMap<>();

    synchronized void put(String category, String key, String detail) {
        categories.computeIfAbsent(category, any -> new LinkedHashMap<>()).put(key, detail);
    }

    synchronized void remove(String category, String key) {
        categories.getOrDefault(category, new HashMap<>()).remove(key);
    }

    synchronized String get(String category, String key) {
        return categories.getOrDefault(category, Map.of()).get(key);
    }

    /** A copy, in the order in which they came to be. */
    synchronized Map<String, String> all(String category) {
        return new LinkedHashMap<>(categories.getOrDefault(category, Map.of()));
    }

    synchronized Map<String, Map<String, String>> all() {
        Map<String, Map<String, String>> copy = new HashMap<>();
        categories.forEach((category, objects) -> copy.put(category, new LinkedHashMap<>(objects)));
        return copy;
    }
}
