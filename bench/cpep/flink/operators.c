/* The engine's operators for Java: arrays of bytes in and out (Operators.java), with nothing copied on the way. */

#include <jni.h>
#include <stddef.h>
#include <stdint.h>

extern void *cepheid_ekf_new(void);
extern void cepheid_ekf(void *ekf, const uint8_t *one, const uint8_t *two, size_t length, uint8_t *out);
extern void *cepheid_fft_new(void);
extern void cepheid_fft(void *fft, const uint8_t *samples, size_t length, uint8_t *out);
extern void *cepheid_aes_new(void);
extern void cepheid_aes(void *aes, const uint8_t *plain, size_t length, int64_t time, int64_t id, uint8_t *out);

#define BEGIN(array) (*env)->GetPrimitiveArrayCritical(env, array, NULL)
#define END(array, pointer, mode) (*env)->ReleasePrimitiveArrayCritical(env, array, pointer, mode)

JNIEXPORT jlong JNICALL Java_Operators_newEkf(JNIEnv *env, jclass class) { return (jlong)cepheid_ekf_new(); }
JNIEXPORT jlong JNICALL Java_Operators_newFft(JNIEnv *env, jclass class) { return (jlong)cepheid_fft_new(); }
JNIEXPORT jlong JNICALL Java_Operators_newAes(JNIEnv *env, jclass class) { return (jlong)cepheid_aes_new(); }

JNIEXPORT void JNICALL Java_Operators_ekf(JNIEnv *env, jclass class, jlong ekf, jbyteArray one, jbyteArray two,
                                          jbyteArray out) {
    jsize length = (*env)->GetArrayLength(env, out);
    uint8_t *a = BEGIN(one), *b = BEGIN(two), *o = BEGIN(out);
    cepheid_ekf((void *)ekf, a, b, (size_t)length, o);
    END(out, o, 0);
    END(two, b, JNI_ABORT);
    END(one, a, JNI_ABORT);
}

JNIEXPORT void JNICALL Java_Operators_fft(JNIEnv *env, jclass class, jlong fft, jbyteArray samples, jbyteArray out) {
    jsize length = (*env)->GetArrayLength(env, samples);
    uint8_t *s = BEGIN(samples), *o = BEGIN(out);
    cepheid_fft((void *)fft, s, (size_t)length, o);
    END(out, o, 0);
    END(samples, s, JNI_ABORT);
}

JNIEXPORT void JNICALL Java_Operators_aes(JNIEnv *env, jclass class, jlong aes, jbyteArray plain, jlong time, jlong id,
                                          jbyteArray out) {
    jsize length = (*env)->GetArrayLength(env, plain);
    uint8_t *p = BEGIN(plain), *o = BEGIN(out);
    cepheid_aes((void *)aes, p, (size_t)length, time, id, o);
    END(out, o, 0);
    END(plain, p, JNI_ABORT);
}
