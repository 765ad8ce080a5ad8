/* Calls each function with each wrong argument: wrong KEY FOLDER [SESSIONS]. Nothing may crash, and each call has its code. */
#include "check.h"

#define BAD_OPTION 1001
#define BAD_LOCATION 1002
#define NO_MEMORY 4013
#define NOT_FOUND 1022

static void *invented[] = {NULL,
                           (void *)1,
                           (void *)0x1234,
                           (void *)0x1000000000000000,
                           (void *)0x2000000000100000,
                           (void *)0x2001000000100000,
                           (void *)0x3001000000100fff,
                           (void *)0x7fffffffffffffff,
                           (void *)0x8000000000000000,
                           (void *)-1};
#define INVENTED (sizeof invented / sizeof *invented)

static int32_t nothing(void *user, const fh_entry *entry) {
    (void)user, (void)entry;
    return 0;
}

/* Each function that takes a handle, with one that is not of its kind. */
static void refuse(void *handle) {
    fh_stream *stream;
    fh_listener *listener;
    fh_job *job;
    fh_remote *remote;
    fh_file *file;
    fh_block *block;
    size_t count;
    char text[61440];
    const char *source = ".";
    fh_connect_options connect = {.size = sizeof connect};
    fh_listen_options listen = {.size = sizeof listen};
    fh_copy_options copy = {.size = sizeof copy};
    fh_report report = {.size = sizeof report};
    fh_progress progress = {.size = sizeof progress};
    fh_stream_info info = {.size = sizeof info};
    fh_block_info block_info = {.size = sizeof block_info};
    fh_entry entry = {.size = sizeof entry};
    fh_range range = {.data = text, .len = 1};
    IS(fh_connect(handle, "fh://h/n", &connect, &stream), FH_MISUSE);
    IS(fh_listen(handle, &listen, &listener), FH_MISUSE);
    IS(fh_listener_address(handle, text, sizeof text), FH_MISUSE);
    IS(fh_accept(handle, 0, &stream), FH_MISUSE);
    IS(fh_accept_stdio(handle, &stream), FH_MISUSE);
    IS(fh_stream_get(handle, &info), FH_MISUSE);
    IS(fh_use_path(handle, 0, 1), FH_MISUSE);
    IS(fh_send_meta(handle, (const uint8_t *)"x", 1), FH_MISUSE);
    IS(fh_next_meta(handle, (uint8_t *)text, sizeof text, &count, 0), FH_MISUSE);
    IS(fh_wait_for_receiver(handle, &report), FH_MISUSE);
    IS(fh_finish(handle, &report), FH_MISUSE);
    IS(fh_claim(handle, 1, &block, &count, 0), FH_MISUSE);
    IS(fh_take(handle, 1, &block, &count, 0), FH_MISUSE);
    IS(fh_block_data(handle) == NULL, 1);
    IS(fh_block_get(handle, &block_info), FH_MISUSE);
    IS(fh_put(handle, 1, NULL, 0), FH_MISUSE);
    IS(fh_release(handle), FH_MISUSE);
    IS(fh_copy(handle, &source, 1, "x", &copy, &job), FH_MISUSE);
    IS(fh_sync(handle, source, "x", &copy, &job), FH_MISUSE);
    IS(fh_wait(handle, 0, &report), FH_MISUSE);
    IS(fh_pause(handle, 1), FH_MISUSE);
    IS(fh_remote_open(handle, ".", &connect, &remote), FH_MISUSE);
    IS(fh_file_open(handle, "x", &file, NULL), FH_MISUSE);
    IS(fh_read_at(handle, 0, text, 1, &count), FH_MISUSE);
    IS(fh_read_ranges(handle, &range, 1), FH_MISUSE);
    IS(fh_stat(handle, "x", &entry), FH_MISUSE);
    IS(fh_list(handle, "", 1, nothing, NULL), FH_MISUSE);
    IS(fh_mkdir(handle, "x", 0), FH_MISUSE);
    IS(fh_rename(handle, "x", "y", 0), FH_MISUSE);
    IS(fh_remove(handle, "x", FH_REMOVE_FILE), FH_MISUSE);
    IS(fh_set_rate(handle, 1000000), FH_MISUSE);
    IS(fh_get_progress(handle, &progress), FH_MISUSE);
    IS(fh_cancel(handle), FH_MISUSE);
    IS(fh_report_json(handle, text, sizeof text, &count), FH_MISUSE);
    IS(fh_error_text(handle, FH_MISUSE, text, sizeof text) > 0, 1);
}

