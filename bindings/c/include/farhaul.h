/* farhaul.h: moves blocks, files and ranges of files between hosts. Made from bindings/c/src by cbindgen.
 *
 * Errors: a function that returns int32_t returns FH_OK, FH_END, FH_LATER, or the number of an error of
 * docs/reference/errors.md; fh_error_text and fh_error_name say more. A failed call has made nothing.
 * Handles: what is opened, begun or taken is closed by fh_close, blocks by fh_put or fh_release. A handle that was
 * closed or invented is FH_MISUSE. In a forked child every handle of the parent is FH_ERROR_FORKED, and new ones can
 * be made; its blocks are not in the child's memory.
 * Threads: every function can be called from any thread, and several at a time on one handle. The memory of a block
 * is for one thread at a time.
 * Memory: texts and data that a program hands over are read during the call only. A struct that begins with `size`
 * gets its sizeof there, and zeros elsewhere, which stand for defaults. A text that is written to `room` bytes is cut
 * to that, and ends with a zero byte. Times to wait are microseconds, or FH_WAIT.
 */

#ifndef FARHAUL_H
#define FARHAUL_H

#include <stddef.h>
#include <stdint.h>


#define FH_OK 0                // The call has done what was asked.
#define FH_END 1               // There is no more: the sender has finished, and every block was taken.
#define FH_LATER 2             // Nothing has come, or nothing was free, within the time to wait.
#define FH_MISUSE 1009         // The library was called in a way that it does not allow; nothing has changed.
#define FH_INTERRUPTED 1031    // The call was ended by fh_cancel or fh_close.
#define FH_ERROR_FORKED 1090   // The handle belongs to the process that this one was forked from.
#define FH_WAIT -1             // Waits without an end.
#define FH_SEND 0              // This end sends.
#define FH_RECEIVE 1           // This end receives.
#define FH_REMOVE_FILE 0       // fh_remove removes anything but a directory.
#define FH_REMOVE_DIRECTORY 1  // It removes an empty directory.
#define FH_REMOVE_TREE 2       // It removes anything, and everything in it.

typedef struct fh_block fh_block;        // A block of a stream.
typedef struct fh_context fh_context;    // What all that a program makes belongs to.
typedef struct fh_file fh_file;          // An open file of a remote.
typedef struct fh_job fh_job;            // A copy or a sync that runs.
typedef struct fh_listener fh_listener;  // Waits for streams that others begin.
typedef struct fh_remote fh_remote;      // A place whose files can be read.
typedef struct fh_stream fh_stream;      // One end of a stream of blocks.

// What all that is made from a context has in common.
typedef struct fh_options {
    size_t size;
    // The most bytes of blocks of all streams, copies and remotes together. 0: 1 GiB.
    uint64_t memory_bytes;
    // The file of this user's key for fh://. NULL: ~/.config/farhaul/id_ed25519.
    const char *identity_file;
    // The file of known daemons. NULL: ~/.config/farhaul/known_hosts.
    const char *known_hosts_file;
} fh_options;

// How a stream or a job stands.
typedef struct fh_progress {
    size_t size;
    // Bytes of content that are safe at the receiver, and how many there will be as far as is known.
    uint64_t bytes_done;
    uint64_t bytes_total;
    // The same of files.
    uint64_t files_done;
    uint64_t files_total;
    // Entries that have failed.
    uint64_t failed;
    // Bits of content a second, over the last seconds.
    double goodput_bps;
    // Since it was begun.
    double seconds;
    // 0 starting, 1 running, 2 being paused, 3 paused, 4 ended.
    uint64_t state;
} fh_progress;

// A path between two addresses, one of this host and one of the far end.
typedef struct fh_path {
    const char *local;
    const char *remote;
} fh_path;

// How to connect. What is 0 or NULL has its default, or what options_json says.
typedef struct fh_connect_options {
    size_t size;
    // Bytes of blocks at each end, of the context's memory_bytes. 0: 256 MiB, or what is left.
    uint64_t memory_bytes;
    // Bits a second of IP packets: the ceiling (the rate, with policy "fixed"), and the least.
    uint64_t rate_bps;
    uint64_t rate_min_bps;
    // "fair", "high", "low", "fixed".
    const char *policy;
    // "aes-128-gcm", "aes-256-gcm", "chacha20-poly1305", "none".
    const char *cipher;
    // The fingerprint of the far end's key, "SHA256:...".
    const char *fingerprint;
    // Paths to use at once.
    const struct fh_path *paths;
    size_t path_count;
    // Flows on each path, 1 to 16.
    uint32_t flows;
    // FH_SEND or FH_RECEIVE. Only for streams, as the next two.
    uint32_t direction;
    // 1: blocks are taken in the order in which they were put.
    uint32_t in_order;
    // 1: each block has a digest, against faulty memory.
    uint32_t digests;
    // Further options: {"network": {...}, "connection": {...}} as in docs/reference/c.md.
    const char *options_json;
} fh_connect_options;

