package sparkstore.brokerj.store;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.qpid.server.model.ConfiguredObject;
import org.apache.qpid.server.model.Queue;
import org.apache.qpid.server.store.ConfiguredObjectRecord;
import org.apache.qpid.server.store.ConfiguredObjectRecordImpl;
import org.apache.qpid.server.store.DurableConfigurationStore;
import org.apache.qpid.server.store.MessageStore;
import org.apache.qpid.server.store.MessageStoreProvider;
import org.apache.qpid.server.store.SizeMonitoringSettings;
import org.apache.qpid.server.store.StoreException;
import org.apache.qpid.server.store.handler.ConfiguredObjectRecordHandler;
import org.apache.qpid.server.store.preferences.PreferenceStore;
import sparkstore.brokerj.service.Failures;
import sparkstore.brokerj.service.ServiceSettings;
import sparkstore.brokerj.wire.RecordBatch;

/**
 * Configuration of one virtual host in the root that also keeps its messages, links and preferences.
 *
 * <p>Each object is a configured object of category {@code brokerj.configuration}: key = its UUID,
 * detail = JSON with type, attributes and parents. The record of a Queue also creates the queue in
 * the store, in the same request, and its removal destroys it with its messages: so SQL sees a
 * queue exactly as long as the broker has it.
 *
 * <p>It connects when the node is activated ({@link #upgradeStoreStructure}), not in {@link #init}:
 * a new node is validated by a throw-away store that is only initialised (contract, point 15).
 * Message store and configuration store may be closed in any order, each more than once (point 16);
 * the connection goes with the last of them.
 */
