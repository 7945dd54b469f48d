package sparkstore.brokerj.service;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;

/**
 * How to reach the service and how long to wait for it.
 *
 * @param address where it listens
 * @param tokenFile file that holds the token, one line; null or empty where none is needed
 * @param host identity of the virtual host that the root belongs to
 * @param formerHost identity that it may have belonged to before; null or empty if to none
 * @param connectTimeout how long a start waits for the service
 * @param retryTimeout how long work waits for a service that went away; zero waits for ever
 * @param answerTimeout how long a connected service may stay silent with work unanswered
 */
public record ServiceSettings(
        ServiceAddress address,
        String tokenFile,
        String host,
        String formerHost,
        Duration connectTimeout,
        Duration retryTimeout,
        Duration answerTimeout) {

    /** Name of this broker instance at the service: a root has one Broker-J host, so it is fixed. */
    public static final String MEMBER = "brokerj";

    /** The token, read anew for each connection so that it can be changed; null if there is none. */
    String token() throws IOException {
        if (tokenFile == null || tokenFile.isBlank()) {
            return null;
        }
        return Files.readString(Path.of(tokenFile)).strip();
    }
}
