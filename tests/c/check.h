/* What the test programs share: a check that goes on, and a stream between two ends in one process. */
#include <farhaul.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int faults;

#define IS(call, wanted)                                                                                     \
    do {                                                                                                     \
        long long got_ = (long long)(call), wanted_ = (long long)(wanted);                                   \
        if (got_ != wanted_) {                                                                               \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #call, got_, wanted_);      \
            faults++;                                                                                        \
        }                                                                                                    \
    } while (0)

/* Ends the program: what follows makes no sense without this. */
#define MUST(handle, call)                                                                                   \
    do {                                                                                                     \
        int32_t got_ = (call);                                                                               \
        if (got_ != FH_OK) {                                                                                 \
            char text_[1024];                                                                                \
            fh_error_text(handle, got_, text_, sizeof text_);                                                \
            fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, fh_error_name(got_), text_);   \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

/* The key file is KEY, and KEY.pub is let in. */
static inline fh_context *open_context(const char *key) {
    fh_context *context = NULL;
    fh_options options = {.size = sizeof options, .identity_file = key};
    MUST(NULL, fh_open(&options, &context));
    return context;
}

static inline fh_listener *open_listener(fh_context *context, const char *key, char *location, char *fingerprint) {
    char keys[4096], address[128];
    snprintf(keys, sizeof keys, "%s.pub", key);
    fh_listener *listener = NULL;
    fh_listen_options listen = {
        .size = sizeof listen, .address = "127.0.0.1:0", .authorized_keys = keys, .memory_bytes = 32 << 20};
    MUST(context, fh_listen(context, &listen, &listener));
    MUST(listener, fh_listener_address(listener, address, sizeof address));
    char *space = strchr(address, ' ');
    *space = 0;
    sprintf(location, "fh://%s/frames", address);
    strcpy(fingerprint, space + 1);
    return listener;
}

static inline void open_pair(fh_context *context, fh_listener *listener, const char *location, const char *fingerprint,
                             fh_stream **sender, fh_stream **receiver) {
    fh_connect_options connect = {.size = sizeof connect, .fingerprint = fingerprint, .memory_bytes = 32 << 20};
    MUST(context, fh_connect(context, location, &connect, sender));
    MUST(listener, fh_accept(listener, FH_WAIT, receiver));
}
