/* Copies to a daemon and reads there: files FOLDER LOCATION FINGERPRINT, where FOLDER has `large` and `tree`. */
#include "check.h"

struct heard {
    size_t events, done, refused;
    fh_job *job;
};

static void hear(void *user, const char *event) {
    struct heard *heard = user;
    heard->events++;
    heard->done += strstr(event, "\"event\":\"ended\"") != NULL;
    if (event[0] != '{' || event[strlen(event) - 1] != '}')
        abort();
    if (heard->job && (fh_wait(heard->job, FH_WAIT, NULL) != FH_MISUSE || fh_close(heard->job) != FH_MISUSE))
        abort();
    heard->refused += heard->job != NULL;
}

static int32_t add_up(void *user, const fh_entry *entry) {
    *(uint64_t *)user += entry->kind == 1 ? entry->bytes : 0;
    return 0;
}

static int32_t stops(void *user, const fh_entry *entry) {
    (void)entry;
    return ++*(int *)user == 2;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    char large[4096], tree[4096], to[4096], json[4096], text[1024];
    snprintf(large, sizeof large, "%s/large", argv[1]);
    snprintf(tree, sizeof tree, "%s/tree", argv[1]);
    snprintf(json, sizeof json, "{\"connection\": {\"fingerprint\": \"%s\"}}", argv[3]);
    const char *sources[] = {large};
    fh_context *context;
    fh_job *job;
    struct heard heard = {0};
    fh_options options = {.size = sizeof options, .memory_bytes = 256 << 20};
    fh_copy_options copy = {.size = sizeof copy, .memory_bytes = 64 << 20, .options_json = json, .on_event = hear, .user = &heard};
    fh_progress progress = {.size = sizeof progress};
    fh_report report = {.size = sizeof report};
    MUST(NULL, fh_open(&options, &context));

    /* A copy that is slowed down, paused, let go on. */
    snprintf(to, sizeof to, "%s/large", argv[2]);
    copy.rate_bps = 80000000;
    MUST(context, fh_copy(context, sources, 1, to, &copy, &job));
    do
        MUST(job, fh_get_progress(job, &progress));
    while (progress.bytes_done == 0 && fh_wait(job, 1000, NULL) == FH_LATER);
    MUST(job, fh_pause(job, 1));
    IS(fh_wait(job, 100000, NULL), FH_LATER);
    heard.job = job;
    MUST(job, fh_set_rate(job, 0));
    MUST(job, fh_pause(job, 0));
    MUST(job, fh_wait(job, FH_WAIT, &report));
    heard.job = NULL;
    IS(heard.events > 3 && heard.done == 1 && heard.refused > 0, 1);
    MUST(job, fh_close(job));

    /* One that is cancelled. */
    snprintf(to, sizeof to, "%s/cancelled", argv[2]);
    MUST(context, fh_copy(context, sources, 1, to, &copy, &job));
    MUST(job, fh_cancel(job));
    IS(fh_wait(job, FH_WAIT, NULL), FH_INTERRUPTED);
    MUST(job, fh_close(job));

    /* A tree, once and again. */
    copy.on_event = NULL, copy.rate_bps = 0;
    snprintf(to, sizeof to, "%s/tree", argv[2]);
    for (int i = 0; i < 2; i++) {
        MUST(context, fh_sync(context, tree, to, &copy, &job));
        MUST(job, fh_wait(job, FH_WAIT, &report));
        MUST(job, fh_close(job));
    }
    IS(report.bytes, 0);

    /* What is there, and what is not to be seen. */
    fh_remote *remote;
    fh_file *file;
    fh_entry entry = {.size = sizeof entry};
    uint64_t bytes = 0, sum = 0;
    int seen = 0;
    size_t got;
    fh_connect_options connect = {.size = sizeof connect, .fingerprint = argv[3], .memory_bytes = 64 << 20};
    MUST(context, fh_remote_open(context, argv[2], &connect, &remote));
    MUST(remote, fh_stat(remote, "tree", &entry));
    IS(entry.kind, 2);
    MUST(remote, fh_list(remote, "tree", 0, add_up, &sum));
    MUST(remote, fh_list(remote, "tree", 0, stops, &seen));
    IS(seen, 2);
    MUST(remote, fh_file_open(remote, "large", &file, &bytes));
    char *content = malloc(bytes);
    IS(fh_read_at(file, 0, content, bytes, &got), FH_OK);
    IS(got, bytes);
    static const char *const ways_out[] = {"../outside", "/../outside", "tree/../../outside", "/etc/passwd", "link"};
    for (size_t i = 0; i < 5; i++) {
        int32_t code = fh_stat(remote, ways_out[i], &entry);
        fh_error_text(remote, code, text, sizeof text);
        printf("out %s %s\n", ways_out[i], fh_error_name(code));
        IS(code != FH_OK && fh_file_open(remote, ways_out[i], &file, NULL) == code, 1);
        IS(strlen(text) > 5, 1);
    }

    /* Names change at the daemon, and nowhere outside of its root. */
    MUST(remote, fh_mkdir(remote, "names/below", 1));
    MUST(remote, fh_rename(remote, "names/below", "names/moved", 0));
    IS(fh_stat(remote, "names/below", &entry), 1022);
    MUST(remote, fh_stat(remote, "names/moved", &entry));
    MUST(remote, fh_remove(remote, "names", FH_REMOVE_TREE));
    MUST(remote, fh_mkdir(remote, "kept", 0));
    for (size_t i = 0; i < 3; i++) {
        IS(fh_mkdir(remote, ways_out[i], 0) >= 1000 && fh_remove(remote, ways_out[i], FH_REMOVE_TREE) >= 1000, 1);
        IS(fh_rename(remote, "kept", ways_out[i], 1) >= 1000 && fh_rename(remote, ways_out[i], "kept", 1) >= 1000, 1);
    }
    FILE *back = fopen("back", "w");
    fwrite(content, 1, got, back);
    fclose(back);
    free(content);
    printf("tree %llu\n", (unsigned long long)sum);
    MUST(context, fh_close(context));
    printf("%d faults\n", faults);
    return faults != 0;
}
