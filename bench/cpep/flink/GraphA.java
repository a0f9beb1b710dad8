import java.io.IOException;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.api.common.functions.Partitioner;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.tuple.Tuple6;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.legacy.RichSinkFunction;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction.SourceContext;
import org.apache.flink.util.Collector;

/**
 * Graph A on Flink, with the engine's operators: a source reads the suppliers' socket; then, by level and copy, all operators of a copy in
 * one chain, so that only one exchange is between a supplier and its consumer. There is one source, as in the paper, or one a level, which
 * is what one does in Flink to keep levels from each other's backpressure. One source reads a connection a level, or one for all.
 *
 * <p>Arguments: the suppliers' and the consumers' socket; copies of the high, middle and low level; the parallelism; "one" source, one a
 * "level", or one for a "gateway" over whose connection all comes.
 */
public final class GraphA {
    /** Copy, input at its operator, time, id, payload, level. */
    public static final class Event extends Tuple6<Integer, Integer, Long, Long, byte[], Integer> {
        public Event() {}

        Event(int copy, int input, long time, long id, byte[] payload, int level) {
            super(copy, input, time, id, payload, level);
        }
    }

    static final TypeInformation<Event> EVENT = TypeInformation.of(new TypeHint<Event>() {});

    /** A connection of some levels; the stream's number says of which, and which copy and input an event is for. */
    private static final class Connection {
        private final SocketChannel channel;
        private final ByteBuffer in = Sockets.buffer(1 << 18);
        private final Level[] levels;

        Connection(int number, boolean blocking, Level... levels) throws Exception {
            this.levels = levels;
            channel = connection(number);
            channel.configureBlocking(blocking);
        }

        private Level levelOf(int stream) {
            int last = levels.length - 1;
            while (stream < levels[last].first) {
                last--;
            }
            return levels[last];
        }

        /** Hands on what is there; false if there will be no more. */
        boolean read(SourceContext<Event> context) throws IOException {
            if (channel.read(in) < 0) {
                return false;
            }
            int begun = 0;
            while (in.position() - begun >= Sockets.FRAME_HEAD && in.position() - begun >= in.getInt(begun)) {
                int record = begun + Sockets.FRAME_HEAD;
                int number = in.getShort(record + 4) & 0xFFFF;
                Level level = levelOf(number);
                int stream = number - level.first;
                byte[] payload = new byte[in.getInt(record + 36)];
                in.get(record + in.getInt(record + 32), payload);
                context.collect(
                        new Event(
                                stream / level.inputs,
                                stream % level.inputs,
                                in.getLong(record + 8),
                                in.getLong(record + 16),
                                payload,
                                level.number));
                begun += in.getInt(begun);
            }
            in.limit(in.position()).position(begun);
            in.compact();
            return true;
        }
    }

    /** A level: the number of its first stream, and how many streams a copy has. */
    static final class Level implements Serializable {
        private final int number;
        private final int first;
        private final int inputs;

        Level(int number, int first, int inputs) {
            this.number = number;
            this.first = first;
            this.inputs = inputs;
        }
    }

    /** Reads the connections of some levels, or the one that all share. */
    static final class Supplied implements SourceFunction<Event> {
        private final Level[] levels;
        private final boolean isShared;
        private volatile boolean goesOn = true;

        Supplied(boolean isShared, Level... levels) {
            this.isShared = isShared;
            this.levels = levels;
        }

        @Override
        public void run(SourceContext<Event> context) throws Exception {
            if (isShared || levels.length == 1) {
                Connection only = new Connection(levels[0].number, true, levels);
                while (goesOn && only.read(context)) {}
                return;
            }
            Selector selector = Selector.open();
            for (Level level : levels) {
                Connection one = new Connection(level.number, false, level);
                one.channel.register(selector, SelectionKey.OP_READ, one);
            }
            while (goesOn) {
                selector.select(100);
                for (SelectionKey key : selector.selectedKeys()) {
                    if (!((Connection) key.attachment()).read(context)) {
                        return;
                    }
                }
                selector.selectedKeys().clear();
            }
        }

        @Override
        public void cancel() {
            goesOn = false;
        }
    }

    private static final Map<Integer, SocketChannel> CONNECTIONS = new HashMap<>();

    /** A connection by its number: they come in the order of levels, whichever source asks first. */
    static synchronized SocketChannel connection(int number) throws InterruptedException {
        while (!CONNECTIONS.containsKey(number)) {
            CONNECTIONS.put(CONNECTIONS.size(), Sockets.suppliers.take());
        }
        return CONNECTIONS.get(number);
    }

    /** Waits for both inputs of an operator; a newer event replaces an unused older one, and used ones are gone. */
    abstract static class Pairs extends RichFlatMapFunction<Event, Event> {
        private transient Map<Integer, Event[]> bound;

        @Override
        public void flatMap(Event event, Collector<Event> out) {
            if (bound == null) {
                bound = new HashMap<>();
            }
            int operator = event.f0 * 2 + event.f1 / 2;
            Event[] pair = bound.computeIfAbsent(operator, key -> new Event[2]);
            pair[event.f1 % 2] = event;
            if (pair[0] != null && pair[1] != null) {
                long time = Math.max(pair[0].f2, pair[1].f2);
                byte[] payload = joined(operator, pair[0].f4, pair[1].f4);
                // Its place at the next operator is that of this one in the copy.
                out.collect(new Event(event.f0, event.f1 / 2, time, event.f3, payload, event.f5));
                pair[0] = null;
                pair[1] = null;
            }
        }

