/* A stream whose other end ssh starts. `ends HOST PROGRAM BLOCKS [LOCAL REMOTE]...` sends blocks to the same program at HOST, by
 * the paths between these addresses, and prints the report. ssh runs `ends endpoint`, which receives. */
#include "check.h"

#define BYTES (1 << 20)

static uint64_t digest_of(const uint64_t *words, size_t count, uint64_t digest) {
    for (size_t i = 0; i < count; i++)
        digest = (digest ^ words[i]) * 0x100000001b3u;
    return digest;
}

/* Says to the sender how many blocks have come and what their digests add up to. */
static int receive(void) {
    fh_context *context;
    fh_stream *stream;
    fh_stream_info what = {.size = sizeof what};
    fh_block *block;
    size_t count;
    uint64_t told[2] = {0, 0};
    fh_options options = {.size = sizeof options};
    int32_t code;
    MUST(NULL, fh_open(&options, &context));
    MUST(context, fh_accept_stdio(context, &stream));
    /* This must not get between the bytes of the session. */
    puts("a word on standard output"), fflush(stdout);
    MUST(stream, fh_stream_get(stream, &what));
    IS(what.direction, FH_RECEIVE);
    while ((code = fh_take(stream, 1, &block, &count, FH_WAIT)) == FH_OK) {
        fh_block_info info = {.size = sizeof info};
        MUST(block, fh_block_get(block, &info));
        told[0]++, told[1] += digest_of(info.data, info.len / 8, info.number);
        MUST(block, fh_release(block));
        if (info.meta_len == 4)
            MUST(stream, fh_send_meta(stream, told, sizeof told));
    }
    IS(code, FH_END);
    MUST(stream, fh_finish(stream, NULL));
    MUST(context, fh_close(context));
    return faults != 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "endpoint"))
        return receive();
    if (argc < 4 || argc % 2)
        return 2;
    fh_context *context;
    fh_stream *stream;
    fh_block *block;
    fh_path paths[4];
    size_t count, len, path_count = (size_t)(argc - 4) / 2;
    uint64_t blocks = strtoull(argv[3], NULL, 10), sum = 0, told[61440 / 8] = {0};
    char location[4096], *json = malloc(1 << 20);
    for (size_t i = 0; i < path_count && i < 4; i++)
        paths[i] = (fh_path){argv[4 + 2 * i], argv[5 + 2 * i]};
    snprintf(location, sizeof location, "%s:%s", argv[1], argv[2]);
    fh_options options = {.size = sizeof options};
    fh_connect_options connect = {.size = sizeof connect, .memory_bytes = 64 << 20, .paths = paths, .path_count = path_count};
    MUST(NULL, fh_open(&options, &context));
    MUST(context, fh_connect(context, location, &connect, &stream));
    for (uint64_t i = 0; i < blocks; i++) {
        MUST(stream, fh_claim(stream, 1, &block, &count, FH_WAIT));
        uint64_t *words = fh_block_data(block);
        for (size_t at = 0; at < BYTES / 8; at++)
            words[at] = i * 0x9e3779b97f4a7c15u + at;
        sum += digest_of(words, BYTES / 8, i);
        MUST(block, fh_put(block, BYTES, "last", i + 1 == blocks ? 4 : 0));
        /* For the middle third the first path is out of use. */
        if (path_count > 1 && (i == blocks / 3 || i == 2 * blocks / 3))
            MUST(stream, fh_use_path(stream, 0, i != blocks / 3));
    }
    MUST(stream, fh_next_meta(stream, told, sizeof told, &len, FH_WAIT));
    IS(len == 16 && told[0] == blocks && told[1] == sum, 1);
    IS(fh_use_path(stream, path_count ? path_count : 1, 0) >= 1000, 1);
    MUST(stream, fh_finish(stream, NULL));
    MUST(stream, fh_report_json(stream, json, 1 << 20, &len));
    puts(json);
    MUST(context, fh_close(context));
    free(json);
    return faults != 0;
}