/* A struct of every size that a header could have said, from that of the first header on. */
#define SIZES(type, call, wanted) SIZES_FROM(sizeof(type), type, call, wanted)
#define SIZES_FROM(first, type, call, wanted)                                                                                    \
    do {                                                                                                     \
        struct {                                                                                             \
            type known;                                                                                      \
            char further[64];                                                                                \
        } room = {.known = {.size = 0}};                                                                     \
        type *given = &room.known;                                                                           \
        IS(call, FH_MISUSE);                                                                                 \
        given->size = (first)-1;                                                                              \
        IS(call, FH_MISUSE);                                                                                 \
        given->size = (size_t)1 << 40;                                                                       \
        IS(call, FH_MISUSE);                                                                                 \
        given->size = sizeof room;                                                                           \
        room.further[63] = 1;                                                                                \
        IS(call, wanted);                                                                                    \
        IS(room.further[63], wanted == FH_MISUSE);                                                           \
        given = NULL;                                                                                        \
        IS(call, FH_MISUSE);                                                                                 \
    } while (0)

static void contexts(fh_context *context, fh_listener *listener, const char *location, const char *fingerprint) {
    fh_context *other = NULL;
    fh_stream *stream = NULL;
    fh_job *job = NULL;
    fh_remote *remote = NULL;
    fh_listener *second = NULL;
    const char *source = ".", *none = NULL;
    SIZES(fh_options, fh_open(given, &other), FH_MISUSE);
    SIZES(fh_connect_options, fh_connect(context, "fh://h/n", given, &stream), FH_MISUSE);
    SIZES(fh_connect_options, fh_remote_open(context, ".", given, &remote), FH_MISUSE);
    SIZES(fh_listen_options, fh_listen(context, given, &second), FH_MISUSE);
    SIZES(fh_copy_options, fh_copy(context, &source, 1, "x", given, &job), FH_MISUSE);
    SIZES(fh_copy_options, fh_sync(context, source, "x", given, &job), FH_MISUSE);
    IS(fh_open(&(fh_options){.size = sizeof(fh_options)}, NULL), FH_MISUSE);

    fh_connect_options connect = {.size = sizeof connect, .fingerprint = fingerprint};
    IS(fh_connect(context, NULL, &connect, &stream), FH_MISUSE);
    IS(fh_connect(context, location, &connect, NULL), FH_MISUSE);
    IS(fh_connect(context, "", &connect, &stream), BAD_LOCATION);
    IS(fh_connect(context, "here", &connect, &stream), BAD_LOCATION);
    IS(fh_connect(context, "fh://host:99999/x", &connect, &stream), BAD_LOCATION);
#define CONNECT(field, value, code)                                                                          \
    do {                                                                                                     \
        fh_connect_options wrong = connect;                                                                  \
        wrong.field = value;                                                                                 \
        IS(fh_connect(context, location, &wrong, &stream), code);                                            \
    } while (0)
    CONNECT(policy, "fastest", BAD_OPTION);
    CONNECT(policy, "\xff", FH_MISUSE);
    CONNECT(policy, "fixed", BAD_OPTION);
    CONNECT(cipher, "rot13", BAD_OPTION);
    CONNECT(rate_bps, 1, BAD_OPTION);
    CONNECT(flows, 17, BAD_OPTION);
    CONNECT(flows, 1u << 20, BAD_OPTION);
    CONNECT(direction, 2, BAD_OPTION);
    CONNECT(in_order, 7, BAD_OPTION);
    CONNECT(digests, 7, BAD_OPTION);
    CONNECT(path_count, 1, FH_MISUSE);
    CONNECT(path_count, (size_t)-1, BAD_OPTION);
    CONNECT(paths, (&(fh_path){"x", "y"}), FH_OK);
    if (stream)
        IS(fh_close(stream), FH_OK);
    fh_path bad = {"127.0.0.1", NULL};
    connect.paths = &bad;
    CONNECT(path_count, 1, BAD_OPTION);
    bad.remote = "::1";
    CONNECT(path_count, 1, BAD_OPTION);
    connect.paths = NULL;
    CONNECT(options_json, "", BAD_OPTION);
    CONNECT(options_json, "[]", BAD_OPTION);
    CONNECT(options_json, "{\"network\": 5}", BAD_OPTION);
    CONNECT(options_json, "{\"net\": {}}", BAD_OPTION);
    CONNECT(options_json, "{\"network\": {\"rate_bps\": -1}}", BAD_OPTION);
    CONNECT(memory_bytes, (uint64_t)1 << 50, NO_MEMORY);
    CONNECT(memory_bytes, 1, BAD_OPTION);

    fh_listen_options listen = {.size = sizeof listen, .address = "nowhere"};
    IS(fh_listen(context, &listen, &second), BAD_OPTION);
    listen.address = "127.0.0.1:0";
    IS(fh_listen(context, &listen, NULL), FH_MISUSE);
    listen.authorized_keys = "/none/there";
    IS(fh_listen(context, &listen, &second) >= 1000, 1);
    IS(fh_listener_address(listener, NULL, 5), FH_MISUSE);
    IS(fh_listener_address(listener, (char[5]){0}, 5), FH_MISUSE);
    IS(fh_accept(listener, 0, NULL), FH_MISUSE);
    IS(fh_accept(listener, -2, &stream), FH_MISUSE);
    IS(fh_accept(listener, 0, &stream), FH_OK);
    IS(fh_close(stream), FH_OK);
    IS(fh_accept(listener, 1000, &stream), FH_LATER);

    fh_copy_options copy = {.size = sizeof copy};
    IS(fh_copy(context, NULL, 1, "x", &copy, &job), FH_MISUSE);
    IS(fh_copy(context, NULL, 0, "x", &copy, &job), BAD_OPTION);
    IS(fh_copy(context, &none, 1, "x", &copy, &job), FH_MISUSE);
    IS(fh_copy(context, &source, 1, NULL, &copy, &job), FH_MISUSE);
    IS(fh_copy(context, &source, 1, "", &copy, &job), BAD_LOCATION);
    IS(fh_copy(context, &source, 1, "x", &copy, NULL), FH_MISUSE);
    IS(fh_sync(context, NULL, "x", &copy, &job), FH_MISUSE);
    copy.options_json = "{\"sources\": []}";
    IS(fh_copy(context, &source, 1, "x", &copy, &job), BAD_OPTION);
    copy.options_json = "{\"options\": {\"net\": 1}}";
    IS(fh_copy(context, &source, 1, "x", &copy, &job), BAD_OPTION);
    copy.options_json = NULL, copy.rate_bps = 1;
    IS(fh_copy(context, &source, 1, "x", &copy, &job), BAD_OPTION);
}

