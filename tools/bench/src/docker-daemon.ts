import { execFileSync, spawn, spawnSync } from 'node:child_process';
import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
} from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sleep } from '@cloudless/base';
import { listProcessesMentioning } from '@cloudless/e2e';
import { systemClock } from '@cloudless/app-kit';

/** Time limit for the start, milliseconds. The daemon starts its own containerd first. */
const START_LIMIT_MS = 60_000;
/** Time after SIGTERM until SIGKILL, milliseconds. */
const STOP_LIMIT_MS = 60_000;
/** Time limit of a call, milliseconds. */
const CALL_LIMIT_MS = 60_000;
/**
 * Address inside the network namespace of the daemon.
 * @see RFC 5737, addresses for documentation
 */
export const DAEMON_ADDRESS = '192.0.2.2';
/** The daemon always creates its key at this path. */
const KEY_FILE = '/etc/docker/key.json';
/** Directories that Docker always creates; {@link DockerDaemon.stop} removes new ones. */
const DIRECTORIES = ['/etc/docker', '/run/docker'];

/**
 * A separate Docker daemon with its own data, socket and containerd, in its own network and mount
 * namespaces, so that bridges, firewall rules and mounts disappear with the daemon and the machine
 * is not changed. Needs root. Without an installed Docker, the package of Debian is downloaded
 * and unpacked into the directory of the daemon.
 */
export class DockerDaemon {
  private readonly keyExisted = existsSync(KEY_FILE);
  private readonly createdDirectories = DIRECTORIES.filter((directory) => !existsSync(directory));
  private exited: Promise<unknown> = Promise.resolve();
  private pid: number | undefined;

  private constructor(private readonly directory: string) {}

  /**
   * Starts the daemon. The caller stops it.
   * @throws An error with the end of the daemon's log, after everything was removed.
   */
  static async start(): Promise<DockerDaemon> {
    const daemon = new DockerDaemon(mkdtempSync(join(tmpdir(), 'cloudless-docker-')));
    try {
      await daemon.launch();
      return daemon;
    } catch (reason) {
      await daemon.stop();
      throw reason;
    }
  }

  /**
   * Calls the Engine API, as `docker` does.
   * @throws An error with the status code and the message of the daemon.
   */
  async callApi<Result>(method: string, path: string, body?: unknown): Promise<Result> {
    const text = await this.sendRequest(
      method,
      path,
      { 'content-type': 'application/json' },
      JSON.stringify(body ?? {}),
    );
    return (text === '' ? undefined : JSON.parse(text)) as Result;
  }

  /**
   * Pulls an image from a registry without TLS.
   * @param source - Image reference with the registry.
   * @param name - Name of the image in the daemon.
   * @returns The image id.
   */
  async pullImage(source: string, name: string): Promise<string> {
    const archive = join(this.directory, 'image.tar');
    const flags = ['--insecure-policy', 'copy', '-q', '--src-tls-verify=false'];
    execFileSync('skopeo', [...flags, `docker://${source}`, `docker-archive:${archive}:${name}`]);
    await this.sendRequest(
      'POST',
      '/images/load?quiet=1',
      { 'content-type': 'application/x-tar' },
      readFileSync(archive),
    );
    rmSync(archive);
    const { Id } = await this.callApi<{ readonly Id: string }>('GET', `/images/${name}/json`);
    return Id;
  }

  /**
   * Reports starts and removals of containers until `signal` is aborted. Resolves when the daemon
   * has accepted the subscription.
   */
  watchEvents(
    onEvent: (event: { readonly Action: string }) => void,
    signal: AbortSignal,
  ): Promise<void> {
    const filters = encodeURIComponent(
      JSON.stringify({ type: ['container'], event: ['start', 'destroy'] }),
    );
    return new Promise((resolve, reject) => {
      const options = { socketPath: this.socket, path: `/events?filters=${filters}`, signal };
      request(options, (response) => {
        resolve();
        let rest = '';
        response.setEncoding('utf8').on('data', (chunk: string) => {
          const lines = (rest + chunk).split('\n');
          rest = lines.pop() ?? '';
          for (const line of lines)
            if (line !== '') onEvent(JSON.parse(line) as { Action: string });
        });
        response.on('error', () => undefined); // aborted
      })
        .on('error', reject)
        .end();
    });
  }

  /** Stops the daemon with all its containers and removes every trace. */
  async stop(): Promise<void> {
    if (this.pid !== undefined) {
      const { pid } = this;
      process.kill(pid, 'SIGTERM');
      const killTimer = systemClock.setTimer(STOP_LIMIT_MS, () => process.kill(pid, 'SIGKILL'));
      await this.exited;
      killTimer.cancel();
    }
    for (const line of listProcessesMentioning(this.directory))
      killIfRunning(Number.parseInt(line, 10));
    while (listProcessesMentioning(this.directory).length > 0) await sleep(systemClock, 50);
    for (const hierarchy of readdirSync('/sys/fs/cgroup'))
      removeCgroups(join('/sys/fs/cgroup', hierarchy, this.cgroup));
    removeCgroups(join('/sys/fs/cgroup', this.cgroup));
    if (!this.keyExisted) rmSync(KEY_FILE, { force: true });
    for (const directory of this.createdDirectories)
      rmSync(directory, { recursive: true, force: true });
    rmSync(this.directory, { recursive: true, force: true });
  }

