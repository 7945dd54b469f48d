package sparkstore.brokerj.store;

import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.function.Supplier;
import org.apache.qpid.server.store.preferences.PreferenceRecord;
import org.apache.qpid.server.store.preferences.PreferenceRecordImpl;
import org.apache.qpid.server.store.preferences.PreferenceStore;
import org.apache.qpid.server.store.preferences.PreferenceStoreUpdater;

/**
 * Users' preferences (saved queries, dashboards) as configured objects: key = UUID, detail =
 * attributes as JSON. Opened and closed by the virtual host.
 */
final class SparkStorePreferenceStore implements PreferenceStore {
    private static final String VERSION_KEY = "preference-version";
    private final Supplier<StoreSession> sessions;
    private StoreSession session;

    SparkStorePreferenceStore(Supplier<StoreSession> sessions) {
        this.sessions = sessions;
    }

    @Override
    public synchronized Collection<PreferenceRecord> openAndLoad(PreferenceStoreUpdater updater) {
        if (session != null) {
            throw new IllegalStateException("the preference store is open already");
        }
        session = sessions.get();
        Collection<PreferenceRecord> records = new ArrayList<>();
        session.configured().all(ConfiguredObjects.PREFERENCE).forEach((key, detail) ->
                records.add(new PreferenceRecordImpl(UUID.fromString(key), Json.read(detail))));
        String stored = ModelVersions.stored(session, VERSION_KEY);
        if (stored == null) {
            return records;
        }
        Collection<PreferenceRecord> updated = updater.updatePreferences(stored, records);
        replace(ids(records), updated);
        ModelVersions.update(session, VERSION_KEY);
        return updated;
    }

    private static Collection<UUID> ids(Collection<PreferenceRecord> records) {
        return records.stream().map(PreferenceRecord::getId).toList();
    }

    @Override
    public synchronized void close() {
        session = null;
    }

    @Override
    public void updateOrCreate(Collection<PreferenceRecord> records) {
        replace(Set.of(), records);
    }

    @Override
    public synchronized void replace(
            Collection<UUID> idsToRemove, Collection<PreferenceRecord> recordsToAdd) {
        if (session == null) {
            throw new IllegalStateException("the preference store is not open");
        }
        Map<String, String> changes = new LinkedHashMap<>();
        idsToRemove.forEach(id -> changes.put(id.toString(), null));
        recordsToAdd.forEach(record -> changes.put(
                record.getId().toString(), Json.write(record.getAttributes())));
        session.configure(ConfiguredObjects.PREFERENCE, changes);
    }

    /** Nothing of its own: the configuration store empties the root when the node is deleted. */
    @Override
    public void onDelete() {
        close();
    }
}
