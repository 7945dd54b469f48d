package sparkstore.brokerj.store;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Path;
import java.time.Duration;
import org.apache.qpid.server.store.SizeMonitoringSettings;
import org.junit.jupiter.api.Assumptions;
import sparkstore.brokerj.service.ServiceAddress;
import sparkstore.brokerj.service.ServiceSettings;

/**
 * The store's service in a process of its own: {@code -Dsparkstore.python=} names the Python that
 * has it. Tests that need it are skipped, with the reason, where there is none.
 */
final class RealService implements AutoCloseable {
    private final Path root;
    private final Path socket;
    private Process process;

    RealService(Path folder) throws IOException {
        root = folder.resolve("root");
        socket = folder.resolve("s");
        start();
    }

    private static String python() {
        String python = System.getProperty("sparkstore.python", "");
        Assumptions.assumeFalse(python.isEmpty(),
                "the store's service is not known: run with -Dsparkstore.python=/path/of/python");
        return python;
    }

    void start() throws IOException {
        process = new ProcessBuilder(python(), "-m", "broker_shim.embedded.serve", root.toString(),
                "--store-socket=" + socket, "--no-amqp")
                .redirectError(ProcessBuilder.Redirect.DISCARD).start();
        // Its output stays open with the process: one line says that it listens.
        String line = new BufferedReader(new InputStreamReader(process.getInputStream())).readLine();
        if (line == null || !line.startsWith("READY")) {
            throw new IOException("the service did not start: " + line);
        }
    }

    /** kill -9. */
    void kill() throws InterruptedException {
        process.destroyForcibly().waitFor();
    }

    /** A store on its root, as a node makes it. */
    SparkStoreConfigurationStore store() {
        return store("host", 0);
    }

    SparkStoreConfigurationStore store(String host, long overfullBytes) {
        return new SparkStoreConfigurationStore(new Settings(host, overfullBytes));
    }

    private final class Settings
            implements SparkStoreConfigurationStore.Settings, SizeMonitoringSettings {
        private final String host;
        private final long overfullBytes;

        Settings(String host, long overfullBytes) {
            this.host = host;
            this.overfullBytes = overfullBytes;
        }

        @Override
        public ServiceSettings service() {
            return new ServiceSettings(new ServiceAddress("unix:" + socket), null, host,
                    Duration.ofSeconds(20), Duration.ZERO, Duration.ofSeconds(30));
        }

        @Override
        public String root() {
            return root.toString();
        }

        @Override
        public Long getStoreUnderfullSize() {
            return 0L;
        }

        @Override
        public Long getStoreOverfullSize() {
            return overfullBytes;
        }
    }

    @Override
    public void close() throws InterruptedException {
        kill();
    }
}
