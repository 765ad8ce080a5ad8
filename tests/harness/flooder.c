/* Sends forged copies of one captured frame on a link between two test hosts: addresses, ports and the flow in the
 * packet header stay, packet number and body are random. Usage: flooder INTERFACE PER_SECOND SECONDS FRAME_HEX
 * It runs no longer than its arguments say, and no longer than 60 seconds; it ends on SIGTERM, and prints how many
 * packets it has sent. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 64, FRAME_MAX = 2048 };
static volatile sig_atomic_t ended;
static void end(int number) { (void)number; ended = 1; }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static uint64_t state = 0x9e3779b97f4a7c15u;
static uint64_t chance(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

/* The offset of the UDP header; the frame has IPv4, or IPv6 without extension headers. */
static size_t udp_at(const uint8_t *frame) {
    return frame[12] == 0x08 ? 14 + (frame[14] & 15) * 4 : 54;
}

static uint32_t sum(const uint8_t *at, size_t len, uint32_t total) {
    for (size_t i = 0; i + 1 < len; i += 2) total += at[i] << 8 | at[i + 1];
    if (len & 1) total += at[len - 1] << 8;
    return total;
}

/* The UDP checksum: with a wrong one the kernel would drop the forged packet before Farhaul sees it. */
static void set_checksum(uint8_t *frame, size_t at, size_t len) {
    uint32_t total = 17 + (uint32_t)(len - at);
    total = frame[12] == 0x08 ? sum(frame + 26, 8, total) : sum(frame + 22, 32, total);
    frame[at + 6] = frame[at + 7] = 0;
    total = sum(frame + at, len - at, total);
    while (total >> 16) total = (total & 0xffff) + (total >> 16);
    uint16_t result = (uint16_t)~total;
    if (result == 0) result = 0xffff;
    frame[at + 6] = result >> 8, frame[at + 7] = result & 0xff;
}

int main(int count, char **arguments) {
    if (count != 5) return 2;
    double rate = atof(arguments[2]), seconds = atof(arguments[3]);
    if (seconds > 60) seconds = 60;
    static uint8_t frames[BATCH][FRAME_MAX];
    size_t len = strlen(arguments[4]) / 2;
    if (len > FRAME_MAX || len < 64) return 2;
    for (size_t i = 0; i < len; i++) {
        unsigned byte;
        sscanf(arguments[4] + 2 * i, "%2x", &byte);
        frames[0][i] = (uint8_t)byte;
    }
    for (int i = 1; i < BATCH; i++) memcpy(frames[i], frames[0], len);
    size_t at = udp_at(frames[0]);
    int link = socket(AF_PACKET, SOCK_RAW, 0);
    struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex(arguments[1])};
    if (link < 0 || to.sll_ifindex == 0) return 1;
    struct mmsghdr batch[BATCH];
    struct iovec pieces[BATCH];
    memset(batch, 0, sizeof batch);
    for (int i = 0; i < BATCH; i++) {
        pieces[i] = (struct iovec){frames[i], len};
        batch[i].msg_hdr = (struct msghdr){.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &pieces[i], .msg_iovlen = 1};
    }
    signal(SIGTERM, end);
    double begin = now();
    uint64_t sent = 0;
    while (!ended && now() - begin < seconds) {
        for (int i = 0; i < BATCH; i++) {
            uint64_t number = chance() & 0x3fffff; /* near the transfer's own numbers: such packets cost the receiver most */
            for (int b = 0; b < 5; b++) frames[i][at + 8 + 3 + b] = (uint8_t)(number >> (32 - 8 * b));
            for (size_t b = at + 16; b + 8 <= len; b += 64) *(uint64_t *)(frames[i] + b) = chance();
            set_checksum(frames[i], at, len);
        }
        int done = sendmmsg(link, batch, BATCH, 0);
        if (done > 0) sent += (uint64_t)done;
        double ahead = (double)sent / rate - (now() - begin);
        if (ahead > 0) usleep((useconds_t)(ahead * 1e6));
    }
    printf("%llu\n", (unsigned long long)sent);
    return 0;
}
