import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;

/** The sockets of suppliers and consumers, with the frames of docs/wire.md: what Cepheid's intake and outlet are there. */
final class Sockets {
    static final int HELLO = 1;
    static final int WELCOME = 2;
    static final int BATCH = 3;
    static final int EVENT = 14;
    static final int FRAME_HEAD = 16;
    static final int RECORD_HEAD = 40;
    static final int EVENT_HEAD = 48;

    /** Suppliers' connections in the order in which they came: that of the levels. */
    static final BlockingQueue<SocketChannel> suppliers = new ArrayBlockingQueue<>(16);

    static final Map<String, SocketChannel> consumers = new ConcurrentHashMap<>();

    private Sockets() {}

    static ByteBuffer buffer(int bytes) {
        return ByteBuffer.allocateDirect(bytes).order(ByteOrder.LITTLE_ENDIAN);
    }

    private static ServerSocketChannel listen(String path) throws IOException {
        ServerSocketChannel server = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
        server.bind(UnixDomainSocketAddress.of(path), 1024);
        return server;
    }

    private static void start(String name, ServerSocketChannel server, Served served) {
        Thread thread = new Thread(() -> {
            try {
                while (true) {
                    served.accept(server.accept());
                }
            } catch (IOException | InterruptedException over) {
                // The program ends.
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
    }

    private interface Served {
        void accept(SocketChannel channel) throws IOException, InterruptedException;
    }

    static void fill(SocketChannel channel, ByteBuffer buffer, int least) throws IOException {
        while (buffer.position() < least) {
            if (channel.read(buffer) < 0) {
                throw new IOException("the connection was closed");
            }
        }
    }

    static void listenForSuppliers(String path, String[] streams) throws IOException {
        StringBuilder names = new StringBuilder();
        for (String stream : streams) {
            names.append(names.length() == 0 ? "" : ",").append("{\"name\":\"").append(stream).append("\"}");
        }
        byte[] welcome = ("{\"sequence\":0,\"streams\":[" + names + "]}").getBytes(StandardCharsets.UTF_8);
        start("suppliers", listen(path), channel -> {
            ByteBuffer in = buffer(1 << 16);
            fill(channel, in, 8 + FRAME_HEAD);
            int length = in.getInt(8);
            fill(channel, in, 8 + length);
            int padded = (FRAME_HEAD + welcome.length + 7) / 8 * 8;
            ByteBuffer out = buffer(padded);
            out.putInt(padded).put((byte) WELCOME).put(new byte[3]).putLong(0).put(welcome);
            while (out.position() < padded) {
                out.put((byte) ' ');
            }
            out.flip();
            while (out.hasRemaining()) {
                channel.write(out);
            }
            suppliers.put(channel);
        });
    }

    static void listenForConsumers(String path) throws IOException {
        start("consumers", listen(path), channel -> {
            ByteBuffer in = ByteBuffer.allocate(4096);
            while (in.position() == 0 || in.get(in.position() - 1) != '\n') {
                fill(channel, in, in.position() + 1);
            }
            String hello = new String(in.array(), 0, in.position(), StandardCharsets.UTF_8);
            String name = hello.replaceFirst(".*\"consumer\":\\s*\"(\\w+)\".*\\n", "$1");
            channel.write(ByteBuffer.wrap(("{\"consumer\":\"" + name + "\"}\n").getBytes(StandardCharsets.UTF_8)));
            consumers.put(name, channel);
        });
    }

    /** Sends a consumer an event. The frame's buffer is the caller's, and large enough. */
    static void send(String consumer, long time, long id, byte[] payload, ByteBuffer frame) throws IOException {
        SocketChannel channel = consumers.get(consumer);
        if (channel == null) {
            return;
        }
        int record = (RECORD_HEAD + payload.length + 7) / 8 * 8;
        frame.clear();
        frame.putInt(EVENT_HEAD + record).put((byte) EVENT).put(new byte[3]).putLong(id);
        frame.putLong(Long.MAX_VALUE).putLong(0).putLong(0).putLong(0);
        frame.putInt(record).putInt(0).putLong(time).putLong(id).putLong(0).putInt(RECORD_HEAD).putInt(payload.length);
        frame.put(payload);
        while (frame.position() < EVENT_HEAD + record) {
            frame.put((byte) 0);
        }
        frame.flip();
        while (frame.hasRemaining()) {
            channel.write(frame);
        }
    }
}