        abstract byte[] joined(int operator, byte[] one, byte[] two);
    }

    static final class Ekf extends Pairs {
        private transient Map<Integer, Long> filters;

        @Override
        byte[] joined(int operator, byte[] one, byte[] two) {
            if (filters == null) {
                filters = new HashMap<>();
            }
            byte[] out = new byte[one.length];
            Operators.ekf(filters.computeIfAbsent(operator, key -> Operators.newEkf()), one, two, out);
            return out;
        }
    }

    static final class Cat extends Pairs {
        @Override
        byte[] joined(int operator, byte[] one, byte[] two) {
            byte[] out = new byte[one.length + two.length];
            System.arraycopy(one, 0, out, 0, one.length);
            System.arraycopy(two, 0, out, one.length, two.length);
            return out;
        }
    }

    static final class Fft extends RichMapFunction<Event, Event> {
        private transient long fft;

        @Override
        public Event map(Event event) {
            if (fft == 0) {
                fft = Operators.newFft();
            }
            byte[] out = new byte[8 * event.f4.length];
            Operators.fft(fft, event.f4, out);
            return new Event(event.f0, event.f1, event.f2, event.f3, out, event.f5);
        }
    }

    static final class Aes extends RichMapFunction<Event, Event> {
        private transient long aes;

        @Override
        public Event map(Event event) {
            if (aes == 0) {
                aes = Operators.newAes();
            }
            byte[] out = new byte[event.f4.length];
            Operators.aes(aes, event.f4, event.f2, event.f3, out);
            return new Event(event.f0, event.f1, event.f2, event.f3, out, event.f5);
        }
    }

    static final class Delivered extends RichSinkFunction<Event> {
        private final String prefix;
        private transient ByteBuffer frame;

        Delivered(String prefix) {
            this.prefix = prefix;
        }

        @Override
        public void invoke(Event event, Context context) throws IOException {
            if (frame == null) {
                frame = Sockets.buffer(1 << 16);
            }
            Sockets.send(prefix + event.f0, event.f2, event.f3, event.f4, frame);
        }
    }

    static final class ByCopy implements Partitioner<Integer> {
        @Override
        public int partition(Integer copy, int parallelism) {
            return copy % parallelism;
        }
    }

    private GraphA() {}

    /** The events of each level, by copy. */
    private static List<DataStream<Event>> levels(StreamExecutionEnvironment env, String sources, Level... levels) {
        boolean apart = sources.equals("level");
        DataStream<Event> all = apart ? null : env.addSource(new Supplied(sources.equals("gateway"), levels), EVENT);
        List<DataStream<Event>> found = new ArrayList<>();
        for (Level level : levels) {
            int number = level.number;
            // A filter with one source is one chain with it: several would take turns, and lose the order of a copy's events.
            DataStream<Event> own =
                    apart
                            ? env.addSource(new Supplied(false, level), EVENT)
                            : all.filter(event -> event.f5 == number).setParallelism(1);
            found.add(own.partitionCustom(new ByCopy(), event -> event.f0));
        }
        return found;
    }

    private static SingleOutputStreamOperator<Event> ekf(DataStream<Event> pairs) {
        return pairs.flatMap(new Ekf()).returns(EVENT);
    }

    public static void main(String[] given) throws Exception {
        int high = Integer.parseInt(given[2]);
        int middle = Integer.parseInt(given[3]);
        int low = Integer.parseInt(given[4]);
        int parallelism = Integer.parseInt(given[5]);
        List<String> streams = new ArrayList<>();
        add(streams, "h", high, 1, 2);
        add(streams, "m", middle, 3, 6);
        add(streams, "l", low, 7, 8);
        Sockets.listenForSuppliers(given[0], streams.toArray(new String[0]));
        Sockets.listenForConsumers(given[1]);

        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.createLocalEnvironment(parallelism, new Configuration());
        env.setBufferTimeout(0);
        env.getConfig().enableObjectReuse();
        List<DataStream<Event>> supplied =
                levels(
                        env,
                        given[6],
                        new Level(0, 0, 2),
                        new Level(1, 2 * high, 4),
                        new Level(2, 2 * high + 4 * middle, 2));
        ekf(supplied.get(0)).map(new Aes()).returns(EVENT).addSink(new Delivered("h"));
        DataStream<Event> halves = ekf(supplied.get(1)).map(new Fft()).returns(EVENT);
        halves.flatMap(new Cat()).returns(EVENT).addSink(new Delivered("m"));
        DataStream<Event> spectra = ekf(supplied.get(2)).map(new Fft()).returns(EVENT);
        spectra.map(new Aes()).returns(EVENT).addSink(new Delivered("l"));
        JobClient job = env.executeAsync("graph A");
        while (job.getJobStatus().get() != JobStatus.RUNNING) {
            Thread.sleep(50);
        }
        System.out.println("ready");
        job.getJobExecutionResult().get();
    }

    private static void add(List<String> streams, String level, int copies, int first, int last) {
        for (int copy = 0; copy < copies; copy++) {
            for (int number = first; number <= last; number++) {
                streams.add(level + copy + "s" + number);
            }
        }
    }
}
