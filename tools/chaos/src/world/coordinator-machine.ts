import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { openTokenClients, type Machine, type SecureClients } from '@cloudless/e2e';
import { MachineProgram } from './machine-program.js';

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
export class CoordinatorMachine extends MachineProgram {
  private opened: SecureClients[] = [];

  constructor(
    machine: Machine,
    private readonly settings: CoordinatorSettings,
  ) {
    super(machine);
  }

  get url(): string {
    return `https://${this.machine.address}:${PORT}`;
  }

  /** Directory of the keys. Secret. */
  get identityDir(): string {
    return join(this.machine.home, 'coordinator', 'identity');
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
    this.run(`exec ${[...program, ...flags].join(' ')}`);
  }

  /** Resolves when the newest process serves. */
  async waitUntilReady(): Promise<void> {
    await this.program.waitForLog('coordinator ready');
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
