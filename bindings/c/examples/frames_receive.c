/* Receives frames and reads each where it has arrived: frames_receive ADDRESS:PORT KEY AUTHORIZED_KEYS */
#include <farhaul.h>
#include <stdio.h>
#include <string.h>

static int failed(const void *handle, int32_t code) {
    char text[1024];
    fh_error_text(handle, code, text, sizeof text);
    fprintf(stderr, "error: %s: %s\n", fh_error_name(code), text);
    return 1;
}

static uint64_t digest_of(const fh_block_info *frame) {
    const uint64_t *pixels = frame->data;
    uint64_t digest = frame->number;
    for (size_t i = 0; i < frame->len / sizeof *pixels; i++)
        digest = (digest ^ pixels[i]) * 0x100000001b3u;
    return digest;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return fprintf(stderr, "usage: frames_receive ADDRESS:PORT KEY AUTHORIZED_KEYS\n"), 2;
    fh_context *context;
    fh_listener *listener;
    fh_stream *stream;
    fh_block *block;
    char address[128];
    size_t count;
    uint64_t frames = 0, sum = 0;
    fh_options options = {.size = sizeof options, .identity_file = argv[2]};
    fh_listen_options listen = {
        .size = sizeof listen, .address = argv[1], .authorized_keys = argv[3], .name = "frames"};
    int32_t code = fh_open(&options, &context);
    if (code != FH_OK)
        return failed(NULL, code);
    if ((code = fh_listen(context, &listen, &listener)) != FH_OK)
        return failed(context, code);
    fh_listener_address(listener, address, sizeof address);
    printf("listening %s\n", address);
    fflush(stdout);
    if ((code = fh_accept(listener, FH_WAIT, &stream)) != FH_OK)
        return failed(listener, code);
    while ((code = fh_take(stream, 1, &block, &count, FH_WAIT)) == FH_OK) {
        fh_block_info frame = {.size = sizeof frame};
        if ((code = fh_block_get(block, &frame)) != FH_OK)
            return failed(block, code);
        sum += digest_of(&frame);
        frames++;
        fh_release(block);
    }
    if (code != FH_END)
        return failed(stream, code);
    fh_report report = {.size = sizeof report};
    if ((code = fh_finish(stream, &report)) != FH_OK)
        return failed(stream, code);
    printf("received %llu frames, digest %016llx, %.0f Mbit/s\n", (unsigned long long)frames, (unsigned long long)sum,
           report.goodput_bps / 1e6);
    return fh_close(context) != FH_OK;
}
