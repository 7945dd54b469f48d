package sparkstore.brokerj.store;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.qpid.server.store.SizeMonitoringSettings;
import org.junit.jupiter.api.Assumptions;
import sparkstore.brokerj.service.ServiceAddress;
import sparkstore.brokerj.service.ServiceSettings;
import tools.jackson.databind.ObjectMapper;

/**
 * The store's service in a process of its own: {@code -Dsparkstore.python=} names the Python that
 * has it. Tests that need it are skipped, with the reason, where there is none.
 * {@code -Dsparkstore.forks=} names the socket of a process that has imported it and forks it
 * (tests/support/system/forking_parent.py): such a start takes half the time.
 */
final class RealService implements AutoCloseable {
    private final Path root;
    private final List<String> options;
    /** Of the stores that are made from now on; zero: work waits for ever. */
    Duration retryTimeout = Duration.ZERO;
    private String address;
    private ProcessHandle process;
    /** What says where the service listens; with the parent that forked it, also its end. */
    private BufferedReader said;

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
        List<String> arguments = new ArrayList<>(List.of(root.toString(), "--no-amqp"));
        arguments.addAll(options);
        String forks = System.getProperty("sparkstore.forks", "");
        if (forks.isEmpty()) {
            startAnew(arguments);
        } else {
            fork(forks, arguments);
        }
        String line = said.readLine();
        if (line == null || !line.startsWith("READY ")) {
            throw new IOException("the service did not start: " + line);
        }
        address = line.split(" ")[1];
    }

    private void startAnew(List<String> arguments) throws IOException {
        List<String> command =
                new ArrayList<>(List.of(python(), "-m", "broker_shim.serve.command"));
        command.addAll(arguments);
        Process started = new ProcessBuilder(command)
                .redirectError(ProcessBuilder.Redirect.DISCARD).start();
        process = started.toHandle();
        // Its output stays open with the process: one line says where it listens.
        said = new BufferedReader(new InputStreamReader(started.getInputStream()));
    }

    private void fork(String forks, List<String> arguments) throws IOException {
        Map<String, Object> request = Map.of("module", "broker_shim.serve.command",
                "arguments", arguments, "cwd", root.getParent().toString(),
                "environment", System.getenv());
        SocketChannel parent = SocketChannel.open(UnixDomainSocketAddress.of(forks));
        String line = new ObjectMapper().writeValueAsString(request) + "\n";
        ByteBuffer bytes = ByteBuffer.wrap(line.getBytes(StandardCharsets.UTF_8));
        while (bytes.hasRemaining()) {
            parent.write(bytes);
        }
        said = new BufferedReader(new InputStreamReader(Channels.newInputStream(parent)));
        process = ProcessHandle.of(Long.parseLong(said.readLine())).orElseThrow();
    }

    /** kill -9, and wait until its sockets and its locks are free. */
    void kill() throws IOException {
        process.destroyForcibly();
        while (said.readLine() != null) {
            // Until its end is told, or its output ends.
        }
        said.close();
        process.onExit().join();
    }

    /**
     * SIGSTOP: what is sent from now on waits in its socket. The signal is only pending when kill
     * returns: on a loaded machine the other threads go on until one has taken it, and could decide
     * what was sent meanwhile. So this waits until every thread has stopped.
     */
    void suspend() throws IOException, InterruptedException {
        signal("STOP");
        while (!isSuspended()) {
            Thread.onSpinWait();
        }
    }

    /** SIGCONT: it goes on, with what was sent meanwhile. */
    void resume() throws IOException, InterruptedException {
        signal("CONT");
    }

    private void signal(String name) throws IOException, InterruptedException {
        new ProcessBuilder("kill", "-" + name, String.valueOf(process.pid())).start().waitFor();
    }

    /** The state of a thread is the first letter after its name, in parentheses (proc(5)). */
    private boolean isSuspended() throws IOException {
        Path threads = Path.of("/proc", String.valueOf(process.pid()), "task");
        try (DirectoryStream<Path> all = Files.newDirectoryStream(threads)) {
            for (Path thread : all) {
                String stat = Files.readString(thread.resolve("stat"));
                if (stat.charAt(stat.lastIndexOf(')') + 2) != 'T') {
                    return false;
                }
            }
        }
        return true;
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
    public void close() throws IOException {
        kill();
    }
}
