/* Changes names where they are: names LOCATION, an empty directory. Leaves the directory `kept`. */
#include "check.h"

#define NOT_FOUND 1022

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    fh_context *context;
    fh_remote *remote;
    fh_entry entry = {.size = sizeof entry};
    fh_options options = {.size = sizeof options};
    fh_connect_options connect = {.size = sizeof connect, .memory_bytes = 64 << 20};
    MUST(NULL, fh_open(&options, &context));
    MUST(context, fh_remote_open(context, argv[1], &connect, &remote));
    MUST(remote, fh_mkdir(remote, "a/b", 1));
    MUST(remote, fh_mkdir(remote, "kept", 0));
    MUST(remote, fh_rename(remote, "a/b", "after", 0));
    IS(fh_rename(remote, "a", "after/x/y", 0), NOT_FOUND);
    MUST(remote, fh_remove(remote, "a", FH_REMOVE_DIRECTORY));
    IS(fh_stat(remote, "a", &entry), NOT_FOUND);
    MUST(remote, fh_stat(remote, "after", &entry));
    MUST(remote, fh_remove(remote, "after", FH_REMOVE_TREE));
    MUST(remote, fh_cancel(remote));
    IS(fh_mkdir(remote, "late", 0), FH_INTERRUPTED);
    MUST(remote, fh_close(remote));
    /* One that is cancelled before its first change. */
    MUST(context, fh_remote_open(context, argv[1], &connect, &remote));
    MUST(remote, fh_cancel(remote));
    IS(fh_mkdir(remote, "late", 0), FH_INTERRUPTED);
    MUST(remote, fh_close(remote));
    /* A remote has little memory left for changes. */
    fh_context *small;
    options.memory_bytes = 20 << 20;
    connect.memory_bytes = 16 << 20;
    MUST(NULL, fh_open(&options, &small));
    MUST(small, fh_remote_open(small, argv[1], &connect, &remote));
    IS(fh_mkdir(remote, "late", 0), 4013);
    MUST(small, fh_close(small));
    MUST(context, fh_close(context));
    printf("%d faults\n", faults);
    return faults != 0;
}
