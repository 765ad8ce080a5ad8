/* Sends generated frames, each filled in the memory that it is sent from:
 * frames_send fh://HOST:PORT/frames FINGERPRINT KEY FRAMES */
#include <farhaul.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_BYTES (1 << 20)
#define MANY 16

static int failed(const void *handle, int32_t code) {
    char text[1024];
    fh_error_text(handle, code, text, sizeof text);
    fprintf(stderr, "error: %s: %s\n", fh_error_name(code), text);
    return 1;
}

/* What a detector would do: fills a frame; the digest goes over all frames, in any order. */
static uint64_t expose(uint64_t *pixels, uint64_t number) {
    uint64_t noise = number * 0x9e3779b97f4a7c15u | 1, digest = number;
    for (size_t i = 0; i < FRAME_BYTES / sizeof *pixels; i++) {
        noise ^= noise << 13, noise ^= noise >> 7, noise ^= noise << 17;
        pixels[i] = noise;
        digest = (digest ^ noise) * 0x100000001b3u;
    }
    return digest;
}

int main(int argc, char **argv) {
    if (argc != 5)
        return fprintf(stderr, "usage: frames_send LOCATION FINGERPRINT KEY FRAMES\n"), 2;
    fh_context *context;
    fh_stream *stream;
    fh_block *blocks[MANY];
    uint64_t frames = strtoull(argv[4], NULL, 10), sent = 0, sum = 0;
    fh_options options = {.size = sizeof options, .identity_file = argv[3]};
    fh_connect_options connect = {.size = sizeof connect, .fingerprint = argv[2]};
    int32_t code = fh_open(&options, &context);
    if (code != FH_OK)
        return failed(NULL, code);
    if ((code = fh_connect(context, argv[1], &connect, &stream)) != FH_OK)
        return failed(context, code);
    while (sent < frames) {
        size_t count, want = frames - sent < MANY ? frames - sent : MANY;
        if ((code = fh_claim(stream, want, blocks, &count, FH_WAIT)) != FH_OK)
            return failed(stream, code);
        for (size_t i = 0; i < count; i++, sent++) {
            sum += expose(fh_block_data(blocks[i]), sent);
            if ((code = fh_put(blocks[i], FRAME_BYTES, &sent, sizeof sent)) != FH_OK)
                return failed(stream, code);
        }
    }
    fh_report report = {.size = sizeof report};
    if ((code = fh_finish(stream, &report)) != FH_OK)
        return failed(stream, code);
    printf("sent %llu frames, digest %016llx, %.0f Mbit/s\n", (unsigned long long)sent, (unsigned long long)sum,
           report.goodput_bps / 1e6);
    return fh_close(context) != FH_OK;
}