// How to listen. What is 0 or NULL has its default.
typedef struct fh_listen_options {
    size_t size;
    // The address with its port, for UDP and TCP: "0.0.0.0:0", "[::]:33001". NULL: [::]:33001.
    const char *address;
    // The file of public keys that are let in, one a line. NULL: ~/.config/farhaul/authorized_keys.
    const char *authorized_keys;
    // The only name that a stream may have. NULL: any.
    const char *name;
    // The most bytes of blocks of each stream, of the context's memory_bytes. 0: 256 MiB.
    uint64_t memory_bytes;
} fh_listen_options;

// What a stream is.
typedef struct fh_stream_info {
    size_t size;
    // FH_SEND if this end sends, FH_RECEIVE if it receives.
    uint64_t direction;
    // Its name, and the far end's host or address, each with a zero byte at the end.
    char name[256];
    char peer[256];
} fh_stream_info;

// Figures of a stream or of a job that has ended.
typedef struct fh_report {
    size_t size;
    // Bytes of content that have arrived.
    uint64_t bytes;
    // Bytes of packets that the sending end has sent.
    uint64_t wire_bytes_sent;
    // Segments that were sent again because they were lost.
    uint64_t segments_retransmitted;
    // From the beginning of the session to its end.
    double seconds;
    // Bits of content a second.
    double goodput_bps;
    // The smallest round trip, in milliseconds.
    double rtt_min_ms;
    // The share of packets that were lost, 0 to 1.
    double loss_fraction;
    // Processor seconds of the threads of this end, and of the other one.
    double cpu_seconds_local;
    double cpu_seconds_remote;
    // Bytes of memory of this end's blocks, and those of them in huge pages; 0 if the system does not say it.
    uint64_t block_bytes;
    uint64_t huge_page_bytes;
} fh_report;

// A block: where its bytes are, until it is put or released.
typedef struct fh_block_info {
    size_t size;
    // Its content, and how many bytes that is: all that it has room for (1 MiB) of a claimed one.
    void *data;
    size_t len;
    // What the sender has put with it; NULL of a claimed one.
    const void *meta;
    size_t meta_len;
    // How many blocks were put before; 0 of a claimed one.
    uint64_t number;
} fh_block_info;

// Gets each event of a job as JSON, as docs/reference/events.md has it, from a thread of the library. The text is gone
// when it returns. It must not wait for its own job or close anything.
typedef void (*fh_event_callback)(void *user, const char *event_json);

// How to copy. What is 0 or NULL has its default, or what options_json says.
typedef struct fh_copy_options {
    size_t size;
    // Bytes of blocks at each end, of the context's memory_bytes. 0: 256 MiB, or what is left.
    uint64_t memory_bytes;
    // Bits a second of IP packets, at most.
    uint64_t rate_bps;
    // Called with each event, and with `user`.
    fh_event_callback on_event;
    void *user;
    // Everything else: the document of a transfer without its locations, {"options": {...}, "connection": {...},
    // "manifest": ..., "receipt": ...} as in docs/reference/c.md.
    const char *options_json;
} fh_copy_options;

// A part of a file that is read.
typedef struct fh_range {
    // Where it begins in the file.
    uint64_t offset;
    // Where its bytes go, and how many are wanted.
    void *data;
    size_t len;
    // Set by fh_read_ranges: how many there were (fewer only at the end of the file), and the code of this range.
    size_t got;
    int32_t code;
} fh_range;

// A file, a directory or something else.
typedef struct fh_entry {
    size_t size;
    // In a list: the path below the directory, empty for the directory itself. It lives until the callback returns.
    const char *path;
    // In a list: FH_OK, or why this entry could not be looked at; the rest is 0 then.
    int32_t code;
    // 1 file, 2 directory, 3 symbolic link, 4 pipe, 5 socket, 6 character device, 7 block device.
    uint32_t kind;
    // The permission bits, 07777.
    uint32_t mode;
    // When the content was last changed: seconds since 1970, and nanoseconds beside them.
    uint32_t mtime_ns;
    int64_t mtime_s;
    // Bytes of content.
    uint64_t bytes;
} fh_entry;

