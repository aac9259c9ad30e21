import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  RunningProgram,
  findBundle,
  killAll,
  listProcessesUsing,
  runToEnd,
  type FinishedProgram,
} from './processes.js';

/** Runs `ip` with the arguments. */
const ip = (...args: readonly string[]): string =>
  execFileSync('ip', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });

/**
 * Returns why there can be no machines in network namespaces here; undefined when there can be.
 * Tests on such machines are skipped then, with this reason.
 */
export function findMachinesProblem(): string | undefined {
  if (process.platform !== 'linux') return 'only Linux has network namespaces';
  if (process.getuid?.() !== 0) return 'network namespaces need root';
  const script =
    'ip link add br0 type bridge && ip link add v0 type veth peer name v1 && ss -ltnpH >/dev/null';
  const { status, stderr, error } = spawnSync('unshare', ['--net', '--uts', 'sh', '-c', script], {
    encoding: 'utf8',
  });
  return status === 0
    ? undefined
    : `no bridge in a namespace: ${(error?.message ?? stderr).trim()}`;
}

/** A machine: a network namespace with one interface, a host name and a home. */
export class Machine {
  constructor(
    readonly name: string,
    readonly address: string,
    /** Home of the programs; their data is below `.local/state/cloudless`. */
    readonly home: string,
    private readonly namespace: string,
    private readonly programs: string,
  ) {}

  /**
   * Starts a shell command on this machine.
   * @param env - Added to the environment of the test; the command also gets the home.
   */
  start(command: string, env: NodeJS.ProcessEnv = {}): RunningProgram {
    const [program = '', ...args] = this.toArguments(command);
    return RunningProgram.start(program, args, this.toEnvironment(env));
  }

  /** Runs a shell command on this machine to its end. */
  run(command: string, env: NodeJS.ProcessEnv = {}): Promise<FinishedProgram> {
    const [program = '', ...args] = this.toArguments(command);
    return runToEnd(program, args, { env: this.toEnvironment(env), cwd: this.home });
  }

  /** Arguments that run a program in the network of this machine: put them before the program. */
  get networkPrefix(): readonly string[] {
    return ['nsenter', `--net=/run/netns/${this.namespace}`, '--'];
  }

  /** Lists the listening TCP sockets of this machine, as `ss` shows them. */
  async listListeners(): Promise<string> {
    return (await this.run('ss -ltnpH')).stdout;
  }

  private toArguments(command: string): readonly string[] {
    // Only the network and the host name: the cgroups stay visible, unlike with `ip netns exec`.
    const shell = `hostname ${this.name} && exec sh -c "$0"`;
    return [...[...this.networkPrefix, 'unshare', '--uts'], ...['sh', '-c', shell, command]];
  }

  private toEnvironment(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
    const path = `${this.programs}:${process.env['PATH'] ?? ''}`;
    return {
      HOME: this.home,
      XDG_STATE_HOME: '',
      XDG_CONFIG_HOME: '',
      PATH: path,
      NO_COLOR: '1',
      ...env,
    };
  }
}

/** Table of the packet filter that drops what {@link Machines.cut} cuts. */
const CUT_TABLE =
  'table inet cut { set from { type ipv4_addr; }; chain input { type filter hook input priority 0; ip saddr @from drop; }; }';

/** Machines of one test on one switch, in a network that only they are in. */
export class Machines {
  private readonly namespaces: string[] = [];
  /** Machines that have the table of cuts. */
  private readonly withCuts = new Set<Machine>();
  private readonly machines = new Map<string, Machine>();

  private constructor(
    readonly directory: string,
    private readonly prefix: string,
  ) {}

  /** Creates the switch. The caller must call {@link remove}. */
  static async create(): Promise<Machines> {
    removeStaleNamespaces();
    const directory = await mkdtemp(join(tmpdir(), 'cloudless-machines-'));
    const machines = new Machines(directory, `cl${process.pid}`);
    try {
      await machines.writePrograms();
      machines.addNamespace('switch');
      ip('-n', machines.toNamespace('switch'), 'link', 'add', 'br0', 'type', 'bridge');
      ip('-n', machines.toNamespace('switch'), 'link', 'set', 'br0', 'up');
    } catch (reason) {
      await machines.remove();
      throw reason;
    }
    return machines;
  }

  /**
   * Adds a machine.
   * @param name - At most 8 letters and digits.
   * @param address - IPv4 address in 10.88.0.0/24.
   */
  async add(name: string, address: string): Promise<Machine> {
    const namespace = this.addNamespace(name);
    // A machine that takes over the address of another one is found at once: same hardware address.
    const hardware = `02:00:${toHex(address)}`;
    const device = ['eth0', 'address', hardware, 'type', 'veth', 'peer', 'name', `p-${name}`];
    ip('-n', namespace, 'link', 'add', ...device, 'netns', this.toNamespace('switch'));
    ip('-n', this.toNamespace('switch'), 'link', 'set', `p-${name}`, 'master', 'br0', 'up');
    ip('-n', namespace, 'addr', 'add', `${address}/24`, 'dev', 'eth0');
    for (const device of ['lo', 'eth0']) ip('-n', namespace, 'link', 'set', device, 'up');
    const home = join(this.directory, name);
    await mkdir(home, { mode: 0o700 });
    const machine = new Machine(name, address, home, namespace, join(this.directory, 'bin'));
    this.machines.set(name, machine);
    return machine;
  }