static void streams(fh_stream *sender, fh_stream *receiver) {
    fh_block *blocks[4];
    size_t count = 7;
    uint8_t meta[61440];
    memset(meta, 5, sizeof meta);
    IS(fh_claim(sender, 0, blocks, &count, 0), FH_MISUSE);
    IS(fh_claim(sender, 1, NULL, &count, 0), FH_MISUSE);
    IS(fh_claim(sender, 1, blocks, NULL, 0), FH_MISUSE);
    IS(fh_claim(sender, (size_t)-1, blocks, &count, 0), FH_MISUSE);
    IS(fh_claim(sender, 1, blocks, &count, -5), FH_MISUSE);
    IS(fh_claim(receiver, 1, blocks, &count, 0), FH_MISUSE);
    IS(fh_take(sender, 1, blocks, &count, 0), FH_MISUSE);
    IS(fh_take(receiver, 1, blocks, &count, 0), FH_LATER);
    IS(fh_take(receiver, 1, NULL, &count, 0), FH_MISUSE);
    IS(fh_wait_for_receiver(receiver, NULL), FH_MISUSE);
    SIZES(fh_stream_info, fh_stream_get(sender, given), FH_OK);
    SIZES(fh_progress, fh_get_progress(sender, given), FH_OK);
    IS(fh_use_path(sender, 0, 0), FH_MISUSE);
    IS(fh_use_path(sender, 99, 1), FH_MISUSE);
    IS(fh_use_path(sender, 0, 2), BAD_OPTION);
    IS(fh_send_meta(sender, NULL, 1), FH_MISUSE);
    IS(fh_send_meta(sender, meta, (size_t)-1), FH_MISUSE);
    uint8_t *large = calloc(1, 61441);
    IS(fh_send_meta(sender, large, 61441), FH_MISUSE);
    IS(fh_next_meta(receiver, meta, 5, &count, 0), FH_MISUSE);
    IS(fh_next_meta(receiver, meta, sizeof meta, NULL, 0), FH_MISUSE);
    IS(fh_next_meta(receiver, meta, sizeof meta, &count, -2), FH_MISUSE);
    IS(fh_next_meta(receiver, meta, sizeof meta, &count, 0), FH_LATER);
    IS(fh_set_rate(sender, 1), BAD_OPTION);
    IS(fh_report_json(sender, NULL, 0, &count), FH_MISUSE);

    MUST(sender, fh_claim(sender, 2, blocks, &count, FH_WAIT));
    IS(count, 2);
    fh_block_info info = {.size = sizeof info};
    SIZES(fh_block_info, fh_block_get(blocks[0], given), FH_OK);
    IS(fh_block_get(blocks[0], &info), FH_OK);
    IS(info.data == fh_block_data(blocks[0]) && info.len == 1 << 20 && !info.meta, 1);
    memset(info.data, 9, info.len);
    IS(fh_put(blocks[0], (1 << 20) + 1, NULL, 0), FH_MISUSE);
    IS(fh_put(blocks[0], 1, NULL, 1), FH_MISUSE);
    IS(fh_put(blocks[0], 1, large, 61441), FH_MISUSE);
    IS(fh_put(blocks[0], 1 << 20, meta, sizeof meta), FH_OK);
    IS(fh_put(blocks[0], 1 << 20, meta, sizeof meta), FH_MISUSE);
    IS(fh_release(blocks[0]), FH_MISUSE);
    IS(fh_block_data(blocks[0]) == NULL, 1);
    free(large);

    MUST(receiver, fh_take(receiver, 1, blocks, &count, FH_WAIT));
    IS(fh_block_get(blocks[0], &info), FH_OK);
    IS(info.len == 1 << 20 && info.meta_len == sizeof meta && !memcmp(info.meta, meta, sizeof meta), 1);
    IS(((uint8_t *)info.data)[12345], 9);
    IS(fh_put(blocks[0], 1, NULL, 0), FH_MISUSE);
    IS(fh_release(blocks[0]), FH_OK);
    IS(fh_release(blocks[0]), FH_MISUSE);

    /* A block outlives its stream's handle, and is of no use then. */
    IS(fh_close(sender), FH_OK);
    IS(fh_close(sender), FH_MISUSE);
    IS(fh_put(blocks[1], 1, NULL, 0), FH_MISUSE);
    memset(fh_block_data(blocks[1]), 1, 1 << 20);
    IS(fh_close(blocks[1]), FH_OK);
    IS(fh_close(blocks[1]), FH_MISUSE);
    refuse(sender);
    refuse(blocks[1]);
}