// Gets each entry of a list, on the thread that has called fh_list. Another value than 0 ends the list.
typedef int32_t (*fh_entry_callback)(void *user, const struct fh_entry *entry);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes a context.
int32_t fh_open(const struct fh_options *options, struct fh_context **context);

// Closes any handle, and a context with it all that was made from it; the memory of its blocks is gone then. A stream
// ends in order after fh_wait_for_receiver, or after fh_take has returned FH_END, if the other program ends it within
// 10 s, too; otherwise the far end is told that it is incomplete. A job is cancelled, and its end is awaited. Calls of
// other threads that wait on the handle return FH_INTERRUPTED.
int32_t fh_close(void *handle);

// The text of an error: what, where, and what to do. With the handle that the failed call was given as its first
// argument, and the code that it returned, it is that of the handle's last error with this code; with NULL, or if
// there is none, the meaning of the code. Returns the text's length.
size_t fh_error_text(const void *handle, int32_t code, char *text, size_t room);

// The name of a code, such as "FH-NO-SPACE", as in docs/reference/errors.md. It lives as long as the program.
const char *fh_error_name(int32_t code);

// The version of the library, such as "0.1.0".
const char *fh_version(void);

// Sets the rate of a running stream, job or remote, in bits a second of IP packets; 0: no ceiling. Either end of a
// stream may do so.
int32_t fh_set_rate(void *handle, uint64_t rate_bps);

// How a stream, a job or a remote stands now.
int32_t fh_get_progress(void *handle, struct fh_progress *progress);

// Ends a stream, a job or a remote from any thread: calls that wait on it return FH_INTERRUPTED. The handle stays,
// and is to be closed.
int32_t fh_cancel(void *handle);

// The whole report of a stream or a job that has ended, as the JSON that `farhaul cp --json` prints. `len` gets the
// length of the whole text.
int32_t fh_report_json(void *handle, char *json, size_t room, size_t *len);

// Begins a stream with a program that listens, at fh://HOST[:PORT]/NAME, or that ssh starts, at
// [USER@]HOST:PROGRAM (it calls fh_accept_stdio; ssh gives it the argument `endpoint`).
int32_t fh_connect(struct fh_context *context, const char *location, const struct fh_connect_options *options, struct fh_stream **stream);

// Listens for streams that others begin.
int32_t fh_listen(struct fh_context *context, const struct fh_listen_options *options, struct fh_listener **listener);

// Writes "ADDRESS:PORT FINGERPRINT" of a listener: what whoever connects needs.
int32_t fh_listener_address(struct fh_listener *listener, char *text, size_t room);

// Waits for the next stream at a listener. FH_LATER: none has come.
int32_t fh_accept(struct fh_listener *listener, int64_t wait_us, struct fh_stream **stream);

// Accepts the stream of the program that has started this one by ssh, over standard input and output. From then on
// what this program prints to standard output goes to standard error.
int32_t fh_accept_stdio(struct fh_context *context, struct fh_stream **stream);

// Says what a stream is.
int32_t fh_stream_get(struct fh_stream *stream, struct fh_stream_info *info);

// Takes a path of a running stream out of use (`is_used` 0), or puts it back (1). Paths have the order of the options.
int32_t fh_use_path(struct fh_stream *stream, size_t path, uint32_t is_used);

// Sends a message of at most 61,440 bytes to the other program. Messages arrive in their order, but not in step with
// blocks. The library copies it.
int32_t fh_send_meta(struct fh_stream *stream, const void *meta, size_t len);

// Waits for the next message of the other program. FH_LATER: none has come. `room` must be at least 61,440 bytes.
int32_t fh_next_meta(struct fh_stream *stream, void *meta, size_t room, size_t *len, int64_t wait_us);

// Waits until the receiving program has released every block that was put. Further blocks can be put; without any,
// fh_close ends the stream in order. `report` may be NULL; it gets the figures so far.
int32_t fh_wait_for_receiver(struct fh_stream *stream, struct fh_report *report);

// Ends a stream in order, and waits until both programs have: the sender says that no more blocks come, the receiver
// that it has released all. `report` may be NULL. The handle stays, for fh_report_json, and is to be closed.
int32_t fh_finish(struct fh_stream *stream, struct fh_report *report);

