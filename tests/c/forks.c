/* Sends frames while twenty children are forked: forks LOCATION FINGERPRINT KEY FRAMES FOLDER. Children find that
 * nothing of the parent works, make something of their own, and exit as any program does. */
#include "check.h"
#include <sys/wait.h>

static void child(fh_context *context, fh_stream *stream, fh_block *block, fh_remote *remote, fh_file *file,
                  const char *folder) {
    fh_block *blocks[1];
    size_t count;
    char data[4];
    fh_report report = {.size = sizeof report};
    fh_entry entry = {.size = sizeof entry};
    fh_connect_options connect = {.size = sizeof connect, .memory_bytes = 32 << 20};
    faults = 0;
    IS(fh_claim(stream, 1, blocks, &count, FH_WAIT), FH_ERROR_FORKED);
    IS(fh_put(block, 1, NULL, 0), FH_ERROR_FORKED);
    IS(fh_block_data(block) == NULL, 1);
    IS(fh_release(block), FH_ERROR_FORKED);
    IS(fh_send_meta(stream, (const uint8_t *)"x", 1), FH_ERROR_FORKED);
    IS(fh_wait_for_receiver(stream, &report), FH_ERROR_FORKED);
    IS(fh_finish(stream, &report), FH_ERROR_FORKED);
    IS(fh_cancel(stream), FH_ERROR_FORKED);
    IS(fh_set_rate(stream, 0), FH_ERROR_FORKED);
    IS(fh_read_at(file, 0, data, 4, &count), FH_ERROR_FORKED);
    IS(fh_stat(remote, "", &entry), FH_ERROR_FORKED);
    IS(fh_remote_open(context, folder, &connect, &remote), FH_ERROR_FORKED);
    IS(fh_error_text(stream, FH_ERROR_FORKED, NULL, 0) > 10, 1);
    IS(fh_close(stream), FH_ERROR_FORKED);
    IS(fh_close(context), FH_ERROR_FORKED);
    context = open_context(NULL);
    MUST(context, fh_remote_open(context, folder, &connect, &remote));
    MUST(remote, fh_stat(remote, "", &entry));
    IS(entry.kind, 2);
    MUST(context, fh_close(context));
    exit(faults != 0);
}

int main(int argc, char **argv) {
    if (argc != 6)
        return 2;
    fh_context *context = open_context(argv[3]);
    fh_stream *stream;
    fh_remote *remote;
    fh_file *file;
    fh_block *block, *kept;
    size_t count;
    uint64_t frames = strtoull(argv[4], NULL, 10), sum = 0;
    char path[4096];
    snprintf(path, sizeof path, "%s/file", argv[5]);
    FILE *made = fopen(path, "w");
    fputs("content", made);
    fclose(made);
    fh_connect_options connect = {
        .size = sizeof connect, .fingerprint = argv[2], .rate_bps = 200000000, .memory_bytes = 64 << 20};
    MUST(context, fh_connect(context, argv[1], &connect, &stream));
    connect = (fh_connect_options){.size = sizeof connect, .memory_bytes = 64 << 20};
    MUST(context, fh_remote_open(context, argv[5], &connect, &remote));
    MUST(remote, fh_file_open(remote, "file", &file, NULL));
    MUST(stream, fh_claim(stream, 1, &kept, &count, FH_WAIT));
    for (uint64_t number = 0; number < frames; number++) {
        MUST(stream, fh_claim(stream, 1, &block, &count, FH_WAIT));
        uint64_t *pixels = fh_block_data(block), digest = number;
        for (size_t i = 0; i < (1 << 20) / sizeof *pixels; i++) {
            pixels[i] = number * 0x9e3779b97f4a7c15u + i;
            digest = (digest ^ pixels[i]) * 0x100000001b3u;
        }
        sum += digest;
        MUST(stream, fh_put(block, 1 << 20, NULL, 0));
        if (number % (frames / 20) == 0) {
            pid_t pid = fork();
            if (pid == 0)
                child(context, stream, kept, remote, file, argv[5]);
            int status;
            waitpid(pid, &status, 0);
            IS(status, 0);
        }
    }
    MUST(stream, fh_release(kept));
    MUST(stream, fh_finish(stream, NULL));
    IS(fh_read_at(file, 0, path, 7, &count), FH_OK);
    IS(!memcmp(path, "content", 7), 1);
    printf("sent %llu frames, digest %016llx\n", (unsigned long long)frames, (unsigned long long)sum);
    MUST(context, fh_close(context));
    return faults != 0;
}