public final class SparkStoreConfigurationStore
        implements DurableConfigurationStore, MessageStoreProvider {
    private static final String QUEUE = Queue.class.getSimpleName();

    private enum State { CLOSED, INITIALISED, OPEN }

    private final Settings settings;
    private final SparkStoreMessageStore messageStore;
    private final SparkStorePreferenceStore preferenceStore;
    private State state = State.CLOSED;
    private StoreSession session;

    /** What the node is configured with. */
    public interface Settings extends SizeMonitoringSettings {
        /** How to reach the service; throws IllegalArgumentException for what cannot be. */
        ServiceSettings service();

        /** Path or URI of the root, for people; may be empty. */
        String root();
    }

    public SparkStoreConfigurationStore(Settings settings) {
        this.settings = settings;
        messageStore = new SparkStoreMessageStore(this::session, new NodeLocation());
        preferenceStore = new SparkStorePreferenceStore(this::session);
    }

    private final class NodeLocation implements SparkStoreMessageStore.Location {
        @Override
        public String path() {
            String root = settings.root();
            return root == null ? "" : root;
        }

        @Override
        public SizeMonitoringSettings quota() {
            return settings;
        }

        @Override
        public void messageStoreClosed() {
            closeSessionIfUnused();
        }
    }

    @Override
    public MessageStore getMessageStore() {
        return messageStore;
    }

    public PreferenceStore getPreferenceStore() {
        return preferenceStore;
    }

    /** The open session, for the link store. @throws StoreException the node is not active */
    public synchronized StoreSession session() {
        if (session == null) {
            throw new StoreException("the virtual host node is not active: its store is closed");
        }
        return session;
    }

    @Override
    public synchronized void init(ConfiguredObject<?> parent) {
        state = State.INITIALISED;
    }

    @Override
    public void upgradeStoreStructure() {
        connect();
    }

    private synchronized void connect() {
        require(State.INITIALISED);
        if (session == null) {
            try {
                session = new StoreSession(settings.service());
            } catch (IllegalArgumentException wrong) {
                throw new StoreException(wrong.getMessage(), wrong);
            }
        }
    }

    @Override
    public synchronized boolean openConfigurationStore(
            ConfiguredObjectRecordHandler handler, ConfiguredObjectRecord... initialRecords) {
        connect();
        state = State.OPEN;
        boolean isNew = records().isEmpty();
        if (isNew) {
            save(List.of(initialRecords));
        }
        reload(handler);
        return isNew;
    }

    @Override
    public synchronized void reload(ConfiguredObjectRecordHandler handler) {
        require(State.OPEN);
        records().forEach(handler::handle);
    }

    private List<ConfiguredObjectRecord> records() {
        List<ConfiguredObjectRecord> records = new ArrayList<>();
        session.configured().all(ConfiguredObjects.CONFIGURATION)
                .forEach((key, detail) -> records.add(record(key, detail)));
        return records;
    }

    @SuppressWarnings("unchecked")
    private static ConfiguredObjectRecord record(String key, String detail) {
        Map<String, Object> content = Json.read(detail);
        Map<String, UUID> parents = new LinkedHashMap<>();
        ((Map<String, String>) content.get("parents"))
                .forEach((category, id) -> parents.put(category, UUID.fromString(id)));
        return new ConfiguredObjectRecordImpl(UUID.fromString(key), (String) content.get("type"),
                (Map<String, Object>) content.get("attributes"), parents);
    }

    private static String detail(ConfiguredObjectRecord record) {
        Map<String, Object> content = new LinkedHashMap<>();
        content.put("type", record.getType());
        content.put("attributes", record.getAttributes());
        Map<String, String> parents = new LinkedHashMap<>();
        record.getParents().forEach((category, id) -> parents.put(category, id.toString()));
        content.put("parents", parents);
        return Json.write(content);
    }

    @Override
    public synchronized void create(ConfiguredObjectRecord object) {
        require(State.OPEN);
        save(List.of(object));
    }

    /** {@inheritDoc} As BDB's, it passes over an object that is not there and shall not be made. */
    @Override
    public synchronized void update(boolean createIfNecessary, ConfiguredObjectRecord... records) {
        require(State.OPEN);
        List<ConfiguredObjectRecord> wanted = new ArrayList<>();
        for (ConfiguredObjectRecord record : records) {
            if (createIfNecessary || isStored(record)) {
                wanted.add(record);
            }
        }
        save(wanted);
    }

    private boolean isStored(ConfiguredObjectRecord record) {
        String key = record.getId().toString();
        return session.configured().get(ConfiguredObjects.CONFIGURATION, key) != null;
    }

    /** One request for all, and one more for each new queue after the first (DO has one wiring record). */
    private void save(List<ConfiguredObjectRecord> records) {
        RecordBatch batch = new RecordBatch();
        Map<String, String> changes = new LinkedHashMap<>();
        List<ConfiguredObjectRecord> queues = new ArrayList<>();
        for (ConfiguredObjectRecord record : records) {
            String key = record.getId().toString();
            changes.put(key, detail(record));
            batch.configured(ConfiguredObjects.CONFIGURATION, key, changes.get(key));
            if (QUEUE.equals(record.getType()) && session.queueName(record.getId()) == null) {
                queues.add(record);
            }
        }
        for (ConfiguredObjectRecord queue : queues) {
            String name = String.valueOf(queue.getAttributes().get(ConfiguredObject.NAME));
            Failures.await(session.createQueue(queue.getId(), name, batch).decided());
            batch = new RecordBatch();
        }
        session.apply(batch);
        session.remember(ConfiguredObjects.CONFIGURATION, changes);
    }

    @Override
    public synchronized UUID[] remove(ConfiguredObjectRecord... objects) {
        require(State.OPEN);
        List<UUID> removed = new ArrayList<>();
        Map<String, String> changes = new LinkedHashMap<>();
        RecordBatch batch = new RecordBatch();
        List<UUID> queues = new ArrayList<>();
        for (ConfiguredObjectRecord object : objects) {
            String key = object.getId().toString();
            if (isStored(object)) {
                removed.add(object.getId());
                changes.put(key, null);
                batch.unconfigured(ConfiguredObjects.CONFIGURATION, key);
            }
            if (session.queueName(object.getId()) != null) {
                queues.add(object.getId());
            }
        }
        for (UUID queue : queues) {
            session.destroyQueue(queue, batch);
            batch = new RecordBatch();
        }
        session.apply(batch);
        session.remember(ConfiguredObjects.CONFIGURATION, changes);
        return removed.toArray(UUID[]::new);
    }

    @Override
    public void closeConfigurationStore() {
        synchronized (this) {
            state = State.CLOSED;
        }
        closeSessionIfUnused();
    }

    private void closeSessionIfUnused() {
        StoreSession unused = null;
        synchronized (this) {
            if (state == State.CLOSED && !messageStore.isOpen()) {
                unused = session;
                session = null;
            }
        }
        if (unused != null) {
            unused.close();
        }
    }

    /** Empties the root: queues, messages, configuration, links, preferences. Its tables stay. */
    @Override
    public synchronized void onDelete(ConfiguredObject<?> parent) {
        require(State.CLOSED);
        try (StoreSession last = new StoreSession(settings.service())) {
            last.destroyAll();
        }
    }

    private void require(State wanted) {
        boolean isGood = state == wanted || (wanted == State.INITIALISED && state == State.OPEN);
        if (!isGood) {
            throw new IllegalStateException("the store is " + state + ", not " + wanted);
        }
    }
}