// Claims free blocks of a stream that sends, `wanted` at most: waits for the first one and takes what else is free.
// `count` gets their number. FH_LATER: none was free.
int32_t fh_claim(struct fh_stream *stream, size_t wanted, struct fh_block **blocks, size_t *count, int64_t wait_us);

// Takes blocks that have arrived, `wanted` at most: waits for the first one and takes what else is there. FH_LATER:
// none has come. FH_END: the sender has finished, and there are no more.
int32_t fh_take(struct fh_stream *stream, size_t wanted, struct fh_block **blocks, size_t *count, int64_t wait_us);

// The memory of a block, page-aligned; NULL if the handle is no block's.
void *fh_block_data(struct fh_block *block);

// Says where the content and the metadata of a block are.
int32_t fh_block_get(struct fh_block *block, struct fh_block_info *info);

// Sends the first `len` bytes of a claimed block, with at most 61,440 bytes of metadata, which the library copies.
// Waits while there is enough to send. After FH_MISUSE the block is still the caller's; after anything else it is gone.
int32_t fh_put(struct fh_block *block, size_t len, const void *meta, size_t meta_len);

// Gives back a block: a received one counts as processed, and the sender is told; a claimed one is not sent.
int32_t fh_release(struct fh_block *block);

// Begins to copy files and trees, as `farhaul cp` does: `sources` and the destination are written as on its command
// line. Returns at once; fh_wait waits for the end.
int32_t fh_copy(struct fh_context *context, const char *const *sources, size_t source_count, const char *destination, const struct fh_copy_options *options, struct fh_job **job);

// Begins to make the destination like the content of one source directory, as `farhaul sync` does. Nothing is deleted
// unless options_json says so.
int32_t fh_sync(struct fh_context *context, const char *source, const char *destination, const struct fh_copy_options *options, struct fh_job **job);

// Waits for the end of a job. FH_LATER: it runs. Otherwise FH_OK, or the
// code of what has failed; `report` may be NULL and is filled as far as it went.
int32_t fh_wait(struct fh_job *job, int64_t wait_us, struct fh_report *report);

// Pauses a job (`is_paused` 1), or lets it go on (0).
int32_t fh_pause(struct fh_job *job, uint32_t is_paused);

// Connects to a directory or a file: a local path, [USER@]HOST:PATH over ssh, fh://HOST[:PORT]/PATH. Later paths begin
// there.
int32_t fh_remote_open(struct fh_context *context, const char *location, const struct fh_connect_options *options, struct fh_remote **remote);

// Opens a file. Reads return the content of this moment; once the file has changed they fail with FH-SOURCE-CHANGED.
// `file_bytes` gets its size, and may be NULL.
int32_t fh_file_open(struct fh_remote *remote, const char *path, struct fh_file **file, uint64_t *file_bytes);

// Reads `len` bytes from `offset` on. `got` gets how many there were: fewer only at the end of the file.
int32_t fh_read_at(struct fh_file *file, uint64_t offset, void *data, size_t len, size_t *got);

// Reads many ranges at once, in one round trip as far as the path allows. Returns the code of the first range that
// failed; each range has its own, too.
int32_t fh_read_ranges(struct fh_file *file, struct fh_range *ranges, size_t count);

// The attributes of a path below a remote; symbolic links are followed. `path` "" is the location itself.
int32_t fh_stat(struct fh_remote *remote, const char *path, struct fh_entry *entry);

// Lists a directory, `levels` deep (1: what is in it; 0: everything below it), the directory itself first.
int32_t fh_list(struct fh_remote *remote, const char *path, uint64_t levels, fh_entry_callback on_entry, void *user);

// Makes a directory below a remote. With `parents` 1 those above it are made, too, and it may be there.
int32_t fh_mkdir(struct fh_remote *remote, const char *path, uint32_t parents);

// Gives a file, a directory or a link below a remote another name there. With `replace` 1 a file that has the new name
// is replaced, and an empty directory by a directory; with 0 that fails.
int32_t fh_rename(struct fh_remote *remote, const char *from, const char *to, uint32_t replace);

// Removes what is below a remote: with FH_REMOVE_FILE anything but a directory (a link itself), with FH_REMOVE_DIRECTORY an empty
// directory, with FH_REMOVE_TREE anything, and everything in it.
int32_t fh_remove(struct fh_remote *remote, const char *path, uint32_t extent);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FARHAUL_H */
