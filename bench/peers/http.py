"""HTTP: nginx on B, and the clients that fetch from it: curl, aria2c, and aria2c through Squid."""

from .peer import Peer

PORT = 8080
CACHE_PORT = 3128


def nginx(site):
    """nginx that serves the whole root, with WebDAV for tools that push."""
    def make():
        folder = site.scratch("nginx")
        for name in ("body", "logs"):
            (folder / name).mkdir()
        (folder / "nginx.conf").write_text(
            f"daemon off; master_process on; user root; worker_processes auto; pid {folder}/pid;\n"
            f"error_log {folder}/logs/error.log warn;\nevents {{ worker_connections 1024; }}\n"
            f"http {{ access_log off; sendfile on; sendfile_max_chunk 2m; tcp_nopush on; keepalive_requests 1000000;\n"
            f"client_max_body_size 0; client_body_temp_path {folder}/body; open_file_cache max=100000;\n"
            f"server {{ listen {PORT} backlog=1024; root {site.root};\n"
            f"location / {{ autoindex on; dav_methods PUT DELETE MKCOL COPY MOVE; create_full_put_path on; }} }} }}\n")
        return site.serve(["nginx", "-c", folder / "nginx.conf", "-p", folder, "-e", folder / "logs/start.log"], PORT)
    return site.shared("nginx", make)


class Fetch(Peer):
    pulls = True
    sealed = False
    port = PORT

    def start(self, site):
        nginx(site)

    def url(self, site, job):
        return f"http://{site.address}:{self.port}/{job.source.relative_to(site.root)}"

    def names(self, job):
        return job.list.read_text().splitlines()


class Curl(Fetch):
    name = "nginx + curl"
    packages = ("nginx-light", "curl")
    programs = ("nginx", "curl")
    options = "nginx: sendfile, tcp_nopush; curl: one stream a file, trees with -Z --parallel-max 16"
    reference = "nginx: ngx_http_core_module sendfile, tcp_nopush; curl(1) --parallel"

    def before(self, site, job):
        if job.is_tree:
            job.notes["config"] = config = site.scratch("curl") / "config"
            url = self.url(site, job)
            pairs = (f'url = "{url}/{name}"\noutput = "{job.target}/{name}"\n' for name in self.names(job))
            config.write_text("".join(pairs))

    def command(self, site, job):
        if job.is_tree:
            return ["curl", "-sSf", "-Z", "--parallel-max", "16", "--create-dirs", "-K", job.notes["config"]]
        return ["curl", "-sSf", "-o", job.target, self.url(site, job)]


class Aria2(Fetch):
    name = "nginx + aria2c -x16 -s16"
    packages = ("nginx-light", "aria2")
    programs = ("nginx", "aria2c")
    options = "-x16 -s16 -k1M: as many connections a file as it allows; trees -j16; --file-allocation=none"
    reference = "aria2c(1): --max-connection-per-server, --split, --min-split-size, --file-allocation"

    def before(self, site, job):
        if job.is_tree:
            job.notes["list"] = listed = site.scratch("aria2") / "list"
            url = self.url(site, job)
            listed.write_text("".join(f"{url}/{name}\n dir={job.target}\n out={name}\n" for name in self.names(job)))

    def command(self, site, job):
        common = ["aria2c", "-q", "-x16", "-s16", "-k1M", "--file-allocation=none", "--no-conf", "--allow-overwrite=true"]
        if job.is_tree:
            return [*common, "-j16", "-i", job.notes["list"]]
        return [*common, "-d", job.into, "-o", job.target.name, self.url(site, job)]


class Squid(Aria2):
    name = "squid + aria2c -x16 -s16"
    packages = ("squid", "nginx-light", "aria2")
    programs = ("squid", "nginx", "aria2c")
    port = CACHE_PORT
    options = "a warm cache in memory before nginx (cache_mem 2 GB, maximum_object_size_in_memory 2 GB); aria2c as above"
    reference = "squid.conf: cache_mem, maximum_object_size_in_memory, http_port accel"

    def start(self, site):
        nginx(site)
        folder = site.scratch("squid")
        folder.chmod(0o777)
        (folder / "squid.conf").write_text(
            f"http_port {CACHE_PORT} accel defaultsite={site.address} no-vhost\n"
            f"cache_peer 127.0.0.1 parent {PORT} 0 no-query originserver no-digest\n"
            f"acl all_of_us src all\nhttp_access allow all_of_us\n"
            f"cache_mem 2 GB\nmaximum_object_size_in_memory 2 GB\nmaximum_object_size 2 GB\nrange_offset_limit none\n"
            f"cache_effective_user nobody\ncache_effective_group nogroup\nmax_filedescriptors 4096\n"
            f"access_log none\ncache_log {folder}/cache.log\ncache_store_log none\npid_filename {folder}/pid\n"
            f"coredump_dir {folder}\nshutdown_lifetime 0 seconds\nvisible_hostname beta\n"
            "refresh_pattern . 1440 100% 1440\n")
        site.serve(["squid", "-N", "-f", folder / "squid.conf"], CACHE_PORT)
        self.warm = set()

    def before(self, site, job):
        super().before(site, job)
        if job.source not in self.warm:
            names = [f"/{name}" for name in self.names(job)] if job.is_tree else [""]
            url = self.url(site, job)
            config = site.scratch("warm") / "config"
            config.write_text("".join(f'url = "{url}{name}"\noutput = "/dev/null"\n' for name in names))
            site.b.run(["curl", "-sSf", "-K", config], check=True, timeout=300)
            self.warm.add(job.source)