  /** Pulls the network cable of a machine, or plugs it in again. */
  setConnected(machine: Machine, isConnected: boolean): void {
    const state = isConnected ? 'up' : 'down';
    ip('-n', this.toNamespace('switch'), 'link', 'set', `p-${machine.name}`, state);
  }

  /**
   * Connects the network namespace of this process with the switch, so that the test itself reaches
   * the machines. Only for a process that has a network namespace of its own.
   * @param address - IPv4 address in 10.88.0.0/24.
   */
  connectThisProcess(address: string): void {
    const device = ['test0', 'type', 'veth', 'peer', 'name', 'p-test'];
    ip('link', 'add', ...device, 'netns', this.toNamespace('switch'));
    ip('-n', this.toNamespace('switch'), 'link', 'set', 'p-test', 'master', 'br0', 'up');
    ip('addr', 'add', `${address}/24`, 'dev', 'test0');
    for (const name of ['lo', 'test0']) ip('link', 'set', name, 'up');
  }

  /**
   * Drops every packet from one machine to another one. The other direction stays open, and no
   * sender receives an error. Needs `nft`.
   */
  cut(from: Machine, to: Machine): void {
    if (!this.withCuts.has(to)) nft(to, CUT_TABLE);
    this.withCuts.add(to);
    nft(to, `add element inet cut from { ${from.address} }`);
  }

  /** Ends all cuts. */
  healCuts(): void {
    for (const machine of this.withCuts) nft(machine, 'flush set inet cut from');
  }

  /** Ends all processes of the machines, and removes networks and files. */
  async remove(): Promise<void> {
    // a supervisor may start one more process while it is killed
    for (let round = 0; round < 5; round += 1) {
      const left = listProcessesUsing(this.directory);
      if (left.length === 0) break;
      killAll(left);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    unmountBelow(this.directory);
    removeNamespaces(this.namespaces);
    await rm(this.directory, { recursive: true, force: true });
  }

  private toNamespace(name: string): string {
    return `${this.prefix}-${name}`;
  }

  private addNamespace(name: string): string {
    const namespace = this.toNamespace(name);
    ip('netns', 'add', namespace);
    this.namespaces.push(namespace);
    return namespace;
  }

  /** Writes the commands that the packages install. */
  private async writePrograms(): Promise<void> {
    await mkdir(join(this.directory, 'bin'));
    const programs = {
      'cloudless-coordinator': 'coordinator',
      'cloudless-agent': 'agent',
      cloudlessctl: 'cloudlessctl',
    } as const;
    for (const [name, app] of Object.entries(programs)) {
      const file = join(this.directory, 'bin', name);
      await writeFile(file, `#!/bin/sh\nexec ${process.execPath} ${findBundle(app)} "$@"\n`);
      await chmod(file, 0o755);
    }
  }
}

/** Runs a command of nftables on a machine. */
function nft({ networkPrefix }: Machine, command: string): void {
  const [program = '', ...args] = [...networkPrefix, 'nft', command];
  execFileSync(program, args, { stdio: ['ignore', 'ignore', 'pipe'] });
}

/** Removes network namespaces, also when one of them cannot be removed. */
function removeNamespaces(names: readonly string[]): void {
  for (const name of names) spawnSync('ip', ['netns', 'delete', name]);
}

/** Removes the mounts of agents that were killed: the files of secrets are in memory. */
function unmountBelow(directory: string): void {
  const mounts = readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '');
  for (const path of mounts.filter((each) => each.startsWith(`${directory}/`)).reverse())
    spawnSync('umount', ['--lazy', path]);
}

/** Removes the namespaces that tests left whose process was killed. */
function removeStaleNamespaces(): void {
  const names = ip('netns', 'list')
    .split('\n')
    .map((line) => line.split(' ')[0] ?? '');
  removeNamespaces(
    names.filter((name) => {
      const pid = /^cl(\d+)-/.exec(name)?.[1];
      return pid !== undefined && !existsSync(`/proc/${pid}`);
    }),
  );
}

const toHex = (address: string): string =>
  address
    .split('.')
    .map((part) => Number(part).toString(16).padStart(2, '0'))
    .join(':');

/** Returns the text of a file below the home of a machine. */
export const readHomeFile = (machine: Machine, path: string): Promise<string> =>
  readFile(join(machine.home, path), 'utf8');
