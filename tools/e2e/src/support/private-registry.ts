import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { RunningProgram, repository } from './processes.js';

const SETUP = join(repository, 'tools/containers/setup.mjs');
/** Message of docker-registry when its socket accepts connections. */
const LISTENING = /listening on (127\.0\.0\.1:\d+)/;

/** The account that may pull from a registry. */
export interface RegistryAccount {
  readonly username: string;
  /** Secret. */
  readonly password: string;
}

/**
 * Debian's docker-registry on a free port of loopback, which serves the images of the set-up of
 * tools/containers only with a password.
 */
export class PrivateRegistry {
  private constructor(
    /** The registry, as `host:port`. */
    readonly address: string,
    /** Directory with the logs of the container runtime. */
    readonly runtimeLogs: string,
    private readonly directory: string,
    private readonly program: RunningProgram,
  ) {}

  /**
   * Starts the registry. The caller must stop it.
   * @param criSocket - Socket of the container runtime.
   * @throws Error when this container runtime is not that of the set-up.
   */
  static async start(account: RegistryAccount, criSocket: string): Promise<PrivateRegistry> {
    const setup = findSetup(criSocket);
    const directory = mkdtempSync(join(tmpdir(), 'cloudless-registry-'));
    const accounts = join(directory, 'htpasswd');
    writeFileSync(accounts, `${account.username}:${hashPassword(account.password)}\n`);
    const config = join(directory, 'registry.yml');
    writeFileSync(config, toConfig(join(setup, 'registry'), accounts));
    const program = RunningProgram.start('docker-registry', ['serve', config]);
    const line = await program.waitForLine((text) => LISTENING.test(text));
    const address = LISTENING.exec(line)?.[1] ?? '';
    return new PrivateRegistry(address, join(setup, 'log'), directory, program);
  }

  async stop(): Promise<void> {
    await this.program.kill('SIGTERM');
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** Returns the directory of the set-up. */
function findSetup(criSocket: string): string {
  const { stdout } = spawnSync(process.execPath, [SETUP, 'status', '--json'], { encoding: 'utf8' });
  const { socket, dir } = JSON.parse(stdout) as { readonly socket: string; readonly dir: string };
  if (socket !== criSocket)
    throw new Error(`${criSocket} is not the container runtime of ${SETUP}, which has the images`);
  return dir;
}

const toConfig = (images: string, accounts: string): string => `version: 0.1
log: { accesslog: { disabled: true } }
storage:
  filesystem: { rootdirectory: ${images} }
  maintenance: { readonly: { enabled: true } }
auth: { htpasswd: { realm: test, path: ${accounts} } }
http: { addr: '127.0.0.1:0' }
`;

/** Hashes a password with bcrypt, which docker-registry needs, by crypt(3). */
function hashPassword(password: string): string {
  const script = 'chomp(my $password = <STDIN>); print crypt($password, q($2y$05$) . "." x 22)';
  const hash = execFileSync('perl', ['-e', script], { input: password, encoding: 'utf8' });
  if (!hash.startsWith('$2y$')) throw new Error('crypt(3) of this machine has no bcrypt');
  return hash;
}
