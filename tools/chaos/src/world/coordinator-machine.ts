import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import {
  openTokenClients,
  type Machine,
  type RunningProgram,
  type SecureClients,
} from '@cloudless/e2e';

const PORT = 8080;
const OPS_PORT = 8081;
/** The members of a world have addresses of their own, and no TLS. */
const INSECURE = '--etcd-insecure';

/** How the coordinators of a world are started. */
export interface CoordinatorSettings {
  /** Client URLs of the etcd members. */
  readonly etcdUrls: readonly string[];
  /** The program of a coordinator, a bundle. */
  readonly bundle: string;
}

/** A coordinator on its own machine. */
export class CoordinatorMachine {
  private newest: RunningProgram | undefined;
  private opened: SecureClients[] = [];

  constructor(
    readonly machine: Machine,
    private readonly settings: CoordinatorSettings,
  ) {}

  get name(): string {
    return this.machine.name;
  }

  get url(): string {
    return `https://${this.machine.address}:${PORT}`;
  }

  /** Directory of the keys. Secret. */
  get identityDir(): string {
    return join(this.machine.home, 'coordinator', 'identity');
  }

  /** Output of the newest process. */
  get lines(): readonly string[] {
    return this.newest?.lines ?? [];
  }

  /** The newest process. */
  get program(): RunningProgram {
    if (this.newest === undefined) throw new Error(`${this.name} was never started`);
    return this.newest;
  }

  get isRunning(): boolean {
    return this.newest?.hasEnded === false;
  }

  /**
   * Starts the coordinator; does not wait until it serves.
   * @param bundle - Another program, such as that of an earlier version.
   */
  start(bundle = this.settings.bundle): void {
    const flags = [
      ...['--name', this.name, '--host', '0.0.0.0', '--port', String(PORT)],
      ...['--advertise', this.machine.address, '--ops-port', String(OPS_PORT)],
      ...['--data-dir', join(this.machine.home, 'coordinator'), '--log-format', 'json'],
      ...['--state', 'etcd', '--etcd-endpoints', this.settings.etcdUrls.join(',')],
      ...(bundle === this.settings.bundle || hasFlag(bundle, INSECURE) ? [INSECURE] : []),
    ];
    const program = [process.execPath, '--enable-source-maps', bundle];
    this.newest = this.machine.start(`exec ${[...program, ...flags].join(' ')}`);
  }

  /** Resolves when the newest process serves. */
  async waitUntilReady(): Promise<void> {
    await this.program.waitForLog('coordinator ready');
  }

  /** Sends a signal. Resolves at the end of the process; at once for SIGSTOP and SIGCONT. */
  async kill(signal: NodeJS.Signals): Promise<void> {
    if (!this.isRunning) return;
    if (signal === 'SIGSTOP' || signal === 'SIGCONT') process.kill(this.program.pid, signal);
    else await this.program.kill(signal);
  }

  /**
   * Opens clients with a connection of their own, which is opened again when it breaks.
   * @param token - Text of a user token. The coordinator must serve now.
   */
  async openClients(token: string): Promise<SecureClients> {
    const clients = await openTokenClients(this.url, token);
    this.opened.push(clients);
    return clients;
  }

  /** Closes all connections. */
  closeClients(): void {
    for (const clients of this.opened.splice(0)) clients.close();
  }
}

/** Returns true when the program, which may be an earlier version, has a flag. */
function hasFlag(bundle: string, flag: string): boolean {
  const { stdout } = spawnSync(process.execPath, [bundle, '--help'], { encoding: 'utf8' });
  return stdout.includes(flag);
}
