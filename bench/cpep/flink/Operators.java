/** The engine's own operators (operators.c, and native/src/service/operators/exported.rs behind it). */
final class Operators {
    static {
        System.load(System.getProperty("cepheid.operators"));
    }

    private Operators() {}

    static native long newEkf();

    static native long newFft();

    static native long newAes();

    static native void ekf(long ekf, byte[] one, byte[] two, byte[] out);

    static native void fft(long fft, byte[] samples, byte[] out);

    static native void aes(long aes, byte[] plain, long time, long id, byte[] out);
}