static void reads(fh_context *context, const char *folder) {
    fh_remote *remote;
    fh_file *file;
    size_t got;
    uint64_t bytes;
    char data[100], path[4096];
    snprintf(path, sizeof path, "%s/file", folder);
    FILE *written = fopen(path, "w");
    fputs("0123456789", written);
    fclose(written);
    fh_connect_options connect = {.size = sizeof connect, .memory_bytes = 32 << 20};
    MUST(context, fh_remote_open(context, folder, &connect, &remote));
    IS(fh_remote_open(context, NULL, &connect, &remote), FH_MISUSE);
    IS(fh_remote_open(context, folder, &connect, NULL), FH_MISUSE);
    IS(fh_file_open(remote, NULL, &file, NULL), FH_MISUSE);
    IS(fh_file_open(remote, "file", NULL, NULL), FH_MISUSE);
    IS(fh_file_open(remote, "none", &file, NULL), NOT_FOUND);
    MUST(remote, fh_file_open(remote, "file", &file, &bytes));
    IS(bytes, 10);
    IS(fh_read_at(file, 5, data, sizeof data, &got), FH_OK);
    IS(got == 5 && !memcmp(data, "56789", 5), 1);
    IS(fh_read_at(file, 0, NULL, 5, &got), FH_MISUSE);
    IS(fh_read_at(file, 0, data, 5, NULL), FH_MISUSE);
    IS(fh_read_at(file, (uint64_t)-1, data, 5, &got), FH_MISUSE);
    IS(fh_read_at(file, 100, data, 5, &got), FH_OK);
    IS(got, 0);
    fh_range ranges[] = {{.offset = 8, .data = data, .len = 5}, {.offset = 1, .data = data + 50, .len = 3}, {.offset = 99}};
    IS(fh_read_ranges(file, ranges, 3), FH_OK);
    IS(ranges[0].got == 2 && ranges[1].got == 3 && ranges[2].got == 0 && !memcmp(data + 50, "123", 3), 1);
    IS(fh_read_ranges(file, NULL, 3), FH_MISUSE);
    IS(fh_read_ranges(file, NULL, 0), FH_OK);
    ranges[0].offset = (uint64_t)-1;
    IS(fh_read_ranges(file, ranges, 3), FH_MISUSE);
    ranges[0].data = NULL;
    IS(fh_read_ranges(file, ranges, 3), FH_MISUSE);
    fh_entry entry = {.size = sizeof entry};
    IS(fh_stat(remote, "file", &entry), FH_OK);
    IS(entry.kind == 1 && entry.bytes == 10, 1);
    IS(fh_stat(remote, NULL, &entry), FH_MISUSE);
    SIZES(fh_entry, fh_stat(remote, "file", given), FH_OK);
    IS(fh_list(remote, "", 1, NULL, NULL), FH_MISUSE);
    IS(fh_list(remote, NULL, 1, nothing, NULL), FH_MISUSE);
    IS(fh_list(remote, "none", 1, nothing, NULL), NOT_FOUND);
    IS(fh_list(remote, "", 0, nothing, NULL), FH_OK);
    IS(fh_report_json(remote, data, sizeof data, &got), FH_MISUSE);
    IS(fh_mkdir(remote, NULL, 0), FH_MISUSE);
    IS(fh_mkdir(remote, "made/below", 0), NOT_FOUND);
    IS(fh_mkdir(remote, "made/below", 2), BAD_OPTION);
    IS(fh_mkdir(remote, "made/below", 1), FH_OK);
    IS(fh_mkdir(remote, "made/below", 1), FH_OK);
    IS(fh_mkdir(remote, "made", 0) >= 1000, 1);
    IS(fh_rename(remote, NULL, "made", 1), FH_MISUSE);
    IS(fh_rename(remote, "made", NULL, 1), FH_MISUSE);
    IS(fh_rename(remote, "made", "moved", 2), BAD_OPTION);
    IS(fh_rename(remote, "none", "moved", 1), NOT_FOUND);
    IS(fh_rename(remote, "made", "file", 0) >= 1000, 1);
    IS(fh_rename(remote, "made", "moved", 0), FH_OK);
    IS(fh_remove(remote, NULL, FH_REMOVE_TREE), FH_MISUSE);
    IS(fh_remove(remote, "moved", 3), BAD_OPTION);
    IS(fh_remove(remote, "moved", FH_REMOVE_FILE) >= 1000, 1);
    IS(fh_remove(remote, "moved", FH_REMOVE_DIRECTORY) >= 1000, 1);
    IS(fh_remove(remote, "moved/below", FH_REMOVE_DIRECTORY), FH_OK);
    IS(fh_remove(remote, "none", FH_REMOVE_TREE), NOT_FOUND);
    IS(fh_remove(remote, "moved", FH_REMOVE_TREE), FH_OK);
    IS(fh_stat(remote, "moved", &entry), NOT_FOUND);
    IS(fh_close(remote), FH_OK);
    /* The file keeps what it needs. */
    IS(fh_read_at(file, 0, data, 5, &got), FH_OK);
    IS(fh_close(file), FH_OK);
    refuse(file);
    refuse(remote);
}

