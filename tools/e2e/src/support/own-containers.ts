import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { callCri } from './containers.js';
import { repository, runToEnd } from './processes.js';

/** Output of tools/containers/setup.mjs with `--json`. */
interface SetupState {
  readonly socket: string;
  readonly registry: string;
  readonly processes: { readonly registry: number | null; readonly containerd: number | null };
}

/**
 * A containerd and a registry for one test file, which may stop and kill them and sees all their
 * resources on the machine.
 */
export class OwnContainers {
  /** Ids of all pods and containers so far, because cgroups are named after them. */
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

  static async install(): Promise<OwnContainers> {
    const home = mkdtempSync(join(tmpdir(), 'cloudless-own-'));
    const bridge = `cle${process.pid}`;
    const registry = `127.0.0.1:${await findFreePort()}`;
    // Half of a private network that manual set-ups do not use by default; a name conflict reveals
    // a collision.
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

  get socket(): string {
    return this.state.socket;
  }

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

  async remove(): Promise<void> {
    await this.run('remove');
    rmSync(this.home, { recursive: true, force: true });
  }

  /** Lists the resources of pods on this machine, one line each; empty when there are none. */
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

  /** Mounts, including those of network namespaces in the directory of the set-up. */
  private listMounts(): readonly string[] {
    const places = readFileSync('/proc/self/mountinfo', 'utf8').split('\n');
    return places
      .map((line) => line.split(' ')[4] ?? '')
      .filter((place) => place.startsWith(this.home));
  }

  /** The host ends of the network interfaces of pods. */
  private listInterfaces(): readonly string[] {
    const all = execFileSync('ip', ['-o', 'link', 'show', 'type', 'veth'], {
      encoding: 'utf8',
    }).split('\n');
    return all
      .filter((line) => line.includes(` master ${this.bridge} `))
      .map((line) => line.split(': ')[1] ?? '');
  }

  private listCgroups(): readonly string[] {
    // The exit code of find is ignored, because cgroups of other processes may disappear during the
    // search.
    const { stdout } = spawnSync('find', ['/sys/fs/cgroup', '-type', 'd'], { encoding: 'utf8' });
    return stdout.split('\n').filter((path) => [...this.ids].some((id) => path.includes(id)));
  }

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

  /** State of the network plugins: assigned addresses and results for each pod. */
  private listAddresses(): readonly string[] {
    const given = readdirSync(join(this.home, 'lib', 'addresses'), {
      recursive: true,
      encoding: 'utf8',
    });
    const results = readdirSync('/var/lib/cni/results');
    return [
      ...given.filter((file) => /(^|\/)\d+\.\d+\.\d+\.\d+$/.test(file)),
      ...results.filter((file) => file.startsWith(`cloudless-${this.bridge}-`)),
    ];
  }

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

/** Returns a free port; the registry binds it at once. */
async function findFreePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
