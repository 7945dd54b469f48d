package sparkstore.brokerj.store;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
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
    private final List<String> options;
    /** Of the stores that are made from now on; zero: work waits for ever. */
    Duration retryTimeout = Duration.ZERO;
    private String address;
    private Process process;

    /** On a unix socket. */
    RealService(Path folder) throws IOException {
        this(folder, "--store-socket=" + folder.resolve("s"));
    }

    /** @param options where it listens, as {@code sparkstore serve} takes them */
    RealService(Path folder, String... options) throws IOException {
        root = folder.resolve("root");
        this.options = List.of(options);
        start();
    }

    private static String python() {
        String python = System.getProperty("sparkstore.python", "");
        Assumptions.assumeFalse(python.isEmpty(),
                "the store's service is not known: run with -Dsparkstore.python=/path/of/python");
        return python;
    }

    void start() throws IOException {
        List<String> command = new ArrayList<>(List.of(
                python(), "-m", "broker_shim.serve.command", root.toString(), "--no-amqp"));
        command.addAll(options);
        process = new ProcessBuilder(command)
                .redirectError(ProcessBuilder.Redirect.DISCARD).start();
        // Its output stays open with the process: one line says where it listens.
        String line = new BufferedReader(new InputStreamReader(process.getInputStream())).readLine();
        if (line == null || !line.startsWith("READY ")) {
            throw new IOException("the service did not start: " + line);
        }
        address = line.split(" ")[1];
    }

    /** kill -9. */
    void kill() throws InterruptedException {
        process.destroyForcibly().waitFor();
    }

    /** SIGSTOP, SIGCONT: it takes what is sent and answers nothing, then goes on. */
    void signal(String name) throws IOException, InterruptedException {
        new ProcessBuilder("kill", "-" + name, String.valueOf(process.pid())).start().waitFor();
    }

    Path root() {
        return root;
    }

    /** A store on its root, as a node makes it. */
    SparkStoreConfigurationStore store() {
        return store("host", null, 0, 0);
    }

    SparkStoreConfigurationStore store(
            String host, String tokenFile, long underfullBytes, long overfullBytes) {
        return new SparkStoreConfigurationStore(
                new Settings(address, tokenFile, host, null, root.toString(), retryTimeout,
                        underfullBytes, overfullBytes));
    }

    /** Of a node that takes over the root of another. */
    SparkStoreConfigurationStore heir(String host, String formerHost) {
        return new SparkStoreConfigurationStore(
                new Settings(address, null, host, formerHost, root.toString(), retryTimeout, 0, 0));
    }

    private record Settings(String address, String tokenFile, String host, String formerHost,
            String root, Duration retryTimeout, long underfullBytes, long overfullBytes)
            implements SparkStoreConfigurationStore.Settings, SizeMonitoringSettings {
        @Override
        public ServiceSettings service() {
            return new ServiceSettings(new ServiceAddress(address), tokenFile, host, formerHost,
                    Duration.ofSeconds(20), retryTimeout, Duration.ofSeconds(30));
        }

        @Override
        public Long getStoreUnderfullSize() {
            return underfullBytes;
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
