// A file over UDT4, by the library's own sendfile and recvfile: `udt-copy serve PORT MTU` and
// `udt-copy send HOST PORT FROM TO MTU`.
//
// A connection carries the length of the name, the name, the size, the content, and back one byte once the receiver has
// written it all. Numbers are as the host has them: both ends are the same machine.

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include <udt.h>

namespace {

[[noreturn]] void fail(const char* what) {
    std::fprintf(stderr, "%s: %s\n", what, UDT::getlasterror().getErrorMessage());
    std::exit(1);
}

// The defaults are for 1 Gbit/s at about 80 ms; these hold 256 MB in flight, 5 Gbit/s at 400 ms.
UDTSOCKET make_socket(const char* mtu) {
    UDTSOCKET socket = UDT::socket(AF_INET, SOCK_STREAM, 0);
    if (socket == UDT::INVALID_SOCK) fail("socket");
    int window = 184000, buffer = 256 << 20, udp_buffer = 16 << 20, mss = std::atoi(mtu);
    UDT::setsockopt(socket, 0, UDT_MSS, &mss, sizeof mss);
    UDT::setsockopt(socket, 0, UDT_FC, &window, sizeof window);
    UDT::setsockopt(socket, 0, UDT_SNDBUF, &buffer, sizeof buffer);
    UDT::setsockopt(socket, 0, UDT_RCVBUF, &buffer, sizeof buffer);
    UDT::setsockopt(socket, 0, UDP_SNDBUF, &udp_buffer, sizeof udp_buffer);
    UDT::setsockopt(socket, 0, UDP_RCVBUF, &udp_buffer, sizeof udp_buffer);
    return socket;
}

bool send_all(UDTSOCKET socket, const void* data, int length) {
    for (int done = 0; done < length;) {
        int sent = UDT::send(socket, static_cast<const char*>(data) + done, length - done, 0);
        if (sent == UDT::ERROR) return false;
        done += sent;
    }
    return true;
}

bool receive_all(UDTSOCKET socket, void* data, int length) {
    for (int done = 0; done < length;) {
        int got = UDT::recv(socket, static_cast<char*>(data) + done, length - done, 0);
        if (got == UDT::ERROR) return false;
        done += got;
    }
    return true;
}

void receive_file(UDTSOCKET socket) {
    uint32_t length = 0;
    int64_t size = 0, offset = 0;
    if (receive_all(socket, &length, sizeof length) && length < 4096) {
        std::string name(length, '\0');
        if (receive_all(socket, &name[0], length) && receive_all(socket, &size, sizeof size)) {
            std::fstream file(name, std::ios::out | std::ios::binary | std::ios::trunc);
            char done = file && UDT::recvfile(socket, file, offset, size, 7280000) == size;
            file.close();
            if (done) send_all(socket, &done, 1);
        }
    }
    UDT::close(socket);
}

int serve(const char* port, const char* mtu) {
    UDTSOCKET listener = make_socket(mtu);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(std::atoi(port)));
    if (UDT::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == UDT::ERROR) fail("bind");
    if (UDT::listen(listener, 16) == UDT::ERROR) fail("listen");
    for (;;) {
        UDTSOCKET accepted = UDT::accept(listener, nullptr, nullptr);
        if (accepted == UDT::INVALID_SOCK) fail("accept");
        std::thread(receive_file, accepted).detach();
    }
}

int send(const char* host, const char* port, const char* from, const std::string& to, const char* mtu) {
    struct stat status;
    std::fstream file(from, std::ios::in | std::ios::binary);
    if (!file || stat(from, &status) != 0) {
        std::fprintf(stderr, "cannot read %s\n", from);
        return 1;
    }
    UDTSOCKET socket = make_socket(mtu);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(std::atoi(port)));
    inet_pton(AF_INET, host, &address.sin_addr);
    if (UDT::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == UDT::ERROR) fail("connect");
    uint32_t length = static_cast<uint32_t>(to.size());
    int64_t size = status.st_size, offset = 0;
    if (!send_all(socket, &length, sizeof length) || !send_all(socket, to.data(), static_cast<int>(length)) ||
        !send_all(socket, &size, sizeof size) || UDT::sendfile(socket, file, offset, size, 7280000) != size)
        fail("send");
    char done = 0;
    if (!receive_all(socket, &done, 1)) fail("the receiver did not confirm");
    UDT::close(socket);
    return done ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
    UDT::startup();
    int code = 2;
    if (count == 4 && std::strcmp(words[1], "serve") == 0) code = serve(words[2], words[3]);
    else if (count == 7 && std::strcmp(words[1], "send") == 0) code = send(words[2], words[3], words[4], words[5], words[6]);
    else std::fprintf(stderr, "usage: udt-copy serve PORT MTU | send HOST PORT FROM TO MTU\n");
    UDT::cleanup();
    return code;
}