static void jobs(fh_context *context, const char *folder) {
    char source[4096], destination[4096], json[65536];
    size_t len;
    snprintf(source, sizeof source, "%s/file", folder);
    snprintf(destination, sizeof destination, "%s/copy", folder);
    const char *sources[] = {source};
    fh_job *job;
    fh_copy_options options = {.size = sizeof options, .memory_bytes = 32 << 20};
    fh_report report = {.size = sizeof report};
    MUST(context, fh_copy(context, sources, 1, destination, &options, &job));
    IS(fh_pause(job, 2), BAD_OPTION);
    IS(fh_set_rate(job, 1), BAD_OPTION);
    IS(fh_wait(job, -3, &report), FH_MISUSE);
    SIZES_FROM(80, fh_report, given ? fh_wait(job, FH_WAIT, given) : FH_MISUSE, FH_OK);
    IS(fh_wait(job, FH_WAIT, &report), FH_OK);
    IS(report.bytes, 10);
    IS(fh_report_json(job, json, sizeof json, &len), FH_OK);
    IS(strlen(json) == len && strstr(json, "\"files\":1") != NULL, 1);
    IS(fh_report_json(job, json, 10, &len), FH_OK);
    IS(strlen(json), 9);
    IS(fh_close(job), FH_OK);
    refuse(job);
    sources[0] = "/none/there";
    MUST(context, fh_copy(context, sources, 1, destination, &options, &job));
    int32_t code = fh_wait(job, FH_WAIT, NULL);
    IS(code, NOT_FOUND);
    fh_error_text(job, code, json, sizeof json);
    IS(strstr(json, "/none/there") != NULL, 1);
    IS(fh_close(job), FH_OK);
}

