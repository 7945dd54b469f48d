package sparkstore.brokerj.store;

import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.qpid.server.store.StoreException;
import sparkstore.brokerj.service.Recovery;

/**
 * Which queue of the store is which queue of the broker.
 *
 * <p>Broker-J knows a queue by its UUID, the store and its SQL by its name, so a queue is created
 * under its name and its definition carries the UUID. Where the name is taken by another UUID (an
 * old queue whose end was not recorded) it is "name (uuid)".
 *
 * <p>The plugin is the only member of its root, so what it knows here is what is there. But a queue
 * that was altered while no service ran (sparkstore queue alter) has another definition than the one
 * made here: whoever creates it again has to say that one, or is refused.
 */
final class QueueNames {
    private static final String UUID_ARGUMENT = "brokerj_id";
    private final Map<UUID, String> names = new ConcurrentHashMap<>();
    private final Map<String, UUID> ids = new ConcurrentHashMap<>();
    private final Map<UUID, String> recovered = new ConcurrentHashMap<>();

    /** Take over a definition that was recovered; what is no queue of ours is left alone. */
    void recovered(Recovery.Wiring row) {
        if ("queue".equals(row.type())
                && Json.read(row.detail()).get("arguments") instanceof Map<?, ?> arguments
                && arguments.get(UUID_ARGUMENT) instanceof String id) {
            put(UUID.fromString(id), row.name());
            recovered.put(UUID.fromString(id), row.detail());
        }
    }

    /** From now on the queue is there. */
    void put(UUID id, String name) {
        names.put(id, name);
        ids.put(name, id);
    }

    /** Name in the store; null if this UUID was never seen, or its queue was destroyed. */
    String nameOf(UUID id) {
        return names.get(id);
    }

    /** The broker's UUID; null for a queue that the broker did not make. */
    UUID idOf(String name) {
        return ids.get(name);
    }

    /** The name for a new queue: the wanted one if it is free. */
    String free(UUID id, String wanted) {
        UUID owner = ids.get(wanted);
        return owner == null || owner.equals(id) ? wanted : wanted + " (" + id + ")";
    }

    /** Nobody can say whether the queue is there: it is to be created again, under its name. */
    void doubt(UUID id) {
        names.remove(id);
    }

    /** The queue goes; null if there is none of this UUID. */
    String forget(UUID id) {
        String name = names.remove(id);
        if (name != null) {
            ids.remove(name);
        }
        return name;
    }

    Map<UUID, String> all() {
        return Map.copyOf(names);
    }

    /**
     * What a queue is created with: as it was recovered, else as sparkstore/core/state_machine/definitions.py writes
     * it, keys sorted, a blank after colon and comma.
     */
    String definition(UUID id) {
        if (id == null) {
            throw new StoreException("a queue without an id cannot be stored");
        }
        String known = recovered.get(id);
        return known != null ? known : "{\"arguments\": {\"" + UUID_ARGUMENT + "\": \"" + id + "\"}, \"durability\": 2}";
    }
}
