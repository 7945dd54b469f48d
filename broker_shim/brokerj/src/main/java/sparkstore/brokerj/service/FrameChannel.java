package sparkstore.brokerj.service;

import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import sparkstore.brokerj.wire.Frames;
import sparkstore.brokerj.wire.ProtocolException;

/**
 * Frames over one socket: one thread reads, one at a time writes, any may close.
 *
 * <p>Writing gathers: frames are copied to one buffer that goes to the socket when it is full or
 * when {@link #flush} is called, so the requests of many threads cost one system call.
 */
final class FrameChannel implements Closeable {
    private static final int WRITE_BYTES = 256 * 1024;
    private static final int READ_BYTES = 256 * 1024;

    private final SocketChannel channel;
    private final ByteBuffer out = ByteBuffer.allocateDirect(WRITE_BYTES);
    private ByteBuffer in = ByteBuffer.allocate(READ_BYTES).flip();
    private int maxFrameBytes = Frames.MAX_FRAME_BYTES;

    FrameChannel(SocketChannel channel) {
        this.channel = channel;
    }

    void maxFrameBytes(int bytes) {
        maxFrameBytes = bytes;
    }

    /** Add bytes to what is sent; what does not fit in the buffer goes out at once. */
    void write(byte[] bytes) throws IOException {
        write(bytes, 0, bytes.length);
    }

    /** The same of {@code length} bytes from {@code first} on. */
    void write(byte[] bytes, int first, int length) throws IOException {
        int offset = first;
        int end = first + length;
        while (offset < end) {
            int fits = Math.min(out.remaining(), end - offset);
            out.put(bytes, offset, fits);
            offset += fits;
            if (!out.hasRemaining()) {
                flush();
            }
        }
    }

    void flush() throws IOException {
        out.flip();
        while (out.hasRemaining()) {
            channel.write(out);
        }
        out.clear();
    }

    /**
     * The next frame: its type byte, then its body. Good until the next call.
     *
     * @throws ProtocolException its length is not one that a frame may have
     * @throws EOFException the service closed the connection
     */
    ByteBuffer read() throws IOException {
        fill(Frames.LENGTH_BYTES);
        int length = in.getInt();
        if (length < 1 || length > maxFrameBytes) {
            throw new ProtocolException("a frame of " + length + " bytes, at most " + maxFrameBytes
                    + " are allowed: is this the store's service?");
        }
        fill(length);
        ByteBuffer frame = in.slice(in.position(), length);
        in.position(in.position() + length);
        return frame;
    }

    private void fill(int wanted) throws IOException {
        if (in.remaining() >= wanted) {
            return;
        }
        // A frame that was handed out may lie in the old bytes: only its reader's next call is here.
        if (in.capacity() < wanted) {
            in = ByteBuffer.allocate(wanted + READ_BYTES).put(in);
        } else {
            in.compact();
        }
        while (in.position() < wanted) {
            if (channel.read(in) < 0) {
                throw new EOFException("the store's service closed the connection");
            }
        }
        in.flip();
    }

    @Override
    public void close() throws IOException {
        channel.close();
    }
}
