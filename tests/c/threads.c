/* One handle in several threads: threads KEY. */
#include "check.h"

#define SENDERS 4
#define BLOCKS 40

static fh_stream *sender, *receiver;
static fh_block *contested;
static pthread_barrier_t start;

static void *sends(void *given) {
    uint8_t number = (uint8_t)(size_t)given;
    for (int i = 0; i < BLOCKS; i++) {
        fh_block *block;
        size_t count;
        MUST(sender, fh_claim(sender, 1, &block, &count, FH_WAIT));
        memset(fh_block_data(block), number, 1 << 20);
        MUST(sender, fh_put(block, 1 << 20, &number, 1));
        MUST(sender, fh_set_rate(sender, i % 2 ? 0 : 20000000000));
        MUST(sender, fh_send_meta(sender, &number, 1));
    }
    return NULL;
}

static void *receives(void *given) {
    size_t *seen = given;
    for (;;) {
        fh_block *blocks[3];
        size_t count;
        int32_t code = fh_take(receiver, 3, blocks, &count, FH_WAIT);
        if (code == FH_END)
            return NULL;
        MUST(receiver, code);
        for (size_t i = 0; i < count; i++) {
            fh_block_info info = {.size = sizeof info};
            MUST(blocks[i], fh_block_get(blocks[i], &info));
            const uint8_t *data = info.data;
            IS(info.len == 1 << 20 && info.meta_len == 1 && data[0] == *(const uint8_t *)info.meta &&
                   data[info.len - 1] == data[0],
               1);
            (*seen)++;
            MUST(receiver, fh_release(blocks[i]));
        }
    }
}

static void *puts_contested(void *given) {
    pthread_barrier_wait(&start);
    *(int32_t *)given = fh_put(contested, 1, NULL, 0);
    return NULL;
}

static void *waits(void *given) {
    fh_block *block;
    size_t count;
    *(int32_t *)given = fh_take(receiver, 1, &block, &count, FH_WAIT);
    return NULL;
}

static void *ends(void *given) {
    *(int32_t *)given = fh_finish(sender, NULL);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    char location[256], fingerprint[128], json[65536];
    size_t seen[2] = {0, 0}, count, messages = 0;
    pthread_t threads[SENDERS + 2];
    fh_context *context = open_context(argv[1]);
    fh_listener *listener = open_listener(context, argv[1], location, fingerprint);
    open_pair(context, listener, location, fingerprint, &sender, &receiver);
    fh_stream_info info = {.size = sizeof info};
    MUST(receiver, fh_stream_get(receiver, &info));
    IS(info.direction == FH_RECEIVE && !strcmp(info.name, "frames"), 1);
    for (size_t i = 0; i < SENDERS; i++)
        pthread_create(&threads[i], NULL, sends, (void *)i);
    for (size_t i = 0; i < 2; i++)
        pthread_create(&threads[SENDERS + i], NULL, receives, &seen[i]);
    for (size_t i = 0; i < SENDERS; i++)
        pthread_join(threads[i], NULL);
    for (uint8_t room[61440]; fh_next_meta(receiver, room, sizeof room, &count, 2000000) == FH_OK;)
        messages += count;
    IS(messages, SENDERS * BLOCKS);

    /* Two threads put one block: one of them is too late. */
    int32_t codes[2];
    pthread_t both[2];
    MUST(sender, fh_claim(sender, 1, &contested, &count, FH_WAIT));
    fh_block *spare = contested;
    MUST(sender, fh_release(spare));
    MUST(sender, fh_claim(sender, 1, &contested, &count, FH_WAIT));
    IS(contested != spare, 1);
    memset(fh_block_data(contested), 0, 1);
    pthread_barrier_init(&start, NULL, 2);
    pthread_t end;
    int32_t ended;
    /* The receivers would find fault with its metadata: they are done before it comes. */
    fh_progress progress = {.size = sizeof progress};
    MUST(sender, fh_wait_for_receiver(sender, NULL));
    MUST(sender, fh_get_progress(sender, &progress));
    IS(progress.bytes_done, (uint64_t)SENDERS * BLOCKS << 20);
    MUST(sender, fh_release(contested));
    pthread_create(&end, NULL, ends, &ended);
    for (size_t i = 0; i < 2; i++)
        pthread_join(threads[SENDERS + i], NULL);
    MUST(receiver, fh_finish(receiver, NULL));
    pthread_join(end, NULL);
    IS(ended, FH_OK);
    IS(seen[0] + seen[1], SENDERS * BLOCKS);
    MUST(sender, fh_report_json(sender, json, sizeof json, &count));
    IS(strstr(json, "\"segments_sent\"") != NULL, 1);
    IS(fh_claim(sender, 1, &contested, &count, 0) >= 1000, 1);
    MUST(sender, fh_close(sender));
    MUST(receiver, fh_close(receiver));

    open_pair(context, listener, location, fingerprint, &sender, &receiver);
    MUST(sender, fh_claim(sender, 1, &contested, &count, FH_WAIT));
    for (size_t i = 0; i < 2; i++)
        pthread_create(&both[i], NULL, puts_contested, &codes[i]);
    for (size_t i = 0; i < 2; i++)
        pthread_join(both[i], NULL);
    IS((codes[0] == FH_OK) + (codes[1] == FH_OK), 1);
    IS((codes[0] == FH_MISUSE) + (codes[1] == FH_MISUSE), 1);
    fh_block *block;
    MUST(receiver, fh_take(receiver, 1, &block, &count, FH_WAIT));
    MUST(receiver, fh_release(block));

    /* Closing or cancelling a handle ends the waits on it. */
    int32_t waited;
    pthread_create(&end, NULL, waits, &waited);
    usleep(50000);
    MUST(receiver, fh_cancel(receiver));
    pthread_join(end, NULL);
    IS(waited, FH_INTERRUPTED);
    IS(fh_close(receiver), FH_OK);
    int32_t code;
    while ((code = fh_claim(sender, 1, &block, &count, 1000)) == FH_OK || code == FH_LATER)
        if (code == FH_OK)
            fh_release(block);
    IS(strcmp(fh_error_name(code), "FH-PEER-INTERRUPTED"), 0);
    IS(fh_close(sender), FH_OK);

    open_pair(context, listener, location, fingerprint, &sender, &receiver);
    pthread_create(&end, NULL, waits, &waited);
    usleep(50000);
    IS(fh_close(context), FH_OK);
    pthread_join(end, NULL);
    IS(waited >= 1000, 1);
    printf("%d faults\n", faults);
    return faults != 0;
}