/* Sessions that end write to connections whose other end is gone: a program without a handler for SIGPIPE goes on. */
static void many_remotes(fh_context *context, const char *folder, int count) {
    fh_connect_options connect = {.size = sizeof connect, .memory_bytes = 32 << 20};
    for (int i = 0; i < count; i++) {
        fh_remote *remote;
        fh_entry entry = {.size = sizeof entry};
        MUST(context, fh_remote_open(context, folder, &connect, &remote));
        MUST(remote, fh_stat(remote, "", &entry));
        IS(fh_close(remote), FH_OK);
    }
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    char location[256], fingerprint[128];
    fh_stream *sender, *receiver;
    for (size_t i = 0; i < INVENTED; i++) {
        refuse(invented[i]);
        IS(fh_close(invented[i]), FH_MISUSE);
    }
    fh_context *context = open_context(argv[1]);
    fh_listener *listener = open_listener(context, argv[1], location, fingerprint);
    contexts(context, listener, location, fingerprint);
    open_pair(context, listener, location, fingerprint, &sender, &receiver);
    streams(sender, receiver);
    reads(context, argv[2]);
    many_remotes(context, argv[2], argc == 4 ? atoi(argv[3]) : 150);
    jobs(context, argv[2]);
    IS(fh_close(listener), FH_OK);
    refuse(listener);
    IS(fh_close(context), FH_OK);
    refuse(context);
    refuse(receiver);
    IS(fh_error_text(NULL, 4003, NULL, 0) > 10, 1);
    IS(fh_error_text(NULL, 4003, NULL, 10), 0);
    IS(strcmp(fh_error_name(4003), "FH-NO-SPACE"), 0);
    IS(strcmp(fh_error_name(77), "FH-UNKNOWN"), 0);
    IS(strcmp(fh_version(), "0.1.0") >= 0, 1);
    printf("%d faults\n", faults);
    return faults != 0;
}
