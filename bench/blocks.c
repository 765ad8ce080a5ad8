/* Sends blocks whose first bytes are made in place, or receives them and looks at these:
 * blocks receive ADDRESS:PORT KEY AUTHORIZED_KEYS, blocks send LOCATION KEY FINGERPRINT COUNT. */
#include <farhaul.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int32_t check(const void *handle, int32_t code) {
    if (code >= 1000) {
        char text[1024];
        fh_error_text(handle, code, text, sizeof text);
        fprintf(stderr, "%s: %s\n", fh_error_name(code), text);
        exit(1);
    }
    return code;
}

int main(int argc, char **argv) {
    if (argc < 5)
        return 2;
    int sends = !strcmp(argv[1], "send");
    fh_context *context;
    fh_listener *listener;
    fh_stream *stream;
    fh_block *blocks[16];
    char address[128];
    size_t count;
    uint64_t done = 0, sum = 0, many = sends ? strtoull(argv[5], NULL, 10) : 0;
    fh_options options = {.size = sizeof options, .identity_file = argv[3]};
    fh_report report = {.size = sizeof report};
    check(NULL, fh_open(&options, &context));
    if (sends) {
        fh_connect_options connect = {.size = sizeof connect, .fingerprint = argv[4]};
        check(context, fh_connect(context, argv[2], &connect, &stream));
        while (done < many) {
            check(stream, fh_claim(stream, many - done < 16 ? many - done : 16, blocks, &count, FH_WAIT));
            for (size_t i = 0; i < count; i++, done++) {
                memcpy(fh_block_data(blocks[i]), &done, sizeof done);
                check(stream, fh_put(blocks[i], 1 << 20, NULL, 0));
            }
        }
    } else {
        fh_listen_options listen = {.size = sizeof listen, .address = argv[2], .authorized_keys = argv[4]};
        check(context, fh_listen(context, &listen, &listener));
        check(listener, fh_listener_address(listener, address, sizeof address));
        printf("%s\n", address);
        fflush(stdout);
        check(listener, fh_accept(listener, FH_WAIT, &stream));
        while (check(stream, fh_take(stream, 16, blocks, &count, FH_WAIT)) == FH_OK)
            for (size_t i = 0; i < count; i++) {
                uint64_t number;
                memcpy(&number, fh_block_data(blocks[i]), sizeof number);
                sum += number;
                check(stream, fh_release(blocks[i]));
            }
    }
    check(stream, fh_finish(stream, &report));
    printf("%f %llu\n", report.goodput_bps, (unsigned long long)sum);
    return fh_close(context) != FH_OK;
}
