import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { callCri } from './containers.js';
import { repository, runToEnd } from './processes.js';

/** Part of the output of tools/containers/setup.mjs with `--json`. */
interface SetupState {
  readonly socket: string;
  readonly registry: string;
  readonly processes: { readonly registry: number | null; readonly containerd: number | null };
}

/**
 * A containerd and a registry for one test file, apart from those of other tests. The tests may
 * kill both, and can list all their resources on the machine.
 */
export class OwnContainers {
  /** Ids of all pods and containers so far, to find their cgroups, whose paths contain the id. */
  private readonly ids = new Set<string>();
  private state: SetupState = {
    socket: '',
    registry: '',
    processes: { registry: null, containerd: null },
  };

  private constructor(
    private readonly home: string,
    private readonly bridge: string,
    private readonly flags: readonly string[],
  ) {}

  /** Installs and starts both daemons. The caller must call {@link OwnContainers.remove}. */
  static async install(): Promise<OwnContainers> {
    const home = mkdtempSync(join(tmpdir(), 'cloudless-own-'));
    const bridge = `cle${process.pid}`;
    const registry = `127.0.0.1:${await findFreePort()}`;
    // a private network that manual set-ups do not use by default; setup.mjs refuses a subnet in
    // use
    const subnet = `10.${200 + (process.pid % 30)}.${128 + ((process.pid >> 5) % 128)}.0/24`;
    const flags = ['--dir', join(home, 'lib'), '--run-dir', join(home, 'run'), '--bridge', bridge];
    const own = new OwnContainers(home, bridge, [
      ...flags,
      '--registry',
      registry,
      '--subnet',
      subnet,
    ]);
    try {
      await own.run('install');
      return own;
    } catch (reason) {
      await own.remove();
      throw reason;
    }
  }

  /** CRI socket of containerd. */
  get socket(): string {
    return this.state.socket;
  }

  /** Address of the registry, as `host:port`. */
  get registry(): string {
    return this.state.registry;
  }

  /** Kills one of the two daemons with SIGKILL. */
  kill(daemon: 'registry' | 'containerd'): void {
    const pid = this.state.processes[daemon];
    if (pid === null) throw new Error(`${daemon} does not run`);
    process.kill(pid, 'SIGKILL');
  }

  /** Starts the daemons that are not running and waits until they answer. */
  async start(): Promise<void> {
    await this.run('start');
  }

  /** Removes both daemons, all pods and all files. */
  async remove(): Promise<void> {
    await this.run('remove');
    rmSync(this.home, { recursive: true, force: true });
  }

  /**
   * Lists the resources of the pods of this containerd on the machine.
   * @returns A sorted line `<kind> <name>` for each resource.
   */
  async listResources(): Promise<readonly string[]> {
    const { items } = await callCri<{ readonly items: readonly Item[] }>(
      this.socket,
      'ListPodSandbox',
      {},
    );
    const { containers } = await callCri<{ readonly containers: readonly Item[] }>(
      this.socket,
      'ListContainers',
      {},
    );
    for (const { id } of [...items, ...containers]) this.ids.add(id);
    return [
      ...items.map(({ id }) => `sandbox ${id}`),
      ...containers.map(({ id }) => `container ${id}`),
      ...this.listMounts().map((path) => `mount ${path}`),
      ...this.listInterfaces().map((name) => `interface ${name}`),
      ...this.listCgroups().map((path) => `cgroup ${path}`),
      ...this.listShims().map((pid) => `process ${pid}`),
      ...this.listAddresses().map((file) => `address ${file}`),
    ].sort();
  }

  /** Lists mounts below the directory of the set-up, also those of network namespaces. */
  private listMounts(): readonly string[] {
    const lines = readFileSync('/proc/self/mountinfo', 'utf8').split('\n');
    return lines
      .map((line) => line.split(' ')[4] ?? '')
      .filter((path) => path.startsWith(this.home));
  }

  /** Lists the host ends of the network interfaces of pods. */
  private listInterfaces(): readonly string[] {
    const all = execFileSync('ip', ['-o', 'link', 'show', 'type', 'veth'], {
      encoding: 'utf8',
    }).split('\n');
    return all
      .filter((line) => line.includes(` master ${this.bridge} `))
      .map((line) => line.split(': ')[1] ?? '');
  }

  private listCgroups(): readonly string[] {
    // the exit code of find is ignored, because cgroups may disappear during the search
    const { stdout } = spawnSync('find', ['/sys/fs/cgroup', '-type', 'd'], { encoding: 'utf8' });
    return stdout.split('\n').filter((path) => [...this.ids].some((id) => path.includes(id)));
  }

  /** Lists the process ids of the shims of this containerd. */
  private listShims(): readonly string[] {
    return readdirSync('/proc').filter((pid) => {
      if (!/^\d+$/.test(pid)) return false;
      try {
        const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8');
        return command.includes('containerd-shim') && command.includes(this.socket);
      } catch {
        return false; // the process has ended
      }
    });
  }

  /** Lists the files of the network plugins: assigned addresses, and the result for each pod. */
  private listAddresses(): readonly string[] {
    const addressFiles = readdirSync(join(this.home, 'lib', 'addresses'), {
      recursive: true,
      encoding: 'utf8',
    });
    const results = readdirSync('/var/lib/cni/results');
    return [
      ...addressFiles.filter((file) => /(^|\/)\d+\.\d+\.\d+\.\d+$/.test(file)),
      ...results.filter((file) => file.startsWith(`cloudless-${this.bridge}-`)),
    ];
  }

  /** Runs a command of setup.mjs and keeps the reported state. */
  private async run(command: string): Promise<void> {
    const script = join(repository, 'tools/containers/setup.mjs');
    const { code, stdout, stderr } = await runToEnd(process.execPath, [
      script,
      command,
      '--json',
      ...this.flags,
    ]);
    if (code !== 0) throw new Error(`setup.mjs ${command}: ${stderr}`);
    if (command !== 'remove') this.state = JSON.parse(stdout) as SetupState;
  }
}

interface Item {
  readonly id: string;
}

/** Returns a free port, which the registry binds soon after. */
async function findFreePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
