import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { SOCKET } from './containers.js';
import type { Machine } from './machines.js';

const SETUP = fileURLToPath(new URL('../../../containers/setup.mjs', import.meta.url));

/** The static busybox of the set-up that the other tests use: a machine downloads none. */
const BUSYBOX = `${process.env['CLOUDLESS_CONTAINERS_DIR'] ?? '/var/lib/cloudless-containers'}/busybox`;

/** A container runtime whose containers are in the network of one machine. */
export class MachineContainers {
  /** False where no containers can run, or where `tools/containers` has not installed the runtime. */
  static readonly isPossible = SOCKET !== '' && existsSync(BUSYBOX);

  private constructor(
    private readonly machine: Machine,
    /** Socket of the runtime. */
    readonly socket: string,
    private readonly flags: readonly string[],
  ) {}

  /** Builds the test images and starts the runtime. The caller must call {@link remove}. */
  static install(machine: Machine): MachineContainers {
    const runDir = `/run/cloudless-${machine.name}-${process.pid}`;
    const dir = `/var/lib/cloudless-${machine.name}-${process.pid}`;
    const flags = ['--dir', dir, '--run-dir', runDir, '--bridge', 'containers0'];
    flags.push('--busybox', BUSYBOX);
    const containers = new MachineContainers(machine, `${runDir}/containerd.sock`, flags);
    try {
      containers.setUp('install');
    } catch (reason) {
      containers.remove();
      throw reason;
    }
    return containers;
  }

  /** Removes pods, runtime, network and files. */
  remove(): void {
    this.setUp('remove');
  }

  private setUp(command: 'install' | 'remove'): void {
    const [program = '', ...prefix] = this.machine.networkPrefix;
    execFileSync(program, [...prefix, process.execPath, SETUP, command, ...this.flags], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
  }
}
