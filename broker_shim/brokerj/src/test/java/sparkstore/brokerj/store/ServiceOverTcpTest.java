package sparkstore.brokerj.store;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.qpid.server.store.MessageStore;
import org.apache.qpid.server.store.StoreException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The real service over TCP: who has its token is let in, nobody else. */
@Timeout(120)
class ServiceOverTcpTest {
    @TempDir Path folder;

    private Path token(String name, String text) throws Exception {
        Path file = Files.createFile(folder.resolve(name), PosixFilePermissions.asFileAttribute(
                PosixFilePermissions.fromString("rw-------")));
        return Files.writeString(file, text + "\n");
    }

    private static void open(SparkStoreConfigurationStore store) {
        store.init(null);
        store.openConfigurationStore(record -> { });
    }

    @Test
    void theTokenDecides() throws Exception {
        Path right = token("right", "0123456789abcdef");
        Path wrong = token("wrong", "fedcba9876543210");
        try (RealService service = new RealService(
                folder, "--store-listen=127.0.0.1:0", "--token-file=" + right)) {
            for (String file : new String[] {wrong.toString(), null}) {
                StoreException refused = assertThrows(StoreException.class,
                        () -> open(service.store("host", file, 0, 0)));
                assertTrue(refused.getMessage().contains("token"), refused.getMessage());
                assertTrue(refused.getMessage().contains("tcp:127.0.0.1:"), refused.getMessage());
            }
            SparkStoreConfigurationStore store = service.store("host", right.toString(), 0, 0);
            open(store);
            MessageStore messages = store.getMessageStore();
            messages.openMessageStore(null);
            Samples.enqueue(messages, Samples.queue("q"), Samples.message(messages, new byte[10]));
            assertEquals(1, Samples.messages(messages).size());
            messages.closeMessageStore();
            store.closeConfigurationStore();
        }
    }
}
