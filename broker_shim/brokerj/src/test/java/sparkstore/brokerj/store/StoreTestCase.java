package sparkstore.brokerj.store;

import java.nio.file.Path;
import org.apache.qpid.server.store.MessageStore;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.io.TempDir;

/** A store on the real service; each of both can be ended and started again. */
abstract class StoreTestCase {
    @TempDir Path folder;
    RealService service;
    SparkStoreConfigurationStore configuration;
    MessageStore store;

    @BeforeEach
    void open() throws Exception {
        service = new RealService(folder);
        start(service.store());
    }

    void start(SparkStoreConfigurationStore made) {
        configuration = made;
        configuration.init(null);
        configuration.upgradeStoreStructure();
        configuration.openConfigurationStore(record -> { });
        store = configuration.getMessageStore();
        store.openMessageStore(null);
        store.upgradeStoreStructure();
    }

    @AfterEach
    void close() throws Exception {
        if (service != null) {
            stop();
            service.close();
        }
    }

    void stop() {
        store.closeMessageStore();
        configuration.closeConfigurationStore();
    }

    void restartBroker() {
        stop();
        start(service.store());
    }

    void restartBoth() throws Exception {
        stop();
        service.kill();
        service.start();
        start(service.store());
    }
}
