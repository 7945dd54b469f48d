package sparkstore.brokerj.store;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import org.apache.qpid.server.model.BrokerModel;
import org.apache.qpid.server.store.ConfiguredObjectRecord;
import org.apache.qpid.server.store.ConfiguredObjectRecordImpl;
import org.apache.qpid.server.store.MessageStore;
import org.apache.qpid.server.store.StoreException;
import org.apache.qpid.server.store.preferences.PreferenceRecord;
import org.apache.qpid.server.store.preferences.PreferenceRecordImpl;
import org.apache.qpid.server.store.preferences.PreferenceStore;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import sparkstore.brokerj.store.Samples.SampleQueue;

/** Configuration and preferences across restarts, against the real service. */
@Timeout(120)
class ConfigurationContractTest {
    @TempDir Path folder;
    private RealService service;
    private SparkStoreConfigurationStore store;
    private final ConfiguredObjectRecord host =
            record("VirtualHost", "host", Map.of("modelVersion", BrokerModel.MODEL_VERSION),
                    Map.of("VirtualHostNode", UUID.randomUUID()));

    @BeforeEach
    void open() throws Exception {
        service = new RealService(folder);
        assertTrue(start(), "the first opening is of an empty store");
    }

    private final Set<ConfiguredObjectRecord> found = new HashSet<>();

    private boolean start() {
        found.clear();
        store = service.store();
        store.init(null);
        store.upgradeStoreStructure();
        return store.openConfigurationStore(found::add, host);
    }

    private void restart() throws Exception {
        store.closeConfigurationStore();
        service.kill();
        service.start();
        assertFalse(start());
    }

    @AfterEach
    void close() throws Exception {
        if (service != null) {
            store.closeConfigurationStore();
            service.close();
        }
    }

    private static ConfiguredObjectRecord record(
            String type, String name, Map<String, Object> more, Map<String, UUID> parents) {
        Map<String, Object> attributes = new java.util.HashMap<>(more);
        attributes.put("name", name);
        return new ConfiguredObjectRecordImpl(UUID.randomUUID(), type, attributes, parents);
    }

    private ConfiguredObjectRecord queue(String name) {
        return record("Queue", name, Map.of("maximumDeliveryAttempts", 3,
                "alternateBinding", Map.of("destination", "dlq")), Map.of("VirtualHost", host.getId()));
    }

    @Test
    void linksOfADeletedHostDoNotComeBack() throws Exception {
        Map<String, Map<String, Object>> links =
                Map.of("a", Map.of("name", "one"), "b", Map.of("name", "two"));
        LinkRecords.change(store.session(), links);
        restart();
        assertEquals(links, LinkRecords.all(store.session()));
        LinkRecords.removeAll(store.session());
        restart();
        assertEquals(Map.of(), LinkRecords.all(store.session()));
    }

    @Test
    void initialRecordsAreKeptAndSeenAgain() throws Exception {
        assertEquals(Set.of(host), found);
        restart();
        assertEquals(Set.of(host), found);
        assertEquals(Map.of(), byId(host.getId()).getParents(), "the node may have another id now");
    }

    @Test
    void createUpdateRemove() throws Exception {
        ConfiguredObjectRecord first = queue("first");
        ConfiguredObjectRecord second = queue("second");
        store.create(first);
        store.update(true, second);
        store.update(false, queue("not there and not to be made"));
        ConfiguredObjectRecord changed = new ConfiguredObjectRecordImpl(first.getId(), "Queue",
                Map.of("name", "first", "maximumDeliveryAttempts", 9), first.getParents());
        store.update(false, changed);
        restart();
        assertEquals(Set.of(host, changed, second), found);
        assertEquals(first.getParents(), byId(first.getId()).getParents());
        assertArrayEquals(new UUID[] {first.getId()},
                store.remove(changed, queue("never there")));
        assertArrayEquals(new UUID[0], store.remove(changed));
        restart();
        assertEquals(Set.of(host, second), found);
        found.clear();
        store.reload(found::add);
        assertEquals(Set.of(host, second), found);
    }

    private ConfiguredObjectRecord byId(UUID id) {
        return found.stream().filter(each -> each.getId().equals(id)).findAny().orElseThrow();
    }

