/* Looks at a far end that may lie: reader LOCATION OPTIONS_JSON list|stat|read|ranges PATH. Prints the code's name. */
#include "check.h"

static int32_t count_entries(void *user, const fh_entry *entry) {
    if (entry->size != sizeof *entry || strlen(entry->path) > 4096)
        abort();
    (*(size_t *)user)++;
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 5)
        return 2;
    fh_context *context;
    fh_remote *remote;
    fh_file *file;
    fh_options options = {.size = sizeof options};
    fh_connect_options connect = {
        .size = sizeof connect, .cipher = "chacha20-poly1305", .memory_bytes = 64 << 20, .options_json = argv[2]};
    fh_entry entry = {.size = sizeof entry};
    size_t got = 0, seen = 0;
    uint64_t bytes = 0;
    char *data = malloc(1 << 20), text[1024];
    const void *of = NULL;
    MUST(NULL, fh_open(&options, &context));
    of = context;
    int32_t code = fh_remote_open(context, argv[1], &connect, &remote);
    if (code == FH_OK) {
        of = remote;
        if (!strcmp(argv[3], "list"))
            code = fh_list(remote, argv[4], 1, count_entries, &seen);
        else if (!strcmp(argv[3], "stat"))
            code = fh_stat(remote, argv[4], &entry), bytes = entry.bytes;
        else if ((code = fh_file_open(remote, argv[4], &file, &bytes)) == FH_OK) {
            of = file;
            fh_range range = {.data = data, .len = 1 << 20};
            code = strcmp(argv[3], "read") ? fh_read_ranges(file, &range, 1) : fh_read_at(file, 0, data, 1 << 20, &got);
            IS(range.code == FH_OK || range.code == code, 1);
            if (code == FH_OK)
                got = strcmp(argv[3], "read") ? range.got : got;
        }
    }
    fh_error_text(of, code, text, sizeof text);
    printf("%s %zu %zu %llu\n", fh_error_name(code), seen, got, (unsigned long long)bytes);
    fprintf(stderr, "%s\n", text);
    fh_close(context);
    free(data);
    return faults;
}
