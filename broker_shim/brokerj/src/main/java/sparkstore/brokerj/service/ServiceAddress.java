package sparkstore.brokerj.service;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.net.StandardSocketOptions;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.util.regex.Pattern;

/**
 * Where the store's service listens: on a pair of machines at whichever of two addresses serves.
 *
 * @param text as it was configured: {@code unix:/path/of/socket} or {@code tcp:host:port}, of a
 *     pair both, with a comma between them
 */
public record ServiceAddress(String text) {
    private static final String UNIX = "unix:";
    private static final String TCP = "tcp:";
    private static final Pattern BETWEEN = Pattern.compile(",(?=unix:|tcp:)");

    /** @throws IllegalArgumentException it is neither form; the message names both */
    public ServiceAddress {
        for (String one : BETWEEN.split(text)) {
            boolean isTcp = one.matches("tcp:[^,]+:[0-9]{1,5}");
            if (!isTcp && !(one.startsWith(UNIX) && one.length() > UNIX.length())) {
                throw new IllegalArgumentException("service address '" + one
                        + "' is not of the form unix:/path/of/socket or tcp:host:port");
            }
        }
    }

    boolean isPair() {
        return BETWEEN.split(text).length > 1;
    }

    /** A new blocking connection, to the addresses in turn. */
    SocketChannel connect(int turn) throws IOException {
        String[] all = BETWEEN.split(text);
        SocketAddress address = address(all[turn % all.length]);
        boolean isUnix = address instanceof UnixDomainSocketAddress;
        SocketChannel channel = isUnix
                ? SocketChannel.open(StandardProtocolFamily.UNIX) : SocketChannel.open();
        try {
            if (!isUnix) {
                channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
                channel.setOption(StandardSocketOptions.SO_KEEPALIVE, true);
            }
            channel.connect(address);
            return channel;
        } catch (IOException | RuntimeException failure) {
            channel.close();
            throw failure;
        }
    }

    private static SocketAddress address(String text) throws IOException {
        if (text.startsWith(UNIX)) {
            return UnixDomainSocketAddress.of(Path.of(text.substring(UNIX.length())));
        }
        int colon = text.lastIndexOf(':');
        String host = text.substring(TCP.length(), colon);
        InetSocketAddress address =
                new InetSocketAddress(host, Integer.parseInt(text.substring(colon + 1)));
        if (address.isUnresolved()) {
            throw new IOException("unknown host " + host);
        }
        return address;
    }
}