    @Test
    void aQueuesRecordCreatesItAndItsRemovalDestroysItWithItsMessages() throws Exception {
        ConfiguredObjectRecord kept = queue("kept");
        ConfiguredObjectRecord gone = queue("gone");
        store.update(true, kept, gone);
        MessageStore messages = store.getMessageStore();
        messages.openMessageStore(null);
        EntryRecord entry = (EntryRecord) Samples.enqueue(messages,
                new SampleQueue("kept", kept.getId()), Samples.message(messages, Samples.body(3)));
        EntryRecord lost = (EntryRecord) Samples.enqueue(messages,
                new SampleQueue("gone", gone.getId()), Samples.message(messages, Samples.body(3)));
        store.remove(gone);
        assertEquals(List.of(entry), Samples.entries(messages));
        Samples.dequeue(messages, lost);
        messages.closeMessageStore();
        restart();
        assertEquals(Set.of(host, kept), found);
        store.create(queue("gone"));
    }

    @Test
    void itCanBeClosedInAnyOrderMoreThanOnceAndOpenedAgain() throws Exception {
        MessageStore messages = store.getMessageStore();
        messages.openMessageStore(null);
        store.closeConfigurationStore();
        store.closeConfigurationStore();
        Samples.enqueue(messages, Samples.queue("q"), Samples.message(messages, Samples.body(1)));
        messages.closeMessageStore();
        messages.closeMessageStore();
        assertThrows(IllegalStateException.class, () -> store.create(queue("closed")));
        assertThrows(StoreException.class, () -> messages.openMessageStore(null));
        store.init(null);
        store.upgradeStoreStructure();
        assertFalse(store.openConfigurationStore(record -> { }));
        messages.openMessageStore(null);
        assertEquals(1, Samples.messages(messages).size());
        messages.closeMessageStore();
    }

    @Test
    void aThrowAwayStoreThatIsOnlyInitialisedDisturbsNobody() {
        SparkStoreConfigurationStore other = service.store();
        other.init(null);
        other.closeConfigurationStore();
        store.create(queue("q"));
    }

    @Test
    void anotherHostsRootIsRefused() {
        store.closeConfigurationStore();
        SparkStoreConfigurationStore other = service.store("another", null, 0, 0);
        other.init(null);
        StoreException failure = assertThrows(StoreException.class, other::upgradeStoreStructure);
        assertTrue(failure.getMessage().contains("'host'")
                && failure.getMessage().contains("'another'")
                && failure.getMessage().contains("formerName = 'host'"), failure.getMessage());
    }

    @Test
    void aNodeThatNamesTheFormerOneTakesOverItsRoot() throws Exception {
        store.closeConfigurationStore();
        store.onDelete(null);
        SparkStoreConfigurationStore stranger = service.heir("heir", "nobody");
        stranger.init(null);
        assertThrows(StoreException.class, stranger::upgradeStoreStructure);
        SparkStoreConfigurationStore heir = service.heir("heir", "host");
        heir.init(null);
        heir.upgradeStoreStructure();
        heir.closeConfigurationStore();
        SparkStoreConfigurationStore again = service.store("heir", null, 0, 0);
        again.init(null);
        again.upgradeStoreStructure();
        again.closeConfigurationStore();
        store.init(null);
        assertThrows(StoreException.class, store::upgradeStoreStructure);
    }

    @Test
    void deletionEmptiesTheRoot() throws Exception {
        store.create(queue("q"));
        assertThrows(IllegalStateException.class, () -> store.onDelete(null));
        store.closeConfigurationStore();
        store.onDelete(null);
        assertTrue(start(), "nothing is left");
        assertEquals(Set.of(host), found);
    }

    @Test
    void preferences() throws Exception {
        PreferenceStore preferences = store.getPreferenceStore();
        PreferenceRecord first = new PreferenceRecordImpl(UUID.randomUUID(), Map.of("name", "a"));
        PreferenceRecord second = new PreferenceRecordImpl(UUID.randomUUID(), Map.of("name", "b"));
        assertEquals(0, preferences.openAndLoad(null).size());
        preferences.updateOrCreate(List.of(first));
        preferences.replace(List.of(first.getId()), List.of(second));
        preferences.close();
        assertThrows(IllegalStateException.class, () -> preferences.updateOrCreate(List.of(first)));
        restart();
        List<PreferenceRecord> again =
                List.copyOf(store.getPreferenceStore().openAndLoad(null));
        assertEquals(1, again.size());
        assertEquals(second.getId(), again.get(0).getId());
        assertEquals(second.getAttributes(), again.get(0).getAttributes());
    }

    @Test
    void tenThousandObjectsAtOnce() throws Exception {
        ConfiguredObjectRecord[] many = new ConfiguredObjectRecord[10_000];
        for (int n = 0; n < many.length; n++) {
            many[n] = record("Binding", "b" + n, Map.of(), Map.of("VirtualHost", host.getId()));
        }
        store.update(true, many);
        restart();
        assertEquals(10_001, found.size());
    }
}
