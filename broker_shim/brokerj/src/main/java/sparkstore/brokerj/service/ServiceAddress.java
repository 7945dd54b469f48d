package sparkstore.brokerj.service;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.net.StandardSocketOptions;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;

/**
 * Where the store's service listens.
 *
 * @param text as it was configured: {@code unix:/path/of/socket} or {@code tcp:host:port}
 */
public record ServiceAddress(String text) {
    private static final String UNIX = "unix:";
    private static final String TCP = "tcp:";

    /** @throws IllegalArgumentException it is neither form; the message names both */
    public ServiceAddress {
        boolean isTcp = text.matches("tcp:.+:[0-9]{1,5}");
        if (!isTcp && !(text.startsWith(UNIX) && text.length() > UNIX.length())) {
            throw new IllegalArgumentException("service address '" + text
                    + "' is not of the form unix:/path/of/socket or tcp:host:port");
        }
    }

    /** A new blocking connection. */
    SocketChannel connect() throws IOException {
        SocketAddress address = address();
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

    private SocketAddress address() throws IOException {
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