  private get socket(): string {
    return join(this.directory, 'docker.sock');
  }

  private get cgroup(): string {
    return this.directory.split('/').at(-1) ?? '';
  }

  private async launch(): Promise<void> {
    const { directory } = this;
    const path = `${process.env['PATH'] ?? ''}:/usr/sbin:/sbin`;
    const programPath =
      spawnSync('sh', ['-c', 'command -v dockerd'], { env: { PATH: path } }).status === 0
        ? ''
        : downloadDocker(directory);
    mkdirSync(join(directory, 'data'));
    const log = openSync(join(directory, 'dockerd.log'), 'w');
    const child = spawn(
      'unshare',
      ['--net', '--mount', 'sh', '-euc', SCRIPT, 'dockerd', directory, this.cgroup, DAEMON_ADDRESS],
      {
        env: { PATH: `${programPath}${path}` },
        stdio: ['ignore', log, log],
      },
    );
    closeSync(log);
    this.pid = child.pid;
    let hasEnded = false;
    this.exited = new Promise((resolve) =>
      child.once('close', resolve).once('error', resolve),
    ).then(() => (hasEnded = true));
    const deadline = systemClock.now() + START_LIMIT_MS;
    for (;;) {
      const isServing = await this.callApi('GET', '/info').then(
        () => true,
        () => false,
      );
      if (isServing) return;
      if (hasEnded) this.pid = undefined;
      if (hasEnded || systemClock.now() > deadline)
        throw new Error(`dockerd does not run here:\n${this.readLogTail()}`);
      await sleep(systemClock, 100);
    }
  }

  private readLogTail(): string {
    return readFileSync(join(this.directory, 'dockerd.log'), 'utf8')
      .trimEnd()
      .split('\n')
      .slice(-10)
      .join('\n');
  }

  private sendRequest(
    method: string,
    path: string,
    headers: Readonly<Record<string, string>>,
    body: string | Uint8Array,
  ): Promise<string> {
    return new Promise((resolve, reject) => {
      const options = {
        socketPath: this.socket,
        method,
        path,
        headers,
        timeout: CALL_LIMIT_MS,
        agent: false,
      };
      const call = request(options, (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
        response.once('error', reject);
        response.once('end', () => {
          if ((response.statusCode ?? 0) < 300) resolve(text);
          else reject(new Error(`${method} ${path}: ${response.statusCode} ${text.trim()}`));
        });
      });
      call
        .once('error', reject)
        .once('timeout', () => call.destroy(new Error(`${method} ${path}: no answer`)));
      call.end(body);
    });
  }
}

/**
 * Arguments: $1 directory, $2 cgroup, $3 address. A containerd of the machine is hidden, because
 * dockerd would use it; docker-proxy and Docker's init process are not used.
 */
const SCRIPT = `
if [ -d /run/containerd ]; then mount -t tmpfs tmpfs /run/containerd; fi
mkdir -p /run/docker
mount -t tmpfs tmpfs /run/docker
ip link set lo up
ip link add swarm0 type bridge
ip addr add "$3/24" dev swarm0
ip link set swarm0 up
exec dockerd --data-root "$1/data" --exec-root "$1/run" --pidfile "$1/dockerd.pid" --host "unix://$1/docker.sock" \\
  --cgroup-parent "/$2" --exec-opt native.cgroupdriver=cgroupfs --storage-driver overlay2 --userland-proxy=false --log-level warn
`;

/**
 * Downloads and unpacks the package of Debian.
 * @returns The directories of its programs, each followed by a colon, for PATH.
 */
function downloadDocker(directory: string): string {
  const packages = join(directory, 'packages');
  mkdirSync(packages);
  try {
    execFileSync('apt-get', ['-q', 'download', 'docker.io'], { cwd: packages, stdio: 'pipe' });
    for (const file of readdirSync(packages))
      execFileSync('dpkg-deb', ['-x', join(packages, file), packages]);
  } catch (cause) {
    throw new Error(
      'there is no dockerd here, and the package docker.io cannot be fetched: try "apt-get update"',
      { cause },
    );
  }
  return `${join(packages, 'usr/sbin')}:${join(packages, 'usr/bin')}:`;
}

function killIfRunning(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // The process has ended meanwhile.
  }
}

/** Removes a cgroup and its children. Only rmdir(2) removes cgroup directories. */
function removeCgroups(directory: string): void {
  if (!existsSync(directory)) return;
  for (const entry of readdirSync(directory, { withFileTypes: true })) {
    if (entry.isDirectory()) removeCgroups(join(directory, entry.name));
  }
  rmdirSync(directory);
}
